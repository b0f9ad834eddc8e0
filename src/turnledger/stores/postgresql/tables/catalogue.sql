-- The lists of chats. Each page is read from an index in its order, after a time and an id. $1 is the owner, $2 and $3
-- are the place, $4 is the limit. Filters are NULL if not set: $5 the scope, $6 archived, $7 pinned, $8 a tag.

-- name: listed
-- Live ones of all scopes, or of none.
SELECT c.*, b.length AS chat_length, b.preview AS chat_preview, b.running AS chat_running
FROM conversation AS c JOIN branch AS b ON b.owner = c.owner AND b.id = c.branch AND b.conversation = c.id
WHERE c.owner = $1 AND (c.touched_at, c.id) < ($2::bigint, $3::bytea)
  AND c.state = 'live' AND c.internal = 0 AND c.listed = 1
  AND c.archived = $6::smallint
  AND ($5::text IS NULL OR c.scope = $5) AND ($7::smallint IS NULL OR c.pinned = $7)
  AND ($8::text IS NULL OR EXISTS (
      SELECT 1 FROM conversation_tag AS t WHERE t.owner = $1 AND t.tag = $8 AND t.conversation = c.id))
ORDER BY c.touched_at DESC, c.id DESC
LIMIT $4;

-- name: listed_in_scope
-- Live ones of one scope.
SELECT c.*, b.length AS chat_length, b.preview AS chat_preview, b.running AS chat_running
FROM conversation AS c JOIN branch AS b ON b.owner = c.owner AND b.id = c.branch AND b.conversation = c.id
WHERE c.owner = $1 AND (c.touched_at, c.id) < ($2::bigint, $3::bytea)
  AND c.state = 'live' AND c.internal = 0 AND c.listed = 1
  AND c.archived = $6::smallint AND key_digest(c.scope) = key_digest($5) AND c.scope <> ''
  AND ($7::smallint IS NULL OR c.pinned = $7)
  AND ($8::text IS NULL OR EXISTS (
      SELECT 1 FROM conversation_tag AS t WHERE t.owner = $1 AND t.tag = $8 AND t.conversation = c.id))
ORDER BY c.touched_at DESC, c.id DESC
LIMIT $4;

-- name: listed_pinned
-- Pinned ones, which are few.
SELECT c.*, b.length AS chat_length, b.preview AS chat_preview, b.running AS chat_running
FROM conversation AS c JOIN branch AS b ON b.owner = c.owner AND b.id = c.branch AND b.conversation = c.id
WHERE c.owner = $1 AND (c.touched_at, c.id) < ($2::bigint, $3::bytea)
  AND c.state = 'live' AND c.pinned = 1 AND c.internal = 0 AND c.listed = 1
  AND ($5::text IS NULL OR c.scope = $5) AND ($6::smallint IS NULL OR c.archived = $6)
  AND ($7::smallint IS NULL OR c.pinned = $7)
  AND ($8::text IS NULL OR EXISTS (
      SELECT 1 FROM conversation_tag AS t WHERE t.owner = $1 AND t.tag = $8 AND t.conversation = c.id))
ORDER BY c.touched_at DESC, c.id DESC
LIMIT $4;

-- name: listed_deleted
-- Those that can be restored.
SELECT c.*, b.length AS chat_length, b.preview AS chat_preview, b.running AS chat_running
FROM conversation AS c JOIN branch AS b ON b.owner = c.owner AND b.id = c.branch AND b.conversation = c.id
WHERE c.owner = $1 AND (c.touched_at, c.id) < ($2::bigint, $3::bytea)
  AND c.state = 'deleted' AND c.internal = 0 AND c.listed = 1
  AND ($5::text IS NULL OR c.scope = $5) AND ($6::smallint IS NULL OR c.archived = $6)
  AND ($7::smallint IS NULL OR c.pinned = $7)
  AND ($8::text IS NULL OR EXISTS (
      SELECT 1 FROM conversation_tag AS t WHERE t.owner = $1 AND t.tag = $8 AND t.conversation = c.id))
ORDER BY c.touched_at DESC, c.id DESC
LIMIT $4;

-- name: listed_by_tag
-- Those with a tag, live or deleted ($9): reads all of them, and sorts.
SELECT c.*, b.length AS chat_length, b.preview AS chat_preview, b.running AS chat_running
FROM conversation_tag AS t
JOIN conversation AS c ON c.owner = t.owner AND c.id = t.conversation
JOIN branch AS b ON b.owner = c.owner AND b.id = c.branch AND b.conversation = c.id
WHERE t.owner = $1 AND t.tag = $8 AND (c.touched_at, c.id) < ($2::bigint, $3::bytea)
  AND c.state = $9 AND c.internal = 0 AND c.listed = 1
  AND ($5::text IS NULL OR c.scope = $5) AND ($6::smallint IS NULL OR c.archived = $6)
  AND ($7::smallint IS NULL OR c.pinned = $7)
ORDER BY c.touched_at DESC, c.id DESC
LIMIT $4;

-- name: count_tagged
-- How many have a tag, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM conversation_tag WHERE owner = $1 AND tag = $2 LIMIT $3) AS few;

-- name: tag_conversation
-- Index a conversation by tags.
INSERT INTO conversation_tag (owner, tag, conversation) SELECT $1, tag, $2 FROM unnest($3::text[]) AS given (tag);

-- name: untag_conversation
-- Remove a conversation from the index of tags.
DELETE FROM conversation_tag WHERE owner = $1 AND conversation = $2 AND tag = ANY ($3::text[]);

-- name: oldest_listed
-- Those that were unused the longest (until $3), archived or not ($2), except pinned ones, and those where a turn runs,
-- waits or was tried since.
SELECT * FROM conversation
WHERE owner = $1 AND archived = $2 AND state = 'live' AND internal = 0 AND listed = 1 AND pinned = 0
  AND touched_at <= $3
  AND NOT EXISTS (SELECT 1 FROM ticket WHERE ticket.owner = $1 AND ticket.branch = conversation.branch)
  AND NOT EXISTS (
      SELECT 1 FROM attempt
      WHERE attempt.owner = $1 AND attempt.conversation = conversation.id
        AND (ended = 0 OR (attempt.ended_at > $3 AND attempt.interaction = 1)))
ORDER BY touched_at, id
LIMIT $4;

-- name: oldest_internal
-- Likewise, of internal ones (until $2).
SELECT * FROM conversation
WHERE owner = $1 AND state = 'live' AND internal = 1 AND listed = 1 AND pinned = 0 AND touched_at <= $2
  AND NOT EXISTS (SELECT 1 FROM ticket WHERE ticket.owner = $1 AND ticket.branch = conversation.branch)
  AND NOT EXISTS (
      SELECT 1 FROM attempt
      WHERE attempt.owner = $1 AND attempt.conversation = conversation.id
        AND (ended = 0 OR (attempt.ended_at > $2 AND attempt.interaction = 1)))
ORDER BY touched_at, id
LIMIT $3;

-- name: oldest_deleted
-- Deleted ones, longest unused first.
SELECT * FROM conversation WHERE owner = $1 AND state = 'deleted' ORDER BY touched_at, id LIMIT $2;

-- name: bytes_of
-- The bytes of the branches of a conversation.
SELECT bytes FROM branch WHERE owner = $1 AND conversation = $2 AND cleared = 0;

-- Statements for exports and imports.

-- name: least_recent
-- Listed ones, archived or not ($2), longest untouched first.
SELECT * FROM conversation
WHERE owner = $1 AND archived = $2 AND state = 'live' AND internal = 0 AND listed = 1
  AND (touched_at, id) > ($3::bigint, $4::bytea) AND ($6::text IS NULL OR scope = $6)
ORDER BY touched_at, id
LIMIT $5;

-- name: conversation_is_taken
-- By any owner ($1 is the id).
SELECT 1 FROM conversation WHERE id = $1;

-- name: taken_turns
-- Those of a list ($1) that any owner has, as turns, attempts or tickets.
SELECT id
FROM unnest($1::bytea[]) AS given (id)
WHERE EXISTS (SELECT 1 FROM turn WHERE turn.id = given.id)
   OR EXISTS (SELECT 1 FROM attempt WHERE attempt.id = given.id)
   OR EXISTS (SELECT 1 FROM ticket WHERE ticket.attempt = given.id);

-- name: taken_branches
-- Those of a list ($1) that any owner has.
SELECT id FROM branch WHERE id = ANY ($1::bytea[]);

-- name: next_branch
-- The next number of a branch of this conversation.
SELECT coalesce(max(number), 0) + 1 FROM branch WHERE owner = $1 AND conversation = $2;
