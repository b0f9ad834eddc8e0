-- What owners are told of as it happens, in the order of commits. The newest row is never removed: numbers go
-- on. It has no index but its own: every turn adds two rows, all at the end, and only so many are kept.
CREATE TABLE change (
    number INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    scope TEXT NOT NULL,
    kind INTEGER NOT NULL,
    conversation BLOB NOT NULL,
    turn BLOB,
    branch BLOB,
    at INTEGER NOT NULL,
    detail TEXT                     -- a word about it; nothing that anybody wrote
) STRICT;
