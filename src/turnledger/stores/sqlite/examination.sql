-- Statements to examine a store without taking part in it.

-- name: newest
-- When the last turns were committed: the clock of their process may have been ahead.
SELECT max(committed_at) FROM (SELECT committed_at FROM turn ORDER BY rowid DESC LIMIT 100);

-- name: leases
-- The processes that use the store, or did when they died.
SELECT id FROM lease WHERE beat > 0;
