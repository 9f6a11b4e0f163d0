-- Figures by day over all sessions, added up behind the writers. All of it is derived and can be made anew.

-- 1 for a session whose figures have changed since it was counted, as it is for all that were there before.
ALTER TABLE sessions ADD COLUMN uncounted INTEGER NOT NULL DEFAULT 1;

CREATE INDEX sessions_uncounted ON sessions (tenant, key) WHERE uncounted = 1;

-- What of a session is in the sums (`journal/sums.py`), so that a later count changes them by the difference alone.
CREATE TABLE counted (
    session INTEGER PRIMARY KEY,
    body    BLOB NOT NULL
) STRICT;

-- Model calls of all counted sessions; `sessions` have called the model, `priced` of them know a cost.
CREATE TABLE usage_sums (
    tenant    BLOB NOT NULL,
    day       INTEGER NOT NULL,
    provider  BLOB NOT NULL,
    model     BLOB NOT NULL,
    calls     INTEGER NOT NULL,
    input     INTEGER NOT NULL,
    output    INTEGER NOT NULL,
    cached    INTEGER NOT NULL,
    reasoning INTEGER NOT NULL,
    cost      REAL NOT NULL,
    sessions  INTEGER NOT NULL,
    priced    INTEGER NOT NULL,
    PRIMARY KEY (tenant, day, provider, model)
) STRICT, WITHOUT ROWID;

-- Sessions and turns that began, and how turns ended, in sessions that are not deleted.
CREATE TABLE activity_sums (
    tenant      BLOB NOT NULL,
    day         INTEGER NOT NULL,
    sessions    INTEGER NOT NULL,
    turns       INTEGER NOT NULL,
    completed   INTEGER NOT NULL,
    failed      INTEGER NOT NULL,
    interrupted INTEGER NOT NULL,
    PRIMARY KEY (tenant, day)
) STRICT, WITHOUT ROWID;
