-- The lists of chats: every statement that CatalogueRows runs, by name. Each page is read from an index in its
-- order, behind a time and an id. ?1 is the owner, ?2 and ?3 are the place, ?4 how many. What is asked for
-- besides is NULL where it does not matter: ?5 the scope, ?6 archived, ?7 pinned, ?8 a tag. ?9 is the time up to
-- which it is looked back.

-- name: listed
-- Those of all applications, or of none: the others are passed over.
SELECT c.id, c.owner, c.branch, c.conversation_key, c.state, c.internal, c.title, c.metadata, c.revision, c.created_at,
       c.touched_at, c.expires_after, c.reset_policy, c.former_conversation_key, c.scope, c.tags, c.pinned, c.archived,
       c.named_by, c.listed, c.purge_at, b.length, b.preview, b.running IS NOT NULL
FROM conversation AS c INDEXED BY conversation_listed JOIN branch AS b ON b.id = c.branch
WHERE c.owner = ?1 AND c.archived = ?6 AND (c.touched_at, c.id) < (?2, ?3) AND c.touched_at >= ?9
  AND c.state = 'live' AND c.internal = 0 AND c.listed = 1
  AND (?5 IS NULL OR c.scope = ?5) AND (?7 IS NULL OR c.pinned = ?7)
  AND (?8 IS NULL OR EXISTS (SELECT 1 FROM conversation_tag AS t WHERE t.owner = ?1 AND t.tag = ?8 AND t.conversation = c.id))
ORDER BY c.touched_at DESC, c.id DESC
LIMIT ?4;

-- name: listed_in_scope
-- Those of one application.
SELECT c.id, c.owner, c.branch, c.conversation_key, c.state, c.internal, c.title, c.metadata, c.revision, c.created_at,
       c.touched_at, c.expires_after, c.reset_policy, c.former_conversation_key, c.scope, c.tags, c.pinned, c.archived,
       c.named_by, c.listed, c.purge_at, b.length, b.preview, b.running IS NOT NULL
FROM conversation AS c INDEXED BY conversation_listed_in_scope JOIN branch AS b ON b.id = c.branch
WHERE c.owner = ?1 AND c.scope = ?5 AND c.archived = ?6 AND (c.touched_at, c.id) < (?2, ?3) AND c.touched_at >= ?9
  AND c.state = 'live' AND c.internal = 0 AND c.listed = 1 AND c.scope <> ''
  AND (?7 IS NULL OR c.pinned = ?7)
  AND (?8 IS NULL OR EXISTS (SELECT 1 FROM conversation_tag AS t WHERE t.owner = ?1 AND t.tag = ?8 AND t.conversation = c.id))
ORDER BY c.touched_at DESC, c.id DESC
LIMIT ?4;

-- name: looked_back
-- The time of the chat that is so many behind (?4) a place, in the order of `listed`.
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
-- Those that are pinned, which are few.
SELECT c.id, c.owner, c.branch, c.conversation_key, c.state, c.internal, c.title, c.metadata, c.revision, c.created_at,
       c.touched_at, c.expires_after, c.reset_policy, c.former_conversation_key, c.scope, c.tags, c.pinned, c.archived,
       c.named_by, c.listed, c.purge_at, b.length, b.preview, b.running IS NOT NULL
FROM conversation AS c INDEXED BY conversation_pinned JOIN branch AS b ON b.id = c.branch
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
FROM conversation AS c INDEXED BY conversation_deleted JOIN branch AS b ON b.id = c.branch
WHERE c.owner = ?1 AND (c.touched_at, c.id) < (?2, ?3)
  AND c.state = 'deleted' AND c.internal = 0 AND c.listed = 1
  AND (?5 IS NULL OR c.scope = ?5) AND (?6 IS NULL OR c.archived = ?6) AND (?7 IS NULL OR c.pinned = ?7)
  AND (?8 IS NULL OR EXISTS (SELECT 1 FROM conversation_tag AS t WHERE t.owner = ?1 AND t.tag = ?8 AND t.conversation = c.id))
ORDER BY c.touched_at DESC, c.id DESC
LIMIT ?4;

-- name: listed_by_tag
-- Those of a tag, live or deleted (?9): all of them are looked at, and put in order.
SELECT c.id, c.owner, c.branch, c.conversation_key, c.state, c.internal, c.title, c.metadata, c.revision, c.created_at,
       c.touched_at, c.expires_after, c.reset_policy, c.former_conversation_key, c.scope, c.tags, c.pinned, c.archived,
       c.named_by, c.listed, c.purge_at, b.length, b.preview, b.running IS NOT NULL
FROM conversation_tag AS t
CROSS JOIN conversation AS c ON c.id = t.conversation
CROSS JOIN branch AS b ON b.id = c.branch
WHERE t.owner = ?1 AND t.tag = ?8 AND (c.touched_at, c.id) < (?2, ?3)
  AND c.state = ?9 AND c.internal = 0 AND c.listed = 1
  AND (?5 IS NULL OR c.scope = ?5) AND (?6 IS NULL OR c.archived = ?6) AND (?7 IS NULL OR c.pinned = ?7)
ORDER BY c.touched_at DESC, c.id DESC
LIMIT ?4;

-- name: count_tagged
-- How many have a tag, counted up to a bound.
SELECT count(*) FROM (SELECT 1 FROM conversation_tag WHERE owner = ? AND tag = ? LIMIT ?);

-- name: tags
-- Those of a conversation, and whose it is.
SELECT owner, tags FROM conversation WHERE id = ?;

-- name: add_tag
-- A conversation can be found by this one.
INSERT INTO conversation_tag (owner, tag, conversation) VALUES (?, ?, ?);

-- name: drop_tag
-- It cannot any more.
DELETE FROM conversation_tag WHERE owner = ? AND tag = ? AND conversation = ?;
