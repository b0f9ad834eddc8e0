-- Statements about copies between stores. Only a store that was made by a copy has the table `copied_from`.

-- name: snapshot
-- Begin to read one state, however long the copy takes.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL idle_in_transaction_session_timeout = 0;

-- name: state
-- What identifies the store, and marks of its last uses.
SELECT secret, newest.xid, newest.place, (SELECT id FROM turn ORDER BY id DESC LIMIT 1),
       (SELECT id FROM branch ORDER BY id DESC LIMIT 1), boot, boot_at, since, trusted_at
FROM store
LEFT JOIN (SELECT xid, place FROM change ORDER BY xid DESC, place DESC LIMIT 1) AS newest ON true
LEFT JOIN clock ON clock.id = 1;

-- name: leases
-- Those that are not buried.
SELECT id, beat FROM lease;

-- name: lock_store
-- Only one process begins a copy.
SELECT version FROM store WHERE id = 1 FOR UPDATE;

-- name: has_progress
-- Whether a copy was ever begun.
SELECT to_regclass('copied_from') IS NOT NULL;

-- name: create_progress
-- One row: a JSON document, the progress of the copy.
CREATE TABLE IF NOT EXISTS copied_from (id smallint PRIMARY KEY CHECK (id = 1), progress bytea NOT NULL);

-- name: progress
-- The progress of the copy.
SELECT progress FROM copied_from;

-- name: begin
-- The first progress.
INSERT INTO copied_from (id, progress) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET progress = excluded.progress;

-- name: advance
-- The next progress, if the last one is still ours.
UPDATE copied_from SET progress = $1 WHERE progress = $2 RETURNING 1;

-- name: save_version
-- Mark the store as unfinished, or as finished.
UPDATE store SET version = $1;

-- name: drop_leases
-- An empty store may have some of processes that died.
WITH buried AS (DELETE FROM buried_lease) DELETE FROM lease;

-- name: drop_clock
-- Its mark is copied.
DELETE FROM clock;

-- name: numbers_of
-- The numbers of branches.
SELECT id, number FROM branch WHERE id = ANY ($1::bytea[]);
