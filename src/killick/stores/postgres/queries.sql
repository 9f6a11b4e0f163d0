-- set_locally --
-- Set what a transaction needs: behind a pooler nothing outlives one.
SELECT set_config('lock_timeout', %(lock_timeout)s, true),
       set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, true),
       set_config('synchronous_commit', %(synchronous_commit)s, true),
       set_config('killick_store.tenant', %(tenant)s, true);

-- lock_session --
-- Lock one session for a transaction, and read it.
SELECT tenant, session, id, head, stamp, fence, turn_seq, stop_seq, queue_seq, created_at_us, updated_at_us,
       base, base_seq, about, holder, due, due_us, imported, link, watched > clock_timestamp()
FROM killick.sessions WHERE tenant = %(tenant)s AND session = %(session)s
FOR UPDATE;

-- lock_sessions --
-- Lock several sessions, in one order for every process, so that no two wait for each other.
SELECT tenant, session, id, head, stamp, fence, turn_seq, stop_seq, queue_seq, created_at_us, updated_at_us,
       base, base_seq, about, holder, due, due_us, imported, link, watched > clock_timestamp()
FROM killick.sessions
JOIN unnest(%(tenants)s::bigint[], %(sessions)s::bigint[]) AS wanted (tenant, session) USING (tenant, session)
ORDER BY tenant, session
FOR UPDATE OF sessions;

-- held_sessions --
-- Lock the free ones of these sessions, and find those that another process has locked.
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
-- Lock sessions whose versions are known; divide by zero if one has another version.
SELECT 1 / (count(*) = %(count)s)::int, array_agg(held.tenant) FILTER (WHERE held.wanted),
       array_agg(held.session) FILTER (WHERE held.wanted)
FROM (SELECT s.tenant, s.session, s.watched > clock_timestamp() AS wanted
      FROM killick.sessions AS s
      JOIN unnest(%(tenants)s::bigint[], %(sessions)s::bigint[], %(known)s::bigint[])
           AS believed (tenant, session, stamp) USING (tenant, session, stamp)
      ORDER BY s.tenant, s.session
      FOR UPDATE OF s) AS held;

-- append_entry --
-- Append one entry, as a whole transaction; nothing is written if the version is another.
WITH saved AS (
    UPDATE killick.sessions SET head = %(seq)s, link = %(link)s, stamp = %(stamp)s, behind = true
    WHERE tenant = %(tenant)s AND session = %(session)s AND stamp = %(known)s
    RETURNING tenant, session, watched > clock_timestamp() AS wanted
), added AS (
    INSERT INTO killick.entries (tenant, session, seq, at_us, crc, mark, identity, blob, body, link)
    SELECT tenant, session, %(seq)s, %(at_us)s, %(crc)s, %(mark)s::bigint, %(identity)s, %(blob)s::bytea, %(body)s,
           %(link)s::bytea
    FROM saved
)
SELECT wanted FROM saved;

-- append_entries --
-- The same for many sessions; divide by zero if one of them has another version.
WITH saved AS (
    UPDATE killick.sessions AS s SET head = believed.head, link = believed.link, stamp = %(stamp)s, behind = true
    FROM unnest(%(tenants)s::bigint[], %(sessions)s::bigint[], %(heads)s::bigint[], %(links)s::bytea[],
                %(known)s::bigint[]) AS believed (tenant, session, head, link, stamp)
    WHERE s.tenant = believed.tenant AND s.session = believed.session AND s.stamp = believed.stamp
    RETURNING s.tenant, s.session, s.watched > clock_timestamp() AS wanted
), added AS (
    INSERT INTO killick.entries (tenant, session, seq, at_us, crc, mark, identity, blob, body, link)
    SELECT * FROM unnest(%(tenant)s::bigint[], %(session)s::bigint[], %(seq)s::bigint[], %(at_us)s::bigint[],
                         %(crc)s::bigint[], %(mark)s::bigint[], %(identity)s::bytea[], %(blob)s::bytea[],
                         %(body)s::bytea[], %(link)s::bytea[])
)
SELECT 1 / (count(*) = %(count)s)::int, array_agg(tenant) FILTER (WHERE wanted), array_agg(session) FILTER (WHERE wanted)
FROM saved;

-- session --
-- Read a session's row without locking it.
SELECT tenant, session, id, head, stamp, fence, turn_seq, stop_seq, queue_seq, created_at_us, updated_at_us,
       base, base_seq, about, holder, due, due_us, imported, link
FROM killick.sessions WHERE tenant = %(tenant)s AND session = %(session)s;

-- stopping --
-- Find the sessions whose turn was asked to stop, for whichever process runs it.
SELECT tenant, session, stop_seq FROM killick.sessions WHERE stop_seq IS NOT NULL;

-- find_key --
-- Find a session's number by its id.
SELECT session FROM killick.session_ids WHERE tenant = %(tenant)s AND id = %(id)s;

-- tenant_name --
-- Read the name behind a tenant's number; names never change.
SELECT name FROM killick.tenants WHERE tenant = %(tenant)s;

-- put_tenant --
-- Keep the name of a tenant that writes for the first time.
INSERT INTO killick.tenants (tenant, name) VALUES (%(tenant)s, %(name)s) ON CONFLICT (tenant) DO NOTHING;

-- base_of --
-- Find what a fork was forked from, to read its journal through its ancestors.
SELECT base, base_seq FROM killick.sessions
WHERE tenant = %(tenant)s AND session = %(session)s AND base IS NOT NULL;

-- forks_of --
-- Find the forks of a session: it cannot be erased before them.
SELECT session FROM killick.sessions WHERE tenant = %(tenant)s AND base = %(session)s ORDER BY created_at_us, session;

-- session_keys --
-- List all sessions, for what goes over the whole store.
SELECT tenant, session FROM killick.sessions ORDER BY created_at_us, tenant, session;

-- now --
-- Read the server's clock, in microseconds since 1970.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- due --
-- Find sessions whose work may be taken by now.
SELECT tenant, session FROM killick.sessions
WHERE tenant = %(tenant)s AND due_us <= %(now_us)s ORDER BY due_us, session LIMIT %(limit)s;

-- held --
-- Find who has sessions now, to see which of them are dead.
SELECT holder, tenant, session, due IS NOT NULL FROM killick.sessions
WHERE tenant = %(tenant)s AND holder IS NOT NULL;

-- origin --
-- Read where a session comes from, even if the rest of its row is damaged.
SELECT id, created_at_us, base, base_seq, imported, link FROM killick.sessions
WHERE tenant = %(tenant)s AND session = %(session)s;

-- head_of --
-- Find the last seq that is really stored, to compare the row with it.
SELECT coalesce(max(seq), 0) FROM killick.entries WHERE tenant = %(tenant)s AND session = %(session)s;

-- count_of --
-- Count the entries of a session that is about to be erased, for its receipt.
SELECT count(*) FROM killick.entries WHERE tenant = %(tenant)s AND session = %(session)s;

-- labels --
-- Read a session's tags and models, to compare them with its journal.
SELECT kind, label FROM killick.labels WHERE tenant = %(tenant)s AND session = %(session)s;

-- usage_of --
-- Read what a session's model calls have cost, to compare it with its journal.
SELECT day, provider, model, calls, input, output, cached, reasoning, cost
FROM killick.usage WHERE tenant = %(tenant)s AND session = %(session)s ORDER BY day, provider, model;

-- streams --
-- Find the messages whose deltas were not dropped yet: they were streaming.
SELECT DISTINCT seq FROM killick.deltas WHERE tenant = %(tenant)s AND session = %(session)s ORDER BY seq;

-- find_ids --
-- Complete a shortened id.
SELECT id FROM killick.session_ids
WHERE tenant = %(tenant)s AND id >= %(prefix)s AND id < %(beyond)s ORDER BY id LIMIT %(limit)s;

-- unscrubbed --
-- List erased sessions whose bytes may still be in a file.
SELECT id FROM killick.erasures WHERE tenant = %(tenant)s AND scrubbed_at_us IS NULL ORDER BY at_us, session;

-- sessions --
-- List sessions, newest first, by the lines of the filters that are given and of one way to look for them.
-- The server may not choose another way: `OFFSET 0` and MATERIALIZED keep it from mixing the steps.
WITH matches AS MATERIALIZED ( /* by fork_of, parent, tag, model, project */
SELECT s.id, s.about, s.created_at_us, s.updated_at_us
FROM killick.sessions AS s                                                         /* by time, fork_of, parent, project, interrupted, pinned */
FROM (SELECT * FROM killick.sessions AS n                                          /* by newest */
      WHERE n.tenant = %(tenant)s AND n.deleted = %(deleted)s                      /* by newest */
        AND (n.updated_at_us, n.id) < (%(before_us)s, %(before_id)s::bytea)        /* by newest */
      ORDER BY n.updated_at_us DESC, n.id DESC LIMIT %(newest)s) AS s              /* by newest */
FROM (SELECT session FROM killick.labels WHERE tenant = %(tenant)s                 /* by tag, model */
        AND kind = 'tag' AND label = %(tag)s                                       /* by tag */
        AND kind = 'model' AND label = %(model)s                                   /* by model */
      OFFSET 0) AS wanted                                                          /* by tag, model */
CROSS JOIN LATERAL (SELECT * FROM killick.sessions AS n                            /* by tag, model */
      WHERE n.tenant = %(tenant)s AND n.session = wanted.session OFFSET 0) AS s    /* by tag, model */
WHERE s.tenant = %(tenant)s AND s.deleted = %(deleted)s
  AND s.base = (                                                                   /* if fork_of */
      SELECT i.session FROM killick.session_ids AS i                               /* if fork_of */
      WHERE i.tenant = %(tenant)s AND i.id = %(fork_of)s)                          /* if fork_of */
  AND s.parent = %(parent)s                                                        /* if parent */
  AND EXISTS (                                                                     /* else tag */
      SELECT 1 FROM killick.labels AS l WHERE l.tenant = s.tenant AND l.session = s.session /* else tag */
        AND l.kind = 'tag' AND l.label = %(tag)s OFFSET 0)                         /* else tag */
  AND EXISTS (                                                                     /* else model */
      SELECT 1 FROM killick.labels AS l WHERE l.tenant = s.tenant AND l.session = s.session /* else model */
        AND l.kind = 'model' AND l.label = %(model)s OFFSET 0)                     /* else model */
  AND s.project = %(project)s                                                      /* if project */
  AND s.status = 'interrupted'                                                     /* by interrupted */
  AND coalesce(s.status = 'interrupted', false) = %(interrupted)s                  /* else interrupted */
  AND s.pinned                                                                     /* by pinned */
  AND s.pinned = %(pinned)s                                                        /* else pinned */
  AND s.archived = %(archived)s                                                    /* if archived */
  AND s.type = %(type)s                                                            /* if type */
  AND position(%(title)s::bytea IN s.title) > 0                                    /* if title */
  AND s.updated_at_us >= %(since_us)s                                              /* if since_us */
  AND s.updated_at_us < %(until_us)s                                               /* if until_us */
  AND (s.updated_at_us, s.id) < (%(before_us)s, %(before_id)s::bytea)
) SELECT s.id, s.about, s.created_at_us, s.updated_at_us FROM matches AS s /* by fork_of, parent, tag, model, project */
ORDER BY s.updated_at_us DESC, s.id DESC LIMIT %(limit)s;

-- put_id --
-- Claim the id of a new session; a second one of this id fails here.
INSERT INTO killick.session_ids (tenant, id, session) VALUES (%(tenant)s, %(id)s, %(session)s);

-- create_session --
-- Insert a new session; save_session completes the row.
INSERT INTO killick.sessions (tenant, session, id, head, stamp, fence, created_at_us, updated_at_us, base, base_seq,
                               indexed, behind, archived, deleted, pinned, type, about)
VALUES (%(tenant)s, %(session)s, %(id)s, %(base_seq)s, %(stamp)s, %(fence)s, %(created_at_us)s, %(updated_at_us)s,
        %(base)s, %(base_seq)s, %(base_seq)s, true, false, false, false, '', %(about)s);

-- save_session --
-- Save a session's row after operations that changed more than its head.
UPDATE killick.sessions
SET head = %(head)s, link = %(link)s, stamp = %(stamp)s, fence = %(fence)s, turn_seq = %(turn_seq)s,
    stop_seq = %(stop_seq)s, queue_seq = %(queue_seq)s, updated_at_us = %(updated_at_us)s, archived = %(archived)s, deleted = %(deleted)s,
    about = %(about)s, type = %(type)s, project = %(project)s, title = %(title)s, status = %(status)s,
    pinned = %(pinned)s, parent = %(parent)s,
    holder = %(holder)s, due = %(due)s, due_us = %(due_us)s, imported = %(imported)s,
    behind = behind OR indexed < %(head)s, uncounted = true
WHERE tenant = %(tenant)s AND session = %(session)s;

-- save_head --
-- Save the head of a session that only got new entries.
UPDATE killick.sessions SET head = %(head)s, link = %(link)s, stamp = %(stamp)s, behind = true
WHERE tenant = %(tenant)s AND session = %(session)s;

-- save_heads --
-- The same for several sessions.
UPDATE killick.sessions AS s SET head = saved.head, link = saved.link, stamp = %(stamp)s, behind = true
FROM unnest(%(tenants)s::bigint[], %(sessions)s::bigint[], %(heads)s::bigint[], %(links)s::bytea[])
     AS saved (tenant, session, head, link)
WHERE s.tenant = saved.tenant AND s.session = saved.session;

-- restamp --
-- Give sessions a new version: every process must read them again.
UPDATE killick.sessions AS s SET stamp = %(stamp)s
FROM unnest(%(tenants)s::bigint[], %(sessions)s::bigint[]) AS wanted (tenant, session)
WHERE s.tenant = wanted.tenant AND s.session = wanted.session;

-- drop_labels --
-- Forget a session's tags and models before they are written anew.
DELETE FROM killick.labels WHERE tenant = %(tenant)s AND session = %(session)s;

-- put_label --
-- Make a session findable by a tag or a model.
INSERT INTO killick.labels (tenant, session, kind, label)
VALUES (%(tenant)s, %(session)s, %(kind)s, %(label)s) ON CONFLICT DO NOTHING;

-- drop_usage --
-- Forget a session's usage before it is added up anew from its journal.
DELETE FROM killick.usage WHERE tenant = %(tenant)s AND session = %(session)s;

-- spend --
-- Add a model call to a session's usage of a day, and note that the sums lack it.
WITH noted AS (
    UPDATE killick.sessions SET uncounted = true
    WHERE tenant = %(tenant)s AND session = %(session)s AND NOT uncounted
)
INSERT INTO killick.usage AS u (tenant, session, day, provider, model, calls, input, output, cached, reasoning, cost)
VALUES (%(tenant)s, %(session)s, %(day)s, %(provider)s, %(model)s, %(calls)s, %(input)s, %(output)s, %(cached)s,
        %(reasoning)s, %(cost)s::double precision)
ON CONFLICT (tenant, session, day, provider, model) DO UPDATE
SET calls = u.calls + excluded.calls, input = u.input + excluded.input, output = u.output + excluded.output,
    cached = u.cached + excluded.cached, reasoning = u.reasoning + excluded.reasoning,
    cost = CASE WHEN u.cost IS NULL THEN excluded.cost ELSE u.cost + coalesce(excluded.cost, 0.0) END;

-- usage --
-- Add up usage for a report, by the lines of the filters that are given.
SELECT s.id, s.project, u.day, u.provider, u.model, u.calls, u.input, u.output, u.cached, u.reasoning, u.cost
FROM killick.usage AS u JOIN killick.sessions AS s USING (tenant, session)
WHERE u.tenant = %(tenant)s
  AND u.session = (                                                                   /* if session */
      SELECT i.session FROM killick.session_ids AS i                                  /* if session */
      WHERE i.tenant = %(tenant)s AND i.id = %(session)s)                             /* if session */
  AND s.project = %(project)s                                                         /* if project */
  AND u.model = %(model)s                                                             /* if model */
  AND u.day >= %(since_day)s                                                          /* if since_day */
  AND u.day <= %(until_day)s                                                          /* if until_day */
ORDER BY u.day, s.id, u.provider, u.model;

-- uncounted --
-- Find sessions that the sums lack, or have as they were.
SELECT s.tenant, s.session, s.created_at_us, s.base_seq, s.deleted,
       (SELECT c.body FROM killick.counted AS c WHERE c.tenant = s.tenant AND c.session = s.session)
FROM killick.sessions AS s
WHERE s.uncounted AND s.tenant = %(tenant)s
ORDER BY s.tenant, s.session LIMIT %(limit)s;

-- uncounted_of_all --
-- The same, of every tenant, to see whether there are any.
SELECT s.tenant, s.session, s.created_at_us, s.base_seq, s.deleted,
       (SELECT c.body FROM killick.counted AS c WHERE c.tenant = s.tenant AND c.session = s.session)
FROM killick.sessions AS s
WHERE s.uncounted
ORDER BY s.tenant, s.session LIMIT %(limit)s;

-- take_sums --
-- Be the one process that changes the sums, until the commit, if no other is.
SELECT pg_try_advisory_xact_lock(hashtextextended('killick.usage_sums', 0));

-- wait_for_sums --
-- Be the one process that changes the sums, until the commit, after the one that is.
SELECT pg_advisory_xact_lock(hashtextextended('killick.usage_sums', 0));

-- take_uncounted --
-- Lock sessions to count them; a row that is locked is left for later.
SELECT s.tenant, s.session, s.created_at_us, s.base_seq, s.deleted,
       (SELECT c.body FROM killick.counted AS c WHERE c.tenant = s.tenant AND c.session = s.session)
FROM killick.sessions AS s
WHERE s.uncounted
ORDER BY s.tenant, s.session LIMIT %(limit)s FOR UPDATE OF s SKIP LOCKED;

-- count_uncounted --
-- Say how far the sums are behind.
SELECT count(*) FROM killick.sessions WHERE uncounted AND tenant = %(tenant)s;

-- usage_sums --
-- Report the usage of all sessions together.
SELECT day, provider, model, calls, input, output, cached, reasoning, cost, sessions, priced
FROM killick.usage_sums
WHERE tenant = %(tenant)s
  AND model = %(model)s                                                               /* if model */
  AND day >= %(since_day)s                                                            /* if since_day */
  AND day <= %(until_day)s                                                            /* if until_day */
ORDER BY day, provider, model;

-- activity_sums --
-- Report the activity of all sessions together.
SELECT day, sessions, turns, completed, failed, interrupted FROM killick.activity_sums
WHERE tenant = %(tenant)s AND day BETWEEN %(since)s AND %(until)s ORDER BY day;

-- all_usage_sums --
-- Compare the sums with what was counted: model calls.
SELECT tenant, day, provider, model, calls, input, output, cached, reasoning, cost, sessions, priced
FROM killick.usage_sums;

-- all_activity_sums --
-- Compare the sums with what was counted: turns.
SELECT tenant, day, sessions, turns, completed, failed, interrupted FROM killick.activity_sums;

-- all_counted --
-- Compare the sums with what was counted: a page of all that was.
SELECT tenant, session, body FROM killick.counted
WHERE (tenant, session) > (%(tenant_after)s, %(session_after)s) ORDER BY tenant, session LIMIT %(limit)s;

-- counted_of --
-- Read what of a session is in the sums, to take it out.
SELECT body FROM killick.counted WHERE tenant = %(tenant)s AND session = %(session)s;

-- put_counted --
-- Keep what of a session is in the sums, which have it as it is.
WITH noted AS (
    UPDATE killick.sessions SET uncounted = false WHERE tenant = %(tenant)s AND session = %(session)s
)
INSERT INTO killick.counted (tenant, session, body) VALUES (%(tenant)s, %(session)s, %(body)s)
ON CONFLICT (tenant, session) DO UPDATE SET body = excluded.body;

-- drop_counted --
-- Forget what was counted of an erased session.
DELETE FROM killick.counted WHERE tenant = %(tenant)s AND session = %(session)s;

-- add_usage --
-- Change the sum of a day and model. What is left of costs that were taken out is no cost.
INSERT INTO killick.usage_sums AS u
       (tenant, day, provider, model, calls, input, output, cached, reasoning, cost, sessions, priced)
VALUES (%(tenant)s, %(day)s, %(provider)s, %(model)s, %(calls)s, %(input)s, %(output)s, %(cached)s, %(reasoning)s,
        %(cost)s::double precision, %(sessions)s, %(priced)s)
ON CONFLICT (tenant, day, provider, model) DO UPDATE
SET calls = u.calls + excluded.calls, input = u.input + excluded.input, output = u.output + excluded.output,
    cached = u.cached + excluded.cached, reasoning = u.reasoning + excluded.reasoning,
    sessions = u.sessions + excluded.sessions, priced = u.priced + excluded.priced,
    cost = CASE WHEN u.priced + excluded.priced = 0 THEN 0.0 ELSE u.cost + excluded.cost END;

-- drop_empty_usage --
-- Drop a sum to which no session adds any more.
DELETE FROM killick.usage_sums
WHERE tenant = %(tenant)s AND day = %(day)s AND provider = %(provider)s AND model = %(model)s AND sessions = 0;

-- add_activity --
-- Change the sum of a day.
INSERT INTO killick.activity_sums AS a (tenant, day, sessions, turns, completed, failed, interrupted)
VALUES (%(tenant)s, %(day)s, %(sessions)s, %(turns)s, %(completed)s, %(failed)s, %(interrupted)s)
ON CONFLICT (tenant, day) DO UPDATE
SET sessions = a.sessions + excluded.sessions, turns = a.turns + excluded.turns,
    completed = a.completed + excluded.completed, failed = a.failed + excluded.failed,
    interrupted = a.interrupted + excluded.interrupted;

-- drop_empty_activity --
-- Drop the sum of a day on which nothing is left.
DELETE FROM killick.activity_sums
WHERE tenant = %(tenant)s AND day = %(day)s AND sessions = 0 AND turns = 0 AND completed = 0 AND failed = 0
  AND interrupted = 0;

-- empty_usage_sums --
-- Count every session anew: forget the sums of model calls.
DELETE FROM killick.usage_sums;

-- empty_activity_sums --
-- Count every session anew: forget the sums of turns.
DELETE FROM killick.activity_sums;

-- empty_counted --
-- Count every session anew: forget what was counted.
DELETE FROM killick.counted;

-- count_from_start --
-- Count every session anew: none is counted.
UPDATE killick.sessions SET uncounted = true WHERE NOT uncounted;

-- insert_entry --
-- Append one entry; one whose identity is stored already fails.
INSERT INTO killick.entries (tenant, session, seq, at_us, crc, mark, identity, blob, body, link)
VALUES (%(tenant)s, %(session)s, %(seq)s, %(at_us)s, %(crc)s, %(mark)s, %(identity)s, %(blob)s, %(body)s,
        %(link)s);

-- insert_entries --
-- The same for several entries, of any sessions.
INSERT INTO killick.entries (tenant, session, seq, at_us, crc, mark, identity, blob, body, link)
SELECT * FROM unnest(%(tenant)s::bigint[], %(session)s::bigint[], %(seq)s::bigint[], %(at_us)s::bigint[],
                     %(crc)s::bigint[], %(mark)s::bigint[], %(identity)s::bytea[], %(blob)s::bytea[],
                     %(body)s::bytea[], %(link)s::bytea[]);

-- has_entry --
-- Find an entry by identity: whether it is a repetition, or whether a lost commit was made.
SELECT seq FROM killick.entries
WHERE tenant = %(tenant)s AND session = %(session)s AND identity = %(identity)s;

-- entries --
-- Read a journal, or a page of it, in order.
SELECT seq, at_us, crc, body, blob
FROM killick.entries
WHERE tenant = %(tenant)s AND session = %(session)s AND seq > %(after)s AND seq <= %(through)s
ORDER BY seq LIMIT %(limit)s;

-- newest_entries --
-- Read the end of a journal, backwards.
SELECT seq, at_us, crc, body, blob
FROM killick.entries
WHERE tenant = %(tenant)s AND session = %(session)s AND seq < %(before)s
ORDER BY seq DESC LIMIT %(limit)s;

-- marked_entries --
-- Read only the entries of one lookup class: turns, or compactions and rewinds.
SELECT seq, at_us, crc, body, blob
FROM killick.entries
WHERE tenant = %(tenant)s AND session = %(session)s AND mark = %(mark)s AND seq > %(after)s
ORDER BY seq;

-- newest_marked --
-- Read the entries of one lookup class backwards.
SELECT seq, at_us, crc, body, blob
FROM killick.entries
WHERE tenant = %(tenant)s AND session = %(session)s AND mark = %(mark)s AND seq < %(before)s
ORDER BY seq DESC LIMIT %(limit)s;

-- find_entry --
-- Read one entry by its identity.
SELECT seq, at_us, crc, body, blob
FROM killick.entries WHERE tenant = %(tenant)s AND session = %(session)s AND identity = %(identity)s;

-- link_at --
-- Read the link of one entry: where a fork begins, what was kept elsewhere.
SELECT link FROM killick.entries WHERE tenant = %(tenant)s AND session = %(session)s AND seq = %(seq)s;

-- stored_entries --
-- Read rows as they are, to prove them.
SELECT seq, at_us, crc, body, blob, mark, identity, link
FROM killick.entries WHERE tenant = %(tenant)s AND session = %(session)s AND seq > %(after)s
ORDER BY seq LIMIT %(limit)s;

-- saved_head --
-- Read the head that a session's row names.
SELECT head FROM killick.sessions WHERE tenant = %(tenant)s AND session = %(session)s;

-- was_erased --
-- Find the receipt of an erased session.
SELECT 1 FROM killick.erasures WHERE tenant = %(tenant)s AND id = %(id)s LIMIT 1;

-- deltas --
-- Read the deltas of a message that streams, or of a tool that runs.
SELECT number, body, crc FROM killick.deltas
WHERE tenant = %(tenant)s AND session = %(session)s AND seq = %(seq)s AND number > %(after)s ORDER BY number;

-- put_deltas --
-- Write flushes; one whose outcome was unknown comes again, with a new number and at least its text.
INSERT INTO killick.deltas (tenant, session, seq, number, body, crc)
SELECT * FROM unnest(%(tenant)s::bigint[], %(session)s::bigint[], %(seq)s::bigint[], %(number)s::bigint[],
                     %(body)s::bytea[], %(crc)s::bigint[])
ON CONFLICT (tenant, session, seq, number) DO UPDATE SET body = excluded.body, crc = excluded.crc;

-- drop_deltas --
-- Drop the deltas of a message that is complete: its entry has all of it.
DELETE FROM killick.deltas WHERE tenant = %(tenant)s AND session = %(session)s AND seq = %(seq)s;

-- blob --
-- Read a blob.
SELECT data FROM killick.blobs WHERE tenant = %(tenant)s AND digest = %(digest)s;

-- has_blob --
-- Check that a blob is there.
SELECT 1 FROM killick.blobs WHERE tenant = %(tenant)s AND digest = %(digest)s;

-- claim_blob --
-- Keep a blob that nothing refers to yet from being collected, for a holder that relies on it.
WITH claimed AS (
    UPDATE killick.blobs AS b SET holder = %(holder)s
    WHERE b.tenant = %(tenant)s AND b.digest = %(digest)s AND b.holder <> %(holder)s
      AND NOT EXISTS (SELECT 1 FROM killick.blob_references AS r WHERE r.tenant = b.tenant AND r.digest = b.digest)
)
SELECT 1 FROM killick.blobs WHERE tenant = %(tenant)s AND digest = %(digest)s;

-- put_blob --
-- Store a blob, for its holder until an entry refers to it.
INSERT INTO killick.blobs (tenant, digest, holder, data)
VALUES (%(tenant)s, %(digest)s, %(holder)s, %(data)s) ON CONFLICT DO NOTHING;

-- has_reference --
-- Check whether a session refers to a blob already.
SELECT 1 FROM killick.blob_references
WHERE tenant = %(tenant)s AND session = %(session)s AND digest = %(digest)s;

-- keep_blob --
-- Hold a blob until the commit; many may, and a process that removes loose blobs waits for all.
SELECT 1 FROM killick.blobs WHERE tenant = %(tenant)s AND digest = %(digest)s FOR KEY SHARE;

-- refer --
-- Keep a blob for as long as this session exists.
INSERT INTO killick.blob_references (tenant, session, digest)
VALUES (%(tenant)s, %(session)s, %(digest)s) ON CONFLICT DO NOTHING;

-- collecting_is_due --
-- Check whether no process has collected blobs within a day.
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM killick.meta
    WHERE name = 'collected' AND value > extract(epoch FROM clock_timestamp())::bigint - 86400);

-- collecting --
-- Note that blobs are collected now.
INSERT INTO killick.meta (name, value) VALUES ('collected', extract(epoch FROM clock_timestamp())::bigint)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- loose_blobs --
-- Find blobs that no session refers to; some holders may still be alive.
SELECT b.tenant, b.digest, b.holder FROM killick.blobs AS b
WHERE NOT EXISTS (SELECT 1 FROM killick.blob_references AS r WHERE r.tenant = b.tenant AND r.digest = b.digest)
ORDER BY b.tenant, b.digest;

-- own_blobs --
-- Find blobs that only the session to be erased refers to.
SELECT b.tenant, b.digest, b.holder
FROM killick.blob_references AS mine JOIN killick.blobs AS b USING (tenant, digest)
WHERE mine.tenant = %(tenant)s AND mine.session = %(session)s
  AND NOT EXISTS (SELECT 1 FROM killick.blob_references AS r
                  WHERE r.tenant = mine.tenant AND r.digest = mine.digest AND r.session <> mine.session)
ORDER BY b.tenant, b.digest;

-- lock_blobs --
-- Lock blobs that are about to be removed, in one order for every process.
SELECT 1 FROM killick.blobs JOIN unnest(%(tenants)s::bigint[], %(digests)s::bytea[]) AS wanted (tenant, digest)
     USING (tenant, digest)
ORDER BY tenant, digest FOR UPDATE OF blobs;

-- drop_blobs --
-- Remove locked blobs, but those that a session refers to or another holder relies on by now.
DELETE FROM killick.blobs AS b
USING unnest(%(tenants)s::bigint[], %(digests)s::bytea[], %(holders)s::text[]) AS wanted (tenant, digest, holder)
WHERE b.tenant = wanted.tenant AND b.digest = wanted.digest AND b.holder = wanted.holder
  AND NOT EXISTS (SELECT 1 FROM killick.blob_references AS r WHERE r.tenant = b.tenant AND r.digest = b.digest)
RETURNING 1;

-- drop_references --
-- Forget which blobs an erased session refers to.
DELETE FROM killick.blob_references WHERE tenant = %(tenant)s AND session = %(session)s;

-- erase_entries --
-- Remove the journal of an erased session.
DELETE FROM killick.entries WHERE tenant = %(tenant)s AND session = %(session)s;

-- erase_deltas --
-- Remove the deltas of an erased session.
DELETE FROM killick.deltas WHERE tenant = %(tenant)s AND session = %(session)s;

-- erase_id --
-- Free the id of an erased session, unless another session has it by now.
DELETE FROM killick.session_ids
WHERE tenant = %(tenant)s
  AND id = (SELECT id FROM killick.sessions WHERE tenant = %(tenant)s AND session = %(session)s)
  AND session = %(session)s;

-- erase_session --
-- Remove the row of an erased session.
DELETE FROM killick.sessions WHERE tenant = %(tenant)s AND session = %(session)s;

-- note_erasure --
-- Write the receipt of an erasure.
INSERT INTO killick.erasures (tenant, session, id, entries, at_us, because)
VALUES (%(tenant)s, %(session)s, %(id)s, %(entries)s, %(at_us)s, %(because)s);

-- erasures --
-- Show receipts of erasures.
SELECT id, entries, at_us, scrubbed_at_us, because FROM killick.erasures
WHERE tenant = %(tenant)s ORDER BY at_us DESC, session LIMIT %(limit)s;

-- retention --
-- Read the rules of retention.
SELECT body FROM killick.retention WHERE tenant = %(tenant)s ORDER BY project;

-- keep_rule --
-- Keep a rule of retention.
INSERT INTO killick.retention (tenant, project, body, at_us)
VALUES (%(tenant)s, %(project)s, %(body)s, %(at_us)s)
ON CONFLICT (tenant, project) DO UPDATE SET body = excluded.body, at_us = excluded.at_us;

-- drop_rule --
-- Forget a rule of retention.
DELETE FROM killick.retention WHERE tenant = %(tenant)s AND project = %(project)s;

-- has_erasure --
-- Find out whether a lost commit has erased the session.
SELECT at_us FROM killick.erasures WHERE tenant = %(tenant)s AND session = %(session)s;

-- scrubbed --
-- Note that the bytes of an erased session are gone from the files too.
UPDATE killick.erasures SET scrubbed_at_us = %(at_us)s
WHERE scrubbed_at_us IS NULL AND tenant = %(tenant)s AND id = %(id)s;

-- server_files --
-- Name the files that tables and indexes of the store lie in, and the tables of their long values.
SELECT DISTINCT pg_relation_filepath(part) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (SELECT c.oid UNION ALL SELECT c.reltoastrelid UNION ALL
                    SELECT indexrelid FROM pg_index WHERE indrelid IN (c.oid, c.reltoastrelid)) AS parts (part)
WHERE n.nspname = 'killick' AND c.relkind = 'r' AND part <> 0 ORDER BY 1;

-- counts --
-- Count what the store holds.
SELECT (SELECT count(*) FROM killick.sessions), (SELECT count(*) FROM killick.entries),
       (SELECT count(*) FROM killick.deltas), (SELECT count(*) FROM killick.blobs);

-- look_at_holder --
-- Look at a holder's lease, by the server's clock, and at its lock: null where its row says that it has none on this server.
-- A row of another tenant says nothing of it: any role may write one with this name.
SELECT (extract(epoch FROM h.until) * 1000000)::bigint, h.until <= clock_timestamp(),
       CASE WHEN EXISTS (SELECT 1 FROM killick.holders AS l
                         WHERE l.holder = h.holder || '/lock@' || extract(epoch FROM pg_postmaster_start_time())
                           AND l.tenant IS NOT DISTINCT FROM h.tenant)
            THEN EXISTS (SELECT 1 FROM pg_locks AS k
                         WHERE k.locktype = 'advisory' AND k.granted AND k.objsubid = 1
                           AND k.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
                           AND (k.classid::bigint << 32) | k.objid::bigint = hashtextextended(h.holder, 0))
       END
FROM killick.holders AS h WHERE h.holder = %(holder)s;

-- lock_holder --
-- Take the lock that says that a holder lives. Shared: one that an older connection still has is not waited for.
SELECT pg_advisory_lock_shared(hashtextextended(%(holder)s, 0));

-- renew --
-- Take or renew a lease, say in a row beside it whether its holder has a lock on this server, as it is since its start,
-- and read which versions may use the store.
WITH lock AS (SELECT %(holder)s::text || '/lock@' || extract(epoch FROM pg_postmaster_start_time()) AS name),
unlocked AS (DELETE FROM killick.holders AS h USING lock WHERE h.holder = lock.name AND NOT %(locked)s::boolean)
INSERT INTO killick.holders AS h (holder, until, tenant)
SELECT name, clock_timestamp() + make_interval(secs => %(seconds)s::double precision), %(tenant)s::bigint
FROM (SELECT %(holder)s::text AS name UNION ALL SELECT name FROM lock WHERE %(locked)s::boolean) AS rows
ON CONFLICT (holder) DO UPDATE SET until = greatest(h.until, excluded.until), tenant = excluded.tenant
RETURNING (SELECT m.value FROM killick.meta AS m WHERE m.name = 'oldest'),
          (SELECT m.value FROM killick.meta AS m WHERE m.name = 'version');

-- release --
-- Give a lease back.
DELETE FROM killick.holders
WHERE holder IN (%(holder)s, %(holder)s::text || '/lock@' || extract(epoch FROM pg_postmaster_start_time()));

-- forget_holders --
-- Forget leases that ran out a day ago: a lease that is not there has run out too.
DELETE FROM killick.holders WHERE until < clock_timestamp() - interval '1 day';

-- marks --
-- Read what changes when followed sessions do: the stamp with entries, the count with deltas.
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
-- Ask the writers of sessions for notices. Rows that are locked are left alone; count them, to ask again soon.
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
-- Wake the processes that listen to these sessions.
SELECT pg_notify(channel, '') FROM unnest(%(channels)s::text[]) AS channel;

-- search_state --
-- Read whether parts of words are indexed, and whether the index is damaged.
SELECT substrings, damage FROM killick.search_state;

-- index_behind --
-- Count the entries that are not indexed yet.
SELECT coalesce(sum(head - indexed), 0)::bigint FROM killick.sessions WHERE behind;

-- unindexed_sessions --
-- Find sessions with entries to index, the longest unchanged first.
SELECT tenant, session, indexed FROM killick.sessions WHERE behind AND indexed < head
ORDER BY updated_at_us, tenant, session LIMIT %(limit)s;

-- lock_index --
-- Lock sessions to index them; a row that is locked is left for later.
SELECT tenant, session, indexed FROM killick.sessions
JOIN unnest(%(tenants)s::bigint[], %(sessions)s::bigint[]) AS wanted (tenant, session) USING (tenant, session)
ORDER BY tenant, session FOR UPDATE OF sessions SKIP LOCKED;

-- save_indexed --
-- Save how far sessions are indexed.
UPDATE killick.sessions AS s SET indexed = done.seq, behind = s.head > done.seq
FROM unnest(%(tenants)s::bigint[], %(sessions)s::bigint[], %(seqs)s::bigint[]) AS done (tenant, session, seq)
WHERE s.tenant = done.tenant AND s.session = done.session;

-- put_documents --
-- Insert what can be found of messages; a later state replaces an earlier one.
INSERT INTO killick.search_documents AS d (tenant, session, place, seq, first, at_us, role, partial)
SELECT * FROM unnest(%(tenants)s::bigint[], %(sessions)s::bigint[], %(place)s::bigint[], %(seq)s::bigint[],
                     %(first)s::bigint[], %(at_us)s::bigint[], %(role)s::bigint[], %(partial)s::boolean[])
ON CONFLICT (tenant, session, place) DO UPDATE
SET seq = excluded.seq, at_us = excluded.at_us, role = excluded.role, partial = excluded.partial
WHERE d.seq < excluded.seq;

-- drop_words --
-- Drop the words of documents that are indexed anew.
DELETE FROM killick.search_words AS w
USING unnest(%(tenants)s::bigint[], %(sessions)s::bigint[], %(place)s::bigint[]) AS gone (tenant, session, place)
WHERE w.tenant = gone.tenant AND w.session = gone.session AND w.place = gone.place;

-- put_words --
-- Index the words of documents, in pieces.
INSERT INTO killick.search_words (tenant, session, place, reasoning, piece, words)
SELECT tenant, session, place, reasoning, piece, words::tsvector
FROM unnest(%(tenants)s::bigint[], %(sessions)s::bigint[], %(place)s::bigint[], %(reasoning)s::boolean[],
            %(piece)s::bigint[], %(words)s::text[]) AS new (tenant, session, place, reasoning, piece, words)
ON CONFLICT (tenant, session, place, reasoning, piece) DO UPDATE SET words = excluded.words;

-- put_substrings --
-- Index the text of documents, to find parts of words.
INSERT INTO killick.search_substrings (tenant, session, place, reasoning, folded)
SELECT * FROM unnest(%(tenants)s::bigint[], %(sessions)s::bigint[], %(place)s::bigint[], %(reasoning)s::boolean[],
                     %(folded)s::text[])
ON CONFLICT (tenant, session, place, reasoning) DO UPDATE SET folded = excluded.folded;

-- drop_documents --
-- Take a session out of the index: its documents.
DELETE FROM killick.search_documents WHERE tenant = %(tenant)s AND session = %(session)s;

-- drop_all_words --
-- Take a session out of the index: its words.
DELETE FROM killick.search_words WHERE tenant = %(tenant)s AND session = %(session)s;

-- drop_all_substrings --
-- Take a session out of the index: its parts of words.
DELETE FROM killick.search_substrings WHERE tenant = %(tenant)s AND session = %(session)s;

-- empty_index --
-- Empty the index before it is built anew.
TRUNCATE killick.search_documents, killick.search_words, killick.search_substrings;

-- index_from_start --
-- Have every session indexed again from where its own journal begins.
UPDATE killick.sessions SET indexed = base_seq, behind = true;

-- save_search_state --
-- Note that the index is sound, and whether it has parts of words.
UPDATE killick.search_state SET substrings = %(substrings)s, damage = NULL;

-- save_search_damage --
-- Note why the index cannot be used until it is built anew.
UPDATE killick.search_state SET damage = %(damage)s;

-- trigrams --
-- Find out whether pg_trgm is installed, where, and whether this role could install it.
SELECT e.extname IS NOT NULL, e.extnamespace::regnamespace::text,
       EXISTS (SELECT 1 FROM pg_available_extension_versions AS v
               WHERE v.name = 'pg_trgm'
                 AND (v.trusted AND has_database_privilege(current_database(), 'CREATE')
                      OR (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)))
FROM (SELECT 1) AS one LEFT JOIN pg_extension AS e ON e.extname = 'pg_trgm';

-- index_parts --
-- Index parts of words by trigrams; OPCLASS names them with their schema.
CREATE INDEX IF NOT EXISTS search_substrings_by_part ON killick.search_substrings USING gin (folded OPCLASS);

-- rank_newest --
-- Order what search_newest finds, which stands where FOUND does: of very many matches the newest.
SELECT d.session, d.seq, d.more
FROM (SELECT f.*, row_number() OVER (ORDER BY f.first DESC, f.session, f.place DESC) AS number,
             count(*) OVER () > %(most)s AS more
      FROM (FOUND) AS f) AS d
WHERE d.number <= %(most)s
ORDER BY (SELECT coalesce(sum(ts_rank(w.words, %(any)s::tsquery, 1)), 0) FROM killick.search_words AS w
          WHERE w.tenant = d.tenant AND w.session = d.session AND w.place = d.place
            AND (%(reasoning)s OR NOT w.reasoning)) DESC, d.number
LIMIT %(best)s;

-- search_newest --
-- Search. A filter that is NULL filters nothing. `lineage` and `reach` are the sessions of a fork, and how far each goes.
-- The conditions are put where MATCH stands.
SELECT d.session, d.seq, d.first, d.place, d.tenant
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
-- A condition of search_newest: the document holds this phrase.
EXISTS (SELECT 1 FROM killick.search_words AS w
        WHERE w.tenant = d.tenant AND w.session = d.session AND w.place = d.place
          AND (%(reasoning)s OR NOT w.reasoning) AND w.words @@ %(LEAF)s::tsquery);

-- match_substring --
-- A condition of search_newest: the document holds this part of a text.
EXISTS (SELECT 1 FROM killick.search_substrings AS w
        WHERE w.tenant = d.tenant AND w.session = d.session AND w.place = d.place
          AND (%(reasoning)s OR NOT w.reasoning) AND w.folded LIKE %(LEAF)s);

-- server --
-- Read the settings that a promise of durability rests on.
SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
       current_setting('synchronous_standby_names'), pg_is_in_recovery(),
       (SELECT count(*) FROM pg_stat_replication);

-- store_number --
-- Tell a cursor of this store's feed from another store's.
SELECT value FROM killick.meta WHERE name = 'store';

-- news --
-- Read the feed over all sessions of a tenant, from a cursor on, as far as no transaction is still open.
SELECT n.place, n.session, n.seq, n.line, s.id, n.kind, n.cause
FROM killick.news AS n JOIN killick.sessions AS s USING (tenant, session)
WHERE n.tenant = %(tenant)s
  AND (n.place, n.session, n.seq, n.line)
      > (%(place)s::bigint, %(session_after)s::bigint, %(seq)s::bigint, %(line)s::bigint)
  AND n.place < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY n.place, n.session, n.seq, n.line LIMIT %(limit)s;

-- waiting_news --
-- Read what waits for a person now, in all sessions of a tenant, as far as no transaction is still open.
SELECT n.place, n.session, n.seq, n.line, s.id, n.kind, n.cause
FROM killick.news AS n JOIN killick.sessions AS s USING (tenant, session)
WHERE n.tenant = %(tenant)s AND n.waits AND n.place < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY n.place, n.session, n.seq, n.line;

-- news_end --
-- Find where the feed ends now, to go on from there: below the oldest transaction that is still open.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1;

-- news_of --
-- Read a session's own lines of the feed, to answer or to rebuild them.
SELECT seq, line, kind, cause, waits FROM killick.news
WHERE tenant = %(tenant)s AND session = %(session)s ORDER BY seq, line;

-- put_news --
-- Add a line to the feed, with the entry that it tells of; not before the session's last one.
INSERT INTO killick.news (tenant, session, seq, line, place, kind, cause, waits)
VALUES (%(tenant)s, %(session)s, %(seq)s, %(line)s,
        greatest(pg_current_xact_id()::text::bigint,
                 (SELECT last.place FROM killick.news AS last
                  WHERE last.tenant = %(tenant)s AND last.session = %(session)s
                  ORDER BY last.seq DESC, last.line DESC LIMIT 1)),
        %(kind)s, %(cause)s, %(waits)s);

-- answer_news --
-- Mark lines of some kinds that wait in a session as answered.
UPDATE killick.news SET waits = false
WHERE tenant = %(tenant)s AND session = %(session)s AND waits AND kind = ANY (%(kinds)s)
  AND (%(seqs)s::bigint[] IS NULL OR seq = ANY (%(seqs)s::bigint[]));

-- drop_news --
-- Remove a line that its session's journal does not have.
DELETE FROM killick.news
WHERE tenant = %(tenant)s AND session = %(session)s AND seq = %(seq)s AND line = %(line)s;

-- erase_news --
-- Erase a session: its lines of the feed.
DELETE FROM killick.news WHERE tenant = %(tenant)s AND session = %(session)s;
