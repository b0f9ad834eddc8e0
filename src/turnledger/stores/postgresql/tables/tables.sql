-- The statements of PostgresTables. $1 is the owner, unless said otherwise.

-- name: lock_owner
-- Lock the row of an owner alone.
SELECT 1 FROM owner WHERE owner = $1 FOR UPDATE;

-- name: add_owner
-- An owner that stores nothing yet.
INSERT INTO owner (owner) VALUES ($1) ON CONFLICT DO NOTHING;

-- name: conversation
-- One of this owner, by id.
SELECT * FROM conversation WHERE owner = $1 AND id = $2;

-- name: conversation_by_key
-- The one with this conversation_key, in this scope.
SELECT * FROM conversation WHERE owner = $1 AND key_digest(scope) = key_digest($2) AND key_digest(conversation_key) = key_digest($3)
  AND conversation_key IS NOT NULL;

-- name: add_conversation
-- The unique index refuses a second one with the same conversation_key and scope.
INSERT INTO conversation (id, owner, scope, branch, conversation_key, state, internal, title, metadata, revision,
                          created_at, touched_at, expires_after, reset_policy, former_conversation_key, tags, pinned,
                          archived, named_by, listed, purge_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21);

-- name: save_conversation
-- Resets `swept`: if it comes back and ends again, it must be swept again.
UPDATE conversation
SET branch = $1, conversation_key = $2, state = $3, internal = $4, title = $5, metadata = $6, revision = $7,
    created_at = $8, touched_at = $9, expires_after = $10, reset_policy = $11, former_conversation_key = $12,
    tags = $13, pinned = $14, archived = $15, named_by = $16, listed = $17, purge_at = $18, swept = 0,
    version = version + 1
WHERE id = $19 AND owner = $20;

-- name: touch_conversation
-- Forward only.
UPDATE conversation SET touched_at = greatest(touched_at, $3) WHERE owner = $1 AND id = $2;

-- name: move_conversation
-- Make another branch current, if this one still is.
UPDATE conversation SET branch = $4, version = version + 1
WHERE owner = $1 AND id = $2 AND branch = $3
RETURNING 1;

-- name: trail
-- The switches and forgotten effects of a conversation.
SELECT switches, forgotten FROM trail WHERE owner = $1 AND conversation = $2;

-- name: save_switches
-- The last few switches of a conversation.
INSERT INTO trail (owner, conversation, switches)
SELECT owner, id, $3 FROM conversation WHERE owner = $1 AND id = $2
ON CONFLICT (owner, conversation) DO UPDATE SET switches = excluded.switches;

-- name: save_forgotten
-- The effects that switches no longer carry along.
INSERT INTO trail (owner, conversation, forgotten)
SELECT owner, id, $3 FROM conversation WHERE owner = $1 AND id = $2
ON CONFLICT (owner, conversation) DO UPDATE SET forgotten = excluded.forgotten;

-- name: is_foreign
-- Whether a conversation is of another owner.
SELECT 1 FROM conversation WHERE owner <> $1 AND id = $2;

-- name: branch
-- One by id.
SELECT * FROM branch WHERE owner = $1 AND id = $2;

-- name: first_branch
-- The one that a conversation was created with.
SELECT * FROM branch WHERE owner = $1 AND conversation = $2 ORDER BY number LIMIT 1;

-- name: branches
-- Those of a conversation made before another one (NULL: all), newest first.
SELECT * FROM branch
WHERE owner = $1 AND conversation = $2
  AND ($3::bytea IS NULL OR number < (SELECT number FROM branch AS b WHERE b.owner = $1 AND b.id = $3))
ORDER BY number DESC
LIMIT $4;

-- name: lane
-- A conversation, its current branch, whether the lease exists, and the owner's flag version and admission version.
SELECT EXISTS (SELECT 1 FROM lease WHERE lease.id = $3), o.flag_version, o.admission, b.version, b.id, b.number,
       b.conversation, b.fence, b.head, b.length, b.running, b.unsettled, b.pending, b.start, b.settled, b.last_ticket,
       b.instructed, b.bytes, b.preview, b.used_at, c.*
FROM conversation AS c
JOIN branch AS b ON b.owner = c.owner AND b.id = c.branch
LEFT JOIN owner AS o ON o.owner = c.owner
WHERE c.owner = $1 AND c.id = $2;

-- name: held_lane
-- The same for a writer: the lease cannot be buried until the transaction ends.
SELECT (SELECT true FROM lease WHERE lease.id = $3 FOR KEY SHARE), o.flag_version, o.admission, b.version, b.id, b.number,
       b.conversation, b.fence, b.head, b.length, b.running, b.unsettled, b.pending, b.start, b.settled, b.last_ticket,
       b.instructed, b.bytes, b.preview, b.used_at, c.*
FROM conversation AS c
JOIN branch AS b ON b.owner = c.owner AND b.id = c.branch
LEFT JOIN owner AS o ON o.owner = c.owner
WHERE c.owner = $1 AND c.id = $2;

-- name: add_branch
-- With the next number of its conversation.
INSERT INTO branch (owner, id, number, conversation, start, fence, head, length, running, unsettled, pending, settled,
                    instructed, bytes, preview, used_at)
SELECT $1, $2, coalesce(max(number), 0) + 1, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15
FROM branch
WHERE owner = $1 AND conversation = $3;

-- name: save_branch
-- All but id, conversation, start and last_ticket.
UPDATE branch
SET fence = $3, head = $4, length = $5, running = $6, unsettled = $7, pending = $8, settled = $9, instructed = $10,
    bytes = $11, preview = $12, used_at = $13, version = version + $14
WHERE owner = $1 AND id = $2;

-- name: add_origin
-- How a branch was made.
INSERT INTO origin (owner, branch, conversation, base, source, through, line) VALUES ($1, $2, $3, $4, $5, $6, $7);

-- name: origin
-- How a branch was made, if it was made from another.
SELECT conversation, base, line FROM origin WHERE owner = $1 AND branch = $2;

-- name: origins
-- The branches that a conversation made from this turn, oldest first, without side branches.
SELECT branch.id, origin.line
FROM origin JOIN branch ON branch.owner = origin.owner AND branch.id = origin.branch
WHERE origin.owner = $1 AND origin.conversation = $2 AND origin.base IS NOT DISTINCT FROM $3
  AND branch.used_at IS NULL
ORDER BY branch.number
LIMIT $4;

-- name: has_offshoots
-- Whether a branch was made from a turn of this one.
SELECT 1 FROM origin WHERE owner = $1 AND source = $2 LIMIT 1;

-- name: drop_branch
-- A side branch whose turns are removed.
DELETE FROM branch WHERE owner = $1 AND id = $2 RETURNING bytes;

-- name: drop_origin
-- It no longer needs the turns of another branch.
DELETE FROM origin WHERE owner = $1 AND branch = $2 RETURNING source;

-- name: sweep_again
-- If its conversation has ended, a branch may now have unneeded turns.
UPDATE conversation SET swept = 0
WHERE owner = $1 AND state <> 'live'
  AND id = (SELECT conversation FROM branch WHERE branch.owner = $1 AND branch.id = $2);

-- name: ends_at
-- The branches made from a turn that have no turns of their own.
SELECT branch.id
FROM origin JOIN branch ON branch.owner = origin.owner AND branch.id = origin.branch
WHERE origin.owner = $1 AND origin.source = $2 AND origin.base = $3 AND branch.head = $3
ORDER BY branch.id
LIMIT $4;

-- name: turn
-- One by id.
SELECT branch, number, parent, kind, created_at, committed_at, body, checksum FROM turn WHERE id = $2 AND owner = $1;

-- name: turns
-- A stretch of a branch, last turn first.
SELECT id, number, parent, kind, created_at, committed_at, body, checksum
FROM turn
WHERE owner = $1 AND branch = $2 AND number > $3 AND number <= $4
ORDER BY number DESC
LIMIT $5;

-- name: turns_in
-- Those of several stretches, in order.
SELECT t.id, t.branch, t.number, t.parent, t.kind, t.created_at, t.committed_at, t.body, t.checksum
FROM unnest($2::bytea[], $3::bigint[], $4::bigint[]) AS s (branch, after, through)
JOIN turn AS t ON t.owner = $1 AND t.branch = s.branch AND t.number > s.after AND t.number <= s.through
ORDER BY t.number;

-- name: turns_with_effects
-- Those with effects (kinds 2 and 3), of several stretches, in order.
SELECT t.id, t.branch, t.number, t.parent, t.kind, t.created_at, t.committed_at, t.body, t.checksum
FROM unnest($2::bytea[], $3::bigint[], $4::bigint[]) AS s (branch, after, through)
JOIN turn AS t ON t.owner = $1 AND t.branch = s.branch AND t.number > s.after AND t.number <= s.through AND t.kind >= 2
ORDER BY t.number;

-- name: add_turn
-- A turn, as given.
INSERT INTO turn (owner, id, branch, number, parent, kind, created_at, committed_at, body, log, checksum)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11;

-- name: turn_log
-- The event log of a turn.
SELECT log, checksum FROM turn WHERE id = $2 AND owner = $1;

-- name: purge_turns
-- Turns of a branch with a higher number, last first, with their flags and words.
WITH gone AS (
    DELETE FROM turn
    WHERE owner = $1 AND branch = $2 AND number IN (
        SELECT number FROM turn WHERE owner = $1 AND branch = $2 AND number > $3 ORDER BY number DESC LIMIT $4)
    RETURNING id, length(body) + coalesce(length(log), 0) AS size),
flags AS (DELETE FROM item_flag WHERE owner = $1 AND turn IN (SELECT id FROM gone)),
words AS (DELETE FROM search_text WHERE owner = $1 AND id IN (SELECT id FROM gone)),
due AS (DELETE FROM unindexed WHERE owner = $1 AND id IN (SELECT id FROM gone))
SELECT size FROM gone;

-- name: flags
-- Those of several turns.
SELECT turn, place, to_model, to_user FROM item_flag WHERE owner = $1 AND turn = ANY ($2::bytea[]);

-- name: flags_in
-- Those of several stretches.
SELECT f.turn, f.place, f.to_model, f.to_user
FROM unnest($2::bytea[], $3::bigint[], $4::bigint[]) AS s (branch, after, through)
JOIN item_flag AS f ON f.owner = $1 AND f.branch = s.branch AND f.number > s.after AND f.number <= s.through;

-- name: place_of_turn
-- Its branch and number.
SELECT branch, number FROM turn WHERE id = $2 AND owner = $1;

-- name: drop_flags
-- Remove those of one turn.
DELETE FROM item_flag WHERE owner = $1 AND turn = $2;

-- name: add_flags
-- Those of one item.
INSERT INTO item_flag (owner, turn, place, to_model, to_user, branch, number) VALUES ($1, $2, $3, $4, $5, $6, $7);

-- name: raise_flag_version
-- A number that was never used before.
UPDATE owner SET flag_version = flag_version + 1 WHERE owner = $1;

-- name: owner
-- What is known of an owner.
SELECT flag_version, admission, bytes, chats FROM owner WHERE owner = $1;

-- name: count_stored
-- Add to the counts of an owner.
UPDATE owner SET bytes = bytes + $2, chats = chats + $3 WHERE owner = $1;

-- name: count_stored_by_visitors
-- Add to the counts of all visitors of a link ($1).
UPDATE share SET bytes = bytes + $2, chats = chats + $3 WHERE id = $1;

-- name: attempt
-- One by id.
SELECT * FROM attempt WHERE owner = $1 AND id = $2;

-- name: attempts
-- Those of a conversation, newest first: ids rise with time.
SELECT * FROM attempt WHERE owner = $1 AND conversation = $2 ORDER BY id DESC LIMIT $3;

-- name: running_in
-- The running ones of a conversation.
SELECT * FROM attempt WHERE owner = $1 AND conversation = $2 AND ended = 0 ORDER BY id;

-- name: add_attempt
-- An attempt, as given.
INSERT INTO attempt (ended, id, owner, conversation, branch, lease, fence, state, base, fork, input, on_stop,
                     on_failure, idempotency_key, stop, failure_code, failure_message, partial, journaled, created_at,
                     ended_at, interaction, bytes, reads)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24;

-- name: save_attempt
-- The columns of an attempt that can change.
UPDATE attempt
SET ended = $3, state = $4, stop = $5, failure_code = $6, failure_message = $7, partial = $8, journaled = $9,
    fence = $10, lease = $11, ended_at = $12, bytes = $13, reads = $14, version = version + $15
WHERE owner = $1 AND id = $2;

-- name: drop_attempt
-- One that commits, or is purged.
DELETE FROM attempt WHERE owner = $1 AND id = $2;

-- name: attempts_on_branch
-- Those that have ended.
SELECT id, bytes FROM attempt WHERE owner = $1 AND conversation = $2 AND branch = $3 AND ended = 1;

-- name: journal
-- The records of one attempt, in order.
SELECT record FROM journal WHERE owner = $1 AND attempt = $2 ORDER BY number;

-- name: add_records
-- Those from a number on, unless the attempt is of another owner; existing ones stay.
INSERT INTO journal (owner, attempt, number, record)
SELECT $1, $2, $3 + place - 1, record FROM unnest($4::bytea[]) WITH ORDINALITY AS given (record, place)
WHERE NOT EXISTS (SELECT 1 FROM attempt WHERE attempt.id = $2 AND attempt.owner <> $1)
ON CONFLICT DO NOTHING;

-- name: drop_journal
-- Remove the records of one attempt.
DELETE FROM journal WHERE owner = $1 AND attempt = $2;

-- name: log_chunks
-- A stretch of the log of one attempt, in order.
SELECT chunk FROM event_log WHERE owner = $1 AND attempt = $2 AND number >= $3 ORDER BY number LIMIT $4;

-- name: add_log_chunk
-- Behind the one before it, unless the attempt is of another owner; an existing one stays.
INSERT INTO event_log (owner, attempt, number, chunk)
SELECT $1, $2, $3::bigint, $4
WHERE NOT EXISTS (SELECT 1 FROM attempt WHERE attempt.id = $2 AND attempt.owner <> $1)
  AND ($3 = 0 OR EXISTS (SELECT 1 FROM event_log WHERE owner = $1 AND attempt = $2 AND number = $3 - 1))
ON CONFLICT DO NOTHING;

-- name: drop_log
-- Remove the log of one attempt.
DELETE FROM event_log WHERE owner = $1 AND attempt = $2;

-- name: tickets
-- The queue of a branch, front tickets first.
SELECT * FROM ticket WHERE owner = $1 AND branch = $2 ORDER BY front DESC, number;

-- name: ticket
-- The one of an attempt.
SELECT * FROM ticket WHERE owner = $1 AND attempt = $2;

-- name: ticket_for
-- The oldest one that waits under this key.
SELECT * FROM ticket WHERE owner = $1 AND key_digest(idempotency_key) = key_digest($2) AND idempotency_key IS NOT NULL
ORDER BY attempt LIMIT 1;

-- name: next_ticket
-- A number that no ticket of the branch had before. A begin that saw no ticket is not valid any more.
UPDATE branch SET last_ticket = last_ticket + 1, version = version + 1
WHERE owner = $1 AND id = $2
RETURNING last_ticket;

-- name: add_ticket
-- A place in the queue.
INSERT INTO ticket (attempt, conversation, branch, number, front, lease, deadline, idempotency_key, fingerprint,
                    claimed, interaction, owner)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);

-- name: move_tickets
-- Append a queue to another one, continuing its numbers.
UPDATE ticket
SET branch = $3, number = number + (SELECT last_ticket FROM branch WHERE branch.owner = $1 AND branch.id = $3)
WHERE owner = $1 AND branch = $2
RETURNING 1;

-- name: go_on_numbering
-- Continue the numbers after another queue was appended.
UPDATE branch
SET last_ticket = last_ticket + (SELECT last_ticket FROM branch AS other WHERE other.owner = $1 AND other.id = $2),
    version = version + 1
WHERE owner = $1 AND id = $3;

-- name: drop_ticket
-- Leave the queue.
DELETE FROM ticket WHERE owner = $1 AND attempt = $2;

-- name: job
-- The request of one durable turn.
SELECT * FROM job WHERE owner = $1 AND id = $2;

-- name: jobs
-- All of an owner, after an id.
SELECT * FROM job WHERE owner = $1 AND id > coalesce($2, ''::bytea) ORDER BY id LIMIT $3;

-- name: count_jobs
-- How many an owner has.
SELECT count(*) FROM job WHERE owner = $1;

-- name: add_job
-- The request of a durable turn.
INSERT INTO job (id, owner, conversation, created_at, resumes, body) VALUES ($1, $2, $3, $4, $5, $6);

-- name: count_resume
-- It is left to be resumed.
UPDATE job SET resumes = resumes + 1 WHERE owner = $1 AND id = $2;

-- name: drop_job
-- Its turn has ended.
DELETE FROM job WHERE owner = $1 AND id = $2;

-- name: claim
-- What an idempotency_key refers to.
SELECT fingerprint, conversation, attempt, expires_at, retries, lost, sender
FROM claim
WHERE owner = $1 AND key_digest(idempotency_key) = key_digest($2);

-- name: save_claim
-- Insert, or replace.
INSERT INTO claim (owner, idempotency_key, fingerprint, conversation, attempt, expires_at, retries, lost, sender)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9
ON CONFLICT (owner, key_digest(idempotency_key)) DO UPDATE
SET fingerprint = excluded.fingerprint, conversation = excluded.conversation, attempt = excluded.attempt,
    expires_at = excluded.expires_at, retries = excluded.retries, lost = excluded.lost, sender = excluded.sender;

-- name: drop_claim
-- Its answer was delivered.
DELETE FROM claim WHERE owner = $1 AND key_digest(idempotency_key) = key_digest($2);

-- Changes for the feed. Positions are (xid, place).

-- name: add_change
-- At the given place of this transaction.
INSERT INTO change (owner, xid, place, at, scope, kind, conversation, turn, branch, detail)
SELECT $2, pg_current_xact_id()::text::bigint, $9, $1, $3, $4, $5, $6, $7, $8;

-- name: changes
-- The next ones of one owner, before all transactions that are still running.
SELECT xid, place, owner, at, scope, kind, conversation, turn, branch, detail
FROM change
WHERE (xid, place) > ($2, $3) AND owner = $1 AND xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY xid, place
LIMIT $4;

-- name: newest_change
-- The position of the last one before all transactions that are still running.
SELECT xid, place FROM change
WHERE xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY xid DESC, place DESC
LIMIT 1;

-- name: epoch
-- Its number and mark, the last position that was purged, and the first transaction that may still run. No row: the database
-- was started or restored, or has crashed, since positions were last given out.
SELECT number, mark, purged_xid, purged_place, pg_snapshot_xmin(pg_current_snapshot())::text::bigint
FROM epoch CROSS JOIN store
WHERE epoch.place = epoch.tableoid AND started = pg_postmaster_start_time();
