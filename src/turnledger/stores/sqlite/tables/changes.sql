-- What owners are told of, by name. Numbers rise in the order of commits: there is one writer at a time.

-- name: add_change
-- At the end.
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
-- The last one, by which a position is known.
SELECT number, at, conversation, turn
FROM change
WHERE number = (SELECT max(number) FROM change);

-- name: change
-- One, by which a position is known.
SELECT number, at, conversation, turn
FROM change
WHERE number = ?;

-- name: oldest_change
-- The first that is kept.
SELECT min(number) FROM change;

-- name: purge_changes
-- Of the oldest ones (?1), those that are older than a time (?3) or come before a number (?4), up to the first that
-- is kept: what is behind that must all be there. Never the newest (?2).
DELETE FROM change
WHERE number IN (SELECT number FROM change WHERE number > 0 ORDER BY number LIMIT ?1)
  AND number < ?2
  AND number < coalesce((SELECT number FROM change WHERE number > ?4 AND at >= ?3 ORDER BY number LIMIT 1), ?2);

-- name: owner_of_ticket
-- Whose conversation somebody waits for.
SELECT conversation.owner
FROM ticket JOIN conversation ON conversation.id = ticket.conversation
WHERE ticket.attempt = ?;
