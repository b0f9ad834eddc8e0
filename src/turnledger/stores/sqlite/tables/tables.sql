-- The statements of SqliteTables.

-- name: conversation
-- One of this owner, by id.
SELECT id, owner, branch, conversation_key, state, internal, title, metadata, revision, created_at,
       touched_at, expires_after, reset_policy, former_conversation_key, scope, tags, pinned, archived, named_by,
       listed, purge_at
FROM conversation
WHERE id = ? AND owner = ?;

-- name: conversation_by_key
-- The one with this conversation_key, of this owner and scope.
SELECT id, owner, branch, conversation_key, state, internal, title, metadata, revision, created_at,
       touched_at, expires_after, reset_policy, former_conversation_key, scope, tags, pinned, archived, named_by,
       listed, purge_at
FROM conversation
WHERE owner = ? AND scope = ? AND conversation_key = ?;

-- name: add_conversation
-- The unique index refuses a second one with the same conversation_key and scope. A title made of the first words is not
-- indexed: they are indexed with their turn.
INSERT INTO conversation (id, owner, scope, branch, conversation_key, state, internal, title, metadata, revision,
                          created_at, touched_at, expires_after, reset_policy, former_conversation_key, tags, pinned,
                          archived, named_by, listed, purge_at, title_due)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21,
        ?8 IS NOT NULL AND ?19 IS NOT 'words');

-- name: save_conversation
-- Resets `swept`: if it comes back and ends again, it must be swept again. A changed title has to be indexed, unless it
-- is the first one and made of the first words.
UPDATE conversation
SET branch = ?1, conversation_key = ?2, state = ?3, internal = ?4, title = ?5, metadata = ?6, revision = ?7,
    created_at = ?8, touched_at = ?9, expires_after = ?10, reset_policy = ?11, former_conversation_key = ?12,
    tags = ?13, pinned = ?14, archived = ?15, named_by = ?16, listed = ?17, purge_at = ?18, swept = 0,
    title_due = title_due OR (
        (title, named_by) IS NOT (?5, ?16) AND (?16 IS NOT 'words' OR title IS NOT NULL))
WHERE id = ?19 AND owner = ?;

-- name: touch_conversation
-- The only change that a turn makes to its conversation: writes one index, not all of them.
UPDATE conversation SET touched_at = max(touched_at, ?) WHERE id = ? AND owner = ?;

-- name: move_conversation
-- Make another branch current, if this one still is.
UPDATE conversation SET branch = ? WHERE id = ? AND branch = ? AND owner = ? RETURNING 1;

-- name: trail
-- The last few switches of a conversation, and the effects that switches no longer carry along.
SELECT switches, forgotten FROM conversation WHERE owner = ? AND id = ?;

-- name: save_switches
-- No index names this column.
UPDATE conversation SET switches = ?3 WHERE owner = ?1 AND id = ?2;

-- name: save_forgotten
-- No index names this column.
UPDATE conversation SET forgotten = ?3 WHERE owner = ?1 AND id = ?2;

-- name: lapsed_conversations
-- Live ones whose time is over, unless a turn runs or waits there.
SELECT owner, id
FROM conversation
WHERE state = 'live' AND expires_after IS NOT NULL AND touched_at + expires_after <= ?1
  AND id NOT IN (SELECT conversation FROM attempt WHERE ended = 0)
  AND NOT EXISTS (SELECT 1 FROM ticket WHERE ticket.branch = conversation.branch)
ORDER BY touched_at + expires_after, id
LIMIT ?2;

-- name: unswept_conversations
-- Ended ones of an owner, or of all (NULL), that may still have turns and attempts.
SELECT ref, id, owner FROM conversation
WHERE state IN ('purged', 'expired') AND swept = 0 AND ifnull(?2, owner) = owner
ORDER BY ref
LIMIT ?1;

-- name: drop_previews
-- The list entry of an ended conversation goes before its turns.
UPDATE branch SET preview = '' WHERE conversation = ? AND preview <> '';

-- name: uncleared_branches
-- Branches of an ended conversation that may still have turns, newest first: those made from a branch come before it.
SELECT ref, bytes FROM branch WHERE conversation = ? AND cleared = 0 ORDER BY ref DESC;

-- name: needed_through
-- The last number of its turns that branches made from it need; NULL if there are none.
SELECT max(through) FROM origin WHERE source = ?;

-- name: purge_turns
-- Turns of a branch that no other one needs, last first, so that each has its parent while it exists.
DELETE FROM turn
WHERE ref IN (SELECT ref FROM turn WHERE branch = ? AND number > ? ORDER BY number DESC LIMIT ?)
RETURNING id, length(body) + coalesce(length(log), 0), ref;

-- name: shrink_branch
-- The bytes of its remaining turns.
UPDATE branch SET bytes = ? WHERE ref = ?;

-- name: clear_branch
-- The branch is empty.
UPDATE branch SET cleared = 1 WHERE ref = ?;

-- name: drop_origin
-- It no longer needs the turns of another branch.
DELETE FROM origin WHERE branch = ? RETURNING source;

-- name: sweep_again
-- If its conversation has ended, a branch may now have unneeded turns.
UPDATE conversation SET swept = 0
WHERE state <> 'live' AND id = (SELECT conversation FROM branch WHERE branch.ref = ?);

-- name: ended_attempts
-- Attempts of a conversation that hold no lane.
SELECT id, owner, bytes FROM attempt WHERE ended = 1 AND conversation = ? ORDER BY id LIMIT ?;

-- name: mark_swept
-- Only the row of this conversation is left.
UPDATE conversation SET swept = 1
WHERE ref = ?
  AND NOT EXISTS (SELECT 1 FROM attempt WHERE ended = 0 AND attempt.conversation = conversation.id);

-- name: branch
-- One by id, if its conversation is of this owner.
SELECT b.ref, b.conversation, b.fence, b.head, b.length, b.running, b.unsettled, b.pending, b.start, b.settled,
       b.last_ticket, b.instructed, b.bytes, b.preview, b.used_at
FROM branch AS b JOIN conversation AS c ON c.id = b.conversation
WHERE b.id = ? AND c.owner = ?;

-- name: first_branch
-- The one that a conversation was created with.
SELECT id, ref, conversation, fence, head, length, running, unsettled, pending, start, settled, last_ticket,
       instructed, bytes, preview, used_at
FROM branch
WHERE conversation = (SELECT id FROM conversation WHERE id = ? AND owner = ?)
ORDER BY ref
LIMIT 1;

-- name: branches
-- Those of a conversation made before the one with this ref, newest first.
SELECT id, ref, conversation, fence, head, length, running, unsettled, pending, start, settled, last_ticket,
       instructed, bytes, preview, used_at
FROM branch
WHERE conversation = (SELECT id FROM conversation WHERE id = ? AND owner = ?) AND ref < ?
ORDER BY ref DESC
LIMIT ?;

-- name: lane
-- A conversation of this owner, its current branch, whether the lease exists, and the owner's flag version and admission
-- version. Short names: SQLite looks the statement up by its text for each begin.
SELECT c.id, c.owner, c.branch, c.conversation_key, c.state, c.internal, c.title, c.metadata, c.revision,
       c.created_at, c.touched_at, c.expires_after, c.reset_policy, c.former_conversation_key, c.scope, c.tags,
       c.pinned, c.archived, c.named_by, c.listed, c.purge_at,
       b.ref, b.conversation, b.fence, b.head, b.length, b.running, b.unsettled, b.pending, b.start, b.settled,
       b.last_ticket, b.instructed, b.bytes, b.preview, b.used_at,
       EXISTS (SELECT 1 FROM lease WHERE id = ?3 AND beat > 0), o.flag_version, o.admission
FROM conversation AS c JOIN branch AS b ON b.id = c.branch LEFT JOIN owner AS o ON o.owner = ?2
WHERE c.id = ?1 AND c.owner = ?2;

-- name: ref_of_branch
-- The number of a branch in the rows of its turns, if its conversation is of this owner.
SELECT branch.ref
FROM branch JOIN conversation ON conversation.id = branch.conversation
WHERE branch.id = ? AND conversation.owner = ?;

-- name: add_branch
-- A branch, as given.
INSERT INTO branch (id, conversation, start, fence, head, length, running, unsettled, pending, settled, instructed,
                    bytes, preview, used_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: save_branch
-- Writes one page, and an index only for a side branch.
UPDATE branch
SET fence = ?, head = ?, length = ?, running = ?, unsettled = ?, pending = ?, settled = ?, instructed = ?,
    bytes = ?, preview = ?, used_at = ?
WHERE ref = ?;

-- name: add_origin
-- How a branch was made.
INSERT INTO origin (branch, conversation, base, source, through, line) VALUES (?, ?, ?, ?, ?, ?);

-- name: origin
-- How a branch was made, if it was made from another.
SELECT conversation, base, line FROM origin WHERE branch = ?;

-- name: origins
-- The branches that a conversation made from this turn, oldest first, without side branches.
SELECT branch.id, origin.line
FROM origin JOIN branch ON branch.ref = origin.branch
WHERE origin.conversation = (SELECT id FROM conversation WHERE owner = ? AND id = ?) AND origin.base IS ?
  AND branch.used_at IS NULL
ORDER BY origin.branch
LIMIT ?;

-- name: has_offshoots
-- Whether a branch was made from a turn of this one.
SELECT 1 FROM origin WHERE source = ? LIMIT 1;

-- name: unused_side_branches
-- Of live conversations, last used by then, where no turn runs, and from which no branch was made.
SELECT conversation.owner, branch.id
FROM branch JOIN conversation ON conversation.id = branch.conversation
WHERE branch.used_at <= ?1 AND branch.running IS NULL AND conversation.state = 'live'
  AND NOT EXISTS (SELECT 1 FROM origin WHERE origin.source = branch.ref)
ORDER BY branch.used_at, branch.id
LIMIT ?2;

-- name: drop_branch
-- A side branch whose turns are removed.
DELETE FROM branch WHERE ref = ? RETURNING bytes;

-- name: attempts_on_branch
-- Those that have ended.
SELECT id, owner, bytes FROM attempt WHERE ended = 1 AND branch = ? AND conversation = ?;

-- name: ends_at
-- The branches made from a turn that have no turns of their own.
SELECT branch.id
FROM origin JOIN branch ON branch.ref = origin.branch
WHERE origin.source = ?1 AND origin.base = ?2 AND branch.head = ?2
ORDER BY origin.branch
LIMIT ?3;

-- name: turn
-- One by id, if its conversation is of this owner.
SELECT branch.id, turn.number,
       coalesce(turn.parent, (
           SELECT before.id FROM turn AS before
           WHERE before.branch = turn.branch AND before.number = turn.number - 1)),
       turn.kind, turn.created_at, turn.committed_at, turn.body, turn.checksum
FROM turn
JOIN branch ON branch.ref = turn.branch
JOIN conversation ON conversation.id = branch.conversation
WHERE turn.id = ? AND conversation.owner = ?;

-- name: turns
-- A stretch of a branch, last turn first.
SELECT id, number, parent, kind, created_at, committed_at, body, checksum, branch
FROM turn
WHERE branch = ? AND number > ? AND number <= ?
ORDER BY number DESC
LIMIT ?;

-- name: turn_at
-- By its number on a branch.
SELECT id FROM turn WHERE branch = ? AND number = ?;

-- name: single_turns
-- Turns of several branches, given as a JSON list of integers: the ref of the branch above 32 bits, the number of the turn
-- below. Faster to parse than pairs.
SELECT turn.id, turn.number, turn.parent, turn.kind, turn.created_at, turn.committed_at, turn.body, turn.checksum,
       turn.branch
FROM json_each(?) AS single
CROSS JOIN turn ON turn.branch = single.value >> 32 AND turn.number = single.value & 4294967295;

-- name: turns_with_effects
-- Those with effects (kinds 2 and 3), of several stretches, given as JSON: [[ref, after, through], …].
SELECT turn.id, turn.number, turn.parent, turn.kind, turn.created_at, turn.committed_at, turn.body, turn.checksum,
       turn.branch
FROM json_each(?) AS stretch
CROSS JOIN turn INDEXED BY turn_settled ON turn.kind >= 2 AND turn.branch = stretch.value ->> 0
    AND turn.number > stretch.value ->> 1 AND turn.number <= stretch.value ->> 2;

-- name: add_turn
-- The parent is stored only if it is not the previous turn: that saves 16 bytes in nearly every row.
INSERT INTO turn (id, branch, number, parent, kind, created_at, committed_at, body, log, checksum)
VALUES (?1, ?2, ?3,
        nullif(?4, (SELECT before.id FROM turn AS before WHERE before.branch = ?2 AND before.number = ?3 - 1)),
        ?5, ?6, ?7, ?8, ?9, ?10);

-- name: count_stored
-- Add to the counts of an owner.
INSERT INTO owner (owner, bytes, chats) VALUES (?1, ?2, ?3)
ON CONFLICT (owner) DO UPDATE SET bytes = bytes + ?2, chats = chats + ?3;

-- name: count_stored_by_visitors
-- Add to the counts of all visitors of a link.
UPDATE share SET bytes = bytes + ?2, chats = chats + ?3 WHERE id = ?1;

-- name: stored
-- The counts of an owner.
SELECT bytes, chats FROM owner WHERE owner = ?;

-- name: counted_details
-- The details that save_conversation is about to replace, for the count.
SELECT state, title, metadata, tags FROM conversation WHERE id = ? AND owner = ?;

-- name: is_foreign
-- Whether a conversation is of another owner.
SELECT 1 FROM conversation WHERE id = ? AND owner <> ?;

-- name: turn_log
-- The event log of a turn.
SELECT turn.log, turn.checksum
FROM turn
JOIN branch ON branch.ref = turn.branch
JOIN conversation ON conversation.id = branch.conversation
WHERE turn.id = ? AND conversation.owner = ?;

-- name: flags
-- Those of one turn, if it is of this owner.
SELECT place, to_model, to_user FROM item_flag WHERE turn = ? AND owner = ?;

-- name: flags_in
-- Those of several stretches, given as JSON: [[ref, after, through], …].
SELECT item_flag.turn, item_flag.place, item_flag.to_model, item_flag.to_user
FROM json_each(?1) AS stretch
CROSS JOIN item_flag INDEXED BY item_flag_in_line ON item_flag.branch = stretch.value ->> 0
    AND item_flag.number > stretch.value ->> 1 AND item_flag.number <= stretch.value ->> 2
WHERE item_flag.owner = ?2;

-- name: place_of_turn
-- Its branch and number, if its conversation is of this owner.
SELECT turn.branch, turn.number
FROM turn
JOIN branch ON branch.ref = turn.branch
JOIN conversation ON conversation.id = branch.conversation
WHERE turn.id = ? AND conversation.owner = ?;

-- name: add_flags
-- Those of one item.
INSERT INTO item_flag (turn, place, owner, to_model, to_user, branch, number) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: drop_flags
-- Remove those of one turn.
DELETE FROM item_flag WHERE turn = ?;

-- name: flag_version
-- The flag version of an owner.
SELECT flag_version FROM owner WHERE owner = ?;

-- name: raise_flag_version
-- A number that was never used before.
INSERT INTO owner (owner, flag_version) VALUES (?, 1)
ON CONFLICT (owner) DO UPDATE SET flag_version = flag_version + 1;

-- name: attempt
-- One of this owner, by id: a running one, or an ended one.
SELECT id, owner, conversation, branch, lease, fence, state, base, fork,
       coalesce(input, (SELECT body FROM attempt_input WHERE attempt_input.attempt = attempt.id)),
       on_stop, on_failure, idempotency_key, stop, failure_code, failure_message, partial, journaled,
       created_at, ended_at, interaction, bytes, reads
FROM attempt
WHERE ended = ? AND id = ? AND owner = ?;

-- name: attempts
-- Those of a conversation, newest first: ids rise with time. The inner query reads one short list and one
-- index.
SELECT id, owner, conversation, branch, lease, fence, state, base, fork,
       coalesce(input, (SELECT body FROM attempt_input WHERE attempt_input.attempt = attempt.id)),
       on_stop, on_failure, idempotency_key, stop, failure_code, failure_message, partial, journaled,
       created_at, ended_at, interaction, bytes, reads
FROM attempt
WHERE (ended, id) IN (
    SELECT ended, id FROM attempt WHERE ended = 0 AND owner = ?1 AND conversation = ?2
    UNION ALL
    SELECT ended, id FROM (
        SELECT ended, id FROM attempt
        WHERE ended = 1 AND owner = ?1 AND conversation = ?2
        ORDER BY id DESC LIMIT ?3))
ORDER BY id DESC
LIMIT ?3;

-- name: running_in
-- The running attempts of a conversation.
SELECT id, owner, conversation, branch, lease, fence, state, base, fork,
       coalesce(input, (SELECT body FROM attempt_input WHERE attempt_input.attempt = attempt.id)),
       on_stop, on_failure, idempotency_key, stop, failure_code, failure_message, partial, journaled,
       created_at, ended_at, interaction, bytes, reads
FROM attempt
WHERE ended = 0 AND owner = ? AND conversation = ?
ORDER BY id;

-- name: running_attempts
-- The running attempts of a lease.
SELECT id, owner, conversation, branch, lease, fence, state, base, fork,
       coalesce(input, (SELECT body FROM attempt_input WHERE attempt_input.attempt = attempt.id)),
       on_stop, on_failure, idempotency_key, stop, failure_code, failure_message, partial, journaled,
       created_at, ended_at, interaction, bytes, reads
FROM attempt
WHERE ended = 0 AND lease = ?
ORDER BY id;

-- name: add_attempt
-- An attempt, with its input unless that is long. If the id exists in the other half of the table, where the primary key
-- does not see it, `ended` becomes NULL, which NOT NULL refuses.
INSERT INTO attempt (ended, id, owner, conversation, branch, lease, fence, state, base, fork, input, on_stop,
                     on_failure, idempotency_key, stop, failure_code, failure_message, partial, journaled, created_at,
                     ended_at, interaction, bytes, reads)
VALUES (iif(EXISTS (SELECT 1 FROM attempt WHERE ended = 1 - ?1 AND id = ?2), NULL, ?1),
        ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
        ?21, ?22, ?23, ?24);

-- name: add_attempt_input
-- A long input, in a row of its own.
INSERT INTO attempt_input (attempt, body) VALUES (?, ?);

-- name: save_attempt
-- The columns of an attempt that can change.
UPDATE attempt
SET ended = ?, state = ?, stop = ?, failure_code = ?, failure_message = ?, partial = ?, journaled = ?,
    fence = ?, lease = ?, ended_at = ?, bytes = ?, reads = ?
WHERE ended IN (0, 1) AND id = ? AND owner = ?;

-- name: record_progress
-- The only change by journaling: writes no index.
UPDATE attempt SET journaled = ? WHERE ended IN (0, 1) AND id = ? AND owner = ?;

-- name: drop_running_attempt
-- One that commits: takes half the time of a query for both halves of the table.
DELETE FROM attempt WHERE ended = 0 AND id = ? AND owner = ? RETURNING input IS NULL;

-- name: drop_ended_attempt
-- One that was set aside.
DELETE FROM attempt WHERE ended = 1 AND id = ? AND owner = ? RETURNING input IS NULL;

-- name: drop_attempt_input
-- Remove a long input.
DELETE FROM attempt_input WHERE attempt = ?;

-- name: old_attempts
-- Ended ones of that age, except those whose effects wait to be settled.
SELECT id, owner, bytes FROM attempt
WHERE ended = 1 AND ended_at < ?
  AND NOT EXISTS (SELECT 1 FROM branch WHERE branch.id = attempt.branch AND branch.unsettled = attempt.id)
ORDER BY ended_at
LIMIT ?;

-- name: owner_of_attempt
-- Whose rows its journal and its log are.
SELECT owner FROM attempt WHERE ended IN (0, 1) AND id = ?;

-- name: journal
-- The records of one attempt, in order.
SELECT record FROM journal WHERE attempt = ? ORDER BY number;

-- name: add_record
-- An existing one stays.
INSERT OR IGNORE INTO journal (attempt, number, record) VALUES (?, ?, ?);

-- name: drop_journal
-- Remove the records of one attempt.
DELETE FROM journal WHERE attempt = ?;

-- name: log_chunks
-- A stretch of the log of one attempt, in order.
SELECT chunk FROM event_log WHERE attempt = ? AND number >= ? ORDER BY number LIMIT ?;

-- name: add_log_chunk
-- Behind the one before it; an existing one stays.
INSERT OR IGNORE INTO event_log (attempt, number, chunk)
SELECT ?1, ?2, ?3
WHERE ?2 = 0 OR EXISTS (SELECT 1 FROM event_log WHERE attempt = ?1 AND number = ?2 - 1);

-- name: drop_log
-- Remove the log of one attempt.
DELETE FROM event_log WHERE attempt = ?;

-- name: tickets
-- The queue of a branch, front tickets first.
SELECT t.attempt, t.conversation, t.branch, t.number, t.front, t.lease, t.deadline, t.idempotency_key, t.fingerprint,
       t.claimed, t.interaction
FROM ticket AS t JOIN conversation AS c ON c.id = t.conversation
WHERE c.owner = ? AND t.branch = ?
ORDER BY t.front DESC, t.number;

-- name: ticket
-- The one of an attempt.
SELECT t.attempt, t.conversation, t.branch, t.number, t.front, t.lease, t.deadline, t.idempotency_key, t.fingerprint,
       t.claimed, t.interaction
FROM ticket AS t JOIN conversation AS c ON c.id = t.conversation
WHERE c.owner = ? AND t.attempt = ?;

-- name: ticket_for
-- The oldest one that waits under this key.
SELECT t.attempt, t.conversation, t.branch, t.number, t.front, t.lease, t.deadline, t.idempotency_key, t.fingerprint,
       t.claimed, t.interaction
FROM ticket AS t JOIN conversation AS c ON c.id = t.conversation
WHERE t.idempotency_key = ? AND c.owner = ?
ORDER BY t.attempt
LIMIT 1;

-- name: held_tickets
-- Those of a process, each with its owner.
SELECT coalesce(c.owner, ''), t.attempt, t.conversation, t.branch, t.number, t.front, t.lease, t.deadline,
       t.idempotency_key, t.fingerprint, t.claimed, t.interaction
FROM ticket AS t LEFT JOIN conversation AS c ON c.id = t.conversation
WHERE t.lease = ?
ORDER BY t.attempt;

-- name: drop_orphaned_tickets
-- Those of a process whose conversation is missing.
DELETE FROM ticket
WHERE lease = ? AND NOT EXISTS (SELECT 1 FROM conversation WHERE conversation.id = ticket.conversation);

-- name: next_ticket
-- A number that no ticket of the branch had before.
UPDATE branch SET last_ticket = last_ticket + 1 WHERE ref = ? RETURNING last_ticket;

-- name: add_ticket
-- A place in the queue.
INSERT INTO ticket (attempt, conversation, branch, number, front, lease, deadline, idempotency_key, fingerprint,
                    claimed, interaction)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: move_tickets
-- Append a queue to another one, continuing its numbers.
UPDATE ticket
SET branch = ?1, number = number + (SELECT last_ticket FROM branch WHERE id = ?1)
WHERE branch = ?2;

-- name: go_on_numbering
-- Continue the numbers after another queue was appended.
UPDATE branch SET last_ticket = last_ticket + (SELECT last_ticket FROM branch AS other WHERE other.id = ?2)
WHERE id = ?1;

-- name: drop_ticket
-- Leave the queue.
DELETE FROM ticket
WHERE attempt = ? AND (SELECT owner FROM conversation WHERE conversation.id = ticket.conversation) = ?;

-- name: job
-- The request of one durable turn.
SELECT id, owner, conversation, created_at, resumes, body FROM job WHERE owner = ? AND id = ?;

-- name: jobs
-- All of an owner, after an id.
SELECT id, owner, conversation, created_at, resumes, body
FROM job
WHERE owner = ? AND id > coalesce(?, x'')
ORDER BY id
LIMIT ?;

-- name: count_jobs
-- How many an owner has.
SELECT count(*) FROM job WHERE owner = ?;

-- name: add_job
-- The request of a durable turn.
INSERT INTO job (id, owner, conversation, created_at, resumes, body) VALUES (?, ?, ?, ?, ?, ?);

-- name: count_resume
-- It is left to be resumed.
UPDATE job SET resumes = resumes + 1 WHERE owner = ? AND id = ?;

-- name: drop_job
-- Its turn has ended.
DELETE FROM job WHERE owner = ? AND id = ?;

-- name: ready_jobs
-- The first in the queue of a free lane, and those that run under no process (?1), oldest first.
SELECT job.owner, job.id
FROM ticket JOIN job ON job.id = ticket.attempt JOIN branch ON branch.id = ticket.branch
WHERE ticket.lease = ?1 AND branch.running IS NULL AND ticket.attempt = (
    SELECT first.attempt FROM ticket AS first
    WHERE first.branch = ticket.branch
    ORDER BY first.front DESC, first.number
    LIMIT 1)
UNION ALL
SELECT job.owner, job.id
FROM attempt JOIN job ON job.id = attempt.id
WHERE attempt.ended = 0 AND attempt.lease = ?1
ORDER BY 2
LIMIT ?2;

-- name: claim
-- What an idempotency_key of this owner refers to.
SELECT fingerprint, conversation, attempt, expires_at, retries, lost, sender
FROM claim
WHERE owner = ? AND idempotency_key = ?;

-- name: save_claim
-- Insert, or replace.
INSERT INTO claim (owner, idempotency_key, fingerprint, conversation, attempt, expires_at, retries, lost, sender)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (owner, idempotency_key) DO UPDATE
SET fingerprint = excluded.fingerprint, conversation = excluded.conversation, attempt = excluded.attempt,
    expires_at = excluded.expires_at, retries = excluded.retries, lost = excluded.lost, sender = excluded.sender;

-- name: drop_claim
-- Its answer was delivered.
DELETE FROM claim WHERE owner = ? AND idempotency_key = ?;

-- name: purge_claims
-- Remove expired ones.
DELETE FROM claim
WHERE (owner, idempotency_key) IN (
    SELECT owner, idempotency_key FROM claim WHERE expires_at < ? ORDER BY expires_at LIMIT ?)
RETURNING 1;

-- name: lease
-- One by id.
SELECT beat FROM lease WHERE id = ? AND beat > 0;

-- name: leases
-- All of them.
SELECT id, beat FROM lease WHERE beat > 0 ORDER BY id;

-- name: beat
-- Raise the beat, or start it. A buried lease continues from its last beat.
INSERT INTO lease (id, beat) VALUES (?, 1) ON CONFLICT (id) DO UPDATE SET beat = abs(beat) + 1, buried = NULL;

-- name: drop_lease
-- A process that has ended.
DELETE FROM lease WHERE id = ?;

-- name: bury_lease
-- A process that was found dead, and may come back.
UPDATE lease SET beat = -beat, buried = (SELECT coalesce(max(buried), 0) + 1 FROM lease) WHERE id = ? AND beat > 0;

-- name: forget_buried
-- All but those buried last.
DELETE FROM lease
WHERE id IN (SELECT id FROM lease WHERE beat < 0 ORDER BY coalesce(buried, 0) DESC, id DESC LIMIT -1 OFFSET ?);

-- name: add_turns
-- Several at once; the parent is NULL if it is the previous turn on the same branch.
INSERT INTO turn (id, branch, number, parent, kind, created_at, committed_at, body, log, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- Changes for the feed. Numbers rise in the order of commits: there is one writer at a time.

-- name: add_change
-- At the end.
INSERT INTO change (at, owner, scope, kind, conversation, turn, branch, detail)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: tail
-- The next ones, of any owner.
SELECT number, owner, at, scope, kind, conversation, turn, branch, detail
FROM change
WHERE number > ?
ORDER BY number
LIMIT ?;

-- name: changes
-- The next ones of one owner. The table is bounded: an index would cost every turn more than it saves.
SELECT number, owner, at, scope, kind, conversation, turn, branch, detail
FROM change
WHERE number > ? AND owner = ?
ORDER BY number
LIMIT ?;

-- name: newest_change
-- The last one, for its position.
SELECT number, at, conversation, turn
FROM change
WHERE number = (SELECT max(number) FROM change);

-- name: change
-- One, for its position.
SELECT number, at, conversation, turn
FROM change
WHERE number = ?;

-- name: oldest_change
-- The first one kept.
SELECT min(number) FROM change;

-- name: purge_changes
-- Of the ?1 oldest ones, those older than a time (?3) or before a number (?4), up to the first that stays: all after it
-- stay, too. Never the newest (?2).
DELETE FROM change
WHERE number IN (SELECT number FROM change WHERE number > 0 ORDER BY number LIMIT ?1)
  AND number < ?2
  AND number < coalesce((SELECT number FROM change WHERE number > ?4 AND at >= ?3 ORDER BY number LIMIT 1), ?2);

-- Statements about the clocks, and the newest stored time.

-- name: clock_mark
-- As the last process read them.
SELECT boot, boot_at, since, trusted_at FROM clock WHERE id = 1;

-- name: save_clock_mark
-- Replaces the existing one.
INSERT INTO clock (id, boot, boot_at, since, trusted_at) VALUES (1, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    boot = excluded.boot, boot_at = excluded.boot_at, since = excluded.since, trusted_at = excluded.trusted_at;

-- name: newest_time
-- Of the last change, and of the last turn: internal conversations make no changes.
SELECT max(at) FROM (
    SELECT at FROM change WHERE number = (SELECT max(number) FROM change)
    UNION ALL
    SELECT committed_at FROM turn WHERE ref = (SELECT max(ref) FROM turn));
