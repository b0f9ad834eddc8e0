-- The statements of PostgresWholeStore: what concerns all owners, and what is purged.

-- name: lock_store
-- One writer at a time about all owners.
SELECT secret FROM store WHERE id = 1 FOR UPDATE;

-- name: lease
-- One by id.
SELECT beat FROM lease WHERE id = $1;

-- name: held_lease
-- The same for a writer, who may bury it: no turn begins under it until the transaction ends.
SELECT beat FROM lease WHERE id = $1 FOR UPDATE;

-- name: leases
-- All of them.
SELECT id, beat FROM lease ORDER BY id;

-- name: beat
-- Raise the beat, or start it. A buried lease continues from its last beat.
WITH back AS (DELETE FROM buried_lease WHERE id = $1 RETURNING beat)
INSERT INTO lease (id, beat) VALUES ($1, coalesce((SELECT beat FROM back), 0) + 1)
ON CONFLICT (id) DO UPDATE SET beat = lease.beat + 1;

-- name: drop_lease
-- A process that has ended.
WITH buried AS (DELETE FROM buried_lease WHERE id = $1)
DELETE FROM lease WHERE id = $1;

-- name: bury_lease
-- A process that was found dead, and may come back.
WITH dead AS (DELETE FROM lease WHERE id = $1 RETURNING id, beat)
INSERT INTO buried_lease (id, beat, number)
SELECT id, beat, (SELECT coalesce(max(number), 0) + 1 FROM buried_lease) FROM dead
ON CONFLICT (id) DO UPDATE SET beat = greatest(buried_lease.beat, excluded.beat), number = excluded.number;

-- name: forget_buried
-- All but those buried last.
DELETE FROM buried_lease
WHERE id IN (SELECT id FROM buried_lease ORDER BY number DESC, id DESC OFFSET $1);

-- name: running_attempts
-- The running attempts of a lease.
SELECT * FROM attempt WHERE ended = 0 AND lease = $1 ORDER BY id;

-- name: held_tickets
-- Those of a process, each with its owner.
SELECT owner, ticket.* FROM ticket WHERE lease = $1 ORDER BY attempt;

-- name: drop_orphaned_tickets
-- Those of a process whose conversation is missing.
DELETE FROM ticket
WHERE lease = $1 AND NOT EXISTS (
    SELECT 1 FROM conversation WHERE conversation.owner = ticket.owner AND conversation.id = ticket.conversation);

-- name: ready_jobs
-- The first in the queue of a free lane, and those that run under no process ($1), oldest first.
SELECT job.owner, job.id
FROM ticket
JOIN job ON job.owner = ticket.owner AND job.id = ticket.attempt
JOIN branch ON branch.owner = ticket.owner AND branch.id = ticket.branch
WHERE ticket.lease = $1 AND branch.running IS NULL AND ticket.attempt = (
    SELECT first.attempt FROM ticket AS first
    WHERE first.owner = ticket.owner AND first.branch = ticket.branch
    ORDER BY first.front DESC, first.number
    LIMIT 1)
UNION ALL
SELECT job.owner, job.id
FROM attempt JOIN job ON job.owner = attempt.owner AND job.id = attempt.id
WHERE attempt.ended = 0 AND attempt.lease = $1
ORDER BY 2
LIMIT $2;

-- name: owners
-- A page of owners that store anything.
SELECT owner FROM owner WHERE owner > coalesce($1, '') AND bytes > 0 ORDER BY owner LIMIT $2;

-- name: turns_of_all
-- A page of all turns, by id, up to a size.
WITH page AS (
    SELECT id, owner, sum(size) OVER (ORDER BY id, owner) - size AS before
    FROM (
        SELECT id, owner, length(body) AS size
        FROM turn WHERE id > coalesce($1, ''::bytea)
        ORDER BY id, owner
        LIMIT $2) AS few
)
SELECT c.owner, c.scope, c.id, t.id, t.body, coalesce(length(t.log), 0)
FROM page
JOIN turn AS t ON t.id = page.id AND t.owner = page.owner
JOIN branch AS b ON b.owner = t.owner AND b.id = t.branch
JOIN conversation AS c ON c.owner = b.owner AND c.id = b.conversation
WHERE page.before < $3
ORDER BY page.id, page.owner;

-- name: lapsed_conversations
-- Live ones whose time is over, unless a turn runs or waits there.
SELECT owner, id
FROM conversation
WHERE state = 'live' AND expires_after IS NOT NULL AND touched_at + expires_after <= $1
  AND NOT EXISTS (
      SELECT 1 FROM attempt
      WHERE attempt.owner = conversation.owner AND attempt.conversation = conversation.id AND attempt.ended = 0)
  AND NOT EXISTS (
      SELECT 1 FROM ticket WHERE ticket.owner = conversation.owner AND ticket.branch = conversation.branch)
ORDER BY touched_at + expires_after, id
LIMIT $2;

-- name: conversations_to_purge
-- Deleted ones whose time is over.
SELECT owner, id FROM conversation WHERE state = 'deleted' AND purge_at <= $1 ORDER BY purge_at, id LIMIT $2;

-- name: unlisted_conversations
-- Unused since a time, without a committed, running, queued or unsettled turn, or a recent attempt.
SELECT owner, id
FROM conversation
WHERE state = 'live' AND listed = 0 AND touched_at <= $1
  AND NOT EXISTS (
      SELECT 1 FROM branch
      WHERE branch.owner = conversation.owner AND branch.id = conversation.branch AND branch.unsettled IS NOT NULL)
  AND NOT EXISTS (
      SELECT 1 FROM ticket WHERE ticket.owner = conversation.owner AND ticket.branch = conversation.branch)
  AND NOT EXISTS (
      SELECT 1 FROM attempt
      WHERE attempt.owner = conversation.owner AND attempt.conversation = conversation.id
        AND (attempt.ended = 0 OR attempt.ended_at > $1))
ORDER BY touched_at, id
LIMIT $2;

-- name: unswept_owners
-- Owners of ended conversations that may still have turns and attempts.
SELECT DISTINCT owner
FROM (
    SELECT owner FROM conversation
    WHERE state IN ('purged', 'expired') AND swept = 0
    ORDER BY owner, id
    LIMIT $1) AS few
ORDER BY owner;

-- name: unswept_conversations
-- Ended ones of an owner that may still have turns and attempts.
SELECT id FROM conversation
WHERE owner = $1 AND state IN ('purged', 'expired') AND swept = 0
ORDER BY id
LIMIT $2;

-- name: drop_previews
-- The list entry of an ended conversation goes before its turns.
UPDATE branch SET preview = '', version = version + 1 WHERE owner = $1 AND conversation = $2 AND preview <> '';

-- name: uncleared_branches
-- Branches of an ended conversation that may still have turns, newest first: those made from a branch come before it.
SELECT id, bytes FROM branch WHERE owner = $1 AND conversation = $2 AND cleared = 0 ORDER BY number DESC;

-- name: needed_through
-- The last number of its turns that branches made from it need; NULL if there are none.
SELECT max(through) FROM origin WHERE owner = $1 AND source = $2;

-- name: shrink_branch
-- The bytes of its remaining turns.
UPDATE branch SET bytes = $3, version = version + 1 WHERE owner = $1 AND id = $2;

-- name: clear_branch
-- The branch is empty.
UPDATE branch SET cleared = 1, version = version + 1 WHERE owner = $1 AND id = $2;

-- name: ended_attempts
-- Attempts of a conversation that hold no lane.
SELECT id, bytes FROM attempt WHERE owner = $1 AND conversation = $2 AND ended = 1 ORDER BY id LIMIT $3;

-- name: mark_swept
-- Only the row of this conversation is left.
UPDATE conversation SET swept = 1
WHERE owner = $1 AND id = $2
  AND NOT EXISTS (
      SELECT 1 FROM attempt WHERE attempt.owner = $1 AND attempt.conversation = $2 AND attempt.ended = 0);

-- name: unused_side_branches
-- Of live conversations, last used by then, where no turn runs, and from which no branch was made.
SELECT branch.owner, branch.id
FROM branch JOIN conversation ON conversation.owner = branch.owner AND conversation.id = branch.conversation
WHERE branch.used_at <= $1 AND branch.running IS NULL AND conversation.state = 'live'
  AND NOT EXISTS (SELECT 1 FROM origin WHERE origin.owner = branch.owner AND origin.source = branch.id)
ORDER BY branch.used_at, branch.id
LIMIT $2;

-- name: old_attempts
-- Ended ones of that age, except those whose effects wait to be settled.
SELECT owner, id, bytes FROM attempt
WHERE ended = 1 AND ended_at < $1
  AND NOT EXISTS (
      SELECT 1 FROM branch
      WHERE branch.owner = attempt.owner AND branch.id = attempt.branch AND branch.unsettled = attempt.id)
ORDER BY ended_at
LIMIT $2;

-- name: purge_claims
-- Remove expired ones.
DELETE FROM claim
WHERE (owner, key_digest(idempotency_key)) IN (
    SELECT owner, key_digest(idempotency_key) FROM claim WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)
  AND expires_at < $1
RETURNING 1;

-- name: tail
-- The next changes, of any owner, before all transactions that are still running.
SELECT xid, place, owner, at, scope, kind, conversation, turn, branch, detail
FROM change
WHERE (xid, place) > ($1, $2) AND xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY xid, place
LIMIT $3;

-- name: oldest_changes
-- The first $1 changes, before the newest $2.
SELECT xid, place, at
FROM change
WHERE (xid, place) <= (
    SELECT xid, place FROM change
    WHERE xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
    ORDER BY xid DESC, place DESC LIMIT 1 OFFSET $2)
ORDER BY xid, place
LIMIT $1;

-- name: purge_changes
-- Those up to a position.
DELETE FROM change WHERE (xid, place) <= ($1, $2);

-- name: note_purge
-- The last position that was purged.
UPDATE store SET purged_xid = $1, purged_place = $2;

-- name: drop_changes
-- All of them: those who follow read everything anew.
DELETE FROM change;

-- name: begin_epoch
-- With a random mark ($1). Whoever begins one holds the row of the store.
WITH next AS (
    UPDATE store SET epoch = epoch + 1, purged_xid = -1, purged_place = -1 RETURNING epoch)
INSERT INTO epoch (id, number, mark, started, place)
SELECT 1, next.epoch, $1, pg_postmaster_start_time(), 'epoch'::regclass FROM next
ON CONFLICT (id) DO UPDATE
SET number = excluded.number, mark = excluded.mark, started = excluded.started, place = excluded.place;

-- name: secret
-- The random bytes of the store.
SELECT secret FROM store;

-- Statements about the clocks, and the newest stored time.

-- name: clock_mark
-- As the last process read them.
SELECT boot, boot_at, since, trusted_at FROM clock WHERE id = 1;

-- name: save_clock_mark
-- Replaces the existing one.
INSERT INTO clock (id, boot, boot_at, since, trusted_at) VALUES (1, $1, $2, $3, $4)
ON CONFLICT (id) DO UPDATE SET
    boot = excluded.boot, boot_at = excluded.boot_at, since = excluded.since, trusted_at = excluded.trusted_at;

-- name: newest_time
-- Of the last change, and of the last turn by id: internal conversations make no changes.
SELECT greatest(
    (SELECT at FROM change ORDER BY xid DESC, place DESC LIMIT 1),
    (SELECT committed_at FROM turn ORDER BY id DESC, owner DESC LIMIT 1));
