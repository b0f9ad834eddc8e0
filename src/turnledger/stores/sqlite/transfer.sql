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

-- name: turn_is_taken
-- Anybody's, committed or on its way.
SELECT 1 WHERE EXISTS (SELECT 1 FROM turn WHERE id = ?1)
    OR EXISTS (SELECT 1 FROM attempt WHERE ended = 0 AND id = ?1)
    OR EXISTS (SELECT 1 FROM attempt WHERE ended = 1 AND id = ?1)
    OR EXISTS (SELECT 1 FROM ticket WHERE attempt = ?1);
