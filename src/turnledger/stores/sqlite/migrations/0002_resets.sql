-- Reset policies of conversation keys, and turns that do not count as use of their conversation.
ALTER TABLE conversation ADD COLUMN reset_policy BLOB;
ALTER TABLE conversation ADD COLUMN former_conversation_key TEXT;
ALTER TABLE attempt ADD COLUMN interaction INTEGER NOT NULL DEFAULT 1;
