-- Lists that can be narrowed down, forks by reference, marks for the entries that change history, and usage.
-- Everything added to `sessions` is derived; `rebuild` fills it in for the sessions that were there before.

ALTER TABLE sessions ADD COLUMN type BLOB NOT NULL DEFAULT x'';
ALTER TABLE sessions ADD COLUMN project BLOB;
ALTER TABLE sessions ADD COLUMN title BLOB;
ALTER TABLE sessions ADD COLUMN status TEXT;
ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN parent BLOB;
ALTER TABLE sessions ADD COLUMN base INTEGER;
ALTER TABLE sessions ADD COLUMN base_seq INTEGER NOT NULL DEFAULT 0;

CREATE INDEX sessions_by_parent ON sessions (tenant, parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_by_base ON sessions (base) WHERE base IS NOT NULL;

-- 1 is the start or the ending of a turn, 2 changes which entries are in view.
ALTER TABLE entries RENAME COLUMN turn TO mark;
CREATE INDEX entries_of_history ON entries (session, seq) WHERE mark = 2;

-- What a session is found by: its tags and the models that were asked in it.
CREATE TABLE labels (
    session INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    label   BLOB NOT NULL,
    PRIMARY KEY (kind, label, session)
) STRICT, WITHOUT ROWID;

CREATE INDEX labels_by_session ON labels (session);

-- Model calls added up by day (from 1970, UTC), provider and model, for each session.
CREATE TABLE usage (
    session   INTEGER NOT NULL,
    day       INTEGER NOT NULL,
    provider  BLOB NOT NULL,
    model     BLOB NOT NULL,
    calls     INTEGER NOT NULL,
    input     INTEGER NOT NULL,
    output    INTEGER NOT NULL,
    cached    INTEGER NOT NULL,
    reasoning INTEGER NOT NULL,
    cost      REAL,
    PRIMARY KEY (session, day, provider, model)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_by_day ON usage (day);

-- What was erased for good: the receipt. `scrubbed_at_us` is when its bytes were gone from the file.
CREATE TABLE erasures (
    key            INTEGER PRIMARY KEY,
    tenant         BLOB NOT NULL,
    id             BLOB NOT NULL,
    entries        INTEGER NOT NULL,
    at_us          INTEGER NOT NULL,
    scrubbed_at_us INTEGER
) STRICT;
