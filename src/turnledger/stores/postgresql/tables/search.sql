-- Statements about the search index, and what is not indexed yet. $1 is the owner, unless said otherwise.

-- name: note_due
-- Index a text (again).
INSERT INTO unindexed (owner, id, title) SELECT $1, $2, $3 ON CONFLICT DO NOTHING;

-- name: due_texts
-- Texts that are not indexed as they are now, oldest first.
SELECT id, title FROM unindexed WHERE owner = $1 ORDER BY title DESC, id LIMIT $2;

-- name: due_owners
-- Owners with texts that are not indexed ($1 of them).
SELECT DISTINCT owner FROM (SELECT owner FROM unindexed ORDER BY owner, id LIMIT $1) AS few ORDER BY owner;

-- name: has_due
-- Whether any text of this owner, or of all (NULL), is not indexed.
SELECT EXISTS (SELECT 1 FROM unindexed WHERE $1::text IS NULL OR owner = $1);

-- name: texts_known
-- These texts are indexed.
DELETE FROM unindexed WHERE owner = $1 AND id = ANY ($2::bytea[]);

-- name: due_titles
-- Titles to index; those made of the first words of a turn are found with that turn.
SELECT id, scope, CASE WHEN named_by = 'words' THEN NULL ELSE title END
FROM conversation
WHERE owner = $1 AND id = ANY ($2::bytea[]);

-- name: due_turns
-- Turns to index, and where they belong. The first ones, up to a size ($3), and at least one.
SELECT id, body, conversation, scope
FROM (
    SELECT t.id, t.body, c.id AS conversation, c.scope,
           sum(length(t.body)) OVER (ORDER BY t.id) - length(t.body) AS before
    FROM turn AS t
    JOIN branch AS b ON b.owner = t.owner AND b.id = t.branch
    JOIN conversation AS c ON c.owner = b.owner AND c.id = b.conversation
    WHERE t.owner = $1 AND t.id = ANY ($2::bytea[])) AS due
WHERE before < $3
ORDER BY id;

-- name: hidden_items
-- The items of turns that are hidden from their users.
SELECT turn, place FROM item_flag WHERE owner = $1 AND turn = ANY ($2::bytea[]) AND to_user = 0;

-- name: places_of
-- The places of texts that were indexed before.
SELECT id, place FROM search_text WHERE owner = $1 AND id = ANY ($2::bytea[]);

-- name: next_places
-- Take the next $2 places of turns and $3 of titles; return the last ones.
UPDATE owner SET last_text = last_text + $2, last_title = last_title + $3
WHERE owner = $1
RETURNING last_text, last_title;

-- name: save_words
-- The words of a text, as terms with spaces between them: the driver takes a microsecond for each element of an array.
INSERT INTO search_text (owner, title, place, id, conversation, words)
VALUES ($1, $2, $3, $4, $5, array_to_tsvector(string_to_array($6, ' ')))
ON CONFLICT (owner, id) DO UPDATE SET words = excluded.words;

-- name: drop_words
-- Remove a text from the index.
DELETE FROM search_text WHERE owner = $1 AND id = $2;

-- name: search
-- Texts with these words, last place first, of turns or titles ($2), before a place ($3). $5 is the query, with % in place
-- of the mark of a block; $6 is the mark of the owner, $7 the size of a block. Reads one block after the other.
SELECT found.place, found.conversation, found.id
FROM generate_series(
    ((SELECT max(place) FROM search_text WHERE owner = $1 AND title = $2 AND place < $3) / $7)::bigint, 0, -1) AS block
CROSS JOIN LATERAL (
    SELECT s.place, s.conversation, s.id
    FROM search_text AS s
    JOIN conversation AS c ON c.owner = s.owner AND c.id = s.conversation AND c.internal = 0
    WHERE s.owner = $1 AND s.title = $2 AND s.place < $3
      AND s.words @@ replace($5, '%', $6 || to_hex(block))::tsquery
    ORDER BY s.place DESC
    LIMIT $4) AS found
LIMIT $4;

-- name: forks_showing
-- The live conversations that were made from a turn of a branch ($2, $3) or a later one on its line, oldest first.
WITH RECURSIVE made (branch) AS (
    SELECT branch FROM origin WHERE owner = $1 AND source = $2 AND through >= $3
    UNION
    SELECT origin.branch FROM made JOIN origin ON origin.owner = $1 AND origin.source = made.branch)
SELECT c.id, b.id
FROM (SELECT branch FROM made LIMIT $5) AS few
JOIN branch AS b ON b.owner = $1 AND b.id = few.branch
JOIN conversation AS c ON c.owner = $1 AND c.id = b.conversation
WHERE c.state = 'live'
ORDER BY b.id
LIMIT $4;
