"""Engines that are broken on purpose, one for each rule that keeps the promises true.

Each is the production engine with one small piece replaced by what a sensible person might have written. The
simulator has to catch every one of them; what it does not catch, it does not prove.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace as change
from typing import Any

from msgspec.structs import replace

from turnledger.engine import (
    begin,
    closing,
    commit,
    conversations,
    ending,
    entering,
    idempotency,
    leaving,
    recording,
    stops,
    tending,
)
from turnledger.engine.ending import Ended
from turnledger.engine.history import History
from turnledger.engine.idempotency import Fresh
from turnledger.engine.process import Process
from turnledger.engine.transaction import RunningTurn
from turnledger.errors import ConversationDeleted, Superseded, TurnledgerError
from turnledger.model.attempt import AttemptState, OnFailure, OnStop
from turnledger.model.conversation import Claim
from turnledger.model.journal import Journal

Patch = tuple[Any, str, Any]
BROKEN: dict[str, Callable[[], list[Patch]]] = {}


def broken(engine: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
    """Register an engine under the name of its function."""
    BROKEN[engine.__name__] = engine
    return engine


@contextmanager
def engine_broken_by(name: str) -> Iterator[None]:
    """Run with this engine instead of the true one."""
    patches = [(where, what, getattr(where, what), how) for where, what, how in BROKEN[name]()]
    for where, what, _, how in patches:
        setattr(where, what, how)
    try:
        yield
    finally:
        for where, what, true, _ in patches:
            setattr(where, what, true)


# One key, one conversation.


@broken
def checks_the_conversation_key_before_it_inserts() -> list[Patch]:
    async def resolve(tables: Any, target: Any, now: int) -> Any:
        if target.fresh is None or target.id is not None:
            return conversations.check_live(await conversations.find(tables, target), now)
        if await conversations.find(tables, target) is not None:
            target = change(target, fresh=replace(target.fresh, conversation_key=None))
        await tables.add_conversation(target.fresh)
        await tables.add_branch(conversations.Branch(id=target.fresh.branch, conversation=target.fresh.id))
        return target.fresh

    return [(conversations, "resolve", resolve)]


# Commit only on a positive end.


@broken
def commits_on_cancellation() -> list[Patch]:
    def ended_well(problem: BaseException | None) -> bool:
        return problem is None or isinstance(problem, asyncio.CancelledError)

    return [(leaving, "ended_well", ended_well)]


@broken
def keeps_on_crash() -> list[Patch]:
    keeps = ending.keeps
    return [(ending, "keeps", lambda attempt, failure: failure is ending.DIED or keeps(attempt, failure))]


@broken
def rolls_back_and_forgets_what_tools_did() -> list[Patch]:
    return [(Journal, "has_effects", property(lambda journal: False))]


# Rule 1: begin itself reads and claims the idempotency_key; queueing claims nothing.


@broken
def looks_up_the_key_before_begin_only() -> list[Patch]:
    seen: dict[Any, Any] = {}
    true_look_up, true_try = idempotency.look_up, entering._try_begin

    async def look_first(process: Process, request: Any) -> Any:
        async def read(tables: Any, _: None) -> Any:
            return await true_look_up(tables, request.target.owner, request.key, request.ticket)

        if request.key is not None:
            seen[request.key] = await process.store.read(read, None)
        return await true_try(process, request)

    async def as_seen(tables: Any, owner: str, key: Any, ticket: Any) -> Any:
        return seen[key] if key is not None else Fresh()

    return [(entering, "_try_begin", look_first), (idempotency, "look_up", as_seen)]


@broken
def claims_the_key_when_it_queues() -> list[Patch]:
    true = begin._must_wait

    async def must_wait(tables: Any, branch: Any, request: Any, verdict: Any) -> Any:
        queued = await true(tables, branch, request, verdict)
        if queued is not None and request.key is not None:
            await tables.save_claim(
                Claim(
                    owner=request.target.owner,
                    idempotency_key=request.key.text,
                    fingerprint=request.key.fingerprint,
                    conversation=branch.conversation,
                    attempt=request.attempt,
                )
            )
        return queued

    return [(begin, "_must_wait", must_wait)]


# Rule 2: who was waiting shares the outcome.


@broken
def runs_again_for_one_who_was_waiting() -> list[Patch]:
    return [(idempotency, "began_while_waiting", lambda ticket, claim: False)]


# Rule 3: resume only on the head the journal ran on.


@broken
def resumes_on_another_head() -> list[Patch]:
    def can_resume(branch: Any, earlier: Any) -> bool:
        return earlier.state is AttemptState.FAILED and earlier.journaled > 0

    return [(begin, "can_resume", can_resume)]


# Rule 4: a raise of the fence names what it saw.


@broken
def raises_the_fence_over_whoever_is_there() -> list[Patch]:
    async def take_over(tables: Any, request: Any) -> bool:
        left = request.left
        branch = await tables.branch(left.branch)
        attempt = await tables.attempt(left.owner, left.attempt)
        branch = replace(branch, fence=branch.fence + 1, running=None)
        if attempt is not None and attempt.state is AttemptState.RUNNING:
            await ending.end_running(tables, branch, attempt, ending.DIED, request.now)
        else:
            await tables.save_branch(branch)
        return True

    return [(entering, "take_over", take_over), (tending, "take_over", take_over)]


@broken
def gives_up_its_lane_when_it_raises_its_own_fence() -> list[Patch]:
    async def try_again(process: Process, request: Any) -> Any:
        doubt = commit.DoubtRequest(request.owner, request.turn.branch, request.turn.id)
        certainty = await process.store.transact(commit.resolve_doubt, doubt)
        if certainty.turn is not None:
            return certainty.turn
        return await process.store.transact(commit.commit, request)

    return [(leaving, "_try_again", try_again), (tending.Tending, "_end_orphans", _nothing)]


# Rule 5: nothing that a process began is left to itself.


@broken
def forgets_its_doubts() -> list[Patch]:
    return [(tending.Tending, "_resolve_doubts", _nothing)]


@broken
def leaves_its_orphans() -> list[Patch]:
    return [(tending.Tending, "_end_orphans", _nothing)]


async def _nothing(self: Any) -> None:
    return None


# Rule 6: the input is checked inside begin, before anything is settled.


@broken
def checks_the_input_before_begin_only() -> list[Patch]:
    return [(begin, "admit", lambda pending, new: tuple(new))]


@broken
def settles_before_it_refuses() -> list[Patch]:
    true_try = entering._try_begin

    async def settle_first(process: Process, request: Any) -> Any:
        async def settle(tables: Any, _: None) -> None:
            conversation = await conversations.find(tables, request.target)
            branch = await tables.branch(conversation.branch) if conversation else None
            if branch is not None and branch.unsettled and branch.running is None:
                waiting = await tables.attempt(request.target.owner, branch.unsettled)
                await tables.save_branch(await ending.settle(tables, branch, waiting, request.now))

        await process.persist(settle, None)
        return await true_try(process, request)

    return [(entering, "_try_begin", settle_first)]


# Rule 7: a journal that was taken up waits no more.


@broken
def leaves_a_journal_pending_that_was_taken_up() -> list[Patch]:
    true = begin._take_up

    async def take_up(tables: Any, branch: Any, earlier: Any, attempt: Any) -> Any:
        records = await tables.journal(earlier.id)
        freed, journal, count = await true(tables, branch, earlier, attempt)
        await tables.add_records(earlier.id, 0, records)
        await tables.save_attempt(earlier)
        return replace(freed, unsettled=branch.unsettled), journal, count

    return [(begin, "_take_up", take_up)]


# Rule 10: a recorded stop outlives its holder, and reaches the queue.


@broken
def forgets_a_stop_when_the_holder_dies() -> list[Patch]:
    def keeps(attempt: Any, failure: Any) -> bool:
        if failure is None:
            return attempt.stop is not OnStop.DISCARD
        return attempt.on_failure is OnFailure.KEEP

    return [(ending, "keeps", keeps)]


@broken
def drops_the_ticket_of_a_stopped_turn_and_no_more() -> list[Patch]:
    async def stop_queued(tables: Any, conversation: Any, ticket: Any, now: int) -> Ended:
        await tables.drop_ticket(ticket.attempt)
        return Ended(AttemptState.DISCARDED)

    return [(stops, "_stop_queued", stop_queued)]


# Rule 13: a retry belongs where it first began.


@broken
def sends_a_retry_to_the_new_conversation_of_the_key() -> list[Patch]:
    true = idempotency.look_up

    async def look_up(tables: Any, owner: str, key: Any, ticket: Any) -> Any:
        try:
            return await true(tables, owner, key, ticket)
        except ConversationDeleted:
            return Fresh()

    return [(idempotency, "look_up", look_up)]


# Rule 14: the fence on every write, and the order of telling and doing.


@broken
def journals_without_the_fence() -> list[Patch]:
    return [(recording, "holds_lane", lambda branch, attempt, fence: True)]


@broken
def commits_without_fence_and_head() -> list[Patch]:
    true = commit.commit

    async def commit_anyway(tables: Any, request: Any) -> Any:
        branch = await tables.branch(request.turn.branch)
        committed = await tables.turn(request.owner, request.turn.id)
        if committed is not None:
            return committed
        number, parent = branch.length + 1, branch.head
        turn = change(request.turn, number=number, parent=parent)
        request = change(request, turn=turn, fence=branch.fence)
        await tables.save_branch(replace(branch, running=turn.id))
        return await true(tables, request)

    return [(leaving, "commit", commit_anyway)]


@broken
def commits_without_the_fence() -> list[Patch]:
    return [(commit, "may_commit", lambda branch, request: commit.ran_on_head(branch, request.turn))]


@broken
def deletes_without_raising_the_fence() -> list[Patch]:
    async def leave_it_open(tables: Any, conversation: Any, now: int) -> None:
        return None

    return [(conversations, "_close_lane", leave_it_open)]


@broken
def records_a_start_after_the_tool_acted() -> list[Patch]:
    async def start_later(self: RunningTurn, call: Any, *, read_only: bool = False) -> None:
        return None

    return [(RunningTurn, "start", start_later)]


@broken
def runs_a_call_of_unknown_outcome_again() -> list[Patch]:
    true = begin._take_up

    async def take_up(tables: Any, branch: Any, earlier: Any, attempt: Any) -> Any:
        branch, journal, count = await true(tables, branch, earlier, attempt)
        for place in journal.unanswered():
            journal.started.pop(place, None)
        return branch, journal, count

    return [(closing, "resumed", lambda journal: ()), (begin, "_take_up", take_up)]


@broken
def hands_out_a_stale_snapshot() -> list[Patch]:
    true = Process.snapshot

    async def snapshot(self: Process, branch: Any) -> History:
        cached = self.cache.prefix(branch.id, branch.head, branch.length)
        return cached if len(cached) else await true(self, branch)

    return [(Process, "snapshot", snapshot)]


@broken
def acknowledges_before_the_commit() -> list[Patch]:
    true = leaving._commit

    async def commit_soon(process: Process, running: RunningTurn) -> None:
        request = running.to_commit()
        asyncio.get_running_loop().create_task(_quietly(true(process, running)))
        running.finish(AttemptState.COMPLETED, request.turn, None)

    return [(leaving, "_commit", commit_soon)]


async def _quietly(work: Any) -> None:
    with suppress(TurnledgerError):
        await work


@broken
def reads_an_unknown_commit_without_raising_the_fence() -> list[Patch]:
    async def try_again(process: Process, request: Any) -> Any:
        async def read(tables: Any, _: None) -> Any:
            return await tables.turn(request.owner, request.turn.id)

        turn = await process.store.read(read, None)
        if turn is None:
            raise Superseded
        return turn

    return [(leaving, "_try_again", try_again)]
