-- set_locally --
-- Behind a pooler nothing outlives a transaction, so each one sets what it needs.
SELECT set_config('lock_timeout', %(lock_timeout)s, true),
       set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, true),
       set_config('synchronous_commit', %(synchronous_commit)s, true);

-- lock_session --
SELECT tenant, session, id, head, stamp, fence, turn_seq, stop_seq, queue_seq, created_at_us, updated_at_us,
       base, base_seq, about, watched > clock_timestamp()
FROM killick.sessions WHERE tenant = %(tenant)s AND session = %(session)s
FOR UPDATE;

-- lock_sessions --
-- In one order for everybody, so that two who lock the same sessions never wait for each other.
SELECT tenant, session, id, head, stamp, fence, turn_seq, stop_seq, queue_seq, created_at_us, updated_at_us,
       base, base_seq, about, watched > clock_timestamp()
FROM killick.sessions
JOIN unnest(%(tenants)s::bigint[], %(sessions)s::bigint[]) AS wanted (tenant, session) USING (tenant, session)
ORDER BY tenant, session
FOR UPDATE OF sessions;

-- held_sessions --
-- Locks what of these is free, and finds what is not: somebody else has it.
WITH free AS MATERIALIZED (
    SELECT s.tenant, s.session FROM killick.sessions AS s
    JOIN unnest(%(tenants)s::bigint[], %(sessions)s::bigint[]) AS wanted (tenant, session) USING (tenant, session)
    ORDER BY s.tenant, s.session
    FOR UPDATE OF s SKIP LOCKED
)
SELECT s.tenant, s.session, s.stamp FROM killick.sessions AS s
JOIN unnest(%(tenants)s::bigint[], %(sessions)s::bigint[]) AS wanted (tenant, session) USING (tenant, session)
WHERE NOT EXISTS (SELECT 1 FROM free WHERE free.tenant = s.tenant AND free.session = s.session);

-- check_sessions --
-- Locks sessions that are as they are known to be; fails if one of them is not.
SELECT 1 / (count(*) = %(count)s)::int, array_agg(held.tenant) FILTER (WHERE held.wanted),
       array_agg(held.session) FILTER (WHERE held.wanted)
FROM (SELECT s.tenant, s.session, s.watched > clock_timestamp() AS wanted
      FROM killick.sessions AS s
      JOIN unnest(%(tenants)s::bigint[], %(sessions)s::bigint[], %(known)s::bigint[])
           AS believed (tenant, session, stamp) USING (tenant, session, stamp)
      ORDER BY s.tenant, s.session
      FOR UPDATE OF s) AS held;

-- append_entry --
-- The whole of a transaction: nothing is written unless the session is as it is known to be.
WITH saved AS (
    UPDATE killick.sessions SET head = %(seq)s, stamp = %(stamp)s, behind = true
    WHERE tenant = %(tenant)s AND session = %(session)s AND stamp = %(known)s
    RETURNING tenant, session, watched > clock_timestamp() AS wanted
), added AS (
    INSERT INTO killick.entries (tenant, session, seq, at_us, crc, mark, identity, blob, body)
    SELECT tenant, session, %(seq)s, %(at_us)s, %(crc)s, %(mark)s::bigint, %(identity)s, %(blob)s::bytea, %(body)s
    FROM saved
)
SELECT wanted FROM saved;

-- append_entries --
-- The same for many: it fails as a whole if one of the sessions is not as it is known to be.
WITH saved AS (
    UPDATE killick.sessions AS s SET head = believed.head, stamp = %(stamp)s, behind = true
    FROM unnest(%(tenants)s::bigint[], %(sessions)s::bigint[], %(heads)s::bigint[], %(known)s::bigint[])
         AS believed (tenant, session, head, stamp)
    WHERE s.tenant = believed.tenant AND s.session = believed.session AND s.stamp = believed.stamp
    RETURNING s.tenant, s.session, s.watched > clock_timestamp() AS wanted
), added AS (
    INSERT INTO killick.entries (tenant, session, seq, at_us, crc, mark, identity, blob, body)
    SELECT * FROM unnest(%(tenant)s::bigint[], %(session)s::bigint[], %(seq)s::bigint[], %(at_us)s::bigint[],
                         %(crc)s::bigint[], %(mark)s::bigint[], %(identity)s::bytea[], %(blob)s::bytea[],
                         %(body)s::bytea[])
)
SELECT 1 / (count(*) = %(count)s)::int, array_agg(tenant) FILTER (WHERE wanted), array_agg(session) FILTER (WHERE wanted)
FROM saved;

-- session --
SELECT tenant, session, id, head, stamp, fence, turn_seq, stop_seq, queue_seq, created_at_us, updated_at_us,
       base, base_seq, about
FROM killick.sessions WHERE tenant = %(tenant)s AND session = %(session)s;

-- stopping --
SELECT tenant, session, stop_seq FROM killick.sessions WHERE stop_seq IS NOT NULL;

-- find_key --
SELECT session FROM killick.session_ids WHERE tenant = %(tenant)s AND id = %(id)s;

-- tenant_name --
SELECT name FROM killick.tenants WHERE tenant = %(tenant)s;

-- put_tenant --
INSERT INTO killick.tenants (tenant, name) VALUES (%(tenant)s, %(name)s) ON CONFLICT (tenant) DO NOTHING;

-- base_of --
SELECT base, base_seq FROM killick.sessions
WHERE tenant = %(tenant)s AND session = %(session)s AND base IS NOT NULL;

-- forks_of --
SELECT session FROM killick.sessions WHERE tenant = %(tenant)s AND base = %(session)s ORDER BY created_at_us, session;

-- session_keys --
SELECT tenant, session FROM killick.sessions ORDER BY created_at_us, tenant, session;

-- origin --
SELECT id, created_at_us, base, base_seq FROM killick.sessions
WHERE tenant = %(tenant)s AND session = %(session)s;

-- head_of --
SELECT coalesce(max(seq), 0) FROM killick.entries WHERE tenant = %(tenant)s AND session = %(session)s;

-- count_of --
SELECT count(*) FROM killick.entries WHERE tenant = %(tenant)s AND session = %(session)s;

-- labels --
SELECT kind, label FROM killick.labels WHERE tenant = %(tenant)s AND session = %(session)s;

-- usage_of --
SELECT day, provider, model, calls, input, output, cached, reasoning, cost
FROM killick.usage WHERE tenant = %(tenant)s AND session = %(session)s ORDER BY day, provider, model;

-- streams --
SELECT DISTINCT seq FROM killick.deltas WHERE tenant = %(tenant)s AND session = %(session)s ORDER BY seq;

-- find_ids --
SELECT id FROM killick.session_ids
WHERE tenant = %(tenant)s AND id >= %(prefix)s AND (%(beyond)s::bytea IS NULL OR id < %(beyond)s)
ORDER BY id LIMIT %(limit)s;

-- unscrubbed --
SELECT id FROM killick.erasures WHERE tenant = %(tenant)s AND scrubbed_at_us IS NULL ORDER BY at_us, session;

-- sessions --
-- Newest first; a filter that is NULL filters nothing.
SELECT s.id, s.about, s.created_at_us, s.updated_at_us
FROM killick.sessions AS s
WHERE s.tenant = %(tenant)s AND s.deleted = %(deleted)s
  AND (%(archived)s::boolean IS NULL OR s.archived = %(archived)s)
  AND (%(type)s::bytea IS NULL OR s.type = %(type)s)
  AND (%(project)s::bytea IS NULL OR s.project = %(project)s)
  AND (%(interrupted)s::boolean IS NULL OR coalesce(s.status = 'interrupted', false) = %(interrupted)s)
  AND (%(pinned)s::boolean IS NULL OR s.pinned = %(pinned)s)
  AND (%(title)s::bytea IS NULL OR position(%(title)s::bytea IN s.title) > 0)
  AND (%(tag)s::bytea IS NULL OR EXISTS (
       SELECT 1 FROM killick.labels AS l
       WHERE l.tenant = s.tenant AND l.session = s.session AND l.kind = 'tag' AND l.label = %(tag)s))
  AND (%(model)s::bytea IS NULL OR EXISTS (
       SELECT 1 FROM killick.labels AS l
       WHERE l.tenant = s.tenant AND l.session = s.session AND l.kind = 'model' AND l.label = %(model)s))
  AND (%(parent)s::bytea IS NULL OR s.parent = %(parent)s)
  AND (%(fork_of)s::bytea IS NULL OR s.base = (
       SELECT i.session FROM killick.session_ids AS i WHERE i.tenant = %(tenant)s AND i.id = %(fork_of)s))
  AND (%(since_us)s::bigint IS NULL OR s.updated_at_us >= %(since_us)s)
  AND (%(until_us)s::bigint IS NULL OR s.updated_at_us < %(until_us)s)
  AND (s.updated_at_us, s.id) < (%(before_us)s, %(before_id)s::bytea)
ORDER BY s.updated_at_us DESC, s.id DESC LIMIT %(limit)s;

-- put_id --
INSERT INTO killick.session_ids (tenant, id, session) VALUES (%(tenant)s, %(id)s, %(session)s);

-- create_session --
INSERT INTO killick.sessions (tenant, session, id, head, stamp, fence, created_at_us, updated_at_us, base, base_seq,
                               indexed, behind, archived, deleted, pinned, type, about)
VALUES (%(tenant)s, %(session)s, %(id)s, %(base_seq)s, %(stamp)s, %(fence)s, %(created_at_us)s, %(updated_at_us)s,
        %(base)s, %(base_seq)s, %(base_seq)s, true, false, false, false, '', %(about)s);

-- save_session --
UPDATE killick.sessions
SET head = %(head)s, stamp = %(stamp)s, fence = %(fence)s, turn_seq = %(turn_seq)s, stop_seq = %(stop_seq)s,
    queue_seq = %(queue_seq)s, updated_at_us = %(updated_at_us)s, archived = %(archived)s, deleted = %(deleted)s,
    about = %(about)s, type = %(type)s, project = %(project)s, title = %(title)s, status = %(status)s,
    pinned = %(pinned)s, parent = %(parent)s, behind = behind OR indexed < %(head)s
WHERE tenant = %(tenant)s AND session = %(session)s;

-- save_head --
UPDATE killick.sessions SET head = %(head)s, stamp = %(stamp)s, behind = true
WHERE tenant = %(tenant)s AND session = %(session)s;

-- save_heads --
UPDATE killick.sessions AS s SET head = saved.head, stamp = %(stamp)s, behind = true
FROM unnest(%(tenants)s::bigint[], %(sessions)s::bigint[], %(heads)s::bigint[]) AS saved (tenant, session, head)
WHERE s.tenant = saved.tenant AND s.session = saved.session;

-- restamp --
-- Whatever is known of these sessions must be read again, by everybody.
UPDATE killick.sessions AS s SET stamp = %(stamp)s
FROM unnest(%(tenants)s::bigint[], %(sessions)s::bigint[]) AS wanted (tenant, session)
WHERE s.tenant = wanted.tenant AND s.session = wanted.session;

-- drop_labels --
DELETE FROM killick.labels WHERE tenant = %(tenant)s AND session = %(session)s;

-- put_label --
INSERT INTO killick.labels (tenant, session, kind, label)
VALUES (%(tenant)s, %(session)s, %(kind)s, %(label)s) ON CONFLICT DO NOTHING;

-- drop_usage --
DELETE FROM killick.usage WHERE tenant = %(tenant)s AND session = %(session)s;

-- spend --
INSERT INTO killick.usage AS u (tenant, session, day, provider, model, calls, input, output, cached, reasoning, cost)
VALUES (%(tenant)s, %(session)s, %(day)s, %(provider)s, %(model)s, %(calls)s, %(input)s, %(output)s, %(cached)s,
        %(reasoning)s, %(cost)s::double precision)
ON CONFLICT (tenant, session, day, provider, model) DO UPDATE
SET calls = u.calls + excluded.calls, input = u.input + excluded.input, output = u.output + excluded.output,
    cached = u.cached + excluded.cached, reasoning = u.reasoning + excluded.reasoning,
    cost = CASE WHEN u.cost IS NULL THEN excluded.cost ELSE u.cost + coalesce(excluded.cost, 0.0) END;

-- usage --
SELECT s.id, s.project, u.day, u.provider, u.model, u.calls, u.input, u.output, u.cached, u.reasoning, u.cost
FROM killick.usage AS u JOIN killick.sessions AS s USING (tenant, session)
WHERE u.tenant = %(tenant)s
  AND (%(session)s::bytea IS NULL OR s.id = %(session)s)
  AND (%(project)s::bytea IS NULL OR s.project = %(project)s)
  AND (%(model)s::bytea IS NULL OR u.model = %(model)s)
  AND (%(since_day)s::bigint IS NULL OR u.day >= %(since_day)s)
  AND (%(until_day)s::bigint IS NULL OR u.day <= %(until_day)s)
ORDER BY u.day, s.id, u.provider, u.model;

-- insert_entry --
INSERT INTO killick.entries (tenant, session, seq, at_us, crc, mark, identity, blob, body)
VALUES (%(tenant)s, %(session)s, %(seq)s, %(at_us)s, %(crc)s, %(mark)s, %(identity)s, %(blob)s, %(body)s);

-- insert_entries --
INSERT INTO killick.entries (tenant, session, seq, at_us, crc, mark, identity, blob, body)
SELECT * FROM unnest(%(tenant)s::bigint[], %(session)s::bigint[], %(seq)s::bigint[], %(at_us)s::bigint[],
                     %(crc)s::bigint[], %(mark)s::bigint[], %(identity)s::bytea[], %(blob)s::bytea[],
                     %(body)s::bytea[]);

-- has_entry --
SELECT seq FROM killick.entries
WHERE tenant = %(tenant)s AND session = %(session)s AND identity = %(identity)s;

-- entries --
SELECT seq, at_us, crc, body, blob
FROM killick.entries
WHERE tenant = %(tenant)s AND session = %(session)s AND seq > %(after)s AND seq <= %(through)s
ORDER BY seq LIMIT %(limit)s;

-- newest_entries --
SELECT seq, at_us, crc, body, blob
FROM killick.entries
WHERE tenant = %(tenant)s AND session = %(session)s AND seq < %(before)s
ORDER BY seq DESC LIMIT %(limit)s;

-- marked_entries --
SELECT seq, at_us, crc, body, blob
FROM killick.entries
WHERE tenant = %(tenant)s AND session = %(session)s AND mark = %(mark)s AND seq > %(after)s
ORDER BY seq;

-- find_entry --
SELECT seq, at_us, crc, body, blob
FROM killick.entries WHERE tenant = %(tenant)s AND session = %(session)s AND identity = %(identity)s;

-- deltas --
SELECT number, body FROM killick.deltas
WHERE tenant = %(tenant)s AND session = %(session)s AND seq = %(seq)s AND number > %(after)s ORDER BY number;

-- put_deltas --
-- A flush whose outcome was unknown is written again, with the same number and at least its text.
INSERT INTO killick.deltas (tenant, session, seq, number, body)
SELECT * FROM unnest(%(tenant)s::bigint[], %(session)s::bigint[], %(seq)s::bigint[], %(number)s::bigint[],
                     %(body)s::bytea[])
ON CONFLICT (tenant, session, seq, number) DO UPDATE SET body = excluded.body;

-- drop_deltas --
DELETE FROM killick.deltas WHERE tenant = %(tenant)s AND session = %(session)s AND seq = %(seq)s;

-- blob --
SELECT data FROM killick.blobs WHERE tenant = %(tenant)s AND digest = %(digest)s;

-- has_blob --
SELECT 1 FROM killick.blobs WHERE tenant = %(tenant)s AND digest = %(digest)s;

-- claim_blob --
-- Whoever relies on a blob that nothing refers to yet keeps it from being collected.
WITH claimed AS (
    UPDATE killick.blobs AS b SET holder = %(holder)s
    WHERE b.tenant = %(tenant)s AND b.digest = %(digest)s AND b.holder <> %(holder)s
      AND NOT EXISTS (SELECT 1 FROM killick.blob_references AS r WHERE r.tenant = b.tenant AND r.digest = b.digest)
)
SELECT 1 FROM killick.blobs WHERE tenant = %(tenant)s AND digest = %(digest)s;

-- put_blob --
INSERT INTO killick.blobs (tenant, digest, holder, data)
VALUES (%(tenant)s, %(digest)s, %(holder)s, %(data)s) ON CONFLICT DO NOTHING;

-- has_reference --
SELECT 1 FROM killick.blob_references
WHERE tenant = %(tenant)s AND session = %(session)s AND digest = %(digest)s;

-- keep_blob --
-- Many may hold a blob like this at a time; whoever removes loose ones waits for all of them.
SELECT 1 FROM killick.blobs WHERE tenant = %(tenant)s AND digest = %(digest)s FOR KEY SHARE;

-- refer --
INSERT INTO killick.blob_references (tenant, session, digest)
VALUES (%(tenant)s, %(session)s, %(digest)s) ON CONFLICT DO NOTHING;

-- collecting_is_due --
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM killick.meta
    WHERE name = 'collected' AND value > extract(epoch FROM clock_timestamp())::bigint - 86400);

-- collecting --
INSERT INTO killick.meta (name, value) VALUES ('collected', extract(epoch FROM clock_timestamp())::bigint)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- loose_blobs --
SELECT b.tenant, b.digest, b.holder FROM killick.blobs AS b
WHERE NOT EXISTS (SELECT 1 FROM killick.blob_references AS r WHERE r.tenant = b.tenant AND r.digest = b.digest)
ORDER BY b.tenant, b.digest;

-- own_blobs --
SELECT b.tenant, b.digest, b.holder
FROM killick.blob_references AS mine JOIN killick.blobs AS b USING (tenant, digest)
WHERE mine.tenant = %(tenant)s AND mine.session = %(session)s
  AND NOT EXISTS (SELECT 1 FROM killick.blob_references AS r
                  WHERE r.tenant = mine.tenant AND r.digest = mine.digest AND r.session <> mine.session)
ORDER BY b.tenant, b.digest;

-- lock_blobs --
SELECT 1 FROM killick.blobs JOIN unnest(%(tenants)s::bigint[], %(digests)s::bytea[]) AS wanted (tenant, digest)
     USING (tenant, digest)
ORDER BY tenant, digest FOR UPDATE OF blobs;

-- drop_blobs --
-- After they were locked, so that whoever came to refer to one meanwhile, or to rely on it, is seen.
DELETE FROM killick.blobs AS b
USING unnest(%(tenants)s::bigint[], %(digests)s::bytea[], %(holders)s::text[]) AS wanted (tenant, digest, holder)
WHERE b.tenant = wanted.tenant AND b.digest = wanted.digest AND b.holder = wanted.holder
  AND NOT EXISTS (SELECT 1 FROM killick.blob_references AS r WHERE r.tenant = b.tenant AND r.digest = b.digest)
RETURNING 1;

-- drop_references --
DELETE FROM killick.blob_references WHERE tenant = %(tenant)s AND session = %(session)s;

-- erase_entries --
DELETE FROM killick.entries WHERE tenant = %(tenant)s AND session = %(session)s;

-- erase_deltas --
DELETE FROM killick.deltas WHERE tenant = %(tenant)s AND session = %(session)s;

-- erase_id --
DELETE FROM killick.session_ids
WHERE tenant = %(tenant)s
  AND id = (SELECT id FROM killick.sessions WHERE tenant = %(tenant)s AND session = %(session)s)
  AND session = %(session)s;

-- erase_session --
DELETE FROM killick.sessions WHERE tenant = %(tenant)s AND session = %(session)s;

-- note_erasure --
INSERT INTO killick.erasures (tenant, session, id, entries, at_us)
VALUES (%(tenant)s, %(session)s, %(id)s, %(entries)s, %(at_us)s);

-- has_erasure --
SELECT at_us FROM killick.erasures WHERE tenant = %(tenant)s AND session = %(session)s;

-- scrubbed --
UPDATE killick.erasures SET scrubbed_at_us = %(at_us)s
WHERE scrubbed_at_us IS NULL AND tenant = %(tenant)s AND id = %(id)s;

-- holds --
SELECT EXISTS (SELECT 1 FROM killick.entries WHERE position(%(fragment)s::bytea IN body) > 0)
    OR EXISTS (SELECT 1 FROM killick.deltas WHERE position(%(fragment)s::bytea IN body) > 0)
    OR EXISTS (SELECT 1 FROM killick.blobs WHERE position(%(fragment)s::bytea IN data) > 0)
    OR EXISTS (SELECT 1 FROM killick.sessions
               WHERE position(%(fragment)s::bytea IN about) > 0 OR position(%(fragment)s::bytea IN id) > 0);

-- counts --
SELECT (SELECT count(*) FROM killick.sessions), (SELECT count(*) FROM killick.entries),
       (SELECT count(*) FROM killick.deltas), (SELECT count(*) FROM killick.blobs);

-- is_alive --
SELECT until > clock_timestamp() FROM killick.holders WHERE holder = %(holder)s;

-- renew --
INSERT INTO killick.holders AS h (holder, until)
VALUES (%(holder)s, clock_timestamp() + make_interval(secs => %(seconds)s::double precision))
ON CONFLICT (holder) DO UPDATE SET until = greatest(h.until, excluded.until)
RETURNING (SELECT m.value FROM killick.meta AS m WHERE m.name = 'oldest'),
          (SELECT m.value FROM killick.meta AS m WHERE m.name = 'version');

-- release --
DELETE FROM killick.holders WHERE holder = %(holder)s;

-- forget_holders --
-- Who lost its lease a day ago comes back as somebody who has none, which is the same.
DELETE FROM killick.holders WHERE until < clock_timestamp() - interval '1 day';

-- marks --
-- What is new to whoever follows these sessions: entries by the stamp, deltas by their count.
SELECT s.session, s.stamp, (SELECT count(*) FROM killick.deltas AS d
                            WHERE d.tenant = s.tenant AND d.session = s.session)
FROM killick.sessions AS s
JOIN unnest(%(tenants)s::bigint[], %(sessions)s::bigint[]) AS wanted (tenant, session) USING (tenant, session)
ORDER BY s.tenant, s.session;

-- marks_of_one --
-- The same for one session: its partition is known when the statement is planned.
SELECT s.session, s.stamp, (SELECT count(*) FROM killick.deltas AS d
                            WHERE d.tenant = %(tenant)s AND d.session = %(session)s)
FROM killick.sessions AS s WHERE s.tenant = %(tenant)s AND s.session = %(session)s;

-- want_notice --
-- A row that somebody writes to at this moment is left alone: how many those were, to be asked again soon.
WITH due AS (
    SELECT tenant, session FROM killick.sessions
    JOIN unnest(%(tenants)s::bigint[], %(sessions)s::bigint[]) AS wanted (tenant, session) USING (tenant, session)
    WHERE watched < clock_timestamp() + make_interval(secs => %(seconds)s::double precision / 2)
), mine AS (
    SELECT tenant, session FROM killick.sessions JOIN due USING (tenant, session)
    ORDER BY tenant, session FOR UPDATE OF sessions SKIP LOCKED
), asked AS (
    UPDATE killick.sessions AS s
    SET watched = clock_timestamp() + make_interval(secs => %(seconds)s::double precision)
    FROM mine WHERE s.tenant = mine.tenant AND s.session = mine.session
    RETURNING 1
)
SELECT (SELECT count(*) FROM due) - (SELECT count(*) FROM asked);

-- notify --
SELECT pg_notify(channel, '') FROM unnest(%(channels)s::text[]) AS channel;

-- search_state --
SELECT substrings, damage FROM killick.search_state;

-- index_behind --
SELECT coalesce(sum(head - indexed), 0)::bigint FROM killick.sessions WHERE behind;

-- unindexed_sessions --
SELECT tenant, session, indexed FROM killick.sessions WHERE behind AND indexed < head
ORDER BY updated_at_us, tenant, session LIMIT %(limit)s;

-- lock_index --
-- A row that somebody writes to at this moment is left alone: its turn comes.
SELECT tenant, session, indexed FROM killick.sessions
JOIN unnest(%(tenants)s::bigint[], %(sessions)s::bigint[]) AS wanted (tenant, session) USING (tenant, session)
ORDER BY tenant, session FOR UPDATE OF sessions SKIP LOCKED;

-- save_indexed --
UPDATE killick.sessions AS s SET indexed = done.seq, behind = s.head > done.seq
FROM unnest(%(tenants)s::bigint[], %(sessions)s::bigint[], %(seqs)s::bigint[]) AS done (tenant, session, seq)
WHERE s.tenant = done.tenant AND s.session = done.session;

-- put_documents --
INSERT INTO killick.search_documents AS d (tenant, session, place, seq, first, at_us, role, partial)
SELECT * FROM unnest(%(tenants)s::bigint[], %(sessions)s::bigint[], %(place)s::bigint[], %(seq)s::bigint[],
                     %(first)s::bigint[], %(at_us)s::bigint[], %(role)s::bigint[], %(partial)s::boolean[])
ON CONFLICT (tenant, session, place) DO UPDATE
SET seq = excluded.seq, at_us = excluded.at_us, role = excluded.role, partial = excluded.partial
WHERE d.seq < excluded.seq;

-- drop_words --
DELETE FROM killick.search_words AS w
USING unnest(%(tenants)s::bigint[], %(sessions)s::bigint[], %(place)s::bigint[]) AS gone (tenant, session, place)
WHERE w.tenant = gone.tenant AND w.session = gone.session AND w.place = gone.place;

-- put_words --
INSERT INTO killick.search_words (tenant, session, place, reasoning, piece, words)
SELECT tenant, session, place, reasoning, piece, words::tsvector
FROM unnest(%(tenants)s::bigint[], %(sessions)s::bigint[], %(place)s::bigint[], %(reasoning)s::boolean[],
            %(piece)s::bigint[], %(words)s::text[]) AS new (tenant, session, place, reasoning, piece, words)
ON CONFLICT (tenant, session, place, reasoning, piece) DO UPDATE SET words = excluded.words;

-- put_substrings --
INSERT INTO killick.search_substrings (tenant, session, place, reasoning, folded)
SELECT * FROM unnest(%(tenants)s::bigint[], %(sessions)s::bigint[], %(place)s::bigint[], %(reasoning)s::boolean[],
                     %(folded)s::text[])
ON CONFLICT (tenant, session, place, reasoning) DO UPDATE SET folded = excluded.folded;

-- drop_documents --
DELETE FROM killick.search_documents WHERE tenant = %(tenant)s AND session = %(session)s;

-- drop_all_words --
DELETE FROM killick.search_words WHERE tenant = %(tenant)s AND session = %(session)s;

-- drop_all_substrings --
DELETE FROM killick.search_substrings WHERE tenant = %(tenant)s AND session = %(session)s;

-- empty_index --
TRUNCATE killick.search_documents, killick.search_words, killick.search_substrings;

-- index_from_start --
UPDATE killick.sessions SET indexed = base_seq, behind = true;

-- save_search_state --
UPDATE killick.search_state SET substrings = %(substrings)s, damage = NULL;

-- save_search_damage --
UPDATE killick.search_state SET damage = %(damage)s;

-- trigrams --
-- Whether pg_trgm is installed, where, and whether this role could install it.
SELECT e.extname IS NOT NULL, e.extnamespace::regnamespace::text,
       EXISTS (SELECT 1 FROM pg_available_extension_versions AS v
               WHERE v.name = 'pg_trgm'
                 AND (v.trusted AND has_database_privilege(current_database(), 'CREATE')
                      OR (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)))
FROM (SELECT 1) AS one LEFT JOIN pg_extension AS e ON e.extname = 'pg_trgm';

-- index_parts --
CREATE INDEX IF NOT EXISTS search_substrings_by_part ON killick.search_substrings USING gin (folded OPCLASS);

-- search_newest --
-- A filter that is NULL filters nothing. `lineage_` are the sessions of a fork, and how far each reaches. What is looked for
-- is put where MATCH stands.
SELECT d.session, d.seq
FROM killick.search_documents AS d
JOIN killick.sessions AS s USING (tenant, session)
WHERE d.tenant = %(tenant)s AND MATCH
  AND (%(lineage)s::bigint[] IS NOT NULL OR NOT s.deleted)
  AND (%(lineage)s::bigint[] IS NULL OR EXISTS (
       SELECT 1 FROM unnest(%(lineage)s::bigint[], %(reach)s::bigint[]) AS one (session, through)
       WHERE one.session = d.session AND one.through >= d.seq))
  AND (%(role)s::bigint IS NULL OR d.role = %(role)s)
  AND (%(partial)s::boolean IS NULL OR d.partial = %(partial)s)
  AND (%(project)s::bytea IS NULL OR s.project = %(project)s)
  AND (%(interrupted)s::boolean IS NULL OR coalesce(s.status = 'interrupted', false) = %(interrupted)s)
  AND (%(since_us)s::bigint IS NULL OR d.at_us >= %(since_us)s)
  AND (%(until_us)s::bigint IS NULL OR d.at_us < %(until_us)s)
ORDER BY d.first DESC, d.session, d.place DESC LIMIT %(limit)s;

-- match_words --
EXISTS (SELECT 1 FROM killick.search_words AS w
        WHERE w.tenant = d.tenant AND w.session = d.session AND w.place = d.place
          AND (%(reasoning)s OR NOT w.reasoning) AND w.words @@ %(LEAF)s::tsquery);

-- match_substring --
EXISTS (SELECT 1 FROM killick.search_substrings AS w
        WHERE w.tenant = d.tenant AND w.session = d.session AND w.place = d.place
          AND (%(reasoning)s OR NOT w.reasoning) AND w.folded LIKE %(LEAF)s);

-- rank --
(SELECT coalesce(sum(ts_rank(w.words, %(any)s::tsquery, 1)), 0) FROM killick.search_words AS w
 WHERE w.tenant = d.tenant AND w.session = d.session AND w.place = d.place AND (%(reasoning)s OR NOT w.reasoning)) DESC,;

-- server --
SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
       current_setting('synchronous_standby_names'), pg_is_in_recovery(),
       (SELECT count(*) FROM pg_stat_replication);
