-- Statements about the search index, and what is not indexed yet.

-- name: found_titles
-- Titles of this owner with these words, newest conversation first.
SELECT c.ref, c.id
FROM title_words AS w CROSS JOIN conversation AS c ON c.ref = w.rowid
WHERE w.title_words MATCH ?1 AND w.rowid < ?2 AND c.owner = ?3 AND c.internal = 0
ORDER BY w.rowid DESC
LIMIT ?4;

-- name: found_turns
-- Turns of this owner with these words, newest first.
SELECT t.ref, c.id, t.id
FROM turn_words AS w
CROSS JOIN turn AS t ON t.ref = w.rowid
CROSS JOIN branch AS b ON b.ref = t.branch
CROSS JOIN conversation AS c ON c.id = b.conversation
WHERE w.turn_words MATCH ?1 AND w.rowid < ?2 AND c.owner = ?3 AND c.internal = 0
ORDER BY w.rowid DESC
LIMIT ?4;

-- name: has_turns
-- Whether a block has matching turns.
SELECT 1 FROM turn_words WHERE turn_words MATCH ? AND rowid < ? LIMIT 1;

-- name: blocks_before
-- The blocks of an owner that may have turns before this one, last first.
SELECT first FROM search_block WHERE owner = ? AND first < ? ORDER BY first DESC;

-- name: block_of
-- The block for a turn of an owner.
SELECT first FROM search_block WHERE owner = ? AND first <= ? ORDER BY first DESC LIMIT 1;

-- name: add_block
-- A new one, replacing one without turns.
INSERT OR REPLACE INTO search_block (owner, first, turns) VALUES (?, ?, 1);

-- name: fill_block
-- Count one more turn in the block for it, unless that is full.
UPDATE search_block SET turns = turns + 1
WHERE owner = ?1 AND turns < ?3
    AND first = (SELECT max(first) FROM search_block WHERE owner = ?1 AND first <= ?2)
RETURNING first;

-- name: drop_blocks
-- Those after the last turn: their turns are gone, and their refs are reused.
DELETE FROM search_block WHERE owner = ? AND first > (SELECT max(ref) FROM turn);

-- name: forks_showing
-- The live conversations that were made from a turn or a later one on its line, oldest first.
WITH RECURSIVE made (branch) AS (
    SELECT branch FROM origin WHERE source = ?1 AND through >= ?2
    UNION
    SELECT origin.branch FROM made JOIN origin ON origin.source = made.branch
    LIMIT ?4)
SELECT c.id, b.id
FROM made CROSS JOIN branch AS b ON b.ref = made.branch CROSS JOIN conversation AS c ON c.id = b.conversation
WHERE c.state = 'live' AND c.owner = ?5
ORDER BY made.branch
LIMIT ?3;

-- name: is_index_complete
-- Whether everything is indexed.
SELECT NOT EXISTS (SELECT 1 FROM turn WHERE ref > (SELECT turn FROM search_mark))
   AND NOT EXISTS (SELECT 1 FROM conversation WHERE title_due = 1)
   AND NOT EXISTS (SELECT 1 FROM turn_due);

-- name: due_titles
-- Titles that are not indexed as they are now.
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
-- Mark one title as indexed.
UPDATE conversation SET title_due = 0 WHERE ref = ?;

-- name: titles_known
-- Mark titles up to this one as indexed.
UPDATE conversation SET title_due = 0 WHERE title_due = 1 AND ref <= ?;

-- name: has_titles
-- Whether a block has matching titles.
SELECT 1 FROM title_words WHERE title_words MATCH ? AND rowid < ? LIMIT 1;

-- name: title_blocks_before
-- The blocks of an owner that may have titles of conversations before this one, last first.
SELECT first FROM title_block WHERE owner = ? AND first < ? ORDER BY first DESC;

-- name: title_block_of
-- The block for a title of an owner, and how full it is.
SELECT first, titles FROM title_block WHERE owner = ? AND first <= ? ORDER BY first DESC LIMIT 1;

-- name: fill_title_block
-- Count one more title in it; create it if needed.
INSERT INTO title_block (owner, first, titles) VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET titles = titles + 1;

-- name: newest_title
-- The newest conversation with an indexed title, of any owner.
SELECT rowid FROM title_words ORDER BY rowid DESC LIMIT 1;

-- name: drop_title_words
-- Remove a title from the index.
DELETE FROM title_words WHERE rowid = ?;

-- name: note_remains
-- The index may still hold words of removed texts.
UPDATE search_mark SET has_remains = 1;

-- name: add_title_words
-- Index a title.
INSERT INTO title_words (rowid, words) VALUES (?, ?);

-- name: due_turns
-- Turns whose flags changed after they were indexed, and their sizes.
SELECT turn.ref, length(turn.body)
FROM turn_due CROSS JOIN turn ON turn.ref = turn_due.turn
ORDER BY turn_due.turn
LIMIT ?;

-- name: turns_known
-- Mark turns up to this one as indexed again.
DELETE FROM turn_due WHERE turn <= ?;

-- name: note_due
-- Index a turn again, if it is indexed.
INSERT OR IGNORE INTO turn_due (turn)
SELECT ref FROM turn WHERE id = ? AND ref <= (SELECT turn FROM search_mark);

-- name: drop_due
-- Removed turns are not indexed again.
DELETE FROM turn_due WHERE turn IN (SELECT value FROM json_each(?));

-- name: new_turns
-- Turns that are not indexed yet, and their sizes.
SELECT ref, length(body) FROM turn WHERE ref > (SELECT turn FROM search_mark) ORDER BY ref LIMIT ?;

-- name: own_turns
-- Those of one owner among the newest, last committed first, without those that were indexed early.
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
-- Whether all turns that are not indexed are among the newest, and none has to be indexed again.
SELECT turn >= (SELECT coalesce(max(ref), 0) FROM turn) - ?1
    AND NOT EXISTS (SELECT 1 FROM turn_due)
    AND NOT EXISTS (SELECT 1 FROM conversation
                    WHERE title_due = 1 AND ref <= (SELECT max(ref) FROM conversation) - ?1)
FROM search_mark;

-- name: whole_turns
-- Turns to index, with their owners and scopes. In order, so that a block begins with the first of them.
SELECT t.ref, t.id, t.body, c.owner, c.scope
FROM json_each(?) AS given
CROSS JOIN turn AS t ON t.ref = given.value
CROSS JOIN branch AS b ON b.ref = t.branch
CROSS JOIN conversation AS c ON c.id = b.conversation
ORDER BY t.ref;

-- name: move_mark
-- Turns up to this one are indexed.
UPDATE search_mark SET turn = ?;

-- name: lower_mark
-- Turns were removed. The highest refs are reused, by turns that are yet to be indexed.
UPDATE search_mark SET turn = min(turn, coalesce((SELECT max(ref) FROM turn), 0)), has_remains = 1;

-- name: drop_turn_words
-- Remove turns from the index.
DELETE FROM turn_words
WHERE rowid IN (SELECT d.id FROM json_each(?) AS given CROSS JOIN turn_words_docsize AS d ON d.id = given.value);

-- name: add_turn_words
-- Index a turn.
INSERT INTO turn_words (rowid, words) VALUES (?, ?);

-- name: hidden_items
-- The items of turns that are hidden from their users.
SELECT f.turn, f.place
FROM json_each(?) AS given
CROSS JOIN turn AS t ON t.ref = given.value
CROSS JOIN item_flag AS f ON f.turn = t.id
WHERE f.to_user = 0;
