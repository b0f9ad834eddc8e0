-- Branches of turns that ran beside the current branch, by their last use.
ALTER TABLE branch ADD COLUMN used_at INTEGER;
CREATE INDEX branch_by_use ON branch (used_at) WHERE used_at IS NOT NULL;
