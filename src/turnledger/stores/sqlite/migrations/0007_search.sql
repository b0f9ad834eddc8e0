-- The index of visible words, without the texts. A search reads each match again, and checks only then whether
-- words are adjacent: their positions would take more room than the texts. Each word has a mark of its owner and of
-- a block of turns, so that a search reads one block at a time.
CREATE VIRTUAL TABLE turn_words USING fts5(
    words, content='', contentless_delete=1, detail='none', tokenize='ascii');
CREATE VIRTUAL TABLE title_words USING fts5(
    words, content='', contentless_delete=1, detail='none', tokenize='ascii');

-- Blocks of an owner's turns, in order: a page costs only the last block, however many turns there are.
CREATE TABLE search_block (
    owner TEXT NOT NULL,
    first INTEGER NOT NULL,         -- the ref of its first turn; it ends before that of the next block
    turns INTEGER NOT NULL,         -- how many were added
    PRIMARY KEY (owner, first)
) STRICT, WITHOUT ROWID;

-- Blocks of titles, by conversation.
CREATE TABLE title_block (
    owner TEXT NOT NULL,
    first INTEGER NOT NULL,         -- the ref of a conversation, or 0; it ends before that of the next block
    titles INTEGER NOT NULL,        -- how many were added
    PRIMARY KEY (owner, first)
) STRICT, WITHOUT ROWID;

-- Turns up to this one are indexed.
CREATE TABLE search_mark (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    turn INTEGER NOT NULL           -- its ref
) STRICT;

INSERT INTO search_mark (id, turn) VALUES (1, 0);

-- Earlier ones that have to be indexed again.
CREATE TABLE turn_due (
    turn INTEGER PRIMARY KEY        -- its ref
) STRICT;

-- Index every new title, except one made of the first words, which are indexed with their turn.
CREATE TRIGGER title_given AFTER INSERT ON conversation
WHEN new.title IS NOT NULL AND new.named_by IS NOT 'words'
BEGIN
    UPDATE conversation SET title_due = 1 WHERE ref = new.ref;
END;

CREATE TRIGGER title_changed AFTER UPDATE OF title ON conversation
WHEN (old.title, old.named_by) IS NOT (new.title, new.named_by)
    AND (new.named_by IS NOT 'words' OR old.title IS NOT NULL)
BEGIN
    UPDATE conversation SET title_due = 1 WHERE ref = new.ref;
END;

-- Index a turn again when its items are shown or hidden. A purge removes the turn first.
CREATE TRIGGER item_hidden AFTER INSERT ON item_flag
BEGIN
    INSERT OR IGNORE INTO turn_due (turn)
    SELECT ref FROM turn WHERE id = new.turn AND ref <= (SELECT turn FROM search_mark);
END;

CREATE TRIGGER item_shown AFTER DELETE ON item_flag
BEGIN
    INSERT OR IGNORE INTO turn_due (turn)
    SELECT ref FROM turn WHERE id = old.turn AND ref <= (SELECT turn FROM search_mark);
END;

-- Remove the words of a turn with it. The highest refs are reused, by turns that are yet to be indexed.
CREATE TRIGGER turn_purged AFTER DELETE ON turn
BEGIN
    DELETE FROM turn_words WHERE rowid = old.ref;
    DELETE FROM turn_due WHERE turn = old.ref;
    UPDATE search_mark SET turn = min(turn, coalesce((SELECT max(ref) FROM turn), 0));
END;
