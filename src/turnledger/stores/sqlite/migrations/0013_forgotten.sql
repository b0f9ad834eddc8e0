-- The effects that an undo was told to forget: no switch carries them along to another branch.
ALTER TABLE conversation ADD COLUMN forgotten BLOB;
