-- Figures by day over all sessions, added up behind the writers. All of it is derived and can be made anew.

-- Whether a session's figures have changed since it was counted, as they have for all that were there before.
ALTER TABLE killick.sessions ADD COLUMN uncounted boolean NOT NULL DEFAULT true;

CREATE INDEX sessions_uncounted ON killick.sessions (tenant, session) WHERE uncounted;

-- What of a session is in the sums (`journal/sums.py`), so that a later count changes them by the difference alone.
CREATE TABLE killick.counted (
    tenant  bigint NOT NULL,
    session bigint NOT NULL,
    body    bytea NOT NULL,
    PRIMARY KEY (tenant, session)
) PARTITION BY HASH (tenant, session);

DO $$
BEGIN
    FOR number IN 0..15 LOOP
        EXECUTE format(
            'CREATE TABLE killick.%I PARTITION OF killick.counted FOR VALUES WITH (MODULUS 16, REMAINDER %s)',
            'counted_' || lpad(number::text, 2, '0'), number);
    END LOOP;
END
$$;

-- Model calls of all counted sessions; `sessions` have called the model, `priced` of them know a cost.
-- One process at a time changes the sums, in idle moments; appends never do.
CREATE TABLE killick.usage_sums (
    tenant    bigint NOT NULL,
    day       bigint NOT NULL,
    provider  bytea NOT NULL,
    model     bytea NOT NULL,
    calls     bigint NOT NULL,
    input     bigint NOT NULL,
    output    bigint NOT NULL,
    cached    bigint NOT NULL,
    reasoning bigint NOT NULL,
    cost      double precision NOT NULL,
    sessions  bigint NOT NULL,
    priced    bigint NOT NULL,
    PRIMARY KEY (tenant, day, provider, model)
);

-- Sessions and turns that began, and how turns ended, in sessions that are not deleted.
CREATE TABLE killick.activity_sums (
    tenant      bigint NOT NULL,
    day         bigint NOT NULL,
    sessions    bigint NOT NULL,
    turns       bigint NOT NULL,
    completed   bigint NOT NULL,
    failed      bigint NOT NULL,
    interrupted bigint NOT NULL,
    PRIMARY KEY (tenant, day)
);
