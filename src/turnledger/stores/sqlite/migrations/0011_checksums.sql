-- A flipped byte in a text is noticed when its turn is read. Turns from before have no checksum.
ALTER TABLE turn ADD COLUMN checksum INTEGER;
