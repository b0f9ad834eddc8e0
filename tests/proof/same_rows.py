"""SQLite and the memory reference give the same answers and hold the same rows after any operations.

`make test` tries some of them; this tries twenty times as many.
"""

from __future__ import annotations

from hypothesis.stateful import run_state_machine_as_test

from tests.stateful.pair import repeatable
from tests.stateful.test_operations import Branched, Operations
from tests.stateful.test_rows import Rows

SECONDS = 2_400


def prove() -> None:
    for machine, examples, steps in ((Operations, 250, 50), (Branched, 250, 40), (Rows, 500, 20)):
        run_state_machine_as_test(machine, settings=repeatable(examples=examples, steps=steps))
        print(f"{machine.__name__}: {examples} times {steps} steps, the same on both stores", flush=True)
