-- Statements about time: the clocks of the machine, and the newest time that is stored.

-- name: clock_mark
-- As the last process saw them.
SELECT boot, boot_at, since, trusted_at FROM clock WHERE id = 1;

-- name: save_clock_mark
-- In place of the one that is there.
INSERT INTO clock (id, boot, boot_at, since, trusted_at) VALUES (1, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    boot = excluded.boot, boot_at = excluded.boot_at, since = excluded.since, trusted_at = excluded.trusted_at;

-- name: newest_time
-- Of the last change, and of the last turn: internal conversations make no changes.
SELECT max(at) FROM (
    SELECT at FROM change WHERE number = (SELECT max(number) FROM change)
    UNION ALL
    SELECT committed_at FROM turn WHERE ref = (SELECT max(ref) FROM turn));
