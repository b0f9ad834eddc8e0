-- What a list of chats shows and can be asked for; and deletion in two steps.

ALTER TABLE conversation ADD COLUMN tags TEXT;
ALTER TABLE conversation ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversation ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversation ADD COLUMN named_by TEXT;
ALTER TABLE conversation ADD COLUMN listed INTEGER NOT NULL DEFAULT 1;
ALTER TABLE conversation ADD COLUMN purge_at INTEGER;
ALTER TABLE conversation ADD COLUMN title_due INTEGER NOT NULL DEFAULT 0;
ALTER TABLE branch ADD COLUMN preview TEXT NOT NULL DEFAULT '';

-- Until now nothing deleted could come back, and all titles were given by people.
UPDATE conversation SET state = 'purged' WHERE state = 'deleted';
UPDATE conversation SET named_by = 'person', title_due = 1 WHERE title IS NOT NULL;

DROP INDEX conversation_listed;
DROP INDEX conversation_listed_in_scope;
DROP INDEX conversation_unswept;

-- The list that an owner sees, the last touched first.
CREATE INDEX conversation_listed ON conversation (owner, archived, touched_at DESC, id DESC)
    WHERE state = 'live' AND internal = 0 AND listed = 1;

-- The list that one application sees: only those that are of a scope pay for it.
CREATE INDEX conversation_listed_in_scope ON conversation (owner, scope, archived, touched_at DESC, id DESC)
    WHERE state = 'live' AND internal = 0 AND listed = 1 AND scope <> '';

-- Those that are pinned, which are few.
CREATE INDEX conversation_pinned ON conversation (owner, touched_at DESC, id DESC)
    WHERE state = 'live' AND pinned = 1;

-- Deleted ones, by owner and by when they go for good.
CREATE INDEX conversation_deleted ON conversation (owner, touched_at DESC, id DESC)
    WHERE state = 'deleted';
CREATE INDEX conversation_to_purge ON conversation (purge_at)
    WHERE state = 'deleted';

-- Those that never show in a list, to be found when they are old.
CREATE INDEX conversation_internal ON conversation (owner, touched_at, id)
    WHERE state = 'live' AND internal = 1;

-- Begun, and nothing was committed yet.
CREATE INDEX conversation_unlisted ON conversation (touched_at)
    WHERE state = 'live' AND listed = 0;

CREATE INDEX conversation_unswept ON conversation (ref)
    WHERE state IN ('purged', 'expired') AND swept = 0;

-- Titles that a search does not know yet.
CREATE INDEX conversation_title_due ON conversation (ref) WHERE title_due = 1;

-- The tags of conversations, the other way round.
CREATE TABLE conversation_tag (
    owner TEXT NOT NULL,
    tag TEXT NOT NULL,
    conversation BLOB NOT NULL,
    PRIMARY KEY (owner, tag, conversation)
) STRICT, WITHOUT ROWID;
