-- find_session --
SELECT key, id, tenant, fence, turn_seq, stop_seq, queue_seq, created_at_us, updated_at_us, about,
       base, base_seq, ifnull((SELECT max(seq) FROM entries WHERE session = key), base_seq)
FROM sessions WHERE tenant = :tenant AND id = :id;

-- session --
SELECT key, id, tenant, fence, turn_seq, stop_seq, queue_seq, created_at_us, updated_at_us, about,
       base, base_seq, ifnull((SELECT max(seq) FROM entries WHERE session = key), base_seq)
FROM sessions WHERE key = :key;

-- base_of --
SELECT base, base_seq FROM sessions WHERE key = :key AND base IS NOT NULL;

-- forks_of --
SELECT key FROM sessions WHERE base = :key;

-- stopping --
SELECT key, stop_seq FROM sessions WHERE stop_seq IS NOT NULL;

-- session_keys --
SELECT key FROM sessions ORDER BY key;

-- origin --
SELECT id, tenant, created_at_us, base, base_seq FROM sessions WHERE key = :key;

-- find_key --
SELECT key FROM sessions WHERE tenant = :tenant AND id = :id;

-- head_of --
SELECT ifnull(max(seq), 0) FROM entries WHERE session = :session;

-- labels --
SELECT kind, label FROM labels WHERE session = :session;

-- usage_of --
SELECT day, provider, model, calls, input, output, cached, reasoning, cost
FROM usage WHERE session = :session ORDER BY day, provider, model;

-- streams --
SELECT DISTINCT seq FROM deltas WHERE session = :session ORDER BY seq;

-- find_ids --
SELECT id FROM sessions
WHERE tenant = :tenant AND id >= :prefix AND substr(id, 1, length(:prefix)) = :prefix
ORDER BY id LIMIT :limit;

-- unscrubbed --
SELECT id FROM erasures WHERE tenant = :tenant AND scrubbed_at_us IS NULL ORDER BY key;

-- erase_entries --
DELETE FROM entries WHERE session = :session;

-- erase_deltas --
DELETE FROM deltas WHERE session = :session;

-- erase_session --
DELETE FROM sessions WHERE key = :key;

-- own_blobs --
SELECT blob FROM blob_references AS mine WHERE session = :session
AND NOT EXISTS (SELECT 1 FROM blob_references WHERE blob = mine.blob AND session <> mine.session);

-- drop_references --
DELETE FROM blob_references WHERE session = :session;

-- note_erasure --
INSERT INTO erasures (key, tenant, id, entries, at_us)
VALUES (:key, :tenant, :id, :entries, :at_us);

-- scrubbed --
UPDATE erasures SET scrubbed_at_us = :at_us
WHERE scrubbed_at_us IS NULL AND tenant = :tenant AND id = :id;

-- sessions --
-- Newest first; a filter that is NULL filters nothing.
SELECT id, about, tenant, created_at_us, updated_at_us
FROM sessions
WHERE tenant = :tenant AND deleted = :deleted
  AND (:archived IS NULL OR archived = :archived)
  AND (:type IS NULL OR type = :type)
  AND (:project IS NULL OR project = :project)
  AND (:interrupted IS NULL OR ifnull(status = 'interrupted', 0) = :interrupted)
  AND (:pinned IS NULL OR pinned = :pinned)
  AND (:title IS NULL OR instr(title, :title) > 0)
  AND (:tag IS NULL OR EXISTS (
       SELECT 1 FROM labels WHERE kind = 'tag' AND label = :tag AND session = key))
  AND (:model IS NULL OR EXISTS (
       SELECT 1 FROM labels WHERE kind = 'model' AND label = :model AND session = key))
  AND (:parent IS NULL OR parent = :parent)
  AND (:fork_of IS NULL OR base = (SELECT key FROM sessions WHERE tenant = :tenant AND id = :fork_of))
  AND (:since_us IS NULL OR updated_at_us >= :since_us)
  AND (:until_us IS NULL OR updated_at_us < :until_us)
  AND (updated_at_us, id) < (:before_us, :before_id)
ORDER BY updated_at_us DESC, id DESC LIMIT :limit;

-- create_session --
INSERT INTO sessions (tenant, id, fence, turn_seq, stop_seq, queue_seq,
                      created_at_us, updated_at_us, archived, deleted, about, base, base_seq)
VALUES (:tenant, :id, :fence, NULL, NULL, NULL,
        :created_at_us, :updated_at_us, 0, 0, :about, :base, :base_seq);

-- save_session --
UPDATE sessions
SET fence = :fence, turn_seq = :turn_seq, stop_seq = :stop_seq, queue_seq = :queue_seq,
    updated_at_us = :updated_at_us, archived = :archived, deleted = :deleted, about = :about,
    type = :type, project = :project, title = :title, status = :status, pinned = :pinned,
    parent = :parent
WHERE key = :key;

-- drop_labels --
DELETE FROM labels WHERE session = :session;

-- put_label --
INSERT OR IGNORE INTO labels (session, kind, label) VALUES (:session, :kind, :label);

-- drop_usage --
DELETE FROM usage WHERE session = :session;

-- spend --
INSERT INTO usage (session, day, provider, model, calls, input, output, cached, reasoning, cost)
VALUES (:session, :day, :provider, :model, :calls, :input, :output, :cached, :reasoning, :cost)
ON CONFLICT (session, day, provider, model) DO UPDATE
SET calls = calls + excluded.calls, input = input + excluded.input,
    output = output + excluded.output, cached = cached + excluded.cached,
    reasoning = reasoning + excluded.reasoning,
    cost = CASE WHEN cost IS NULL THEN excluded.cost ELSE cost + ifnull(excluded.cost, 0.0) END;

-- usage --
SELECT id, project, day, provider, model, calls, input, output, cached, reasoning, cost
FROM usage JOIN sessions ON sessions.key = usage.session
WHERE tenant = :tenant
  AND (:session IS NULL OR id = :session)
  AND (:project IS NULL OR project = :project)
  AND (:model IS NULL OR model = :model)
  AND (:since_day IS NULL OR day >= :since_day)
  AND (:until_day IS NULL OR day <= :until_day)
ORDER BY day, id, provider, model;

-- insert_entry --
-- The identity decides; a second entry with the same one is not written.
INSERT INTO entries (session, seq, identity, at_us, crc, body, blob, mark)
VALUES (:session, :seq, :identity, :at_us, :crc, :body, :blob, :mark)
ON CONFLICT (identity) DO NOTHING;

-- entries --
SELECT seq, at_us, crc, body, blob
FROM entries WHERE session = :session AND seq > :after AND seq <= :through
ORDER BY seq LIMIT :limit;

-- newest_entries --
SELECT seq, at_us, crc, body, blob
FROM entries WHERE session = :session AND seq < :before
ORDER BY seq DESC LIMIT :limit;

-- turn_entries --
SELECT seq, at_us, crc, body, blob FROM entries INDEXED BY entries_of_turns
WHERE session = :session AND mark = 1 AND seq > :after ORDER BY seq;

-- history_entries --
SELECT seq, at_us, crc, body, blob FROM entries INDEXED BY entries_of_history
WHERE session = :session AND mark = 2 AND seq > :after ORDER BY seq;

-- find_entry --
SELECT seq, at_us, crc, body, blob
FROM entries WHERE identity = :identity;

-- deltas --
SELECT number, body
FROM deltas WHERE session = :session AND seq = :seq AND number > :after ORDER BY number;

-- put_deltas --
-- A flush whose outcome was unknown is written again, with the same number and at least its text.
INSERT OR REPLACE INTO deltas (session, seq, number, body)
VALUES (:session, :seq, :number, :body);

-- drop_deltas --
DELETE FROM deltas WHERE session = :session AND seq = :seq;

-- blob_key --
SELECT key FROM blobs WHERE tenant = :tenant AND digest = :digest;

-- blob --
SELECT data FROM blobs WHERE tenant = :tenant AND digest = :digest;

-- blob_by_key --
SELECT data FROM blobs WHERE key = :key;

-- claim_blob --
UPDATE blobs SET holder = :holder
WHERE tenant = :tenant AND digest = :digest AND holder <> :holder
  AND NOT EXISTS (SELECT 1 FROM blob_references WHERE blob = blobs.key);

-- put_blob --
INSERT INTO blobs (tenant, digest, holder, data) VALUES (:tenant, :digest, :holder, :data);

-- refer --
INSERT OR IGNORE INTO blob_references (blob, session) VALUES (:blob, :session);

-- loose_blobs --
SELECT key, holder FROM blobs
WHERE NOT EXISTS (SELECT 1 FROM blob_references WHERE blob = blobs.key);

-- drop_blob --
DELETE FROM blobs WHERE key = :key;

-- holds --
SELECT EXISTS (SELECT 1 FROM entries WHERE instr(body, :fragment))
    OR EXISTS (SELECT 1 FROM deltas WHERE instr(body, :fragment))
    OR EXISTS (SELECT 1 FROM blobs WHERE instr(data, :fragment))
    OR EXISTS (SELECT 1 FROM sessions WHERE instr(about, :fragment) OR instr(id, :fragment));

-- count_sessions --
SELECT count(*) FROM sessions;

-- count_entries --
SELECT count(*) FROM entries;

-- count_deltas --
SELECT count(*) FROM deltas;

-- count_blobs --
SELECT count(*) FROM blobs;

-- search_state --
SELECT mark, session, seq, substrings, damage, ifnull((SELECT max(rowid) FROM entries), 0)
FROM search_state;

-- row_of_entry --
-- Found in the index alone, so that damage to the page of the entry does not matter here.
SELECT rowid FROM entries WHERE session = :session AND seq = :seq;

-- unindexed --
-- Rows are added at the end of the table, so their order is that of the commits.
SELECT rowid, session, seq, at_us, crc, body, blob FROM entries
WHERE rowid > :mark ORDER BY rowid LIMIT :limit;

-- unindexed_one --
SELECT rowid, session, seq, at_us, crc, body, blob FROM entries WHERE rowid = :row;

-- save_search_mark --
UPDATE search_state SET mark = :mark, session = :session, seq = :seq;

-- mark_before --
SELECT rowid, session, seq FROM entries
WHERE rowid <= :mark AND session <> :session ORDER BY rowid DESC LIMIT 1;

-- save_search_damage --
UPDATE search_state SET damage = :damage;

-- save_substrings --
UPDATE search_state SET substrings = :substrings;

-- find_document --
SELECT number, seq FROM search_documents WHERE session = :session AND place = :place;

-- put_document --
INSERT INTO search_documents (session, place, seq, at_us, role, partial)
VALUES (:session, :place, :seq, :at_us, :role, :partial);

-- replace_document --
UPDATE search_documents SET seq = :seq, at_us = :at_us, role = :role, partial = :partial
WHERE number = :number;

-- put_words --
INSERT OR REPLACE INTO search_words (rowid, text, reasoning) VALUES (:number, :text, :reasoning);

-- documents_of --
SELECT number FROM search_documents WHERE session = :session;

-- drop_words --
DELETE FROM search_words WHERE rowid = :number;

-- drop_documents --
DELETE FROM search_documents WHERE session = :session;

-- tidy_words --
INSERT INTO search_words (search_words) VALUES ('optimize');

-- reach_of_session --
SELECT min(number), max(number) FROM search_documents
WHERE session IN (SELECT value ->> 0 FROM json_each(:lineage));

-- flush_words --
-- What is wrong with the index then shows in this statement, and not in the commit.
INSERT INTO search_words (search_words) VALUES ('flush');

-- create_substrings --
CREATE VIRTUAL TABLE IF NOT EXISTS search_substrings USING fts5 (
    text, reasoning, content='', contentless_delete=1, tokenize='trigram case_sensitive 1'
);

-- search_schema --
SELECT name FROM sqlite_schema WHERE name GLOB 'search_*' AND type = 'table' ORDER BY name;

-- forget_search_schema --
DELETE FROM sqlite_schema WHERE name GLOB 'search_*' OR tbl_name GLOB 'search_*';

-- search_newest --
-- A filter that is NULL filters nothing. `lineage` are the sessions of a fork, as pairs of a key and a seq.
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
ORDER BY word.rowid DESC LIMIT :limit;
