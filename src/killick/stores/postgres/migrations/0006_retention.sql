-- Rules of retention are kept in the store: for each project, and with an empty name for all others. Older versions may use the
-- store beside this one: they apply no such rule.
CREATE TABLE killick.retention (
    tenant  bigint NOT NULL,
    project bytea NOT NULL,
    body    bytea NOT NULL,
    at_us   bigint NOT NULL,
    PRIMARY KEY (tenant, project)
);
ALTER TABLE killick.retention ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_tenant ON killick.retention
    USING (tenant = NULLIF(current_setting('killick_store.tenant', true), '')::bigint);

-- The rule by which a session was erased.
ALTER TABLE killick.erasures ADD COLUMN because text;

-- Roles that `killick grant` gave their part before have it in this table too, and so have those of one tenant their bounds.
DO $$
DECLARE
    part record;
BEGIN
    FOR part IN
        SELECT DISTINCT a.grantee::regrole AS role FROM pg_class AS c, aclexplode(c.relacl) AS a
        WHERE c.oid = 'killick.erasures'::regclass AND a.privilege_type = 'DELETE' AND a.grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %s', 'killick.retention'::regclass, part.role);
    END LOOP;
    FOR part IN
        SELECT polname AS name, polroles[1]::regrole AS role, pg_get_expr(polqual, polrelid) AS bound FROM pg_policy
        WHERE polrelid = 'killick.erasures'::regclass AND NOT polpermissive
    LOOP
        EXECUTE format('CREATE POLICY %I ON %s AS RESTRICTIVE TO %s USING (%s)', part.name,
            'killick.retention'::regclass, part.role, part.bound);
    END LOOP;
END
$$;
