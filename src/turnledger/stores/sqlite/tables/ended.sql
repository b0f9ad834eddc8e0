-- Statements that find what is to end, or is to go for good: conversations that were deleted, came to nothing, or
-- are older or more than their owner may keep. Run on a timer; no turn waits for one of them.

-- name: conversations_to_purge
-- Deleted ones whose time is over.
SELECT id, owner, branch, conversation_key, state, internal, title, metadata, revision, created_at,
       touched_at, expires_after, reset_policy, former_conversation_key, scope, tags, pinned, archived, named_by,
       listed, purge_at
FROM conversation
WHERE state = 'deleted' AND purge_at <= ?
ORDER BY purge_at, id
LIMIT ?;

-- name: unlisted_conversations
-- Begun and left alone since, where nothing was committed, runs, waits or is to be settled, nor was tried since.
SELECT id, owner, branch, conversation_key, state, internal, title, metadata, revision, created_at,
       touched_at, expires_after, reset_policy, former_conversation_key, scope, tags, pinned, archived, named_by,
       listed, purge_at
FROM conversation
WHERE state = 'live' AND listed = 0 AND touched_at <= ?1
  AND NOT EXISTS (
      SELECT 1 FROM branch
      WHERE branch.id = conversation.branch AND (branch.running IS NOT NULL OR branch.unsettled IS NOT NULL))
  AND NOT EXISTS (SELECT 1 FROM ticket WHERE ticket.branch = conversation.branch)
  AND NOT EXISTS (
      SELECT 1 FROM attempt WHERE ended = 1 AND attempt.conversation = conversation.id AND attempt.ended_at > ?1)
ORDER BY touched_at, id
LIMIT ?2;

-- name: owners
-- A page of those of whom something is stored.
SELECT owner FROM owner WHERE owner > coalesce(?, '') AND bytes > 0 ORDER BY owner LIMIT ?;

-- name: oldest_listed
-- Those of an owner that were left alone the longest (by ?3), archived or not, but for pinned ones, and those where a
-- turn runs, waits or was tried since.
SELECT id, owner, branch, conversation_key, state, internal, title, metadata, revision, created_at,
       touched_at, expires_after, reset_policy, former_conversation_key, scope, tags, pinned, archived, named_by,
       listed, purge_at
FROM conversation
WHERE owner = ?1 AND archived = ?2 AND state = 'live' AND internal = 0 AND listed = 1 AND pinned = 0
  AND touched_at <= ?3
  AND NOT EXISTS (
      SELECT 1 FROM branch WHERE branch.id = conversation.branch AND branch.running IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM ticket WHERE ticket.branch = conversation.branch)
  AND NOT EXISTS (
      SELECT 1 FROM attempt
      WHERE ended = 1 AND attempt.conversation = conversation.id AND attempt.ended_at > ?3 AND attempt.interaction)
ORDER BY touched_at, id
LIMIT ?4;

-- name: oldest_internal
-- Likewise, of those that never show in a list.
SELECT id, owner, branch, conversation_key, state, internal, title, metadata, revision, created_at,
       touched_at, expires_after, reset_policy, former_conversation_key, scope, tags, pinned, archived, named_by,
       listed, purge_at
FROM conversation
WHERE owner = ?1 AND state = 'live' AND internal = 1 AND listed = 1 AND pinned = 0 AND touched_at <= ?2
  AND NOT EXISTS (
      SELECT 1 FROM branch WHERE branch.id = conversation.branch AND branch.running IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM ticket WHERE ticket.branch = conversation.branch)
  AND NOT EXISTS (
      SELECT 1 FROM attempt
      WHERE ended = 1 AND attempt.conversation = conversation.id AND attempt.ended_at > ?2 AND attempt.interaction)
ORDER BY touched_at, id
LIMIT ?3;

-- name: oldest_deleted
-- Those of an owner that wait to go for good, the longest left alone first.
SELECT id, owner, branch, conversation_key, state, internal, title, metadata, revision, created_at,
       touched_at, expires_after, reset_policy, former_conversation_key, scope, tags, pinned, archived, named_by,
       listed, purge_at
FROM conversation
WHERE owner = ? AND state = 'deleted'
ORDER BY touched_at, id
LIMIT ?;

-- name: bytes_of
-- What the branches of a conversation hold.
SELECT bytes FROM branch WHERE conversation = ? AND cleared = 0;
