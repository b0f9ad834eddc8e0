-- Interrupted turns whose tools have acted are carried to branches that leave them out, as settled turns are.
-- Turns of earlier versions do not record which of their tools were read-only: all turns with a tool count.
UPDATE turn SET kind = 3 WHERE kind = 1 AND instr(CAST(body AS TEXT), '_call_output"');

DROP INDEX turn_settled;
CREATE INDEX turn_settled ON turn (branch, number) WHERE kind >= 2;

-- An upper bound: too high costs a read, too low would hide effects of tools.
UPDATE branch SET settled = length WHERE EXISTS (SELECT 1 FROM turn WHERE kind = 3);
