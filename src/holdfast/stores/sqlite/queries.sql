-- find_session --
SELECT key, id, tenant, fence, turn_seq, stop_seq, queue_seq, created_at_us, updated_at_us, about,
       ifnull((SELECT max(seq) FROM entries WHERE session = key), 0)
FROM sessions WHERE tenant = :tenant AND id = :id;

-- session --
SELECT key, id, tenant, fence, turn_seq, stop_seq, queue_seq, created_at_us, updated_at_us, about,
       ifnull((SELECT max(seq) FROM entries WHERE session = key), 0)
FROM sessions WHERE key = :key;

-- sessions --
SELECT id, about, tenant, created_at_us, updated_at_us
FROM sessions
WHERE tenant = :tenant AND deleted = :deleted
  AND (:archived IS NULL OR archived = :archived)
  AND (updated_at_us, id) < (:before_us, :before_id)
ORDER BY updated_at_us DESC, id DESC LIMIT :limit;

-- create_session --
INSERT INTO sessions (tenant, id, fence, turn_seq, stop_seq, queue_seq,
                      created_at_us, updated_at_us, archived, deleted, about)
VALUES (:tenant, :id, :fence, NULL, NULL, NULL,
        :created_at_us, :updated_at_us, :archived, :deleted, :about);

-- save_session --
UPDATE sessions
SET fence = :fence, turn_seq = :turn_seq, stop_seq = :stop_seq, queue_seq = :queue_seq,
    updated_at_us = :updated_at_us, archived = :archived, deleted = :deleted, about = :about
WHERE key = :key;

-- insert_entry --
-- The identity decides; a second entry with the same one is not written.
INSERT INTO entries (session, seq, identity, at_us, crc, body, blob, turn)
VALUES (:session, :seq, :identity, :at_us, :crc, :body, :blob, :turn)
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
WHERE session = :session AND turn = 1 ORDER BY seq;

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

-- put_blob --
INSERT INTO blobs (tenant, digest, holder, data) VALUES (:tenant, :digest, :holder, :data);

-- refer --
INSERT OR IGNORE INTO blob_references (blob, session) VALUES (:blob, :session);

-- loose_blobs --
SELECT key, holder FROM blobs
WHERE NOT EXISTS (SELECT 1 FROM blob_references WHERE blob = blobs.key);

-- drop_blob --
DELETE FROM blobs WHERE key = :key;

-- count_sessions --
SELECT count(*) FROM sessions;

-- count_entries --
SELECT count(*) FROM entries;

-- count_deltas --
SELECT count(*) FROM deltas;

-- count_blobs --
SELECT count(*) FROM blobs;
