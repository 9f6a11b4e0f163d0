-- Packs: streams that flush together share a row, so that a flush touches few pages however many streams it is of.

-- A line of `body` is one flush of one stream: a JSON array of its session, its seq, the flush's number and the deltas.
-- `streams` names session and seq of each line once more, so that it is known whose line is damaged; `crc` is of `body`.
-- Lines are folded into `deltas`, a row for each stream, from time to time. Numbers of packs are never used again.
CREATE TABLE packs (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    crc     INTEGER NOT NULL,
    streams BLOB NOT NULL,
    body    BLOB NOT NULL
) STRICT;

-- Streams that have ended: their lines in packs up to this one count no more.
CREATE TABLE dropped_streams (
    session INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    pack    INTEGER NOT NULL,
    PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;
