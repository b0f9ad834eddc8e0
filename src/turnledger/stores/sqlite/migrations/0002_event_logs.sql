-- The logs of events: see schema.sql for what they hold.

ALTER TABLE turn ADD COLUMN log BLOB;

CREATE TABLE event_log (
    attempt BLOB NOT NULL,
    number INTEGER NOT NULL,
    chunk BLOB NOT NULL,
    PRIMARY KEY (attempt, number)
) STRICT, WITHOUT ROWID;
