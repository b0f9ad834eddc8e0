-- Interrupted turns whose tools have acted go along to branches that leave them out, as settled turns do.
-- Turns of earlier versions do not say which of their tools were read-only: all that ran a tool are counted.
UPDATE turn SET kind = 3 WHERE kind = 1 AND instr(CAST(body AS TEXT), '_call_output"');

DROP INDEX turn_settled;
CREATE INDEX turn_settled ON turn (branch, number) WHERE kind >= 2;

-- A bound: one that is too high costs a look, one that is too low would hide what tools did.
UPDATE branch SET settled = length WHERE EXISTS (SELECT 1 FROM turn WHERE kind = 3);
