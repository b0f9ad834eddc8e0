"""Branches: where edits commit, what they copy, and which branch a conversation shows."""

from __future__ import annotations

from dataclasses import replace as replace_request
from typing import Any

from msgspec.structs import replace

from tests.simulation.broken.registry import Patch, broken, nothing
from turnledger import chat
from turnledger.engine.attempt import (
    dead_process,
    effect_copies,
    end,
    fork,
    idempotency,
    settle,
    unfinished_output,
)
from turnledger.engine.history import line
from turnledger.engine.lifecycle import moves
from turnledger.engine.lifecycle.moves import Undo
from turnledger.engine.turn import begin, commit, queue, validation
from turnledger.model.conversation import Branch
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.turn import AttemptState
from turnledger.stores.memory import MemoryTables
from turnledger.stores.sqlite.tables.records import NamedQueries
from turnledger.stores.sqlite.tables.tables import SqliteTables

# Rule 8: the pointer moves with the commit that earned it, the lane decides, and effects wait there.


@broken
def moves_the_pointer_when_an_edit_begins() -> list[Patch]:
    true = begin.take_lane

    async def take_lane(tables: Any, conversation: Any, *arguments: Any) -> Any:
        begun = await true(tables, conversation, *arguments)
        if begun.place is not None:
            await fork.open_branch(tables, begun.branch, begun.place)
        return begun

    async def opened_before(tables: Any, lane: Any, place: Any) -> Any:
        return await tables.branch(place.fork.branch)

    return [
        (begin, "take_lane", take_lane),
        (commit, "open_branch", opened_before),
        (end, "open_branch", opened_before),
    ]


@broken
def moves_the_pointer_although_the_edit_failed() -> list[Patch]:
    true = end.end_running

    async def end_running(tables: Any, branch: Any, attempt: Any, *arguments: Any, **how: Any) -> Any:
        freed, ended = await true(tables, branch, attempt, *arguments, **how)
        if attempt.fork is not None and ended.state is AttemptState.FAILED:
            place = await fork.place_of(tables, freed, attempt.fork)
            freed = await fork.open_branch(tables, freed, place)
        return freed, ended

    return [(where, "end_running", end_running) for where in (end, queue, dead_process)]


@broken
def commits_an_edit_without_the_fence() -> list[Patch]:
    true = commit.may_commit

    def may_commit(branch: Any, request: Any) -> bool:
        return commit.ran_on_head(branch, request) if request.fork else true(branch, request)

    return [(commit, "may_commit", may_commit)]


@broken
def commits_an_edit_without_fence_and_head() -> list[Patch]:
    true = commit.commit

    async def commit_anyway(tables: Any, request: Any) -> Any:
        if request.fork is None or await tables.turn(request.turn.id) is not None:
            return await true(tables, request)
        lane = await tables.branch(request.lane)
        await tables.save_branch(replace(lane, running=request.turn.id))
        return await true(tables, replace(request, fence=lane.fence, head=lane.head))

    return [(commit, "commit", commit_anyway)]


@broken
def begins_on_the_branch_that_it_queued_for() -> list[Patch]:
    true = begin._lane

    async def lane(tables: Any, target: Any, request: Any) -> Any:
        found = await true(tables, target, request)
        if request.round.ticket is not None:
            found = replace(found, branch=await tables.branch(request.round.ticket.branch))
        return found

    return [(begin, "_lane", lane)]


@broken
def leaves_effects_of_an_edit_on_its_target_branch() -> list[Patch]:
    true = end.end_running

    async def end_running(tables: Any, branch: Any, attempt: Any, *arguments: Any, **how: Any) -> Any:
        freed, ended = await true(tables, branch, attempt, *arguments, **how)
        if attempt.fork is not None and freed.unsettled == attempt.id:
            waits = Branch(id=attempt.fork.branch, conversation=attempt.conversation, unsettled=attempt.id)
            await tables.add_branch(waits)
            freed = replace(freed, unsettled=None)
            await tables.save_branch(freed)
        return freed, ended

    return [(where, "end_running", end_running) for where in (end, queue, dead_process)]


@broken
def keeps_an_edit_on_the_branch_whose_lane_it_held() -> list[Patch]:
    true = end._keep

    async def keep(tables: Any, branch: Any, place: Any, *arguments: Any) -> Any:
        return await true(tables, branch, None, *arguments)

    return [(end, "_keep", keep)]


@broken
def settles_an_edit_with_results_of_its_base() -> list[Patch]:
    def whole_input(branch: Any, attempt: Any) -> Any:
        return attempt.input

    return [(where, "settled_input", whole_input) for where in (begin, settle)]


# Rule 9: no settled turn is left out.


async def _without_settled(tables: Any, lane: Any, place: Any) -> Any:
    return await fork.place_of(tables, lane, replace(place, forget=True))


@broken
def leaves_out_settled_turns_when_it_edits() -> list[Patch]:
    return [(where, "place_of", _without_settled) for where in (begin, commit, end, settle)]


@broken
def leaves_out_settled_turns_when_it_undoes() -> list[Patch]:
    return [(moves, "place_of", _without_settled)]


@broken
def forks_without_the_settled_turn_behind_its_base() -> list[Patch]:
    true = moves.fork_at

    async def fork_at(tables: Any, lane: Any, divergence: Any, *instead_of: Any) -> Any:
        is_fork = divergence.replaces is None
        return await true(tables, lane, replace(divergence, forget=is_fork or divergence.forget), *instead_of)

    return [(moves, "fork_at", fork_at)]


# Effects of incomplete turns are on every shown branch.


@broken
def keeps_a_stopped_turn_without_its_effects() -> list[Patch]:
    return [(unfinished_output, "effect_places", lambda journal, output: ())]


@broken
def switches_without_copying_effects() -> list[Patch]:
    async def none_missing(*_: Any) -> list[Any]:
        return []

    return [(moves, "missing_effects", none_missing)]


@broken
def copies_effects_with_every_switch() -> list[Patch]:
    async def all_of_them(tables: Any, left: Any, shown: Any) -> Any:
        return await line.effects_of(tables, left, await line.last_shared(tables, left, shown))

    return [(moves, "missing_effects", all_of_them)]


@broken
def forks_without_the_effects_of_later_turns() -> list[Patch]:
    true = moves.make_branch

    async def make_branch(tables: Any, lane: Any, place: Any, conversation: Any) -> Any:
        return await true(tables, lane, replace(place, copies=()), conversation)

    return [(moves, "make_branch", make_branch)]


@broken
def removes_turns_that_a_fork_still_needs() -> list[Patch]:
    def purge_branch(self: MemoryTables, branch: Any, limit: int) -> int:
        line = self._db.lines.get(branch.id, {})
        removed = list(line)[:limit]
        for number in removed:
            self._remove(self._db.turn_logs, line[number].id)
            self._remove(self._db.turns, line[number].id)
            self._remove(line, number)
        return len(removed)

    true_rows = NamedQueries._rows

    def rows(self: NamedQueries, name: str, *values: Any) -> Any:
        return [(None,)] if name == "needed_through" else true_rows(self, name, *values)

    return [(MemoryTables, "_purge_branch", purge_branch), (NamedQueries, "_rows", rows)]


# The queue moves along, a move happens once, and the place is part of a request.


@broken
def leaves_tickets_behind_when_the_pointer_moves() -> list[Patch]:
    return [(where, "move_tickets", nothing) for where in (MemoryTables, SqliteTables)]


@broken
def forgets_the_queue_behind_a_kept_dead_edit() -> list[Patch]:
    true = begin._free_of_dead

    async def free_of_dead(tables: Any, branch: Any, request: Any) -> Any:
        freed = await true(tables, branch, request)
        return freed if freed.id == branch.id else replace(freed, last_ticket=0)

    return [(begin, "_free_of_dead", free_of_dead)]


@broken
def undoes_again_when_the_answer_was_lost() -> list[Patch]:
    true = moves._undo

    async def moved_before(tables: Any, lane: Any, move: Any, attempt: Any) -> Any:
        return None if isinstance(move, Undo) else await moves.find_earlier_move(tables, lane, move, attempt)

    async def undo(tables: Any, lane: Any, undo: Any) -> Any:
        while await tables.branch(undo.branch) is not None:
            other = effect_copies.derive_copy_id(TurnId.trusted(undo.branch.raw), undo.branch)
            undo = replace(undo, branch=BranchId.trusted(other.raw))
        return await true(tables, lane, undo)

    return [(begin, "find_earlier_move", moved_before), (moves, "_undo", undo)]


@broken
def forgets_the_key_of_a_move() -> list[Patch]:
    true = idempotency.claim_of

    def claim_of(key: Any, conversation: Any, branch: Any, now: int) -> Any:
        return replace(true(key, conversation, branch, now), idempotency_key=f"{key.text} {branch}")

    return [(idempotency, "claim_of", claim_of)]


@broken
def replays_a_request_for_another_place() -> list[Patch]:
    return [(validation, "fingerprint", lambda items, *_, **more: idempotency.fingerprint(items, **more))]


# One key, one conversation, for forks as well.


@broken
def checks_the_conversation_key_before_it_forks() -> list[Patch]:
    true = moves.fork

    async def fork_without_the_key(tables: Any, request: Any) -> Any:
        fresh = request.fresh
        is_made = await tables.conversation(fresh.id) is not None
        key = None if is_made else fresh.conversation_key
        if key is not None and await tables.conversation_by_key(fresh.scope, key) is not None:
            request = replace_request(request, fresh=replace(fresh, conversation_key=None))
        return await true(tables, request)

    return [(chat, "fork", fork_without_the_key)]


@broken
def restores_forgotten_effects_when_it_switches() -> list[Patch]:
    return [(moves, "forget_effects", nothing)]
