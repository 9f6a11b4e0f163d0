-- find_session --
-- Open a session by its id.
SELECT key, id, tenant, fence, turn_seq, stop_seq, queue_seq, created_at_us, updated_at_us, about,
       holder, due, due_us, imported,
       base, base_seq, ifnull((SELECT max(seq) FROM entries WHERE session = key), base_seq), link
FROM sessions WHERE tenant = :tenant AND id = :id;

-- session --
-- Read the row of a session again that another process may have changed.
SELECT key, id, tenant, fence, turn_seq, stop_seq, queue_seq, created_at_us, updated_at_us, about,
       holder, due, due_us, imported,
       base, base_seq, ifnull((SELECT max(seq) FROM entries WHERE session = key), base_seq), link
FROM sessions WHERE key = :key;

-- base_of --
-- Find the session that a fork's journal begins with.
SELECT base, base_seq FROM sessions WHERE key = :key AND base IS NOT NULL
UNION ALL SELECT base, base_seq FROM erasures WHERE key = :key AND base IS NOT NULL;

-- forks_of --
-- Find the forks of a session, before it is erased.
SELECT key FROM sessions WHERE base = :key;

-- stopping --
-- Look for turns that were asked to stop, in every process that runs one.
SELECT key, stop_seq FROM sessions WHERE stop_seq IS NOT NULL;

-- session_keys --
-- Visit every session, to rebuild or examine it.
SELECT key FROM sessions ORDER BY key;

-- due --
-- Find sessions whose work may be taken by now.
SELECT key FROM sessions WHERE tenant = :tenant AND due_us <= :now_us ORDER BY due_us, key LIMIT :limit;

-- held --
-- Find who has sessions now, to see which of them are dead.
SELECT holder, key, due IS NOT NULL FROM sessions WHERE tenant = :tenant AND holder IS NOT NULL;

-- origin --
-- Read what of a session is not derived, to derive the rest anew.
SELECT id, tenant, created_at_us, base, base_seq, imported, link FROM sessions WHERE key = :key;

-- find_key --
-- Find a session whose derived row may be damaged.
SELECT key FROM sessions WHERE tenant = :tenant AND id = :id;

-- head_of --
-- Compare the saved head with the journal.
SELECT ifnull(max(seq), 0) FROM entries WHERE session = :session;

-- heads --
-- Find which of the sessions that are followed here another process has changed.
SELECT value, ifnull((SELECT max(seq) FROM entries WHERE session = value), 0),
       EXISTS (SELECT 1 FROM deltas WHERE session = value)
FROM json_each(:keys);

-- stream_marks --
-- See how far each open stream of a session has come; one seek for each.
WITH RECURSIVE open (seq) AS (
    SELECT min(seq) FROM deltas WHERE session = :session
    UNION ALL
    SELECT (SELECT min(seq) FROM deltas WHERE session = :session AND seq > open.seq) FROM open WHERE seq IS NOT NULL
)
SELECT seq, (SELECT max(number) FROM deltas WHERE session = :session AND deltas.seq = open.seq)
FROM open WHERE seq IS NOT NULL;

-- newer_packs --
-- See whose streams have grown since in packs.
SELECT number, streams FROM packs WHERE number > :number ORDER BY number;

-- labels --
-- Compare a session's saved labels with its journal.
SELECT kind, label FROM labels WHERE session = :session;

-- usage_of --
-- Compare a session's saved usage with its journal.
SELECT day, provider, model, calls, input, output, cached, reasoning, cost
FROM usage WHERE session = :session ORDER BY day, provider, model;

-- streams --
-- Find deltas that no open stream accounts for.
SELECT DISTINCT seq FROM deltas WHERE session = :session ORDER BY seq;

-- find_ids --
-- Complete a shortened id.
SELECT id FROM sessions
WHERE tenant = :tenant AND id >= :prefix AND id < :beyond ORDER BY id LIMIT :limit;

-- unscrubbed --
-- Find erased sessions whose bytes may still be in the file.
SELECT id FROM erasures WHERE tenant = :tenant AND scrubbed_at_us IS NULL ORDER BY key;

-- size_of --
-- Measure a session before it is erased.
SELECT ifnull((SELECT sum(length(body)) FROM entries WHERE session = :session), 0)
     + ifnull((SELECT sum(length(data)) FROM blob_references JOIN blobs ON blobs.key = blob WHERE session = :session), 0);

-- half_erased --
-- Find erased sessions of which rows or bytes may be left; forks before what they are made of.
SELECT key FROM erasures WHERE tenant = :tenant AND scrubbed_at_us IS NULL ORDER BY key DESC;

-- sizes_of_entries --
-- See how much an erasure removes in one step.
SELECT length(body) FROM entries WHERE session = :session ORDER BY seq LIMIT :limit;

-- erase_entries --
-- Erase a session: some of its journal.
DELETE FROM entries WHERE rowid IN (SELECT rowid FROM entries WHERE session = :session ORDER BY seq LIMIT :limit);

-- erase_deltas --
-- Erase a session: what its streams have not folded yet.
DELETE FROM deltas WHERE session = :session;

-- erase_session --
-- Erase a session: its row, first.
DELETE FROM sessions WHERE key = :key;

-- blobs_of --
-- Find blobs of a session that is being erased, their sizes, and whether another refers to them.
SELECT blob, ifnull((SELECT length(data) FROM blobs WHERE key = blob), 0),
       EXISTS (SELECT 1 FROM blob_references AS other WHERE other.blob = mine.blob AND other.session <> mine.session)
FROM blob_references AS mine WHERE mine.session = :session LIMIT 1;

-- drop_reference --
-- Erase a session: one reference to a blob.
DELETE FROM blob_references WHERE blob = :blob AND session = :session;

-- note_erasure --
-- Leave a receipt of an erasure.
INSERT INTO erasures (key, tenant, id, entries, at_us, base, base_seq, because)
VALUES (:key, :tenant, :id, 0, :at_us, :base, :base_seq, :because);

-- erasures --
-- Show receipts of erasures.
SELECT id, entries, at_us, scrubbed_at_us, because FROM erasures
WHERE tenant = :tenant ORDER BY at_us DESC, key DESC LIMIT :limit;

-- retention --
-- Read the rules of retention.
SELECT body FROM retention WHERE tenant = :tenant ORDER BY project;

-- keep_rule --
-- Keep a rule of retention.
INSERT OR REPLACE INTO retention (tenant, project, body, at_us) VALUES (:tenant, :project, :body, :at_us);

-- drop_rule --
-- Forget a rule of retention.
DELETE FROM retention WHERE tenant = :tenant AND project = :project;

-- count_erased --
-- Add to a receipt what was removed in this step.
UPDATE erasures SET entries = entries + :entries WHERE key = :key;

-- scrubbed --
-- Note that the bytes of an erased session are gone from the file too.
UPDATE erasures SET scrubbed_at_us = :at_us
WHERE scrubbed_at_us IS NULL AND tenant = :tenant AND id = :id;

-- sessions --
-- List sessions, newest first, by the lines of the filters that are given and of one way to look for them.
SELECT sessions.id, about, tenant, created_at_us, updated_at_us
FROM sessions INDEXED BY sessions_by_time                                     /* by time */
FROM sessions INDEXED BY sessions_by_time                                     /* by newest */
FROM sessions INDEXED BY sessions_by_base                                     /* by fork_of */
FROM sessions INDEXED BY sessions_by_parent                                   /* by parent */
FROM labels AS wanted CROSS JOIN sessions ON key = wanted.session             /* by tag */
FROM labels AS wanted CROSS JOIN sessions ON key = wanted.session             /* by model */
FROM sessions INDEXED BY sessions_by_project                                  /* by project */
FROM sessions INDEXED BY sessions_interrupted                                 /* by interrupted */
FROM sessions INDEXED BY sessions_pinned                                      /* by pinned */
WHERE tenant = :tenant AND deleted = :deleted
  AND updated_at_us >= ifnull((                                               /* by newest */
      SELECT updated_at_us FROM sessions INDEXED BY sessions_by_time          /* by newest */
      WHERE tenant = :tenant AND deleted = :deleted                           /* by newest */
        AND (updated_at_us, id) < (:before_us, :before_id)                    /* by newest */
      ORDER BY updated_at_us DESC, id DESC LIMIT 1 OFFSET :newest), -4611686018427387904) /* by newest */
  AND base = (SELECT key FROM sessions WHERE tenant = :tenant AND id = :fork_of) /* if fork_of */
  AND parent = :parent                                                        /* if parent */
  AND wanted.kind = 'tag' AND wanted.label = :tag                             /* by tag */
  AND wanted.kind = 'model' AND wanted.label = :model                         /* by model */
  AND EXISTS (SELECT 1 FROM labels WHERE kind = 'tag' AND label = :tag AND session = key) /* else tag */
  AND EXISTS (SELECT 1 FROM labels WHERE kind = 'model' AND label = :model AND session = key) /* else model */
  AND project = :project                                                      /* if project */
  AND status = 'interrupted'                                                  /* by interrupted */
  AND ifnull(status = 'interrupted', 0) = :interrupted                        /* else interrupted */
  AND pinned = 1                                                              /* by pinned */
  AND pinned = :pinned                                                        /* else pinned */
  AND archived = :archived                                                    /* if archived */
  AND type = :type                                                            /* if type */
  AND instr(title, :title) > 0                                                /* if title */
  AND updated_at_us >= :since_us                                              /* if since_us */
  AND updated_at_us < :until_us                                               /* if until_us */
  AND (updated_at_us, sessions.id) < (:before_us, :before_id)
ORDER BY updated_at_us DESC, sessions.id DESC LIMIT :limit;

-- create_session --
-- Begin a session; what is derived of it is saved with its first entry.
INSERT INTO sessions (tenant, id, fence, turn_seq, stop_seq, queue_seq,
                      created_at_us, updated_at_us, archived, deleted, about, base, base_seq)
VALUES (:tenant, :id, :fence, NULL, NULL, NULL,
        :created_at_us, :updated_at_us, 0, 0, :about, :base, :base_seq);

-- save_session --
-- Save what an entry changed in what is derived of its session.
UPDATE sessions
SET fence = :fence, turn_seq = :turn_seq, stop_seq = :stop_seq, queue_seq = :queue_seq,
    updated_at_us = :updated_at_us, archived = :archived, deleted = :deleted, about = :about,
    type = :type, project = :project, title = :title, status = :status, pinned = :pinned,
    parent = :parent,
    holder = :holder, due = :due, due_us = :due_us, imported = :imported, link = :link,
    uncounted = 1
WHERE key = :key;

-- drop_labels --
-- Replace a session's labels: drop the old ones.
DELETE FROM labels WHERE session = :session;

-- put_label --
-- Make a session findable by a tag or a model.
INSERT OR IGNORE INTO labels (session, kind, label) VALUES (:session, :kind, :label);

-- drop_usage --
-- Rebuild a session's usage: drop the old rows.
DELETE FROM usage WHERE session = :session;

-- spend --
-- Add a model call to its day's usage.
INSERT INTO usage (session, day, provider, model, calls, input, output, cached, reasoning, cost)
VALUES (:session, :day, :provider, :model, :calls, :input, :output, :cached, :reasoning, :cost)
ON CONFLICT (session, day, provider, model) DO UPDATE
SET calls = calls + excluded.calls, input = input + excluded.input,
    output = output + excluded.output, cached = cached + excluded.cached,
    reasoning = reasoning + excluded.reasoning,
    cost = CASE WHEN cost IS NULL THEN excluded.cost ELSE cost + ifnull(excluded.cost, 0.0) END;

-- usage --
-- Report usage, by the lines of the filters that are given and of one way to look for it.
SELECT id, project, day, provider, model, calls, input, output, cached, reasoning, cost
FROM usage CROSS JOIN sessions ON sessions.key = usage.session                        /* by all */
FROM usage INDEXED BY usage_by_day CROSS JOIN sessions ON sessions.key = usage.session /* by day */
FROM sessions INDEXED BY sessions_by_id CROSS JOIN usage ON usage.session = sessions.key /* by session */
FROM sessions INDEXED BY sessions_by_project CROSS JOIN usage ON usage.session = sessions.key /* by project */
WHERE tenant = :tenant
  AND id = :session                                                                   /* if session */
  AND project = :project                                                              /* if project */
  AND model = :model                                                                  /* if model */
  AND day >= :since_day                                                               /* if since_day */
  AND day <= :until_day                                                               /* if until_day */
ORDER BY day, id, provider, model;

-- uncounted --
-- Find sessions that the sums lack, or have as they were.
SELECT key, tenant, created_at_us, base_seq, deleted, (SELECT body FROM counted WHERE session = key)
FROM sessions INDEXED BY sessions_uncounted
WHERE uncounted = 1 AND tenant = :tenant ORDER BY key LIMIT :limit;

-- uncounted_of_all --
-- The same, of every tenant, to count them.
SELECT key, tenant, created_at_us, base_seq, deleted, (SELECT body FROM counted WHERE session = key)
FROM sessions INDEXED BY sessions_uncounted
WHERE uncounted = 1 ORDER BY tenant, key LIMIT :limit;

-- count_uncounted --
-- Say how far the sums are behind.
SELECT count(*) FROM sessions INDEXED BY sessions_uncounted WHERE uncounted = 1 AND tenant = :tenant;

-- usage_sums --
-- Report the usage of all sessions together.
SELECT day, provider, model, calls, input, output, cached, reasoning, cost, sessions, priced
FROM usage_sums
WHERE tenant = :tenant
  AND model = :model                                                                  /* if model */
  AND day >= :since_day                                                               /* if since_day */
  AND day <= :until_day                                                               /* if until_day */
ORDER BY day, provider, model;

-- activity_sums --
-- Report the activity of all sessions together.
SELECT day, sessions, turns, completed, failed, interrupted FROM activity_sums
WHERE tenant = :tenant AND day BETWEEN :since AND :until ORDER BY day;

-- all_usage_sums --
-- Compare the sums with what was counted: model calls.
SELECT tenant, day, provider, model, calls, input, output, cached, reasoning, cost, sessions, priced FROM usage_sums;

-- all_activity_sums --
-- Compare the sums with what was counted: turns.
SELECT tenant, day, sessions, turns, completed, failed, interrupted FROM activity_sums;

-- all_counted --
-- Compare the sums with what was counted: all that was.
SELECT tenant, body FROM counted CROSS JOIN sessions ON sessions.key = counted.session;

-- counted_of --
-- Read what of a session is in the sums, to take it out.
SELECT body FROM counted WHERE session = :session;

-- put_counted --
-- Keep what of a session is in the sums.
INSERT OR REPLACE INTO counted (session, body) VALUES (:session, :body);

-- is_counted --
-- Note that the sums have a session as it is.
UPDATE sessions SET uncounted = 0 WHERE key = :key;

-- drop_counted --
-- Erase a session: what was counted of it.
DELETE FROM counted WHERE session = :session;

-- add_usage --
-- Change the sum of a day and model. What is left of costs that were taken out is no cost.
INSERT INTO usage_sums (tenant, day, provider, model, calls, input, output, cached, reasoning, cost, sessions, priced)
VALUES (:tenant, :day, :provider, :model, :calls, :input, :output, :cached, :reasoning, :cost, :sessions, :priced)
ON CONFLICT (tenant, day, provider, model) DO UPDATE
SET calls = calls + excluded.calls, input = input + excluded.input,
    output = output + excluded.output, cached = cached + excluded.cached,
    reasoning = reasoning + excluded.reasoning, sessions = sessions + excluded.sessions,
    cost = CASE WHEN priced + excluded.priced = 0 THEN 0.0 ELSE cost + excluded.cost END,
    priced = priced + excluded.priced;

-- drop_empty_usage --
-- Drop a sum to which no session adds any more.
DELETE FROM usage_sums
WHERE tenant = :tenant AND day = :day AND provider = :provider AND model = :model AND sessions = 0;

-- add_activity --
-- Change the sum of a day.
INSERT INTO activity_sums (tenant, day, sessions, turns, completed, failed, interrupted)
VALUES (:tenant, :day, :sessions, :turns, :completed, :failed, :interrupted)
ON CONFLICT (tenant, day) DO UPDATE
SET sessions = sessions + excluded.sessions, turns = turns + excluded.turns,
    completed = completed + excluded.completed, failed = failed + excluded.failed,
    interrupted = interrupted + excluded.interrupted;

-- drop_empty_activity --
-- Drop the sum of a day on which nothing is left.
DELETE FROM activity_sums
WHERE tenant = :tenant AND day = :day AND sessions = 0 AND turns = 0 AND completed = 0 AND failed = 0
  AND interrupted = 0;

-- empty_sums --
-- Count every session anew.
DELETE FROM usage_sums; DELETE FROM activity_sums; DELETE FROM counted;
UPDATE sessions SET uncounted = 1 WHERE uncounted = 0;

-- insert_entry --
-- Append an entry. The identity decides; a second entry with the same one is not written.
INSERT INTO entries (session, seq, identity, at_us, crc, body, blob, mark, link)
VALUES (:session, :seq, :identity, :at_us, :crc, :body, :blob, :mark, :link)
ON CONFLICT (identity) DO NOTHING;

-- entries --
-- Read a journal, or a piece of it, in order.
SELECT seq, at_us, crc, body, blob
FROM entries WHERE session = :session AND seq > :after AND seq <= :through
ORDER BY seq LIMIT :limit;

-- newest_entries --
-- Read a journal backwards, for the last messages.
SELECT seq, at_us, crc, body, blob
FROM entries WHERE session = :session AND seq < :before
ORDER BY seq DESC LIMIT :limit;

-- turn_entries --
-- Read the starts and endings of turns, and nothing between.
SELECT seq, at_us, crc, body, blob FROM entries INDEXED BY entries_of_turns
WHERE session = :session AND mark = 1 AND seq > :after ORDER BY seq;

-- history_entries --
-- Read the changes of history: compactions, rewinds, undoings.
SELECT seq, at_us, crc, body, blob FROM entries INDEXED BY entries_of_history
WHERE session = :session AND mark = 2 AND seq > :after ORDER BY seq;

-- newest_turn_entries --
-- Read the starts and endings of turns backwards: which turn ran at a place.
SELECT seq, at_us, crc, body, blob FROM entries INDEXED BY entries_of_turns
WHERE session = :session AND mark = 1 AND seq < :before ORDER BY seq DESC LIMIT :limit;

-- newest_history_entries --
-- Read the changes of history backwards, for the last messages.
SELECT seq, at_us, crc, body, blob FROM entries INDEXED BY entries_of_history
WHERE session = :session AND mark = 2 AND seq < :before ORDER BY seq DESC LIMIT :limit;

-- find_entry --
-- Find an entry by its identity: a repeated write, an ending, a result.
SELECT seq, at_us, crc, body, blob
FROM entries WHERE identity = :identity;

-- save_link --
-- Save the newest link of a session that got entries and nothing else; once for each commit.
UPDATE sessions SET link = :link WHERE key = :key;

-- save_link_spent --
-- The same for a session in which a model was called: the sums lack that.
UPDATE sessions SET link = ifnull(:link, link), uncounted = 1 WHERE key = :key;

-- link_at --
-- Read the link of one entry: where a fork begins, what was kept elsewhere.
SELECT link FROM entries WHERE session = :session AND seq = :seq;

-- stored_entries --
-- Read rows as they are, to prove them.
SELECT seq, at_us, crc, body, blob, mark, identity, link
FROM entries WHERE session = :session AND seq > :after ORDER BY seq LIMIT :limit;

-- was_erased --
-- Find the receipt of an erased session.
SELECT 1 FROM erasures WHERE tenant = :tenant AND id = :id;

-- deltas --
-- Read what a stream has flushed so far.
SELECT number, body, crc
FROM deltas WHERE session = :session AND seq = :seq AND number > :after ORDER BY number;

-- put_deltas --
-- Flush a stream alone, or fold what it has in packs.
INSERT OR REPLACE INTO deltas (session, seq, number, body, crc)
VALUES (:session, :seq, :number, :body, :crc);

-- drop_deltas --
-- Drop the deltas of a stream that was folded into its entry.
DELETE FROM deltas WHERE session = :session AND seq = :seq;

-- last_flush --
-- See how far a stream is folded.
SELECT max(number) FROM deltas WHERE session = :session AND seq = :seq;

-- packs --
-- See which packs there are: few, and none when all are folded.
SELECT number, crc FROM packs ORDER BY number;

-- has_packs --
-- See when a store is opened whether another process left packs.
SELECT EXISTS (SELECT 1 FROM packs);

-- pack_streams --
-- Read whose lines a pack holds, in case it is damaged.
SELECT streams FROM packs WHERE number = :number;

-- pack_body --
-- Read the lines of a pack.
SELECT body FROM packs WHERE number = :number;

-- put_pack --
-- Flush many streams together.
INSERT INTO packs (crc, streams, body) VALUES (:crc, :streams, :body);

-- drop_packs --
-- Drop packs whose lines are all folded.
DELETE FROM packs WHERE number <= :last;

-- drop_stream --
-- Note that a stream has ended, while packs may hold lines of it.
INSERT OR REPLACE INTO dropped_streams (session, seq, pack) VALUES (:session, :seq, :pack);

-- is_dropped --
-- See whether a stream has ended whose lines a pack holds.
SELECT 1 FROM dropped_streams WHERE session = :session AND seq = :seq;

-- dropped --
-- Leave out all streams that have ended.
SELECT session, seq FROM dropped_streams;

-- forget_dropped --
-- Forget streams of which no pack holds a line any more.
DELETE FROM dropped_streams WHERE pack <= :last;

-- blob_key --
-- Look for a blob before it is stored or referred to.
SELECT key FROM blobs WHERE tenant = :tenant AND digest = :digest;

-- blob --
-- Read a blob by its name.
SELECT data FROM blobs WHERE tenant = :tenant AND digest = :digest;

-- blob_by_key --
-- Read the body of an entry that is stored as a blob.
SELECT data FROM blobs WHERE key = :key;

-- claim_blob --
-- Keep a blob that nothing refers to yet until this holder is gone.
UPDATE blobs SET holder = :holder
WHERE tenant = :tenant AND digest = :digest AND holder <> :holder
  AND NOT EXISTS (SELECT 1 FROM blob_references WHERE blob = blobs.key);

-- put_blob --
-- Store a blob.
INSERT INTO blobs (tenant, digest, holder, data) VALUES (:tenant, :digest, :holder, :data);

-- refer --
-- Keep a blob for as long as the session exists.
INSERT OR IGNORE INTO blob_references (blob, session) VALUES (:blob, :session);

-- loose_blobs --
-- Find blobs that no session refers to, to be collected.
SELECT key, holder FROM blobs
WHERE NOT EXISTS (SELECT 1 FROM blob_references WHERE blob = blobs.key);

-- drop_blob --
-- Remove a blob that nothing refers to.
DELETE FROM blobs WHERE key = :key;

-- count_sessions --
-- Count for `status` and tests.
SELECT count(*) FROM sessions;

-- count_entries --
-- Count for `status` and tests.
SELECT count(*) FROM entries;

-- count_deltas --
-- Count for `status` and tests.
SELECT count(*) FROM deltas;

-- count_blobs --
-- Count for `status` and tests.
SELECT count(*) FROM blobs;

-- search_state --
-- See how far the index is behind the journals.
SELECT mark, session, seq, substrings, damage, ifnull((SELECT max(rowid) FROM entries), 0)
FROM search_state;

-- row_of_entry --
-- Check that the mark still names its entry. Answered by the index alone, so that damage to its page does not matter.
SELECT rowid FROM entries WHERE session = :session AND seq = :seq;

-- may_be_indexed --
-- See that an entry is still there, and its session too: rows of an erased one go in steps.
SELECT EXISTS (SELECT 1 FROM entries WHERE session = :session AND seq = :seq)
   AND EXISTS (SELECT 1 FROM sessions WHERE key = :session);

-- unindexed --
-- Read the next entries to index. Rows are added at the end of the table, so their order is that of the commits.
SELECT rowid, session, seq, at_us, crc, body, blob FROM entries
WHERE rowid > :mark ORDER BY rowid LIMIT :limit;

-- unindexed_one --
-- Read one entry to index, where a damaged page stops the statement above.
SELECT rowid, session, seq, at_us, crc, body, blob FROM entries WHERE rowid = :row;

-- save_search_mark --
-- Note how far the index has come.
UPDATE search_state SET mark = :mark, session = :session, seq = :seq;

-- mark_before --
-- Move the mark off an entry that is being erased.
SELECT rowid, session, seq FROM entries
WHERE rowid <= :mark AND session <> :session ORDER BY rowid DESC LIMIT 1;

-- save_search_damage --
-- Tell every process that the index must be rebuilt.
UPDATE search_state SET damage = :damage;

-- save_substrings --
-- Note that parts of words are indexed too.
UPDATE search_state SET substrings = :substrings;

-- find_document --
-- Look for an earlier version of a document.
SELECT number, seq FROM search_documents WHERE session = :session AND place = :place;

-- put_document --
-- Add a document to the index.
INSERT INTO search_documents (session, place, seq, at_us, role, partial)
VALUES (:session, :place, :seq, :at_us, :role, :partial);

-- replace_document --
-- Replace a document by a later version of its message.
UPDATE search_documents SET seq = :seq, at_us = :at_us, role = :role, partial = :partial
WHERE number = :number;

-- put_words --
-- Index a document's words.
INSERT INTO search_words (rowid, text, reasoning) VALUES (:number, :text, :reasoning);

-- documents_of --
-- Find the next documents of a session that is being erased.
SELECT number, seq FROM search_documents WHERE session = :session LIMIT :limit;

-- drop_words --
-- Remove a document's words from the index, where they stand.
INSERT INTO search_words (search_words, rowid, text, reasoning)
VALUES ('delete', :number, :text, :reasoning);

-- drop_document --
-- Remove a document of a session that is being erased.
DELETE FROM search_documents WHERE number = :number;

-- separators --
-- Find pages of the index that are found by the beginning of a word that is gone: of each segment the page it was in.
WITH RECURSIVE segments (id) AS (
    SELECT min(segid) FROM search_words_idx
    UNION ALL
    SELECT (SELECT min(segid) FROM search_words_idx WHERE segid > id) FROM segments WHERE id IS NOT NULL
),
words (word) AS (SELECT CAST('0' || value AS BLOB) FROM json_each(:words)),
pages (segid, word, term) AS (
    SELECT id, word, (SELECT term FROM search_words_idx WHERE segid = id AND term <= word
                      ORDER BY term DESC LIMIT 1)
    FROM segments CROSS JOIN words WHERE id IS NOT NULL
)
SELECT DISTINCT segid, term, (SELECT pgno >> 1 FROM search_words_idx AS page
                              WHERE page.segid = pages.segid AND page.term = pages.term)
FROM pages WHERE length(term) > 1 AND substr(word, 1, length(term)) = term;

-- page_of_words --
-- Read a page of the index, to see with which word it begins now.
SELECT block FROM search_words_data WHERE id = (:segid << 37) + :pgno;

-- drop_separator --
-- Forget how a page of the index was found that is not there any more.
DELETE FROM search_words_idx WHERE segid = :segid AND term = :term;

-- move_separator --
-- Find a page of the index by its first word from now on, and not by one that is gone.
UPDATE search_words_idx SET term = :new WHERE segid = :segid AND term = :term;

-- reach_of_session --
-- Narrow a search in some sessions to the range of their documents.
SELECT min(number), max(number) FROM search_documents
WHERE session IN (SELECT value ->> 0 FROM json_each(:lineage));

-- pieces_merged --
-- Find how many pieces of the index of words FTS5 merges at once.
SELECT v FROM search_words_config WHERE k = 'automerge';

-- merge_seldom --
-- Say how many pieces FTS5 merges at once, and with how many it does not wait any longer.
INSERT INTO search_words (search_words, rank) VALUES (:setting, :pieces);

-- flush_words --
-- Write out what FTS5 holds back, so that damage shows here and not in the commit.
INSERT INTO search_words (search_words) VALUES ('flush');

-- create_substrings --
-- Make the index of parts of words.
CREATE VIRTUAL TABLE IF NOT EXISTS search_substrings USING fts5 (
    text, reasoning, content='', tokenize='trigram case_sensitive 1'
);

-- clear_deleted_words --
-- Have words taken out where they stand when a document goes; the setting stays with the table.
INSERT INTO search_words (search_words, rank) VALUES ('secure-delete', 1);

-- search_schema --
-- See which tables of the index exist, also when its state cannot be read.
SELECT name FROM sqlite_schema WHERE name GLOB 'search_*' AND type = 'table' ORDER BY name;

-- note_lost_pages --
-- Note that pages are left which belong to no table: the file must be written anew before an erasure is complete.
INSERT OR REPLACE INTO meta (name, value) VALUES ('lost_pages', 1);

-- forget_search_schema --
-- Forget an index that is too damaged to be dropped.
DELETE FROM sqlite_schema WHERE name GLOB 'search_*' OR tbl_name GLOB 'search_*';

-- search_newest --
-- Search, newest first, passing over some. A filter that is NULL filters nothing; `lineage` are a fork's sessions, pairs of key and seq.
SELECT document.session, document.seq
FROM search_words AS word
CROSS JOIN search_documents AS document ON document.number = word.rowid
CROSS JOIN sessions ON sessions.key = document.session
WHERE word.search_words MATCH :words AND word.rowid BETWEEN :first AND :last
  AND (:lineage IS NOT NULL OR (tenant = :tenant AND deleted = 0))
  AND (:lineage IS NULL OR EXISTS (
       SELECT 1 FROM json_each(:lineage)
       WHERE value ->> 0 = document.session AND value ->> 1 >= document.seq))
  AND (:role IS NULL OR document.role = :role)
  AND (:partial IS NULL OR document.partial = :partial)
  AND (:project IS NULL OR sessions.project = :project)
  AND (:interrupted IS NULL OR ifnull(sessions.status = 'interrupted', 0) = :interrupted)
  AND (:since_us IS NULL OR document.at_us >= :since_us)
  AND (:until_us IS NULL OR document.at_us < :until_us)
ORDER BY word.rowid DESC LIMIT :limit OFFSET :newer;

-- newest_document --
-- Find the number of the newest document.
SELECT max(number) FROM search_documents;

-- count_matches --
-- Count the documents with a word among those that are ranked: what is rare counts for more.
SELECT count(*) FROM search_words AS word WHERE word.search_words MATCH :words AND word.rowid BETWEEN :first AND :last;

-- store_number --
-- Tell a cursor of this store's feed from another store's.
SELECT value FROM meta WHERE name = 'store';

-- news --
-- Read the feed over all sessions of a tenant, from a cursor on.
SELECT n.number, s.id, n.seq, n.kind, n.cause FROM news AS n JOIN sessions AS s ON s.key = n.session
WHERE n.tenant = :tenant AND n.number > :after ORDER BY n.number LIMIT :limit;

-- waiting_news --
-- Read what waits for a person now, in all sessions of a tenant.
SELECT n.number, s.id, n.seq, n.kind, n.cause FROM news AS n JOIN sessions AS s ON s.key = n.session
WHERE n.tenant = :tenant AND n.waits = 1 ORDER BY n.number;

-- news_end --
-- Find where the feed ends now, to go on from there; also when its last lines were erased.
SELECT ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'news'), 0);

-- news_of --
-- Read a session's own lines of the feed, to answer or to rebuild them.
SELECT seq, line, kind, cause, waits FROM news WHERE session = :session ORDER BY seq, line;

-- put_news --
-- Add a line to the feed, with the entry that it tells of.
INSERT INTO news (tenant, session, seq, line, kind, cause, waits)
SELECT tenant, key, :seq, :line, :kind, :cause, :waits FROM sessions WHERE key = :key;

-- answer_news --
-- Mark lines of one kind that wait in a session as answered.
UPDATE news SET waits = 0 WHERE session = :session AND waits = 1 AND kind = :kind AND (:seq IS NULL OR seq = :seq);

-- drop_news --
-- Remove a line that its session's journal does not have.
DELETE FROM news WHERE session = :session AND seq = :seq AND line = :line;

-- erase_news --
-- Erase a session: its lines of the feed.
DELETE FROM news WHERE session = :session;
