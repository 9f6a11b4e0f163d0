-- Row security: a role that does not own these tables sees and writes the rows of the tenant that its transaction names, and
-- no others; without a name, none. The owner is not bound. `killick grant` gives a role its part. A later table with a tenant
-- gets such a policy in its own migration.
DO $$
DECLARE
    bound regclass;
BEGIN
    FOR bound IN
        SELECT c.oid FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'tenant'
        WHERE c.relnamespace = (SELECT s.relnamespace FROM pg_class AS s WHERE s.oid = 'killick.sessions'::regclass)
          AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', bound);
        EXECUTE format(
            $policy$CREATE POLICY of_tenant ON %s
            USING (tenant = NULLIF(current_setting('killick_store.tenant', true), '')::bigint)$policy$, bound);
    END LOOP;
END
$$;

-- A holder that serves no single tenant is seen by all, since it may hold any session; only its own tenant writes a row.
ALTER TABLE killick.holders ADD COLUMN tenant bigint;
ALTER TABLE killick.holders ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_tenant ON killick.holders
    USING (tenant = NULLIF(current_setting('killick_store.tenant', true), '')::bigint);
CREATE POLICY of_all ON killick.holders FOR SELECT USING (tenant IS NULL);
