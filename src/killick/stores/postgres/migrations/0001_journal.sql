-- The journal, what is derived from it, deltas of open streams, blobs, leases and the search index.
-- Every table that grows has the tenant and the session first in its key and is partitioned by their hash. Nothing here is
-- shared by all sessions: no sequence, no counter, no row that every append would touch. There are no foreign keys:
-- whoever writes has locked the row of the session.
-- Ids, titles and names are bytea: every Python string is kept exactly, NUL and lone surrogates included.

-- A tenant's number is a hash of its name; the key makes sure that no two names share one.
CREATE TABLE killick.tenants (
    tenant bigint PRIMARY KEY,
    name   bytea NOT NULL
);

-- Every opening of a store, and until when it may run turns, by the server's clock.
CREATE TABLE killick.holders (
    holder text PRIMARY KEY,
    until  timestamptz NOT NULL
);

-- The one place that says which session has an id.
CREATE TABLE killick.session_ids (
    tenant  bigint NOT NULL,
    id      bytea NOT NULL,
    session bigint NOT NULL,
    PRIMARY KEY (tenant, id)
) PARTITION BY HASH (tenant, id);

-- `session` is drawn at random and never used again. Whoever appends locks this row: it orders the entries of its session.
-- `stamp` is drawn anew by every transaction that writes to the session; `indexed` is how far the search index has come,
-- `behind` that there is more; `watched` is until when somebody wants to be notified. The rest is derived from entries.
CREATE TABLE killick.sessions (
    tenant        bigint NOT NULL,
    session       bigint NOT NULL,
    id            bytea NOT NULL,
    head          bigint NOT NULL,
    stamp         bigint NOT NULL,
    fence         bigint NOT NULL,
    turn_seq      bigint,
    stop_seq      bigint,
    queue_seq     bigint,
    created_at_us bigint NOT NULL,
    updated_at_us bigint NOT NULL,
    base          bigint,
    base_seq      bigint NOT NULL,
    indexed       bigint NOT NULL,
    behind        boolean NOT NULL,
    archived      boolean NOT NULL,
    deleted       boolean NOT NULL,
    pinned        boolean NOT NULL,
    status        text,
    watched       timestamptz NOT NULL DEFAULT '-infinity',
    type          bytea NOT NULL,
    project       bytea,
    title         bytea,
    parent        bytea,
    about         bytea NOT NULL,
    PRIMARY KEY (tenant, session)
) PARTITION BY HASH (tenant, session);

CREATE INDEX sessions_by_time ON killick.sessions (tenant, deleted, updated_at_us, id);
CREATE INDEX sessions_by_parent ON killick.sessions (tenant, parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_by_base ON killick.sessions (tenant, base) WHERE base IS NOT NULL;
CREATE INDEX sessions_stopping ON killick.sessions (tenant, session) WHERE stop_seq IS NOT NULL;
CREATE INDEX sessions_behind ON killick.sessions (tenant, session) WHERE behind;

-- `identity` is a hash of what makes an entry the same one. `mark` is 1 for the start and the ending of a turn, 2 for what
-- changes which entries are in view. A large body is the blob that `blob` names.
CREATE TABLE killick.entries (
    tenant   bigint NOT NULL,
    session  bigint NOT NULL,
    seq      bigint NOT NULL,
    at_us    bigint NOT NULL,
    crc      bigint NOT NULL,
    mark     bigint,
    identity bytea NOT NULL,
    blob     bytea,
    body     bytea NOT NULL,
    PRIMARY KEY (tenant, session, seq)
) PARTITION BY HASH (tenant, session);

CREATE UNIQUE INDEX entries_by_identity ON killick.entries (tenant, session, identity);
CREATE INDEX entries_by_mark ON killick.entries (tenant, session, mark, seq) WHERE mark IS NOT NULL;

-- One row for each flush of one stream; (tenant, session, seq) is the entry that opened it.
CREATE TABLE killick.deltas (
    tenant  bigint NOT NULL,
    session bigint NOT NULL,
    seq     bigint NOT NULL,
    number  bigint NOT NULL,
    body    bytea NOT NULL,
    PRIMARY KEY (tenant, session, seq, number)
) PARTITION BY HASH (tenant, session);

-- What a session is found by: its tags and the models that were asked in it.
CREATE TABLE killick.labels (
    tenant  bigint NOT NULL,
    session bigint NOT NULL,
    kind    text NOT NULL,
    label   bytea NOT NULL,
    PRIMARY KEY (tenant, session, kind, label)
) PARTITION BY HASH (tenant, session);

CREATE INDEX labels_by_label ON killick.labels (tenant, kind, label);

-- Model calls added up by day (from 1970, UTC), provider and model, for each session.
CREATE TABLE killick.usage (
    tenant    bigint NOT NULL,
    session   bigint NOT NULL,
    day       bigint NOT NULL,
    provider  bytea NOT NULL,
    model     bytea NOT NULL,
    calls     bigint NOT NULL,
    input     bigint NOT NULL,
    output    bigint NOT NULL,
    cached    bigint NOT NULL,
    reasoning bigint NOT NULL,
    cost      double precision,
    PRIMARY KEY (tenant, session, day, provider, model)
) PARTITION BY HASH (tenant, session);

-- Bytes by their hash, once for each tenant. `holder` keeps a blob that nothing refers to yet.
CREATE TABLE killick.blobs (
    tenant bigint NOT NULL,
    digest bytea NOT NULL,
    holder text NOT NULL,
    data   bytea NOT NULL,
    PRIMARY KEY (tenant, digest)
) PARTITION BY HASH (tenant, digest);

CREATE TABLE killick.blob_references (
    tenant  bigint NOT NULL,
    session bigint NOT NULL,
    digest  bytea NOT NULL,
    PRIMARY KEY (tenant, session, digest)
) PARTITION BY HASH (tenant, session);

CREATE INDEX blob_references_by_digest ON killick.blob_references (tenant, digest);

-- What was erased for good: the receipt.
CREATE TABLE killick.erasures (
    tenant         bigint NOT NULL,
    session        bigint NOT NULL,
    id             bytea NOT NULL,
    entries        bigint NOT NULL,
    at_us          bigint NOT NULL,
    scrubbed_at_us bigint,
    PRIMARY KEY (tenant, session)
);

-- The search index. `seq` is the entry that made the document, `place` where its message began. A document's words are
-- kept in pieces: a tsvector knows positions up to 16,383, and 256 of each word.
CREATE TABLE killick.search_documents (
    tenant  bigint NOT NULL,
    session bigint NOT NULL,
    place   bigint NOT NULL,
    seq     bigint NOT NULL,
    first   bigint NOT NULL,
    at_us   bigint NOT NULL,
    role    bigint NOT NULL,
    partial boolean NOT NULL,
    PRIMARY KEY (tenant, session, place)
) PARTITION BY HASH (tenant, session);

CREATE INDEX search_documents_by_time ON killick.search_documents (tenant, first, session, place);

CREATE TABLE killick.search_words (
    tenant    bigint NOT NULL,
    session   bigint NOT NULL,
    place     bigint NOT NULL,
    reasoning boolean NOT NULL,
    piece     bigint NOT NULL,
    words     tsvector NOT NULL,
    PRIMARY KEY (tenant, session, place, reasoning, piece)
) PARTITION BY HASH (tenant, session);

CREATE INDEX search_words_by_word ON killick.search_words USING gin (words);

CREATE TABLE killick.search_substrings (
    tenant    bigint NOT NULL,
    session   bigint NOT NULL,
    place     bigint NOT NULL,
    reasoning boolean NOT NULL,
    folded    text NOT NULL,
    PRIMARY KEY (tenant, session, place, reasoning)
) PARTITION BY HASH (tenant, session);

CREATE TABLE killick.search_state (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    substrings boolean NOT NULL,
    damage     text
);

INSERT INTO killick.search_state (substrings) VALUES (false);

-- Sixteen partitions each. The rows of sessions change often and in place: they are given room for it.
DO $$
DECLARE
    parent text;
    number int;
    room text;
BEGIN
    FOREACH parent IN ARRAY ARRAY[
        'session_ids', 'sessions', 'entries', 'deltas', 'labels', 'usage', 'blobs', 'blob_references',
        'search_documents', 'search_words', 'search_substrings']
    LOOP
        room := CASE WHEN parent = 'sessions' THEN 'WITH (fillfactor = 70)' ELSE '' END;
        FOR number IN 0..15 LOOP
            EXECUTE format(
                'CREATE TABLE killick.%I PARTITION OF killick.%I FOR VALUES WITH (MODULUS 16, REMAINDER %s) %s',
                parent || '_' || lpad(number::text, 2, '0'), parent, number, room);
        END LOOP;
    END LOOP;
END
$$;
