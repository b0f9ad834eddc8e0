"""Counters by kind and name, in one process or shared by workers; those of a dead worker are dropped."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from turnledger.server.ops import counters as counters_module
from turnledger.server.ops.counters import Counters, LocalCounters, SharedCounters

Make = Callable[[], Counters]


@pytest.fixture(params=["own", "shared"])
def counters(request: pytest.FixtureRequest) -> Iterator[Counters]:
    with ExitStack() as closing:
        if request.param == "own":
            yield LocalCounters()
        else:
            made = SharedCounters.create(parts=2, cells=64)
            closing.callback(made.close)
            worker = SharedCounters(made.descriptor, 0)
            closing.callback(worker.detach)
            yield worker


def test_counters_count_names_separately_and_sum_kinds(counters: Counters) -> None:
    counters.add("turns", "ann")
    counters.add("turns", "ann", 2)
    counters.add("turns", "bob")
    counters.add("streams", "ann")
    assert (counters.total("turns", "ann"), counters.total("turns", "bob")) == (3, 1)
    assert (counters.sum("turns"), counters.sum("streams"), counters.sum("nothing")) == (4, 1, 0)
    counters.add("turns", "ann", -3)
    assert (counters.total("turns", "ann"), counters.sum("turns")) == (0, 1)


def test_counters_do_not_confuse_kind_and_name(counters: Counters) -> None:
    counters.add("a", "b c")
    assert counters.total("a b", "c") == 0
    assert counters.total("a", "") == 0


def test_counters_name_can_be_any_text(counters: Counters) -> None:
    counters.add("turns", "\udcff\0 é")
    assert counters.total("turns", "\udcff\0 é") == 1


def test_counters_refuse_to_count_below_zero(counters: Counters) -> None:
    counters.add("turns", "ann")
    with pytest.raises(ValueError, match="below zero"):
        counters.add("turns", "bob", -1)
    with pytest.raises(ValueError, match="below zero"):
        counters.add("turns", "ann", -2)
    assert (counters.total("turns", "ann"), counters.sum("turns")) == (1, 1)


ROOT = Path(__file__).parents[4]


@pytest.fixture
def shared() -> Iterator[SharedCounters]:
    made = SharedCounters.create(parts=3, cells=64)
    yield made
    made.close()


@pytest.fixture
def parts(shared: SharedCounters) -> Iterator[list[SharedCounters]]:
    attached = [SharedCounters(shared.descriptor, part) for part in range(3)]
    yield attached
    for each in attached:
        each.detach()


def test_shared_counters_total_is_the_sum_of_all_parts(
    shared: SharedCounters, parts: list[SharedCounters]
) -> None:
    parts[0].add("turns", "ann")
    parts[1].add("turns", "ann", 2)
    parts[2].add("turns", "bob")
    assert [each.total("turns", "ann") for each in (shared, *parts)] == [3, 3, 3, 3]
    assert [each.sum("turns") for each in (shared, *parts)] == [4, 4, 4, 4]


def test_shared_counters_worker_cannot_subtract_counts_of_another(parts: list[SharedCounters]) -> None:
    parts[0].add("turns", "ann")
    with pytest.raises(ValueError, match="below zero"):
        parts[1].add("turns", "ann", -1)
    assert parts[1].total("turns", "ann") == 1


def test_shared_counters_without_a_part_cannot_count(shared: SharedCounters) -> None:
    with pytest.raises(ValueError, match="part that it was given"):
        shared.add("turns", "ann")


def test_shared_counters_drop_counts_of_a_cleared_worker(
    shared: SharedCounters, parts: list[SharedCounters]
) -> None:
    parts[0].add("turns", "ann")
    parts[1].add("turns", "ann")
    shared.clear(0)
    assert (shared.total("turns", "ann"), shared.sum("turns")) == (1, 1)
    # The next owner of the part starts at zero.
    again = SharedCounters(shared.descriptor, 0)
    again.add("turns", "ann")
    assert shared.total("turns", "ann") == 2
    again.detach()


def test_shared_counters_of_a_worker_that_died_mid_move_are_readable_and_cleared(
    shared: SharedCounters, parts: list[SharedCounters], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts[0].add("turns", "ann")
    start = parts[0]._starts[0]
    parts[0]._words[start + counters_module._MOVES] += 1
    assert parts[1].total("turns", "ann") == 1
    shared.clear(0)
    assert shared._words[start + counters_module._MOVES] % 2 == 0
    assert parts[1].total("turns", "ann") == 0


@pytest.mark.parametrize("seed", [*range(20), 182, 337, 457, 488])
def test_shared_counters_match_plain_counters_as_names_come_and_go(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters_module.secrets, "token_bytes", Random(seed).randbytes)
    shared = SharedCounters.create(parts=3, cells=64)
    dice, worker = Random(seed), SharedCounters(shared.descriptor, 1)
    expected: Counter[tuple[str, str]] = Counter()
    # More names than there is room for: a full part merges names and counts them too high, never too low.
    names = [(kind, str(number)) for kind in ("turns", "streams") for number in range(dice.choice((10, 60)))]
    for _ in range(2_000):
        kind, name = dice.choice(names)
        by = -1 if expected[kind, name] and dice.random() < 0.6 else dice.choice((1, 1, 3))
        worker.add(kind, name, by)
        expected[kind, name] += by
        spilled = worker._words[worker._own + counters_module._SPILLED]  # type: ignore[operator]
        seen = shared.total(kind, name)
        assert seen == expected[kind, name] if not spilled else seen >= expected[kind, name]
        assert shared.sum(kind) == sum(expected[each] for each in names if each[0] == kind)
    for kind, name in names:
        worker.add(kind, name, -expected[kind, name])
    assert [shared.total(*each) for each in names] == [0] * len(names)
    assert not any(worker._words[worker._own :][: worker._part_words][1:])
    worker.detach()
    shared.close()


def test_shared_counters_are_shared_between_processes(shared: SharedCounters) -> None:
    code = (
        "import sys; from turnledger.server.ops.counters import SharedCounters\n"
        "counters = SharedCounters(int(sys.argv[1]), int(sys.argv[2]))\n"
        "admitted = 0\n"
        "for _ in range(900):\n"
        "    counters.add('turns', 'ann')\n"
        "    if counters.total('turns', 'ann') <= 1000: admitted += 1\n"
        "    else: counters.add('turns', 'ann', -1)\n"
        "print(admitted, flush=True)\n"
        "sys.stdin.read()"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(shared.descriptor), str(part)],
            pass_fds=(shared.descriptor,),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )
        for part in range(2)
    ]
    try:
        admitted = [int(each.stdout.readline()) for each in started if each.stdout]
        assert 900 <= sum(admitted) <= 1000
        assert shared.total("turns", "ann") == shared.sum("turns") == sum(admitted)
    finally:
        for each in started:
            each.communicate()
