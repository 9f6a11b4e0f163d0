-- Rules of retention are kept in the store: for each project, and with an empty name for all others. Older versions may use the
-- store beside this one: they apply no such rule.
CREATE TABLE retention (
    tenant  BLOB NOT NULL,
    project BLOB NOT NULL,
    body    BLOB NOT NULL,
    at_us   INTEGER NOT NULL,
    PRIMARY KEY (tenant, project)
) STRICT, WITHOUT ROWID;

-- The rule by which a session was erased.
ALTER TABLE erasures ADD COLUMN because TEXT;
