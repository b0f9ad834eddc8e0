-- Quotas of tokens and links, and the size of everything stored: branches with their rows, details of
-- conversations, attempts set aside. 16384 and 1024 are BLOCK and ROW of model/conversation.py.
ALTER TABLE token ADD COLUMN bounds TEXT;
ALTER TABLE share ADD COLUMN bounds TEXT;
ALTER TABLE share ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE share ADD COLUMN chats INTEGER NOT NULL DEFAULT 0;
ALTER TABLE owner ADD COLUMN chats INTEGER NOT NULL DEFAULT 0;
-- An added column comes last; the primary key is declared after all of them.
ALTER TABLE attempt ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;

UPDATE attempt
SET bytes = 1024
    + coalesce(length(input), (SELECT length(body) FROM attempt_input WHERE attempt_input.attempt = attempt.id), 0)
    + coalesce(length(CAST(partial AS BLOB)), 0) + coalesce(length(CAST(failure_message AS BLOB)), 0)
    + coalesce((SELECT sum(length(record)) FROM journal WHERE journal.attempt = attempt.id), 0)
    + coalesce((SELECT sum(length(chunk)) FROM event_log WHERE event_log.attempt = attempt.id), 0)
WHERE ended = 1;

-- Earlier visitors are not counted for their links.
INSERT OR IGNORE INTO owner (owner) SELECT owner FROM conversation UNION SELECT owner FROM attempt;
UPDATE owner
SET chats = coalesce(kept.chats, 0), bytes = coalesce(kept.bytes, 0)
FROM owner AS each
LEFT JOIN (
    SELECT owner, sum(chats) AS chats, sum(bytes) AS bytes
    FROM (
        SELECT owner, state IN ('live', 'deleted') AS chats,
               iif(size > 1024, (size + 16383) / 16384 * 16384, 0) AS bytes
        FROM (
            SELECT owner, state,
                   coalesce(length(CAST(title AS BLOB)), 0) + coalesce(length(CAST(metadata AS BLOB)), 0)
                   + coalesce(length(CAST(tags AS BLOB)), 0) AS size
            FROM conversation)
        UNION ALL
        SELECT conversation.owner, 0, (branch.bytes + 1024 + 16383) / 16384 * 16384
        FROM branch JOIN conversation ON conversation.id = branch.conversation
        WHERE branch.cleared = 0
        UNION ALL
        SELECT owner, 0, bytes FROM attempt WHERE ended = 1)
    GROUP BY owner) AS kept ON kept.owner = each.owner
WHERE each.owner = owner.owner;
