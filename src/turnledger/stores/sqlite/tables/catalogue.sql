-- The lists of chats. Each page is read from an index in its order, after a time and an id. ?1 is the owner, ?2 and ?3
-- are the place, ?4 is the limit. Filters are NULL if not set: ?5 the scope, ?6 archived, ?7 pinned, ?8 a tag. ?9 is the
-- time down to which chats are scanned.

-- name: listed
-- Those of all scopes, or of none: others are skipped.
SELECT c.id, c.owner, c.branch, c.conversation_key, c.state, c.internal, c.title, c.metadata, c.revision, c.created_at,
       c.touched_at, c.expires_after, c.reset_policy, c.former_conversation_key, c.scope, c.tags, c.pinned, c.archived,
       c.named_by, c.listed, c.purge_at, b.length, b.preview, b.running IS NOT NULL
FROM conversation AS c INDEXED BY conversation_listed JOIN branch AS b ON b.id = c.branch AND b.conversation = c.id
WHERE c.owner = ?1 AND c.archived = ?6 AND (c.touched_at, c.id) < (?2, ?3) AND c.touched_at >= ?9
  AND c.state = 'live' AND c.internal = 0 AND c.listed = 1
  AND (?5 IS NULL OR c.scope = ?5) AND (?7 IS NULL OR c.pinned = ?7)
  AND (?8 IS NULL OR EXISTS (SELECT 1 FROM conversation_tag AS t WHERE t.owner = ?1 AND t.tag = ?8 AND t.conversation = c.id))
ORDER BY c.touched_at DESC, c.id DESC
LIMIT ?4;

-- name: listed_in_scope
-- Those of one scope.
SELECT c.id, c.owner, c.branch, c.conversation_key, c.state, c.internal, c.title, c.metadata, c.revision, c.created_at,
       c.touched_at, c.expires_after, c.reset_policy, c.former_conversation_key, c.scope, c.tags, c.pinned, c.archived,
       c.named_by, c.listed, c.purge_at, b.length, b.preview, b.running IS NOT NULL
FROM conversation AS c INDEXED BY conversation_listed_in_scope JOIN branch AS b ON b.id = c.branch AND b.conversation = c.id
WHERE c.owner = ?1 AND c.scope = ?5 AND c.archived = ?6 AND (c.touched_at, c.id) < (?2, ?3) AND c.touched_at >= ?9
  AND c.state = 'live' AND c.internal = 0 AND c.listed = 1 AND c.scope <> ''
  AND (?7 IS NULL OR c.pinned = ?7)
  AND (?8 IS NULL OR EXISTS (SELECT 1 FROM conversation_tag AS t WHERE t.owner = ?1 AND t.tag = ?8 AND t.conversation = c.id))
ORDER BY c.touched_at DESC, c.id DESC
LIMIT ?4;

-- name: looked_back
-- The time of the chat that is ?4 chats after a place, in the order of `listed`.
SELECT touched_at FROM conversation INDEXED BY conversation_listed
WHERE owner = ?1 AND archived = ?5 AND (touched_at, id) < (?2, ?3) AND state = 'live' AND internal = 0 AND listed = 1
ORDER BY touched_at DESC, id DESC
LIMIT 1 OFFSET ?4;

-- name: looked_back_in_scope
-- Likewise, in the order of `listed_in_scope`.
SELECT touched_at FROM conversation INDEXED BY conversation_listed_in_scope
WHERE owner = ?1 AND scope = ?6 AND archived = ?5 AND (touched_at, id) < (?2, ?3)
  AND state = 'live' AND internal = 0 AND listed = 1 AND scope <> ''
ORDER BY touched_at DESC, id DESC
LIMIT 1 OFFSET ?4;

-- name: listed_pinned
-- Pinned ones, which are few.
SELECT c.id, c.owner, c.branch, c.conversation_key, c.state, c.internal, c.title, c.metadata, c.revision, c.created_at,
       c.touched_at, c.expires_after, c.reset_policy, c.former_conversation_key, c.scope, c.tags, c.pinned, c.archived,
       c.named_by, c.listed, c.purge_at, b.length, b.preview, b.running IS NOT NULL
FROM conversation AS c INDEXED BY conversation_pinned JOIN branch AS b ON b.id = c.branch AND b.conversation = c.id
WHERE c.owner = ?1 AND (c.touched_at, c.id) < (?2, ?3)
  AND c.state = 'live' AND c.pinned = 1 AND c.internal = 0 AND c.listed = 1
  AND (?5 IS NULL OR c.scope = ?5) AND (?6 IS NULL OR c.archived = ?6) AND (?7 IS NULL OR c.pinned = ?7)
  AND (?8 IS NULL OR EXISTS (SELECT 1 FROM conversation_tag AS t WHERE t.owner = ?1 AND t.tag = ?8 AND t.conversation = c.id))
ORDER BY c.touched_at DESC, c.id DESC
LIMIT ?4;

-- name: listed_deleted
-- Those that can be restored.
SELECT c.id, c.owner, c.branch, c.conversation_key, c.state, c.internal, c.title, c.metadata, c.revision, c.created_at,
       c.touched_at, c.expires_after, c.reset_policy, c.former_conversation_key, c.scope, c.tags, c.pinned, c.archived,
       c.named_by, c.listed, c.purge_at, b.length, b.preview, b.running IS NOT NULL
FROM conversation AS c INDEXED BY conversation_deleted JOIN branch AS b ON b.id = c.branch AND b.conversation = c.id
WHERE c.owner = ?1 AND (c.touched_at, c.id) < (?2, ?3)
  AND c.state = 'deleted' AND c.internal = 0 AND c.listed = 1
  AND (?5 IS NULL OR c.scope = ?5) AND (?6 IS NULL OR c.archived = ?6) AND (?7 IS NULL OR c.pinned = ?7)
  AND (?8 IS NULL OR EXISTS (SELECT 1 FROM conversation_tag AS t WHERE t.owner = ?1 AND t.tag = ?8 AND t.conversation = c.id))
ORDER BY c.touched_at DESC, c.id DESC
LIMIT ?4;

-- name: listed_by_tag
-- Those with a tag, live or deleted (?9): reads all of them, and sorts.
SELECT c.id, c.owner, c.branch, c.conversation_key, c.state, c.internal, c.title, c.metadata, c.revision, c.created_at,
       c.touched_at, c.expires_after, c.reset_policy, c.former_conversation_key, c.scope, c.tags, c.pinned, c.archived,
       c.named_by, c.listed, c.purge_at, b.length, b.preview, b.running IS NOT NULL
FROM conversation_tag AS t
CROSS JOIN conversation AS c ON c.id = t.conversation
CROSS JOIN branch AS b ON b.id = c.branch AND b.conversation = c.id
WHERE t.owner = ?1 AND t.tag = ?8 AND (c.touched_at, c.id) < (?2, ?3)
  AND c.state = ?9 AND c.internal = 0 AND c.listed = 1
  AND (?5 IS NULL OR c.scope = ?5) AND (?6 IS NULL OR c.archived = ?6) AND (?7 IS NULL OR c.pinned = ?7)
ORDER BY c.touched_at DESC, c.id DESC
LIMIT ?4;

-- name: count_tagged
-- How many have a tag, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM conversation_tag WHERE owner = ? AND tag = ? LIMIT ?);

-- name: tags
-- The tags of a conversation.
SELECT tags FROM conversation WHERE id = ? AND owner = ?;

-- name: add_tag
-- Index a conversation by a tag.
INSERT INTO conversation_tag (owner, tag, conversation) VALUES (?, ?, ?);

-- name: drop_tag
-- Remove a conversation from the index of a tag.
DELETE FROM conversation_tag WHERE owner = ? AND tag = ? AND conversation = ?;

-- Conversations whose time is over: deleted ones, those without a committed turn, and those beyond the limits of their
-- owner. Run on a timer; no turn waits for these.

-- name: conversations_to_purge
-- Deleted ones whose time is over.
SELECT owner, id
FROM conversation
WHERE state = 'deleted' AND purge_at <= ?1
ORDER BY purge_at, id
LIMIT ?2;

-- name: unlisted_conversations
-- Unused since a time, without a committed, running, queued or unsettled turn, or a recent attempt.
SELECT owner, id
FROM conversation
WHERE state = 'live' AND listed = 0 AND touched_at <= ?1
  AND id NOT IN (SELECT conversation FROM attempt WHERE ended = 0)
  AND NOT EXISTS (
      SELECT 1 FROM branch WHERE branch.id = conversation.branch AND branch.unsettled IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM ticket WHERE ticket.branch = conversation.branch)
  AND NOT EXISTS (
      SELECT 1 FROM attempt WHERE ended = 1 AND attempt.conversation = conversation.id AND attempt.ended_at > ?1)
ORDER BY touched_at, id
LIMIT ?2;

-- name: owners
-- A page of owners that store anything.
SELECT owner FROM owner WHERE owner > coalesce(?, '') AND bytes > 0 ORDER BY owner LIMIT ?;

-- name: turns_of_all
-- A page of all turns, by id, up to a size. Only turns of the page are read: `length` needs no body.
WITH page AS (
    SELECT ref, id, sum(size) OVER (ORDER BY id) - size AS before
    FROM (SELECT ref, id, length(body) AS size FROM turn WHERE id > coalesce(?1, x'') ORDER BY id LIMIT ?2)
)
SELECT conversation.owner, conversation.scope, conversation.id, turn.id, turn.body, coalesce(length(turn.log), 0)
FROM page
CROSS JOIN turn ON turn.ref = page.ref
JOIN branch ON branch.ref = turn.branch
JOIN conversation ON conversation.id = branch.conversation
WHERE page.before < ?3
ORDER BY page.id;

-- name: oldest_listed
-- Those of an owner that were unused the longest (until ?3), archived or not, except pinned ones, and those where a turn
-- runs, waits or was tried since.
SELECT id, owner, branch, conversation_key, state, internal, title, metadata, revision, created_at,
       touched_at, expires_after, reset_policy, former_conversation_key, scope, tags, pinned, archived, named_by,
       listed, purge_at
FROM conversation
WHERE owner = ?1 AND archived = ?2 AND state = 'live' AND internal = 0 AND listed = 1 AND pinned = 0
  AND touched_at <= ?3
  AND id NOT IN (SELECT conversation FROM attempt WHERE ended = 0)
  AND NOT EXISTS (SELECT 1 FROM ticket WHERE ticket.branch = conversation.branch)
  AND NOT EXISTS (
      SELECT 1 FROM attempt
      WHERE ended = 1 AND attempt.conversation = conversation.id AND attempt.ended_at > ?3 AND attempt.interaction)
ORDER BY touched_at, id
LIMIT ?4;

-- name: oldest_internal
-- Likewise, of internal ones.
SELECT id, owner, branch, conversation_key, state, internal, title, metadata, revision, created_at,
       touched_at, expires_after, reset_policy, former_conversation_key, scope, tags, pinned, archived, named_by,
       listed, purge_at
FROM conversation
WHERE owner = ?1 AND state = 'live' AND internal = 1 AND listed = 1 AND pinned = 0 AND touched_at <= ?2
  AND id NOT IN (SELECT conversation FROM attempt WHERE ended = 0)
  AND NOT EXISTS (SELECT 1 FROM ticket WHERE ticket.branch = conversation.branch)
  AND NOT EXISTS (
      SELECT 1 FROM attempt
      WHERE ended = 1 AND attempt.conversation = conversation.id AND attempt.ended_at > ?2 AND attempt.interaction)
ORDER BY touched_at, id
LIMIT ?3;

-- name: oldest_deleted
-- Deleted ones of an owner, longest unused first.
SELECT id, owner, branch, conversation_key, state, internal, title, metadata, revision, created_at,
       touched_at, expires_after, reset_policy, former_conversation_key, scope, tags, pinned, archived, named_by,
       listed, purge_at
FROM conversation
WHERE owner = ? AND state = 'deleted'
ORDER BY touched_at, id
LIMIT ?;

-- name: bytes_of
-- The bytes of the branches of a conversation.
SELECT bytes FROM branch
WHERE conversation = (SELECT id FROM conversation WHERE owner = ? AND id = ?) AND cleared = 0;

-- Statements for exports and imports.

-- name: least_recent
-- Listed ones of an owner, archived or not, longest untouched first: the index of lists, backwards.
SELECT id, owner, branch, conversation_key, state, internal, title, metadata, revision, created_at,
       touched_at, expires_after, reset_policy, former_conversation_key, scope, tags, pinned, archived, named_by,
       listed, purge_at
FROM conversation
WHERE owner = ?1 AND archived = ?2 AND state = 'live' AND internal = 0 AND listed = 1
  AND (touched_at, id) > (?3, ?4)
ORDER BY touched_at, id
LIMIT ?5;

-- name: least_recent_in_scope
-- The same in one scope, which has its own index.
SELECT id, owner, branch, conversation_key, state, internal, title, metadata, revision, created_at,
       touched_at, expires_after, reset_policy, former_conversation_key, scope, tags, pinned, archived, named_by,
       listed, purge_at
FROM conversation
WHERE owner = ?1 AND archived = ?2 AND scope = ?6 AND scope <> '' AND state = 'live' AND internal = 0
  AND listed = 1 AND (touched_at, id) > (?3, ?4)
ORDER BY touched_at, id
LIMIT ?5;

-- name: least_recent_in_no_scope
-- The same without a scope, skipping the others.
SELECT id, owner, branch, conversation_key, state, internal, title, metadata, revision, created_at,
       touched_at, expires_after, reset_policy, former_conversation_key, scope, tags, pinned, archived, named_by,
       listed, purge_at
FROM conversation
WHERE owner = ?1 AND archived = ?2 AND scope = '' AND state = 'live' AND internal = 0 AND listed = 1
  AND (touched_at, id) > (?3, ?4)
ORDER BY touched_at, id
LIMIT ?5;

-- name: conversation_is_taken
-- By any owner.
SELECT 1 FROM conversation WHERE id = ?;

-- name: taken_turns
-- Those of a list that any owner has, as turns, attempts or tickets.
SELECT id
FROM (SELECT unhex(value) AS id FROM json_each(?1)) AS asked
WHERE EXISTS (SELECT 1 FROM turn WHERE turn.id = asked.id)
    OR EXISTS (SELECT 1 FROM attempt WHERE ended = 0 AND attempt.id = asked.id)
    OR EXISTS (SELECT 1 FROM attempt WHERE ended = 1 AND attempt.id = asked.id)
    OR EXISTS (SELECT 1 FROM ticket WHERE ticket.attempt = asked.id);

-- name: taken_branches
-- Those of a list that any owner has.
SELECT branch.id FROM json_each(?1) JOIN branch ON branch.id = unhex(value);
