-- Deltas have a checksum, as entries do. Rows of older versions have none. Older versions may use the
-- store beside this one: what they write has none either.
ALTER TABLE killick.deltas ADD COLUMN crc bigint;
