-- The effects that an undo was asked to forget: no switch carries them to another branch.
ALTER TABLE conversation ADD COLUMN forgotten BLOB;

-- 0 for a waiting turn that does not count as use of its conversation.
ALTER TABLE ticket ADD COLUMN interaction INTEGER NOT NULL DEFAULT 1;
