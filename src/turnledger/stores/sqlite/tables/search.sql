-- Statements about what a search finds, and what it does not know yet.

-- name: found_titles
-- Titles of this owner with these words, the last made conversation first.
SELECT c.ref, c.id
FROM title_words AS w CROSS JOIN conversation AS c ON c.ref = w.rowid
WHERE w.title_words MATCH ?1 AND w.rowid < ?2 AND c.owner = ?3 AND c.internal = 0
ORDER BY w.rowid DESC
LIMIT ?4;

-- name: found_turns
-- Turns of this owner with these words, the last committed first.
SELECT t.ref, c.id, t.id
FROM turn_words AS w
CROSS JOIN turn AS t ON t.ref = w.rowid
CROSS JOIN branch AS b ON b.ref = t.branch
CROSS JOIN conversation AS c ON c.id = b.conversation
WHERE w.turn_words MATCH ?1 AND w.rowid < ?2 AND c.owner = ?3 AND c.internal = 0
ORDER BY w.rowid DESC
LIMIT ?4;

-- name: has_turns
-- Whether a block has any.
SELECT 1 FROM turn_words WHERE turn_words MATCH ? AND rowid < ? LIMIT 1;

-- name: blocks_before
-- The blocks of an owner that may have turns before this one, the last first.
SELECT first FROM search_block WHERE owner = ? AND first < ? ORDER BY first DESC;

-- name: block_of
-- The block of an owner that a turn is or would be in, and how full it is.
SELECT first, turns FROM search_block WHERE owner = ? AND first <= ? ORDER BY first DESC LIMIT 1;

-- name: add_block
-- A new one, in place of one whose turns are all gone.
INSERT OR REPLACE INTO search_block (owner, first, turns) VALUES (?, ?, 1);

-- name: fill_block
-- One more in it.
UPDATE search_block SET turns = turns + 1 WHERE owner = ? AND first = ?;

-- name: drop_blocks
-- Those behind the last turn: theirs are gone, and their refs are given again.
DELETE FROM search_block WHERE owner = ? AND first > (SELECT max(ref) FROM turn);

-- name: shown_elsewhere
-- The live conversations that were made from a turn, or from a later one that builds on it, the first made first.
WITH RECURSIVE made (branch) AS (
    SELECT branch FROM origin WHERE source = (SELECT ref FROM branch WHERE id = ?1) AND through >= ?2
    UNION
    SELECT origin.branch FROM made JOIN origin ON origin.source = made.branch
    LIMIT ?4)
SELECT c.id, b.id
FROM made CROSS JOIN branch AS b ON b.ref = made.branch CROSS JOIN conversation AS c ON c.id = b.conversation
WHERE c.state = 'live'
ORDER BY made.branch
LIMIT ?3;

-- name: is_all_known
-- Whether a search knows all there is.
SELECT NOT EXISTS (SELECT 1 FROM turn WHERE ref > (SELECT turn FROM search_mark))
   AND NOT EXISTS (SELECT 1 FROM conversation WHERE title_due = 1)
   AND NOT EXISTS (SELECT 1 FROM turn_due);

-- name: due_titles
-- Titles as they are, that a search knows otherwise or not at all.
SELECT ref, owner, scope, iif(named_by IS 'words', NULL, title)
FROM conversation
WHERE title_due = 1
ORDER BY ref
LIMIT ?;

-- name: own_titles
-- The same of one owner.
SELECT ref, scope, iif(named_by IS 'words', NULL, title)
FROM conversation
WHERE owner = ?1 AND title_due = 1 AND ref > (SELECT max(ref) FROM conversation) - ?2
ORDER BY ref DESC
LIMIT ?3;

-- name: title_known
-- This one is.
UPDATE conversation SET title_due = 0 WHERE ref = ?;

-- name: titles_known
-- Up to this one they are.
UPDATE conversation SET title_due = 0 WHERE title_due = 1 AND ref <= ?;

-- name: has_titles
-- Whether a block has any.
SELECT 1 FROM title_words WHERE title_words MATCH ? AND rowid < ? LIMIT 1;

-- name: title_blocks_before
-- The blocks of an owner that may have titles of conversations before this one, the last first.
SELECT first FROM title_block WHERE owner = ? AND first < ? ORDER BY first DESC;

-- name: title_block_of
-- The block of an owner that a title is or would be in, and how full it is.
SELECT first, titles FROM title_block WHERE owner = ? AND first <= ? ORDER BY first DESC LIMIT 1;

-- name: fill_title_block
-- One more in it; maybe the first.
INSERT INTO title_block (owner, first, titles) VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET titles = titles + 1;

-- name: newest_title
-- The last made conversation whose title is found, of whichever owner.
SELECT rowid FROM title_words ORDER BY rowid DESC LIMIT 1;

-- name: drop_title_words
-- A title that is no more.
DELETE FROM title_words WHERE rowid = ?;

-- name: note_remains
-- Words of something that was removed may still be in the index.
UPDATE search_mark SET has_remains = 1;

-- name: add_title_words
-- A title, as it is found.
INSERT INTO title_words (rowid, words) VALUES (?, ?);

-- name: due_turns
-- Turns of which something else is shown than when they were looked through, and how long they are.
SELECT turn.ref, length(turn.body)
FROM turn_due CROSS JOIN turn ON turn.ref = turn_due.turn
ORDER BY turn_due.turn
LIMIT ?;

-- name: turns_known
-- Up to this one they were looked through again.
DELETE FROM turn_due WHERE turn <= ?;

-- name: new_turns
-- Turns that were not looked through yet, and how long they are.
SELECT ref, length(body) FROM turn WHERE ref > (SELECT turn FROM search_mark) ORDER BY ref LIMIT ?;

-- name: own_turns
-- Those of one owner among the newest, the last committed first, without those that were looked through ahead.
SELECT t.ref, length(t.body)
FROM turn AS t
CROSS JOIN branch AS b ON b.ref = t.branch
CROSS JOIN conversation AS c ON c.id = b.conversation
WHERE t.ref > max((SELECT turn FROM search_mark), (SELECT max(ref) FROM turn) - ?2)
    AND c.owner = ?1
    AND NOT EXISTS (SELECT 1 FROM turn_words_docsize WHERE id = t.ref)
ORDER BY t.ref DESC
LIMIT ?3;

-- name: is_near
-- Whether all that was not looked through is among the newest, and nothing has to be looked through again.
SELECT turn >= (SELECT coalesce(max(ref), 0) FROM turn) - ?1
    AND NOT EXISTS (SELECT 1 FROM turn_due)
    AND NOT EXISTS (SELECT 1 FROM conversation
                    WHERE title_due = 1 AND ref <= (SELECT max(ref) FROM conversation) - ?1)
FROM search_mark;

-- name: whole_turn
-- What is to be looked through, and whose it is.
SELECT t.id, t.body, c.owner, c.scope
FROM turn AS t JOIN branch AS b ON b.ref = t.branch JOIN conversation AS c ON c.id = b.conversation
WHERE t.ref = ?;

-- name: move_mark
-- Up to this one they were looked through.
UPDATE search_mark SET turn = ?;

-- name: drop_turn_words
-- What a turn was found by.
DELETE FROM turn_words WHERE rowid = ?;

-- name: add_turn_words
-- A turn, as it is found.
INSERT INTO turn_words (rowid, words) VALUES (?, ?);

-- name: hidden_items
-- The items of a turn that its user is not shown.
SELECT place FROM item_flag WHERE turn = ? AND to_user = 0;
