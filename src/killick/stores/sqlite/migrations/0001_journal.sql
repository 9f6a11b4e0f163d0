-- The journal, what is derived from it to make writing cheap, deltas of open streams, and blobs.
-- Ids, titles and tenants are BLOBs: every Python string is kept exactly, NUL and lone surrogates included.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE migrations (
    number INTEGER PRIMARY KEY,
    name   TEXT NOT NULL,
    at_us  INTEGER NOT NULL,
    build  TEXT NOT NULL
) STRICT;

-- `key` is never reused; everything else but id, tenant and created_at_us is derived from entries.
CREATE TABLE sessions (
    key           INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant        BLOB NOT NULL,
    id            BLOB NOT NULL,
    fence         INTEGER NOT NULL,
    turn_seq      INTEGER,
    stop_seq      INTEGER,
    queue_seq     INTEGER,
    created_at_us INTEGER NOT NULL,
    updated_at_us INTEGER NOT NULL,
    archived      INTEGER NOT NULL,
    deleted       INTEGER NOT NULL,
    about         BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX sessions_by_id ON sessions (tenant, id);
CREATE INDEX sessions_by_time ON sessions (tenant, deleted, updated_at_us, id);

-- Rows are added at the end of the table whatever their session, so a commit of many sessions
-- touches few pages. The head of a session is its largest seq: one step in the first index.
-- `identity` is 16 bytes: when its id was minted, then a hash of the session and all of it. So its
-- index grows at its end too, whatever the sessions of a commit. `turn` is 1 for the start and the
-- ending of a turn, which are found without reading the entries between them.
CREATE TABLE entries (
    session  INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    identity BLOB NOT NULL,
    at_us    INTEGER NOT NULL,
    crc      INTEGER NOT NULL,
    body     BLOB NOT NULL,
    blob     INTEGER,
    turn     INTEGER
) STRICT;

CREATE UNIQUE INDEX entries_by_seq ON entries (session, seq);
CREATE UNIQUE INDEX entries_by_identity ON entries (identity);
CREATE INDEX entries_of_turns ON entries (session, seq) WHERE turn = 1;

-- One row for each flush of one stream; (session, seq) is the entry that opened it.
CREATE TABLE deltas (
    session INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    body    BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX deltas_by_stream ON deltas (session, seq, number);

-- Bytes by their hash, once for each tenant. `holder` keeps a blob that nothing refers to yet.
CREATE TABLE blobs (
    key    INTEGER PRIMARY KEY,
    tenant BLOB NOT NULL,
    digest BLOB NOT NULL,
    holder TEXT NOT NULL,
    data   BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX blobs_by_digest ON blobs (tenant, digest);

CREATE TABLE blob_references (
    blob    INTEGER NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (blob, session)
) STRICT, WITHOUT ROWID;
