-- Scopes: conversations of several applications of one owner. The storage of each owner.

ALTER TABLE conversation ADD COLUMN scope TEXT NOT NULL DEFAULT '';

DROP INDEX conversation_by_key;
CREATE UNIQUE INDEX conversation_by_key ON conversation (owner, scope, conversation_key)
    WHERE conversation_key IS NOT NULL;

CREATE INDEX conversation_listed_in_scope ON conversation (owner, scope, touched_at DESC, id DESC)
    WHERE state = 'live' AND internal = 0 AND scope <> '';

ALTER TABLE branch ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;

UPDATE branch
SET bytes = (
    SELECT coalesce(sum(length(body) + coalesce(length(log), 0)), 0) FROM turn WHERE turn.branch = branch.ref);

ALTER TABLE owner ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;

-- In whole blocks of 16 KiB.
INSERT INTO owner (owner, bytes)
SELECT conversation.owner, sum((branch.bytes + 16383) / 16384 * 16384)
FROM branch JOIN conversation ON conversation.id = branch.conversation
WHERE branch.bytes > 0
GROUP BY conversation.owner
ON CONFLICT (owner) DO UPDATE SET bytes = excluded.bytes;
