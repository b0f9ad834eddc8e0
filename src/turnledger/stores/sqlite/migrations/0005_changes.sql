-- What owners are told of as it happens, in the order of commits. The newest row is never removed: numbers go on.
CREATE TABLE change (
    number INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    scope TEXT NOT NULL,
    kind INTEGER NOT NULL,
    conversation BLOB NOT NULL,
    turn BLOB,
    at INTEGER NOT NULL,
    details TEXT                    -- a JSON object; NULL for none
) STRICT;

CREATE INDEX change_of_owner ON change (owner, number);
