-- The order in which leases were buried: the last ones are kept, whatever their ids.
ALTER TABLE lease ADD COLUMN buried INTEGER;

-- Whether words of removed texts may still be in the index.
ALTER TABLE search_mark ADD COLUMN has_remains INTEGER NOT NULL DEFAULT 0;
UPDATE search_mark SET has_remains = EXISTS (SELECT 1 FROM turn);

DROP TRIGGER IF EXISTS turn_purged;

-- Remove the words of a turn with it. The highest refs are reused, by turns that are yet to be indexed.
CREATE TRIGGER turn_purged AFTER DELETE ON turn
BEGIN
    DELETE FROM turn_words WHERE rowid = old.ref;
    DELETE FROM turn_due WHERE turn = old.ref;
    UPDATE search_mark SET turn = min(turn, coalesce((SELECT max(ref) FROM turn), 0)), has_remains = 1;
END;
