"""Parallel turns: where they run, what they show, and how long their branches stay."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.simulation.broken.registry import Patch, broken
from turnledger.engine import recovery
from turnledger.engine.conversations import resolve
from turnledger.engine.lifecycle import delete, moves
from turnledger.engine.turn import begin, block, parallel
from turnledger.model.ids import BranchId, TurnId


@broken
def shows_the_branch_of_a_parallel_turn() -> list[Patch]:
    true = parallel._make_side_branch

    async def make(tables: Any, sources: Any, *arguments: Any) -> Any:
        made = await true(tables, sources, *arguments)
        await tables.move_conversation(made.conversation, sources[-1].id, made.id)
        return made

    return [(parallel, "_make_side_branch", make)]


@broken
def makes_another_branch_when_begin_is_repeated() -> list[Patch]:
    true, made = begin._begun_before, dict[TurnId, int]()

    def side_branch_of(attempt: TurnId) -> BranchId:
        made[attempt] = made.get(attempt, 0) + 1
        return BranchId.trusted(attempt.raw[:-1] + bytes([made[attempt]]))

    async def begun_before(tables: Any, request: Any) -> Any:
        if request.content.after is None or await tables.turn(request.attempt) is not None:
            return await true(tables, request)
        await tables.drop_attempt(request.attempt)
        return None

    return [(parallel, "side_branch_of", side_branch_of), (begin, "_begun_before", begun_before)]


@broken
def queues_parallel_turns() -> list[Patch]:
    true = begin.begin

    async def queue(tables: Any, request: Any) -> Any:
        found = await tables.lane(request.target.id, request.lease) if request.target.id else None
        if request.content.after is None or found is None or found.branch.running is None:
            return await true(tables, request)
        return await true(tables, replace(request, content=replace(request.content, after=None)))

    return [(block, "begin", queue)]


@broken
def passes_those_that_wait_with_a_parallel_turn() -> list[Patch]:
    true = parallel._can_follow

    async def can_follow(tables: Any, current: Any, branch: Any, turn: Any) -> bool:
        return await true(tables, current, replace(branch, last_ticket=0), turn)

    return [(parallel, "_can_follow", can_follow)]


@broken
def hides_effects_from_parallel_turns() -> list[Patch]:
    async def none_missing(*_: Any) -> list[Any]:
        return []

    return [(parallel, "missing_effects", none_missing)]


@broken
def copies_effects_to_a_parallel_turn_without_sync() -> list[Patch]:
    true = parallel._make_side_branch

    async def make(*arguments: Any) -> Any:
        return await true(*arguments[:-1], lambda: None)

    return [(parallel, "_make_side_branch", make)]


@broken
def retries_a_parallel_turn_on_another_branch() -> list[Patch]:
    true = parallel.branch_after

    async def branch_after(*arguments: Any, earlier: Any, **more: Any) -> Any:
        return await true(*arguments, earlier=None, **more)

    return [(begin, "branch_after", branch_after)]


@broken
def switches_to_effects_that_still_wait() -> list[Patch]:
    async def not_yet(tables: Any, branch: Any, *_: Any) -> Any:
        return branch

    return [(moves, "settle", not_yet)]


@broken
def copies_effects_onto_a_running_side_branch() -> list[Patch]:
    true = moves._target

    async def target(tables: Any, lane: Any, move: Any) -> Any:
        found = await true(tables, lane, move)
        if found.running is None or found.id == lane.id:
            return found
        missing = await moves.missing_effects(tables, lane, found)
        return await moves.carry_effects(tables, found, missing) if missing else found

    return [(moves, "_target", target)]


@broken
def ends_only_the_shown_turn_of_a_deleted_chat() -> list[Patch]:
    true = delete._close_lanes

    class ShownLane:
        def __init__(self, tables: Any, branch: BranchId) -> None:
            self._tables, self._branch = tables, branch

        def __getattr__(self, name: str) -> Any:
            return getattr(self._tables, name)

        async def running_in(self, conversation: Any) -> Any:
            running = await self._tables.running_in(conversation)
            return [each for each in running if each.branch == self._branch]

    async def close_lanes(tables: Any, conversation: Any, now: int, **how: Any) -> None:
        await true(ShownLane(tables, conversation.branch), conversation, now, **how)  # type: ignore[arg-type]

    return [(delete, "_close_lanes", close_lanes)]


@broken
def expires_beside_a_parallel_turn() -> list[Patch]:
    async def is_in_use(tables: Any, found: Any) -> bool:
        branch = await tables.branch(found.branch)
        return branch.running is not None or bool(await tables.tickets(branch.id))

    return [(where, "is_in_use", is_in_use) for where in (resolve, delete)]


@broken
def removes_side_branches_at_once() -> list[Patch]:
    true = recovery.RemoveRequest

    def remove(branch: Any, used_by: int, limit: int) -> Any:
        return true(branch, 2**62, limit)

    async def find(whole: Any, request: Any) -> Any:
        return await whole.unused_side_branches(2**62, request.limit)

    return [(recovery, "RemoveRequest", remove), (recovery, "find_unused", find)]
