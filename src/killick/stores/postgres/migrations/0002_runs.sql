-- Due work: who has a session now, what is known of its newest turn as work, and from when on that may be taken.
-- `imported` is the seq up to which its entries came from elsewhere; no turn up to there is ever due.
ALTER TABLE killick.sessions ADD COLUMN holder text;
ALTER TABLE killick.sessions ADD COLUMN due bytea;
ALTER TABLE killick.sessions ADD COLUMN due_us bigint;
ALTER TABLE killick.sessions ADD COLUMN imported bigint NOT NULL DEFAULT 0;

CREATE INDEX sessions_due ON killick.sessions (tenant, due_us, session) WHERE due_us IS NOT NULL;
CREATE INDEX sessions_held ON killick.sessions (tenant, holder, session) WHERE holder IS NOT NULL;

-- The holders of turns that run now, from their beginnings. A name of ours needs no escaping in JSON.
UPDATE killick.sessions AS s
SET holder = substring(encode(e.body, 'escape') FROM '"holder":"([^"]+)"')
FROM killick.entries AS e
WHERE s.turn_seq IS NOT NULL AND e.tenant = s.tenant AND e.session = s.session AND e.seq = s.turn_seq;

-- Links: each entry's is made of the one before it (`journal/chain.py`); the session's row has the newest, so that a
-- journal whose end was cut is seen. Entries that were there before have none.
ALTER TABLE killick.entries ADD COLUMN link bytea;
ALTER TABLE killick.sessions ADD COLUMN link bytea;

-- The feed over all sessions: what a person or a supervisor acts on, a line each, without any text. Lines are derived from
-- entries, in their transaction. `place` is the number of that transaction, or that of the session's line before if it is
-- larger: a reader who stays below the oldest transaction that is still open passes none over, and sees a session's lines
-- in order.
CREATE TABLE killick.news (
    tenant  bigint NOT NULL,
    session bigint NOT NULL,
    seq     bigint NOT NULL,
    line    bigint NOT NULL,
    place   bigint NOT NULL,
    kind    text NOT NULL,
    cause   text,
    waits   boolean NOT NULL,
    PRIMARY KEY (tenant, session, seq, line)
) PARTITION BY HASH (tenant, session);

CREATE INDEX news_by_place ON killick.news (tenant, place, session, seq, line);
CREATE INDEX news_waiting ON killick.news (tenant, place, session, seq, line) WHERE waits;

DO $$
BEGIN
    FOR number IN 0..15 LOOP
        EXECUTE format(
            'CREATE TABLE killick.%I PARTITION OF killick.news FOR VALUES WITH (MODULUS 16, REMAINDER %s)',
            'news_' || lpad(number::text, 2, '0'), number);
    END LOOP;
END
$$;

-- Tells this store from others: a cursor of the feed names it.
INSERT INTO killick.meta (name, value) VALUES ('store', (random() * 9e18)::bigint);
