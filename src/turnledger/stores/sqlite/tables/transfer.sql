-- What exports and imports ask of a SQLite store, by name.

-- name: untouched
-- Those of an owner that are listed, archived or not, the longest untouched first: the index of lists, backwards.
SELECT id, owner, branch, conversation_key, state, internal, title, metadata, revision, created_at,
       touched_at, expires_after, reset_policy, former_conversation_key, scope, tags, pinned, archived, named_by,
       listed, purge_at
FROM conversation
WHERE owner = ?1 AND archived = ?2 AND state = 'live' AND internal = 0 AND listed = 1
  AND (touched_at, id) > (?3, ?4)
ORDER BY touched_at, id
LIMIT ?5;

-- name: untouched_in_scope
-- The same of one scope, which has an index of its own.
SELECT id, owner, branch, conversation_key, state, internal, title, metadata, revision, created_at,
       touched_at, expires_after, reset_policy, former_conversation_key, scope, tags, pinned, archived, named_by,
       listed, purge_at
FROM conversation
WHERE owner = ?1 AND archived = ?2 AND scope = ?6 AND scope <> '' AND state = 'live' AND internal = 0
  AND listed = 1 AND (touched_at, id) > (?3, ?4)
ORDER BY touched_at, id
LIMIT ?5;

-- name: untouched_in_no_scope
-- The same of those in none, passing over the others.
SELECT id, owner, branch, conversation_key, state, internal, title, metadata, revision, created_at,
       touched_at, expires_after, reset_policy, former_conversation_key, scope, tags, pinned, archived, named_by,
       listed, purge_at
FROM conversation
WHERE owner = ?1 AND archived = ?2 AND scope = '' AND state = 'live' AND internal = 0 AND listed = 1
  AND (touched_at, id) > (?3, ?4)
ORDER BY touched_at, id
LIMIT ?5;

-- name: conversation_is_taken
-- Anybody's.
SELECT 1 FROM conversation WHERE id = ?;

-- name: taken_turns
-- Those of a list that are anybody's, committed or on their way.
SELECT id
FROM (SELECT unhex(value) AS id FROM json_each(?1)) AS asked
WHERE EXISTS (SELECT 1 FROM turn WHERE turn.id = asked.id)
    OR EXISTS (SELECT 1 FROM attempt WHERE ended = 0 AND attempt.id = asked.id)
    OR EXISTS (SELECT 1 FROM attempt WHERE ended = 1 AND attempt.id = asked.id)
    OR EXISTS (SELECT 1 FROM ticket WHERE ticket.attempt = asked.id);

-- name: taken_branches
-- Those of a list that are anybody's.
SELECT branch.id FROM json_each(?1) JOIN branch ON branch.id = unhex(value);

-- name: refs_of_branches
-- Those of a conversation.
SELECT id, ref FROM branch WHERE conversation = ?;

-- name: add_turns
-- Several at once; the parent is NULL where it is the turn before on the same branch.
INSERT INTO turn (id, branch, number, parent, kind, created_at, committed_at, body, log, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
