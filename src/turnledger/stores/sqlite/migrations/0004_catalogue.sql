-- The columns and filters of a list of chats, and deletion in two steps.

ALTER TABLE conversation ADD COLUMN tags TEXT;
ALTER TABLE conversation ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversation ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversation ADD COLUMN named_by TEXT;
ALTER TABLE conversation ADD COLUMN listed INTEGER NOT NULL DEFAULT 1;
ALTER TABLE conversation ADD COLUMN purge_at INTEGER;
ALTER TABLE conversation ADD COLUMN title_due INTEGER NOT NULL DEFAULT 0;
ALTER TABLE branch ADD COLUMN preview TEXT NOT NULL DEFAULT '';

-- Before this version, deletion was final, and people gave all titles. Ended conversations lose title and metadata;
-- the conversation_key of an expired one stays, to report the expiry.
UPDATE conversation SET state = 'purged', conversation_key = NULL, former_conversation_key = NULL
WHERE state = 'deleted';
UPDATE conversation SET title = NULL, metadata = NULL WHERE state <> 'live';
UPDATE conversation SET named_by = 'person', title_due = 1 WHERE title IS NOT NULL;

-- The preview at the head of each branch, as commits write it from this version on; they look back as far.
UPDATE branch
SET preview = coalesce((
    WITH RECURSIVE back (id, steps) AS (
        SELECT branch.head, 1
        UNION ALL
        SELECT coalesce(turn.parent, (
                   SELECT before.id FROM turn AS before
                   WHERE before.branch = turn.branch AND before.number = turn.number - 1)),
               steps + 1
        FROM back JOIN turn ON turn.id = back.id
        WHERE steps < 16)
    SELECT turn_preview(turn.body, (
               SELECT group_concat(place) FROM item_flag WHERE item_flag.turn = turn.id AND to_user = 0)) AS shown
    FROM back CROSS JOIN turn ON turn.id = back.id
    WHERE shown <> ''
    LIMIT 1), '')
WHERE head IS NOT NULL AND conversation IN (SELECT id FROM conversation WHERE state = 'live');

-- The first words as a title, where there is none.
UPDATE conversation
SET title = (
    SELECT turn_title(turn.body, (
               SELECT group_concat(place) FROM item_flag WHERE item_flag.turn = turn.id AND to_user = 0))
    FROM branch JOIN turn ON turn.branch = branch.ref AND turn.number = branch.start + 1
    WHERE branch.id = conversation.branch)
WHERE title IS NULL AND state = 'live' AND internal = 0;
UPDATE conversation SET named_by = 'words' WHERE title IS NOT NULL AND named_by IS NULL;

DROP INDEX conversation_listed;
DROP INDEX conversation_listed_in_scope;
DROP INDEX conversation_unswept;

-- The list of an owner, last touched first.
CREATE INDEX conversation_listed ON conversation (owner, archived, touched_at DESC, id DESC)
    WHERE state = 'live' AND internal = 0 AND listed = 1;

-- The list of one scope: only conversations with a scope pay for it.
CREATE INDEX conversation_listed_in_scope ON conversation (owner, scope, archived, touched_at DESC, id DESC)
    WHERE state = 'live' AND internal = 0 AND listed = 1 AND scope <> '';

-- Pinned ones, which are few.
CREATE INDEX conversation_pinned ON conversation (owner, touched_at DESC, id DESC)
    WHERE state = 'live' AND pinned = 1;

-- Deleted ones, by owner and by the time of their purge.
CREATE INDEX conversation_deleted ON conversation (owner, touched_at DESC, id DESC)
    WHERE state = 'deleted';
CREATE INDEX conversation_to_purge ON conversation (purge_at)
    WHERE state = 'deleted';

-- Internal ones, for retention.
CREATE INDEX conversation_internal ON conversation (owner, touched_at, id)
    WHERE state = 'live' AND internal = 1;

-- Those without a committed turn.
CREATE INDEX conversation_unlisted ON conversation (touched_at)
    WHERE state = 'live' AND listed = 0;

CREATE INDEX conversation_unswept ON conversation (ref)
    WHERE state IN ('purged', 'expired') AND swept = 0;

-- Titles that are not indexed yet.
CREATE INDEX conversation_title_due ON conversation (ref) WHERE title_due = 1;

-- Conversations by tag.
CREATE TABLE conversation_tag (
    owner TEXT NOT NULL,
    tag TEXT NOT NULL,
    conversation BLOB NOT NULL,
    PRIMARY KEY (owner, tag, conversation)
) STRICT, WITHOUT ROWID;
