-- Erasing costs what is erased: blobs are found by session, and words can be taken out of the search index in place.
-- The search index is made anew with this migration, from search_schema.sql: `contentless_delete` kept removed words.
CREATE INDEX blob_references_by_session ON blob_references (session, blob);

-- Rows go in steps after the receipt is there, and words are looked up meanwhile: what a fork was made of is kept for that.
ALTER TABLE erasures ADD COLUMN base INTEGER;
ALTER TABLE erasures ADD COLUMN base_seq INTEGER NOT NULL DEFAULT 0;
CREATE INDEX erasures_by_id ON erasures (tenant, id);
CREATE INDEX erasures_unfinished ON erasures (tenant, key) WHERE scrubbed_at_us IS NULL;

-- `swept` counts how often all bytes were cleared that no row accounts for. Older versions left some even in new rows.
INSERT INTO meta (name, value) SELECT 'swept', 0
WHERE NOT EXISTS (SELECT 1 FROM sessions) AND NOT EXISTS (SELECT 1 FROM erasures);
