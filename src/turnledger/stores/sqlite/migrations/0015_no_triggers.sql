-- The statements that write titles, flags and turns note themselves what has to be indexed.
DROP TRIGGER IF EXISTS title_given;
DROP TRIGGER IF EXISTS title_changed;
DROP TRIGGER IF EXISTS item_hidden;
DROP TRIGGER IF EXISTS item_shown;
DROP TRIGGER IF EXISTS turn_purged;
