-- Guards: each locks a row that an operation has read, and finds none if that row has changed. Locking reads the newest
-- version of a row, even one that was committed after the statement began. Nobody writes an owner's rows without a lock
-- on the owner, so the guards are true until the transaction ends.

-- name: guard_owner
-- The owner, shared with other turns.
SELECT 1 FROM owner WHERE owner = $1 FOR KEY SHARE;

-- name: guard_settings
-- The flags and tokens of the owner. Who changes them locks the row alone.
SELECT 1 FROM owner WHERE owner = $1 AND flag_version = $2 AND admission = $3 FOR KEY SHARE;

-- name: guard_conversation
-- A conversation.
SELECT 1 FROM conversation WHERE owner = $1 AND id = $2 AND version = $3 AND touched_at = $4 FOR NO KEY UPDATE;

-- name: guard_branch
-- A branch. A crash of the database can lose a begin, and another one then has its version.
SELECT 1 FROM branch
WHERE owner = $1 AND id = $2 AND version = $3 AND running IS NOT DISTINCT FROM $4
FOR NO KEY UPDATE;

-- name: save_guarded_branch
-- A guard and `save_branch` in one: it locks and compares the row that it writes.
UPDATE branch
SET fence = $3, head = $4, length = $5, running = $6, unsettled = $7, pending = $8, settled = $9, instructed = $10,
    bytes = $11, preview = $12, used_at = $13, version = version + $14
WHERE owner = $1 AND id = $2 AND version = $15 AND running IS NOT DISTINCT FROM $16
RETURNING 1;

-- name: guard_attempt
-- An attempt.
SELECT 1 FROM attempt WHERE owner = $1 AND id = $2 AND version = $3 FOR NO KEY UPDATE;

-- name: guard_claim
-- A claim, by all its columns.
SELECT 1 FROM claim
WHERE owner = $1 AND key_digest(idempotency_key) = key_digest($2) AND fingerprint = $3 AND conversation = $4 AND attempt = $5
  AND expires_at IS NOT DISTINCT FROM $6 AND retries IS NOT DISTINCT FROM $7 AND lost = $8
  AND sender IS NOT DISTINCT FROM $9
FOR NO KEY UPDATE;

-- name: guard_lease
-- The lease ($1): it cannot be buried until the transaction ends.
SELECT 1 FROM lease WHERE id = $1 FOR KEY SHARE;

-- name: add_claim
-- One that was not there; the conflict with another undoes the whole statement.
INSERT INTO claim (owner, idempotency_key, fingerprint, conversation, attempt, expires_at, retries, lost, sender)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9;
