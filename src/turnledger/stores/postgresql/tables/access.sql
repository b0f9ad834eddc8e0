-- Statements about tokens and admission. An owner of NULL stands for all owners.

-- name: token
-- One by id.
SELECT * FROM token
WHERE id = $1 AND ($2::text IS NULL OR owner = $2);

-- name: token_by_digest
-- One by the digest of its text, and the admission version of its owner.
SELECT t.*, o.admission AS owner_admission
FROM token AS t LEFT JOIN owner AS o ON o.owner = t.owner
WHERE t.digest = $1;

-- name: tokens_of_owner
-- A page of them, newest first: ids rise with time.
SELECT * FROM token
WHERE owner = $1 AND ($2::bytea IS NULL OR id < $2)
ORDER BY id DESC
LIMIT $3;

-- name: tokens_of_all
-- A page of them, newest first.
SELECT * FROM token
WHERE id < coalesce($1, '\xffffffffffffffffffffffffffffffffff'::bytea)
ORDER BY id DESC
LIMIT $2;

-- name: child_tokens
-- Those that another token created.
SELECT * FROM token
WHERE parent = $1
ORDER BY id;

-- name: count_tokens
-- How many of an owner are neither revoked nor expired, up to a limit, without those of visitors.
SELECT count(*)
FROM (
    SELECT 1 FROM token
    WHERE owner = $1 AND share IS NULL AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)
    LIMIT $3) AS few;

-- name: add_token
-- A token, as given.
INSERT INTO token (id, digest, owner, name, scopes, chat_scope, models, created_at, expires_at, revoked_at, used_at,
                   parent, conversation, share, bounds, defaults)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16);

-- name: revoke_token
-- The first time counts.
UPDATE token SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL;

-- name: record_use
-- Forward only: uses may be reported late.
UPDATE token SET used_at = $2 WHERE id = $1 AND (used_at IS NULL OR used_at < $2);

-- name: purge_tokens
-- Remove those that ended long ago.
DELETE FROM token
WHERE id IN (
    SELECT id FROM token
    WHERE (revoked_at IS NOT NULL OR expires_at IS NOT NULL)
      AND least(revoked_at, expires_at) < $1
    ORDER BY least(revoked_at, expires_at)
    LIMIT $2)
RETURNING 1;

-- name: raise_admission
-- A number that was never used before.
INSERT INTO owner (owner, admission) VALUES ($1, 1) ON CONFLICT (owner) DO UPDATE SET admission = owner.admission + 1;

-- Statements about share links and their visitors. An owner of NULL stands for all owners.

-- name: share
-- One by id.
SELECT * FROM share
WHERE id = $1 AND ($2::text IS NULL OR owner = $2);

-- name: locked_share
-- One by id, which nobody else changes until the transaction ends.
SELECT * FROM share WHERE id = $1 AND ($2::text IS NULL OR owner = $2) FOR UPDATE;

-- name: share_by_digest
-- One by the digest of its code.
SELECT * FROM share
WHERE digest = $1;

-- name: shares_of_owner
-- A page of them, newest first: ids rise with time.
SELECT * FROM share
WHERE owner = $1 AND ($2::bytea IS NULL OR id < $2)
ORDER BY id DESC
LIMIT $3;

-- name: shares_of_all
-- A page of them, newest first.
SELECT * FROM share
WHERE id < coalesce($1, '\xffffffffffffffffffffffffffffffffff'::bytea)
ORDER BY id DESC
LIMIT $2;

-- name: child_shares
-- Those that a token created.
SELECT * FROM share
WHERE parent = $1
ORDER BY id;

-- name: count_shares
-- How many of an owner are neither revoked nor expired, up to a limit.
SELECT count(*)
FROM (
    SELECT 1 FROM share WHERE owner = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2) LIMIT $3) AS few;

-- name: add_share
-- A link, as given.
INSERT INTO share (id, digest, owner, name, chat_scope, conversation, models, max_uses, uses, per_minute,
                   visitor_lifetime, created_at, expires_at, revoked_at, parent, bounds, bytes, chats)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18);

-- name: count_use
-- Count one more visitor.
UPDATE share SET uses = uses + 1 WHERE id = $1;

-- name: revoke_share
-- The first time counts.
UPDATE share SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL;

-- name: revoke_visitors
-- Revoke all tokens obtained by a link.
UPDATE token SET revoked_at = $2 WHERE share = $1 AND share IS NOT NULL AND revoked_at IS NULL RETURNING owner;

-- name: count_visitors
-- How many tokens were obtained by a link since a time, up to a limit.
SELECT count(*)
FROM (SELECT 1 FROM token WHERE share = $1 AND created_at > $2 LIMIT $3) AS few;

-- name: purge_shares
-- Remove those that ended long ago.
DELETE FROM share
WHERE id IN (
    SELECT id FROM share
    WHERE (revoked_at IS NOT NULL OR expires_at IS NOT NULL)
      AND least(revoked_at, expires_at) < $1
    ORDER BY least(revoked_at, expires_at)
    LIMIT $2)
RETURNING 1;
