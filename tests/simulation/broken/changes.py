"""Changes: what an owner is told of is what happened, all of it, in the transaction that made it."""

from __future__ import annotations

from typing import Any

from tests.simulation.broken.registry import Patch, broken
from turnledger.engine.attempt import end, takeover
from turnledger.engine.conversations import resolve
from turnledger.engine.turn import begin, commit
from turnledger.engine.turn import begin as begin_module


async def tells_nobody(*_: Any, **__: Any) -> None:
    return None


@broken
def tells_nobody_of_a_commit() -> list[Patch]:
    return [(commit, "tell_committed", tells_nobody)]


@broken
def tells_nobody_of_what_was_kept_or_settled() -> list[Patch]:
    return [(end, "tell_committed", tells_nobody)]


@broken
def tells_nobody_of_a_failure() -> list[Patch]:
    return [(end, "_tell_ended", tells_nobody)]


@broken
def tells_nobody_that_a_turn_runs() -> list[Patch]:
    return [(begin, "tell", tells_nobody)]


@broken
def tells_nobody_who_gave_up_waiting() -> list[Patch]:
    return [(begin_module, "tell_withdrawn", tells_nobody)]


@broken
def tells_nobody_who_died_waiting() -> list[Patch]:
    return [(takeover, "tell_withdrawn", tells_nobody)]


@broken
def tells_nobody_of_a_deletion() -> list[Patch]:
    return [(resolve, "tell", tells_nobody)]


@broken
def tells_of_an_edit_without_its_branch() -> list[Patch]:
    true = commit.tell_committed

    async def stays(tables: Any, conversation: Any, turn: Any, *, has_moved: bool, **more: Any) -> None:
        await true(tables, conversation, turn, has_moved=False, **more)

    return [(commit, "tell_committed", stays)]
