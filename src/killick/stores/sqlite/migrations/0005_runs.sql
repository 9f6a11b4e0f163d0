-- Due work: who has a session now, what is known of its newest turn as work, and from when on that may be taken.
-- `imported` is the seq up to which its entries came from elsewhere; no turn up to there is ever due.
ALTER TABLE sessions ADD COLUMN holder TEXT;
ALTER TABLE sessions ADD COLUMN due BLOB;
ALTER TABLE sessions ADD COLUMN due_us INTEGER;
ALTER TABLE sessions ADD COLUMN imported INTEGER NOT NULL DEFAULT 0;

CREATE INDEX sessions_due ON sessions (tenant, due_us, key) WHERE due_us IS NOT NULL;
CREATE INDEX sessions_held ON sessions (tenant, holder, key) WHERE holder IS NOT NULL;

-- Links: each entry's is made of the one before it (`journal/chain.py`); the session's row has the newest, so that a
-- journal whose end was cut is seen. Entries that were there before have none.
ALTER TABLE entries ADD COLUMN link BLOB;
ALTER TABLE sessions ADD COLUMN link BLOB;

-- The feed over all sessions: what a person or a supervisor acts on, a line each, without any text. Lines are derived from
-- entries, in their transaction. Numbers grow in the order of the commits and are never used again, so a cursor stays right.
CREATE TABLE news (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant  BLOB NOT NULL,
    session INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    line    INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    cause   TEXT,
    waits   INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX news_by_session ON news (session, seq, line);
CREATE INDEX news_by_tenant ON news (tenant, number);
CREATE INDEX news_waiting ON news (tenant, number) WHERE waits = 1;

-- Tells this store from others: a cursor of the feed names it.
INSERT INTO meta (name, value) VALUES ('store', random() & 0x7fffffffffffffff);
