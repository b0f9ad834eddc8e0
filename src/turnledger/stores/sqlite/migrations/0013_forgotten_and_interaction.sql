-- The effects that an undo was told to forget: no switch carries them along to another branch.
ALTER TABLE conversation ADD COLUMN forgotten BLOB;

-- A turn that does not count as use of its conversation does not do so either while it waits.
ALTER TABLE ticket ADD COLUMN interaction INTEGER NOT NULL DEFAULT 1;
