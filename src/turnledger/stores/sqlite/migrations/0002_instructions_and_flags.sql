-- Instructions in force at the head of a branch; flags of items: see schema.sql for what they hold.

ALTER TABLE branch ADD COLUMN instructed INTEGER NOT NULL DEFAULT 0;

CREATE TABLE item_flag (
    turn BLOB NOT NULL,
    place INTEGER NOT NULL,
    owner TEXT NOT NULL,
    to_model INTEGER NOT NULL,
    to_user INTEGER NOT NULL,
    PRIMARY KEY (turn, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE flag_version (
    owner TEXT PRIMARY KEY,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
