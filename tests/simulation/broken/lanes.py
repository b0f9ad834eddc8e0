"""Lanes: fences, unknown outcomes, and orphans."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from tests.simulation.broken.registry import Patch, broken, nothing
from turnledger.engine import process, recovery
from turnledger.engine.attempt import dead_process, end, unfinished_output
from turnledger.engine.attempt.commit_in_doubt import Certainty
from turnledger.engine.history.history import History
from turnledger.engine.lifecycle import delete
from turnledger.engine.process import Process
from turnledger.engine.turn import begin, block, commit
from turnledger.engine.turn import running_turn as journal_module
from turnledger.engine.turn.running_turn import Draft, OpenTurn, RunningTurn
from turnledger.errors import Superseded, TurnledgerError
from turnledger.model.item import Item, result_of
from turnledger.model.turn import AttemptState
from turnledger.stores.memory.whole import MemoryWholeStore

# Rule 4: a raise of the fence names the attempt it saw.


@broken
def raises_the_fence_over_any_holder() -> list[Patch]:
    async def take_over(tables: Any, request: Any) -> None:
        branch = await tables.branch(request.ref.branch)
        attempt = await tables.attempt(request.ref.attempt)
        branch = replace(branch, fence=branch.fence + 1, running=None)
        if attempt is not None and attempt.state is AttemptState.RUNNING:
            await end.end_running(tables, branch, attempt, end.DIED, request.now)
        else:
            await tables.save_branch(branch)

    return [(dead_process, "take_over", take_over)]


@broken
def gives_up_its_lane_when_it_raises_its_own_fence() -> list[Patch]:
    async def try_again(process: Process, request: Any) -> Any:
        doubt = commit.DoubtRequest(request.turn.branch, request.turn.id, process.lease)
        certainty = await process.store.transact(commit.resolve_doubt, doubt, request.attempt.owner)
        if certainty.turn is not None:
            return certainty.turn
        return await process.store.transact(commit.commit, request, request.attempt.owner)

    return [(commit, "_try_again", try_again)]


@broken
def raises_the_fence_in_doubt_over_any_attempt() -> list[Patch]:
    async def resolve_doubt(tables: Any, request: Any) -> Certainty:
        branch = await tables.branch(request.branch)
        await tables.save_branch(replace(branch, fence=branch.fence + 1))
        holds = branch.running == request.attempt
        turn = await commit.committed_turn(tables, request.attempt)
        return Certainty(turn, branch.fence + 1 if holds else None)

    return [(commit, "resolve_doubt", resolve_doubt), (recovery, "resolve_doubt", resolve_doubt)]


@broken
def compares_the_fence_alone() -> list[Patch]:
    """A failover that loses a begin gives its fence to the next one."""

    def holds_lane(branch: Any, _: Any, fence: int) -> bool:
        return branch is not None and branch.fence == fence

    return [(each, "holds_lane", holds_lane) for each in (commit, journal_module, process, end, dead_process)]


@broken
def frees_the_lane_of_another_holder_when_it_gives_up() -> list[Patch]:
    async def abandon(tables: Any, request: Any) -> Any:
        ticket = await tables.ticket(request.attempt)
        await tables.drop_ticket(request.attempt)
        if ticket is None:
            return None
        branch = await tables.branch(ticket.branch)
        await tables.save_branch(replace(branch, fence=branch.fence + 1))
        return branch.id

    return [(block, "abandon", abandon)]


# A process is judged dead by its beat, and no beat repeats.


@broken
def takes_over_despite_a_newer_beat() -> list[Patch]:
    async def is_dead(tables: Any, lease: Any, dead: Any) -> bool:
        return lease in dead

    return [(dead_process, "is_dead", is_dead)]


@broken
def begins_despite_a_newer_beat() -> list[Patch]:
    async def is_dead(tables: Any, lease: Any, dead: Any) -> bool:
        return lease in dead

    return [(begin, "is_dead", is_dead)]


@broken
def restarts_the_beats_of_a_buried_lease() -> list[Patch]:
    return [(MemoryWholeStore, "bury_lease", MemoryWholeStore.drop_lease)]


# Rule 5: a process leaves none of its attempts behind.


@broken
def forgets_its_doubts() -> list[Patch]:
    return [(recovery.Recovery, "_resolve_doubts", nothing)]


@broken
def leaves_its_orphans() -> list[Patch]:
    return [(recovery.Recovery, "_end_orphans", nothing)]


# Rule 14: the fence on every write, and the order of recording and acting.


@broken
def journals_without_the_fence() -> list[Patch]:
    return [(journal_module, "holds_lane", lambda branch, attempt, fence: True)]


@broken
def commits_without_fence_and_head() -> list[Patch]:
    true = commit.commit

    async def commit_anyway(tables: Any, request: Any) -> Any:
        branch = await tables.branch(request.lane)
        committed = await tables.turn(request.turn.id)
        if committed is not None or request.fork is not None:
            return await true(tables, request)
        number, parent = branch.length + 1, branch.head
        turn = replace(request.turn, number=number, parent=parent)
        request = replace(request, turn=turn, fence=branch.fence, head=parent)
        await tables.save_branch(replace(branch, running=turn.id))
        return await true(tables, request)

    return [(commit, "commit", commit_anyway)]


@broken
def commits_without_the_fence() -> list[Patch]:
    return [(commit, "may_commit", lambda branch, request: commit.ran_on_head(branch, request))]


@broken
def deletes_without_raising_the_fence() -> list[Patch]:
    async def drop_the_queue_only(tables: Any, conversation: Any, now: int, *, forget: bool) -> None:
        for ticket in await tables.tickets(conversation.branch):
            await tables.drop_ticket(ticket.attempt)

    return [(delete, "_close_lanes", drop_the_queue_only)]


@broken
def records_a_start_after_the_tool_acted() -> list[Patch]:
    async def call(self: RunningTurn, call: Any, tool: Any, *, read_only: bool = False) -> Any:
        item = Item.of(call)
        if self._draft.waiting_place(item) is None:
            await self.add(item)
        result = result_of(item, await tool())
        await self.start(item, read_only=read_only)
        await self.add(result)
        return result

    return [(RunningTurn, "call", call)]


@broken
def runs_a_call_of_unknown_outcome_again() -> list[Patch]:
    true = begin.take_up

    async def take_up(tables: Any, branch: Any, earlier: Any, attempt: Any) -> Any:
        branch, journal, count = await true(tables, branch, earlier, attempt)
        for place in journal.unanswered_calls():
            journal.started.pop(place, None)
        return branch, journal, count

    return [(unfinished_output, "resume_results", lambda journal: ()), (begin, "take_up", take_up)]


@broken
def runs_a_call_again_whose_result_is_recorded() -> list[Patch]:
    return [(Draft, "taken_up", lambda self, call: (call, None))]


@broken
def hands_out_a_stale_snapshot() -> list[Patch]:
    true = Process.snapshot

    async def snapshot(self: Process, owner: str, branch: Any, *others: Any) -> History:
        cached = self.cache.prefix(branch.id, branch.head, branch.length)
        return cached if len(cached) else await true(self, owner, branch, *others)

    return [(Process, "snapshot", snapshot)]


@broken
def acknowledges_before_the_commit() -> list[Patch]:
    true = commit._commit

    async def commit_soon(process: Process, running: OpenTurn) -> None:
        request = running.to_commit()
        running.finish(AttemptState.COMPLETED, request.turn, None)
        running.to_commit = lambda: request  # type: ignore[method-assign]
        running.finish = lambda *_: None  # type: ignore[method-assign]
        asyncio.get_running_loop().create_task(_quietly(true(process, running)))

    return [(commit, "_commit", commit_soon)]


async def _quietly(work: Any) -> None:
    with suppress(TurnledgerError):
        await work


@broken
def reads_an_unknown_commit_without_raising_the_fence() -> list[Patch]:
    async def try_again(process: Process, request: Any) -> Any:
        async def read(tables: Any, _: None) -> Any:
            return await tables.turn(request.turn.id)

        turn = await process.store.read(read, None, request.attempt.owner)
        if turn is None:
            raise Superseded
        return turn

    return [(commit, "_try_again", try_again)]
