-- In which order processes were buried: the last ones are remembered, whatever their ids.
ALTER TABLE lease ADD COLUMN buried INTEGER;

-- Whether the index of words may still hold words of what was removed.
ALTER TABLE search_mark ADD COLUMN has_remains INTEGER NOT NULL DEFAULT 0;
UPDATE search_mark SET has_remains = EXISTS (SELECT 1 FROM turn);

DROP TRIGGER IF EXISTS turn_purged;

-- With a turn go its words. The highest refs are given again, to turns that are to be looked through.
CREATE TRIGGER turn_purged AFTER DELETE ON turn
BEGIN
    DELETE FROM turn_words WHERE rowid = old.ref;
    DELETE FROM turn_due WHERE turn = old.ref;
    UPDATE search_mark SET turn = min(turn, coalesce((SELECT max(ref) FROM turn), 0)), has_remains = 1;
END;
