-- Statements about tokens, and who is let in. Where the owner is NULL, all owners are meant.

-- name: secret
-- What nobody outside knows.
SELECT bits FROM secret WHERE id = 1;

-- name: token
-- One by id.
SELECT id, digest, owner, name, scopes, chat_scope, models, created_at, expires_at, revoked_at, used_at, parent,
       conversation, share, bounds
FROM token
WHERE id = ?1 AND (?2 IS NULL OR owner = ?2);

-- name: token_by_digest
-- One by its text, and how often it has changed who is let in to its owner's.
SELECT t.id, t.digest, t.owner, t.name, t.scopes, t.chat_scope, t.models, t.created_at, t.expires_at, t.revoked_at,
       t.used_at, t.parent, t.conversation, t.share, t.bounds, o.admission
FROM token AS t LEFT JOIN owner AS o ON o.owner = t.owner
WHERE t.digest = ?;

-- name: tokens_of_owner
-- A page of them, the last made first: ids rise with time.
SELECT id, digest, owner, name, scopes, chat_scope, models, created_at, expires_at, revoked_at, used_at, parent,
       conversation, share, bounds
FROM token
WHERE owner = ?1 AND (?2 IS NULL OR id < ?2)
ORDER BY id DESC
LIMIT ?3;

-- name: tokens_of_all
-- A page of them, the last made first.
SELECT id, digest, owner, name, scopes, chat_scope, models, created_at, expires_at, revoked_at, used_at, parent,
       conversation, share, bounds
FROM token
WHERE id < coalesce(?1, x'ffffffffffffffffffffffffffffffffff')
ORDER BY id DESC
LIMIT ?2;

-- name: minted_by
-- Those that another one made.
SELECT id, digest, owner, name, scopes, chat_scope, models, created_at, expires_at, revoked_at, used_at, parent,
       conversation, share, bounds
FROM token
WHERE parent = ?
ORDER BY id;

-- name: count_tokens
-- How many of an owner are neither revoked nor expired, up to a limit; those of visitors belong to their links.
SELECT count(*)
FROM (
    SELECT 1 FROM token
    WHERE owner = ?1 AND share IS NULL AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2)
    LIMIT ?3);

-- name: add_token
-- A token, as given.
INSERT INTO token (id, digest, owner, name, scopes, chat_scope, models, created_at, expires_at, revoked_at, used_at,
                   parent, conversation, share, bounds)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: revoke_token
-- The first time counts.
UPDATE token SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL;

-- name: note_use
-- Forward only: who tells of it may be late.
UPDATE token SET used_at = ?2 WHERE id = ?1 AND (used_at IS NULL OR used_at < ?2);

-- name: purge_tokens
-- Forget the ones that ended long ago.
DELETE FROM token
WHERE id IN (
    SELECT id FROM token
    WHERE (revoked_at IS NOT NULL OR expires_at IS NOT NULL)
      AND min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at)) < ?1
    ORDER BY min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at))
    LIMIT ?2)
RETURNING 1;

-- name: admission
-- How often it has changed who is let in to an owner's.
SELECT admission FROM owner WHERE owner = ?;

-- name: raise_admission
-- Another number than ever before.
INSERT INTO owner (owner, admission) VALUES (?, 1) ON CONFLICT (owner) DO UPDATE SET admission = admission + 1;

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
