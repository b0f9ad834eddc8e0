-- The words of what people see, to be found. Nothing of the texts themselves is kept here: what is found is read
-- again where it stands, and only then it shows whether words stand together: to know that here would take more
-- room than the texts. Each word bears a mark of its owner and of a block of turns, so that a search reads no more
-- than those of one.
CREATE VIRTUAL TABLE turn_words USING fts5(
    words, content='', contentless_delete=1, detail='none', tokenize='ascii');
CREATE VIRTUAL TABLE title_words USING fts5(
    words, content='', contentless_delete=1, detail='none', tokenize='ascii');

-- So many turns of an owner, one after the other: however many he has, a page costs what is in the last block.
CREATE TABLE search_block (
    owner TEXT NOT NULL,
    first INTEGER NOT NULL,         -- the ref of the first turn; the others come before that of the next block
    turns INTEGER NOT NULL,         -- how many were put there
    PRIMARY KEY (owner, first)
) STRICT, WITHOUT ROWID;

-- And so many titles: those of conversations from this one on.
CREATE TABLE title_block (
    owner TEXT NOT NULL,
    first INTEGER NOT NULL,         -- the ref of a conversation, or 0; the others come before that of the next block
    titles INTEGER NOT NULL,        -- how many were put there
    PRIMARY KEY (owner, first)
) STRICT, WITHOUT ROWID;

-- Turns up to this one were looked through.
CREATE TABLE search_mark (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    turn INTEGER NOT NULL           -- its ref
) STRICT;

INSERT INTO search_mark (id, turn) VALUES (1, 0);

-- Earlier ones that have to be looked through again.
CREATE TABLE turn_due (
    turn INTEGER PRIMARY KEY        -- its ref
) STRICT;

-- Whoever gives a title, a search shall know it. One that is made of the first words is found by those.
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

-- What is shown or hidden later is found or not found later. A purge removes the turn first.
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

-- With a turn go its words. The highest refs are given again, to turns that are to be looked through.
CREATE TRIGGER turn_purged AFTER DELETE ON turn
BEGIN
    DELETE FROM turn_words WHERE rowid = old.ref;
    DELETE FROM turn_due WHERE turn = old.ref;
    UPDATE search_mark SET turn = min(turn, coalesce((SELECT max(ref) FROM turn), 0));
END;
