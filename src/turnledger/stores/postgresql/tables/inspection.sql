-- Statements that read everything, for checks: no turn waits for these.

-- name: all_conversations
-- A page of all, by id.
SELECT owner, id FROM conversation WHERE id > coalesce($1, ''::bytea) ORDER BY id LIMIT $2;

-- name: all_branches
-- A page of all, by id, which rises with time, with the owner of their conversation, if that exists.
SELECT conversation.owner, branch.id
FROM branch
LEFT JOIN conversation ON conversation.owner = branch.owner AND conversation.id = branch.conversation
WHERE branch.id > coalesce($1, ''::bytea)
ORDER BY branch.id
LIMIT $2;

-- name: all_attempts
-- A page of all, by id.
SELECT owner, id FROM attempt WHERE id > coalesce($1, ''::bytea) ORDER BY id LIMIT $2;

-- name: all_jobs
-- A page, each with the owner of its conversation.
SELECT conversation.owner, job.*
FROM job LEFT JOIN conversation ON conversation.id = job.conversation
WHERE job.id > coalesce($1, ''::bytea)
ORDER BY job.id
LIMIT $2;

-- name: all_tickets
-- A page of all, with the owner of their conversation, if that exists.
SELECT conversation.owner, ticket.*
FROM ticket LEFT JOIN conversation ON conversation.owner = ticket.owner AND conversation.id = ticket.conversation
WHERE ticket.attempt > coalesce($1, ''::bytea)
ORDER BY ticket.attempt
LIMIT $2;

-- name: all_claims
-- A page of all.
SELECT owner, idempotency_key, fingerprint, conversation, attempt, expires_at, retries, lost, sender
FROM claim
WHERE (owner, key_digest(idempotency_key)) > (coalesce($1, ''), coalesce(key_digest($2), ''::bytea))
ORDER BY owner, key_digest(idempotency_key)
LIMIT $3;

-- name: all_tokens
-- A page of all.
SELECT owner, id FROM token WHERE id > coalesce($1, ''::bytea) ORDER BY id LIMIT $2;

-- name: last_needed
-- The last turn of a branch that the branches made from it need.
SELECT coalesce(max(through), 0) FROM origin WHERE source = $1;

-- name: turns_without_branch
-- Unreadable turns: one per missing branch.
SELECT decode(min(encode(turn.id, 'hex')), 'hex')
FROM turn LEFT JOIN branch ON branch.owner = turn.owner AND branch.id = turn.branch
WHERE branch.id IS NULL
GROUP BY turn.branch
LIMIT $1;

-- name: turns_before_their_branch
-- Turns that are on no line.
SELECT turn.id
FROM turn JOIN branch ON branch.owner = turn.owner AND branch.id = turn.branch
WHERE turn.number <= branch.start
LIMIT $1;

-- name: origins_without_branch
-- They needlessly keep turns from being purged.
SELECT origin.base
FROM origin LEFT JOIN branch ON branch.owner = origin.owner AND branch.id = origin.branch
WHERE branch.id IS NULL
LIMIT $1;

-- name: misplaced_origins
-- Those whose base is not the turn that they protect from the purge.
SELECT origin.branch
FROM origin
JOIN branch ON branch.owner = origin.owner AND branch.id = origin.branch
LEFT JOIN turn ON turn.owner = origin.owner AND turn.id = origin.base
WHERE (turn.id IS NOT NULL OR origin.base IS NULL)
  AND (origin.source IS DISTINCT FROM turn.branch OR origin.through <> coalesce(turn.number, 0))
LIMIT $1;

-- name: journals_without_attempt
-- Their records are lost.
SELECT DISTINCT journal.attempt
FROM journal LEFT JOIN attempt ON attempt.owner = journal.owner AND attempt.id = journal.attempt
WHERE attempt.id IS NULL
LIMIT $1;

-- name: logs_without_attempt
-- Leftovers.
SELECT DISTINCT event_log.attempt
FROM event_log LEFT JOIN attempt ON attempt.owner = event_log.owner AND attempt.id = event_log.attempt
WHERE attempt.id IS NULL
LIMIT $1;

-- name: flags_without_turn
-- Leftovers, or flags that name the wrong place of their turn.
SELECT DISTINCT item_flag.turn
FROM item_flag
LEFT JOIN turn ON turn.owner = item_flag.owner AND turn.id = item_flag.turn AND turn.branch = item_flag.branch
    AND turn.number = item_flag.number
WHERE turn.id IS NULL
LIMIT $1;

-- name: misfiled_tags
-- Conversations that are indexed by a tag they do not have, or not by one they have.
WITH stored AS (
    SELECT c.owner, c.id, tag.value AS tag
    FROM conversation AS c CROSS JOIN LATERAL json_array_elements_text(c.tags::json) AS tag)
SELECT coalesce(found.conversation, stored.id)
FROM conversation_tag AS found
FULL JOIN stored ON stored.owner = found.owner AND stored.id = found.conversation AND stored.tag = found.tag
WHERE found.tag IS NULL OR stored.tag IS NULL
LIMIT $1;

-- name: attempts_in_the_wrong_half
-- Queries for their kind do not find them.
SELECT id FROM attempt WHERE (state = 'running') <> (ended = 0) LIMIT $1;

-- name: words_without_text
-- Whether the search index has words of missing turns or conversations.
SELECT 1
FROM search_text
LEFT JOIN turn ON turn.owner = search_text.owner AND turn.id = search_text.id
LEFT JOIN conversation ON conversation.owner = search_text.owner AND conversation.id = search_text.id
WHERE (CASE WHEN search_text.title = 1 THEN conversation.id ELSE turn.id END) IS NULL
LIMIT 1;

-- name: miscounted_branches
-- Those whose count differs from the size of their turns.
SELECT branch.id FROM branch
WHERE bytes <> (
    SELECT coalesce(sum(length(body) + coalesce(length(log), 0)), 0)
    FROM turn
    WHERE turn.owner = branch.owner AND turn.branch = branch.id)
LIMIT $1;

-- name: miscounted_attempts
-- Ended ones whose count differs from their size, each with a row ($1).
SELECT id FROM attempt
WHERE bytes <> CASE WHEN ended = 0 THEN 0 ELSE
    $1::bigint + length(input) + coalesce(octet_length(partial), 0) + coalesce(octet_length(failure_message), 0)
    + coalesce((SELECT sum(length(record)) FROM journal
                WHERE journal.owner = attempt.owner AND journal.attempt = attempt.id), 0)
    + coalesce((SELECT sum(length(chunk)) FROM event_log
                WHERE event_log.owner = attempt.owner AND event_log.attempt = attempt.id), 0) END
LIMIT $2;

-- name: miscounted_owners
-- Those whose counts differ from what they store, in blocks ($1) and rows ($2).
SELECT coalesce(owner.owner, due.owner), coalesce(owner.bytes, 0), coalesce(due.bytes, 0)::bigint,
       coalesce(owner.chats, 0), coalesce(due.chats, 0)::bigint
FROM owner
FULL JOIN (
    SELECT owner, sum(bytes) AS bytes, sum(chats) AS chats
    FROM (
        SELECT owner, (bytes + $2::bigint + $1::bigint - 1) / $1 * $1 AS bytes, 0 AS chats
        FROM branch
        WHERE cleared = 0
        UNION ALL
        SELECT owner, CASE WHEN size > $2 THEN (size + $1 - 1) / $1 * $1 ELSE 0 END,
               CASE WHEN state IN ('live', 'deleted') THEN 1 ELSE 0 END
        FROM (
            SELECT owner, state,
                   coalesce(octet_length(title), 0) + coalesce(octet_length(metadata), 0)
                   + coalesce(octet_length(tags), 0) AS size
            FROM conversation) AS details
        UNION ALL
        SELECT owner, bytes, 0 FROM attempt WHERE ended = 1
        UNION ALL
        SELECT owner, length(body) + $2, 0 FROM job) AS stored
    GROUP BY owner) AS due ON due.owner = owner.owner
WHERE coalesce(owner.bytes, 0) <> coalesce(due.bytes, 0) OR coalesce(owner.chats, 0) <> coalesce(due.chats, 0)
LIMIT $3;

-- name: miscounted_shares
-- Links whose counts differ from what their visitors store. An owner `guest_SHARE_TOKEN` is a visitor.
SELECT share.id
FROM share
LEFT JOIN (
    SELECT substr(owner, 7, 32) AS id, sum(bytes) AS bytes, sum(chats) AS chats
    FROM owner
    WHERE owner ~ '^guest_[0-9a-f]{32}_[0-9a-f]{32}$'
    GROUP BY 1) AS due ON due.id = encode(share.id, 'hex')
WHERE share.bytes <> coalesce(due.bytes, 0) OR share.chats <> coalesce(due.chats, 0)
LIMIT $1;

-- name: oldest_transaction
-- Seconds since the first transaction began that still runs, in any database of the cluster: readers of changes stop before
-- it. If it is hidden from this role, seconds since the first change that waits for it.
SELECT extract(epoch FROM max(age))::float8
FROM (
    SELECT clock_timestamp() - xact_start AS age FROM pg_stat_activity WHERE backend_xid IS NOT NULL
    UNION ALL
    SELECT clock_timestamp() - prepared FROM pg_prepared_xacts
    UNION ALL
    SELECT clock_timestamp() - to_timestamp(min(at) / 1000.0)
    FROM change
    WHERE xid >= pg_snapshot_xmin(pg_current_snapshot())::text::bigint) AS open;
