-- Statements for who examines a store and takes no part in it.

-- name: newest
-- When the last turns were committed: the clock that wrote them may have been ahead.
SELECT max(committed_at) FROM (SELECT committed_at FROM turn ORDER BY rowid DESC LIMIT 100);

-- name: leases
-- The processes that take part, or did when they died.
SELECT id FROM lease WHERE beat > 0;
