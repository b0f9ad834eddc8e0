-- Conversations of several applications of one owner, kept apart.

ALTER TABLE conversation ADD COLUMN scope TEXT NOT NULL DEFAULT '';

DROP INDEX conversation_by_key;
CREATE UNIQUE INDEX conversation_by_key ON conversation (owner, scope, conversation_key)
    WHERE conversation_key IS NOT NULL;

CREATE INDEX conversation_listed_in_scope ON conversation (owner, scope, touched_at DESC, id DESC)
    WHERE state = 'live' AND internal = 0 AND scope <> '';
