"""Find the schedule that catches each broken engine anew, after schedules have changed; write caught.py.

python -m tests.simulation.broken
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.simulation.broken import BROKEN, engine_broken_by
from tests.simulation.broken.caught import BEHIND_A_HEAD, CAUGHT
from tests.simulation.test_broken_engines import EDITING, ENOUGH, ON_SQLITE, TASTES, violations

PAGE = Path(__file__).with_name("caught.py")


def find(store: str, name: str) -> int | None:
    with engine_broken_by(name):
        for seed in (CAUGHT.get((store, name), 0), *range(ENOUGH)):
            found = violations(seed, store, TASTES.get(name, ()))
            if found and "a task failed" not in found[0]:
                return seed
    return None


def find_behind_a_head() -> int | None:
    with engine_broken_by("commits_an_edit_without_fence_and_head"):
        for seed in (BEHIND_A_HEAD, *range(ENOUGH)):
            if any("behind a head" in what for what in violations(seed, tastes=EDITING)):
                return seed
    return None


def lines(found: dict[tuple[str, str], int | None], behind: int) -> Iterator[str]:
    yield '"""The seed that last caught each broken engine, tried before all others. Written by `python -m'
    yield 'tests.simulation.broken`."""\n\nfrom __future__ import annotations\n'
    yield "CAUGHT: dict[tuple[str, str], int] = {"
    for (store, name), seed in sorted(found.items()):
        if seed:
            yield f'    ("{store}", "{name}"): {seed},'
    yield '}\n"""By store and name; engines caught by seed 0 are left out."""\n'
    yield f"BEHIND_A_HEAD = {behind}"
    yield '"""Seed in which an edit without fence and head commits behind a wrong head."""'


def main() -> int:
    wanted = [("memory", name) for name in sorted(BROKEN)] + [("sqlite", name) for name in ON_SQLITE]
    found: dict[tuple[str, str], int | None] = {each: CAUGHT.get(each, 0) for each in wanted}
    is_complete = True
    with ProcessPoolExecutor() as pool:
        behind = pool.submit(find_behind_a_head)
        for each, seed in zip(wanted, pool.map(find, *zip(*wanted, strict=True)), strict=True):
            if seed is None:
                print(f"Not caught within {ENOUGH} schedules: {each}", flush=True)
                is_complete = False
            found[each] = seed
            PAGE.write_text("\n".join([*lines(found, BEHIND_A_HEAD), ""]))
        last = behind.result()
    PAGE.write_text("\n".join([*lines(found, BEHIND_A_HEAD if last is None else last), ""]))
    return 0 if is_complete and last is not None else 1


if __name__ == "__main__":
    sys.exit(main())
