-- Statements about share links and who came by them. Where the owner is NULL, all owners are meant.

-- name: share
-- One by id.
SELECT id, digest, owner, name, chat_scope, conversation, models, max_uses, uses, per_minute, visitor_lifetime,
       created_at, expires_at, revoked_at, parent, bounds, bytes, chats
FROM share
WHERE id = ?1 AND (?2 IS NULL OR owner = ?2);

-- name: share_by_digest
-- One by its code.
SELECT id, digest, owner, name, chat_scope, conversation, models, max_uses, uses, per_minute, visitor_lifetime,
       created_at, expires_at, revoked_at, parent, bounds, bytes, chats
FROM share
WHERE digest = ?;

-- name: shares_of_owner
-- A page of them, the last made first: ids rise with time.
SELECT id, digest, owner, name, chat_scope, conversation, models, max_uses, uses, per_minute, visitor_lifetime,
       created_at, expires_at, revoked_at, parent, bounds, bytes, chats
FROM share
WHERE owner = ?1 AND (?2 IS NULL OR id < ?2)
ORDER BY id DESC
LIMIT ?3;

-- name: shares_of_all
-- A page of them, the last made first.
SELECT id, digest, owner, name, chat_scope, conversation, models, max_uses, uses, per_minute, visitor_lifetime,
       created_at, expires_at, revoked_at, parent, bounds, bytes, chats
FROM share
WHERE id < coalesce(?1, x'ffffffffffffffffffffffffffffffffff')
ORDER BY id DESC
LIMIT ?2;

-- name: shares_made_by
-- Those that a token made.
SELECT id, digest, owner, name, chat_scope, conversation, models, max_uses, uses, per_minute, visitor_lifetime,
       created_at, expires_at, revoked_at, parent, bounds, bytes, chats
FROM share
WHERE parent = ?
ORDER BY id;

-- name: count_shares
-- How many of an owner are neither revoked nor expired, up to a limit.
SELECT count(*)
FROM (
    SELECT 1 FROM share WHERE owner = ?1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2) LIMIT ?3);

-- name: add_share
-- A link, as given.
INSERT INTO share (id, digest, owner, name, chat_scope, conversation, models, max_uses, uses, per_minute,
                   visitor_lifetime, created_at, expires_at, revoked_at, parent, bounds, bytes, chats)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: count_use
-- One visitor more.
UPDATE share SET uses = uses + 1 WHERE id = ?;

-- name: revoke_share
-- The first time counts.
UPDATE share SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL;

-- name: revoke_visitors
-- End all tokens that were got by a link.
UPDATE token SET revoked_at = ?2 WHERE share = ?1 AND share IS NOT NULL AND revoked_at IS NULL RETURNING owner;

-- name: count_visitors
-- How many came by a link since a time, up to a limit.
SELECT count(*)
FROM (SELECT 1 FROM token WHERE share = ?1 AND share IS NOT NULL AND created_at > ?2 LIMIT ?3);

-- name: purge_shares
-- Forget the ones that ended long ago.
DELETE FROM share
WHERE id IN (
    SELECT id FROM share
    WHERE (revoked_at IS NOT NULL OR expires_at IS NOT NULL)
      AND min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at)) < ?1
    ORDER BY min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at))
    LIMIT ?2)
RETURNING 1;
