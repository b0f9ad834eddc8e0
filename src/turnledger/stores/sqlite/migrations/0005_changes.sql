-- The changes of the feed, in the order of commits. The newest row is never removed, so that numbers continue.
-- No further index: every turn appends two rows, and their number is bounded.
CREATE TABLE change (
    number INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    scope TEXT NOT NULL,
    kind INTEGER NOT NULL,
    conversation BLOB NOT NULL,
    turn BLOB,
    branch BLOB,
    at INTEGER NOT NULL,
    detail TEXT                     -- a word of ours, never text of a user
) STRICT;
