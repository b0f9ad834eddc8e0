-- Statements about tokens and admission. An owner of NULL stands for all owners.

-- name: secret
-- The random bytes of the store, never disclosed.
SELECT bits FROM secret WHERE id = 1;

-- name: token
-- One by id.
SELECT id, digest, owner, name, scopes, chat_scope, models, created_at, expires_at, revoked_at, used_at, parent,
       conversation, share, bounds, defaults
FROM token
WHERE id = ?1 AND (?2 IS NULL OR owner = ?2);

-- name: token_by_digest
-- One by the digest of its text, and the admission version of its owner.
SELECT t.id, t.digest, t.owner, t.name, t.scopes, t.chat_scope, t.models, t.created_at, t.expires_at, t.revoked_at,
       t.used_at, t.parent, t.conversation, t.share, t.bounds, t.defaults,
       o.admission
FROM token AS t LEFT JOIN owner AS o ON o.owner = t.owner
WHERE t.digest = ?;

-- name: tokens_of_owner
-- A page of them, newest first: ids rise with time.
SELECT id, digest, owner, name, scopes, chat_scope, models, created_at, expires_at, revoked_at, used_at, parent,
       conversation, share, bounds, defaults
FROM token
WHERE owner = ?1 AND (?2 IS NULL OR id < ?2)
ORDER BY id DESC
LIMIT ?3;

-- name: tokens_of_all
-- A page of them, newest first.
SELECT id, digest, owner, name, scopes, chat_scope, models, created_at, expires_at, revoked_at, used_at, parent,
       conversation, share, bounds, defaults
FROM token
WHERE id < coalesce(?1, x'ffffffffffffffffffffffffffffffffff')
ORDER BY id DESC
LIMIT ?2;

-- name: child_tokens
-- Those that another token created.
SELECT id, digest, owner, name, scopes, chat_scope, models, created_at, expires_at, revoked_at, used_at, parent,
       conversation, share, bounds, defaults
FROM token
WHERE parent = ?
ORDER BY id;

-- name: count_tokens
-- How many of an owner are neither revoked nor expired, up to a limit, without those of visitors.
SELECT count(*)
FROM (
    SELECT 1 FROM token
    WHERE owner = ?1 AND share IS NULL AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2)
    LIMIT ?3);

-- name: add_token
-- A token, as given.
INSERT INTO token (id, digest, owner, name, scopes, chat_scope, models, created_at, expires_at, revoked_at, used_at,
                   parent, conversation, share, bounds, defaults)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: revoke_token
-- The first time counts.
UPDATE token SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL;

-- name: record_use
-- Forward only: uses may be reported late.
UPDATE token SET used_at = ?2 WHERE id = ?1 AND (used_at IS NULL OR used_at < ?2);

-- name: purge_tokens
-- Remove those that ended long ago.
DELETE FROM token
WHERE id IN (
    SELECT id FROM token
    WHERE (revoked_at IS NOT NULL OR expires_at IS NOT NULL)
      AND min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at)) < ?1
    ORDER BY min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at))
    LIMIT ?2)
RETURNING 1;

-- name: admission
-- The admission version of an owner.
SELECT admission FROM owner WHERE owner = ?;

-- name: raise_admission
-- A number that was never used before.
INSERT INTO owner (owner, admission) VALUES (?, 1) ON CONFLICT (owner) DO UPDATE SET admission = admission + 1;

-- Statements about share links and their visitors. An owner of NULL stands for all owners.

-- name: share
-- One by id.
SELECT id, digest, owner, name, chat_scope, conversation, models, max_uses, uses, per_minute, visitor_lifetime,
       created_at, expires_at, revoked_at, parent, bounds, bytes, chats
FROM share
WHERE id = ?1 AND (?2 IS NULL OR owner = ?2);

-- name: share_by_digest
-- One by the digest of its code.
SELECT id, digest, owner, name, chat_scope, conversation, models, max_uses, uses, per_minute, visitor_lifetime,
       created_at, expires_at, revoked_at, parent, bounds, bytes, chats
FROM share
WHERE digest = ?;

-- name: shares_of_owner
-- A page of them, newest first: ids rise with time.
SELECT id, digest, owner, name, chat_scope, conversation, models, max_uses, uses, per_minute, visitor_lifetime,
       created_at, expires_at, revoked_at, parent, bounds, bytes, chats
FROM share
WHERE owner = ?1 AND (?2 IS NULL OR id < ?2)
ORDER BY id DESC
LIMIT ?3;

-- name: shares_of_all
-- A page of them, newest first.
SELECT id, digest, owner, name, chat_scope, conversation, models, max_uses, uses, per_minute, visitor_lifetime,
       created_at, expires_at, revoked_at, parent, bounds, bytes, chats
FROM share
WHERE id < coalesce(?1, x'ffffffffffffffffffffffffffffffffff')
ORDER BY id DESC
LIMIT ?2;

-- name: child_shares
-- Those that a token created.
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
-- Count one more visitor.
UPDATE share SET uses = uses + 1 WHERE id = ?;

-- name: revoke_share
-- The first time counts.
UPDATE share SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL;

-- name: revoke_visitors
-- Revoke all tokens obtained by a link.
UPDATE token SET revoked_at = ?2 WHERE share = ?1 AND share IS NOT NULL AND revoked_at IS NULL RETURNING owner;

-- name: count_visitors
-- How many tokens were obtained by a link since a time, up to a limit.
SELECT count(*)
FROM (SELECT 1 FROM token WHERE share = ?1 AND share IS NOT NULL AND created_at > ?2 LIMIT ?3);

-- name: purge_shares
-- Remove those that ended long ago.
DELETE FROM share
WHERE id IN (
    SELECT id FROM share
    WHERE (revoked_at IS NOT NULL OR expires_at IS NOT NULL)
      AND min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at)) < ?1
    ORDER BY min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at))
    LIMIT ?2)
RETURNING 1;
