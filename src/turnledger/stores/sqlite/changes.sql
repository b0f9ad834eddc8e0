-- What owners are told of, by name. Numbers rise in the order of commits: there is one writer at a time.

-- name: add_change
INSERT INTO change (at, owner, scope, kind, conversation, turn, branch, detail)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: changes
-- The next ones, of whichever owner.
SELECT number, owner, at, scope, kind, conversation, turn, branch, detail
FROM change
WHERE number > ?
ORDER BY number
LIMIT ?;

-- name: changes_of
-- The next ones of one owner. There are only so many in all: an index would cost every turn more than it saves.
SELECT number, owner, at, scope, kind, conversation, turn, branch, detail
FROM change
WHERE number > ? AND owner = ?
ORDER BY number
LIMIT ?;

-- name: newest_change
SELECT number, at, conversation, turn
FROM change
ORDER BY number DESC
LIMIT 1;

-- name: change
SELECT number, at, conversation, turn
FROM change
WHERE number = ?;

-- name: oldest_change
SELECT number
FROM change
ORDER BY number
LIMIT 1;

-- name: purge_changes
-- Of the oldest ones, those that are older than this time or further behind the newest than so many.
DELETE FROM change
WHERE number IN (
    SELECT number
    FROM (SELECT number, at FROM change ORDER BY number LIMIT ?)
    WHERE number < ? AND (at < ? OR number <= ?)
);
