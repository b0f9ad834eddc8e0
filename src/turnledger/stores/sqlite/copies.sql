-- Statements about copies between stores. Only a store that was made by a copy has the table `copied_from`.

-- name: state
-- What identifies the store, and marks of its last uses.
SELECT (SELECT bits FROM secret), (SELECT max(number) FROM change), (SELECT max(ref) FROM turn),
       (SELECT max(ref) FROM branch), boot, boot_at, since, trusted_at
FROM (SELECT 1) LEFT JOIN clock ON clock.id = 1;

-- name: leases
-- Those that are not buried.
SELECT id, beat FROM lease WHERE beat > 0;

-- name: create_progress
-- One row: a JSON document, the progress of the copy.
CREATE TABLE IF NOT EXISTS copied_from (id INTEGER PRIMARY KEY CHECK (id = 1), progress BLOB NOT NULL) STRICT;

-- name: progress
-- The progress of the copy.
SELECT progress FROM copied_from;

-- name: drop_progress
-- Begin anew.
DELETE FROM copied_from;

-- name: begin
-- The first progress.
INSERT INTO copied_from (id, progress) VALUES (1, ?);

-- name: advance
-- The next progress, if the last one is still ours.
UPDATE copied_from SET progress = ? WHERE progress = ? RETURNING 1;

-- name: drop_leases
-- An empty store may have some of processes that died.
DELETE FROM lease;

-- name: drop_clock
-- Its mark is copied.
DELETE FROM clock;

-- name: add_long_input
-- An input that is too long for the row of its attempt.
INSERT INTO attempt_input (attempt, body) VALUES (?, ?);

-- name: ref
-- The number of a branch.
SELECT ref FROM branch WHERE id = ?;

-- name: start_feed
-- A first change, of no owner and not at the start: a follower at the start of the source cannot continue here.
INSERT INTO change (number, owner, scope, kind, conversation, at)
SELECT 2, '', '', 0, zeroblob(16), coalesce(max(committed_at), 0) FROM turn;
