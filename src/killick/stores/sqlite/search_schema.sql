-- The search index: documents by number, their words, and how far it has come. All of it is derived and can be dropped:
-- a rebuild drops these tables and runs this file again. Entries that were there before are indexed in idle moments.

-- `seq` is the entry that made the document, `place` where its message began. The number is explicit, because VACUUM may
-- renumber rows; it grows with the order of the commits, so that the newest documents have the largest.
CREATE TABLE search_documents (
    number  INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    place   INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    at_us   INTEGER NOT NULL,
    role    INTEGER NOT NULL,
    partial INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX search_documents_by_place ON search_documents (session, place);

-- The words come folded and cut, with spaces between them; the text itself is in the journal and not kept twice. A document
-- goes by giving its words once more, which `secure-delete` then takes out of the index where they stand.
CREATE VIRTUAL TABLE search_words USING fts5 (text, reasoning, content='', tokenize='ascii');

-- `mark` is the row of the last entry that was indexed; `session` and `seq` say which entry that was, so that a mark is
-- noticed that does not fit any more. `substrings` is 1 when there is an index of parts of words beside this one.
CREATE TABLE search_state (
    only       INTEGER PRIMARY KEY CHECK (only = 1),
    mark       INTEGER NOT NULL,
    session    INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    substrings INTEGER NOT NULL,
    damage     TEXT
) STRICT;

INSERT INTO search_state (only, mark, session, seq, substrings) VALUES (1, 0, 0, 0, 0);
