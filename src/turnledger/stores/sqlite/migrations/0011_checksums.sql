-- Checksums detect damaged bytes when a turn is read. Turns of older versions have none.
ALTER TABLE turn ADD COLUMN checksum INTEGER;
