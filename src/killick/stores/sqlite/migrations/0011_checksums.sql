-- Deltas have a checksum, as entries do. Rows of older versions have none, and packs have theirs. Older versions may use the
-- store beside this one: what they write has none either.
ALTER TABLE deltas ADD COLUMN crc INTEGER;
