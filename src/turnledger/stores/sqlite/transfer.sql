-- What exports and imports ask of a SQLite store, by name.

-- name: untouched
-- A page of all that an owner has listed, the longest untouched first: the index of lists, backwards.
SELECT id, owner, branch, conversation_key, state, internal, title, metadata, revision, created_at,
       touched_at, expires_after, reset_policy, former_conversation_key, scope, tags, pinned, archived, named_by,
       listed, purge_at
FROM conversation
WHERE owner = ? AND state = 'live' AND internal = 0 AND listed = 1 AND (touched_at, id) > (?, ?)
ORDER BY touched_at, id
LIMIT ?;

-- name: untouched_in_scope
-- The same for one scope, passing over the others.
SELECT id, owner, branch, conversation_key, state, internal, title, metadata, revision, created_at,
       touched_at, expires_after, reset_policy, former_conversation_key, scope, tags, pinned, archived, named_by,
       listed, purge_at
FROM conversation
WHERE owner = ? AND scope = ? AND state = 'live' AND internal = 0 AND listed = 1 AND (touched_at, id) > (?, ?)
ORDER BY touched_at, id
LIMIT ?;

-- name: conversation_is_taken
-- Anybody's.
SELECT 1 FROM conversation WHERE id = ?;

-- name: turn_is_taken
-- Anybody's, committed or on its way.
SELECT 1 WHERE EXISTS (SELECT 1 FROM turn WHERE id = ?1)
    OR EXISTS (SELECT 1 FROM attempt WHERE ended = 0 AND id = ?1)
    OR EXISTS (SELECT 1 FROM attempt WHERE ended = 1 AND id = ?1)
    OR EXISTS (SELECT 1 FROM ticket WHERE attempt = ?1);
