-- Statements that read everything, for checks: no turn waits for these.

-- name: all_conversations
-- A page of all, of all owners.
SELECT owner, id FROM conversation
WHERE ref > coalesce((SELECT ref FROM conversation WHERE id = ?1), 0)
ORDER BY ref
LIMIT ?2;

-- name: all_branches
-- A page of all, with the owner of their conversation, if that exists.
SELECT conversation.owner, branch.id
FROM branch LEFT JOIN conversation ON conversation.id = branch.conversation
WHERE branch.ref > coalesce((SELECT ref FROM branch WHERE id = ?1), 0)
ORDER BY branch.ref
LIMIT ?2;

-- name: all_attempts
-- A page of all, running ones first. An id in both halves of the table comes once.
SELECT owner, id FROM attempt
WHERE (ended, id) > (
    coalesce((SELECT max(ended) FROM attempt WHERE ended IN (0, 1) AND id = ?1), -1), coalesce(?1, x''))
ORDER BY ended, id
LIMIT ?2;

-- name: all_jobs
-- A page, each with the owner of its conversation.
SELECT conversation.owner, job.id, job.owner, job.conversation, job.created_at, job.resumes, job.body
FROM job LEFT JOIN conversation ON conversation.id = job.conversation
WHERE job.id > coalesce(?1, x'')
ORDER BY job.id
LIMIT ?2;

-- name: all_tickets
-- A page of all, with the owner of their conversation, if that exists.
SELECT conversation.owner, ticket.attempt, ticket.conversation, ticket.branch, ticket.number, ticket.front, ticket.lease,
       ticket.deadline, ticket.idempotency_key, ticket.fingerprint, ticket.claimed, ticket.interaction
FROM ticket LEFT JOIN conversation ON conversation.id = ticket.conversation
WHERE ticket.attempt > coalesce(?1, x'')
ORDER BY ticket.attempt
LIMIT ?2;

-- name: all_claims
-- A page of all.
SELECT owner, idempotency_key, fingerprint, conversation, attempt, expires_at, retries, lost, sender
FROM claim
WHERE (owner, idempotency_key) > (coalesce(?1, ''), coalesce(?2, ''))
ORDER BY owner, idempotency_key
LIMIT ?3;

-- name: all_tokens
-- A page of all.
SELECT owner, id FROM token WHERE id > coalesce(?1, x'') ORDER BY id LIMIT ?2;

-- name: last_needed
-- The last turn of a branch that the branches made from it need.
SELECT coalesce(max(through), 0) FROM origin WHERE source = (SELECT ref FROM branch WHERE id = ?);

-- name: integrity
-- What SQLite itself finds wrong with the file; a single row `ok` if nothing.
SELECT integrity_check FROM pragma_integrity_check LIMIT ?;

-- name: turns_without_branch
-- Unreadable turns: one per missing branch.
SELECT min(id) FROM turn WHERE branch NOT IN (SELECT ref FROM branch) GROUP BY branch LIMIT ?;

-- name: turns_before_their_branch
-- Turns that are on no line.
SELECT turn.id FROM turn JOIN branch ON branch.ref = turn.branch WHERE turn.number <= branch.start LIMIT ?;

-- name: origins_without_branch
-- They needlessly keep turns from being purged.
SELECT base FROM origin WHERE branch NOT IN (SELECT ref FROM branch) LIMIT ?;

-- name: misplaced_origins
-- Those whose base is not the turn that they protect from the purge.
SELECT branch.id
FROM origin JOIN branch ON branch.ref = origin.branch LEFT JOIN turn ON turn.id = origin.base
WHERE (turn.id IS NOT NULL OR origin.base IS NULL)
  AND (origin.source IS NOT turn.branch OR origin.through <> coalesce(turn.number, 0))
LIMIT ?;

-- name: miscounted_branches
-- Those whose count differs from the size of their turns.
SELECT id FROM branch
WHERE bytes <> (
    SELECT coalesce(sum(length(body) + coalesce(length(log), 0)), 0) FROM turn WHERE turn.branch = branch.ref)
LIMIT ?;

-- name: miscounted_owners
-- Those whose counts differ from what they store, in blocks (?1) and rows (?2).
SELECT owner, coalesce(owner.bytes, 0), coalesce(due.bytes, 0), coalesce(owner.chats, 0), coalesce(due.chats, 0)
FROM owner
FULL JOIN (
    SELECT owner, sum(bytes) AS bytes, sum(chats) AS chats
    FROM (
        SELECT conversation.owner, (branch.bytes + ?2 + ?1 - 1) / ?1 * ?1 AS bytes, 0 AS chats
        FROM branch JOIN conversation ON conversation.id = branch.conversation
        WHERE branch.cleared = 0
        UNION ALL
        SELECT owner, iif(size > ?2, (size + ?1 - 1) / ?1 * ?1, 0), state IN ('live', 'deleted')
        FROM (
            SELECT owner, state,
                   coalesce(length(CAST(title AS BLOB)), 0) + coalesce(length(CAST(metadata AS BLOB)), 0)
                   + coalesce(length(CAST(tags AS BLOB)), 0) AS size
            FROM conversation)
        UNION ALL
        SELECT owner, bytes, 0 FROM attempt WHERE ended = 1
        UNION ALL
        SELECT owner, length(body) + ?2, 0 FROM job)
    GROUP BY owner) AS due USING (owner)
WHERE coalesce(owner.bytes, 0) <> coalesce(due.bytes, 0) OR coalesce(owner.chats, 0) <> coalesce(due.chats, 0)
LIMIT ?3;

-- name: turns_without_checksum
-- How many are from a version without checksums.
SELECT count(*) FROM turn WHERE checksum IS NULL;

-- name: miscounted_attempts
-- Ended ones whose count differs from their size, each with a row (?1).
SELECT id FROM attempt
WHERE bytes <> iif(
    ended = 0,
    0,
    ?1 + coalesce(length(input), (SELECT length(body) FROM attempt_input WHERE attempt_input.attempt = attempt.id), 0)
    + coalesce(length(CAST(partial AS BLOB)), 0) + coalesce(length(CAST(failure_message AS BLOB)), 0)
    + coalesce((SELECT sum(length(record)) FROM journal WHERE journal.attempt = attempt.id), 0)
    + coalesce((SELECT sum(length(chunk)) FROM event_log WHERE event_log.attempt = attempt.id), 0))
LIMIT ?2;

-- name: miscounted_shares
-- Links whose counts differ from what their visitors store. An owner `guest_SHARE_TOKEN` is a visitor.
SELECT share.id
FROM share
LEFT JOIN (
    SELECT unhex(substr(owner, 7, 32)) AS id, sum(bytes) AS bytes, sum(chats) AS chats
    FROM owner
    WHERE owner GLOB 'guest_*_*' AND length(owner) = 71
    GROUP BY 1) AS due ON due.id = share.id
WHERE share.bytes <> coalesce(due.bytes, 0) OR share.chats <> coalesce(due.chats, 0)
LIMIT ?;

-- name: lines
-- A page of the stored stretches before the branches' own turns.
SELECT origin.branch, branch.id, origin.line
FROM origin JOIN branch ON branch.ref = origin.branch
WHERE origin.branch > ? AND origin.line IS NOT NULL
ORDER BY origin.branch
LIMIT ?;

-- name: journals_without_attempt
-- Their records are lost.
SELECT DISTINCT attempt FROM journal
WHERE NOT EXISTS (SELECT 1 FROM attempt WHERE ended IN (0, 1) AND attempt.id = journal.attempt)
LIMIT ?;

-- name: logs_without_attempt
-- Leftovers.
SELECT DISTINCT attempt FROM event_log
WHERE NOT EXISTS (SELECT 1 FROM attempt WHERE ended IN (0, 1) AND attempt.id = event_log.attempt)
LIMIT ?;

-- name: flags_without_turn
-- Leftovers, or flags that name the wrong place of their turn.
SELECT DISTINCT turn FROM item_flag
WHERE NOT EXISTS (
    SELECT 1 FROM turn
    WHERE turn.id = item_flag.turn AND turn.branch = item_flag.branch AND turn.number = item_flag.number)
LIMIT ?;

-- name: misfiled_tags
-- Conversations that are indexed by a tag they do not have, or not by one they have.
SELECT id FROM (
    SELECT found.conversation AS id FROM conversation_tag AS found
    WHERE NOT EXISTS (
        SELECT 1 FROM conversation AS c, json_each(c.tags) AS tag
        WHERE c.id = found.conversation AND c.owner = found.owner AND tag.value = found.tag)
    UNION
    SELECT c.id FROM conversation AS c, json_each(c.tags) AS tag
    WHERE NOT EXISTS (
        SELECT 1 FROM conversation_tag AS found
        WHERE found.owner = c.owner AND found.tag = tag.value AND found.conversation = c.id))
LIMIT ?;

-- name: inputs_without_attempt
-- Leftovers.
SELECT attempt FROM attempt_input
WHERE NOT EXISTS (SELECT 1 FROM attempt WHERE ended IN (0, 1) AND attempt.id = attempt_input.attempt)
LIMIT ?;

-- name: attempts_in_the_wrong_half
-- They are in the wrong half, where queries for their kind do not find them, or in both.
SELECT id FROM attempt
WHERE (state = 'running') <> (ended = 0)
   OR (ended = 0 AND EXISTS (SELECT 1 FROM attempt AS other WHERE other.ended = 1 AND other.id = attempt.id))
LIMIT ?;

-- name: words_without_turn
-- Leftovers.
SELECT 1 FROM turn_words_docsize WHERE id NOT IN (SELECT ref FROM turn) LIMIT 1;

-- name: words_without_title
-- Leftovers.
SELECT 1 FROM title_words_docsize AS words
WHERE NOT EXISTS (
    SELECT 1 FROM conversation WHERE ref = words.id AND (title IS NOT NULL OR title_due = 1))
LIMIT 1;

-- name: mark_behind_turns
-- Future turns would be skipped.
SELECT 1 FROM search_mark WHERE turn > (SELECT coalesce(max(ref), 0) FROM turn);

-- name: ref_of_any_branch
-- The number of a branch in the rows of its turns.
SELECT ref FROM branch WHERE id = ?;
