"""Engines that are broken on purpose, one for each rule that keeps the promises true.

Each is the production engine with one small piece replaced by what a sensible person might have written. The
simulator has to catch every one of them; what it does not catch, it does not prove.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from msgspec.structs import replace

from turnledger import ledger
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
    recovery,
    resets,
    stops,
    tending,
)
from turnledger.engine.commit import Certainty
from turnledger.engine.ending import Ended
from turnledger.engine.history import History
from turnledger.engine.idempotency import Fresh
from turnledger.engine.process import Process
from turnledger.engine.transaction import RunningTurn
from turnledger.errors import ConversationDeleted, Superseded, TurnledgerError
from turnledger.model.attempt import AttemptState, OnFailure, OnStop
from turnledger.model.conversation import Claim
from turnledger.model.item import Item, message, result_of
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
    true = conversations.resolve

    async def resolve(tables: Any, target: Any, now: int, **how: Any) -> Any:
        if target.fresh is None or target.id is not None or target.conversation_key is None:
            return await true(tables, target, now, **how)
        if await conversations.find(tables, target) is not None:
            target = replace(target, fresh=replace(target.fresh, conversation_key=None))
        await tables.add_conversation(target.fresh)
        await tables.add_branch(conversations.Branch(id=target.fresh.branch, conversation=target.fresh.id))
        return target.fresh

    return [(conversations, "resolve", resolve)]


@broken
def resets_whatever_the_key_names() -> list[Patch]:
    true = resets.reset

    async def reset(tables: Any, request: Any) -> Any:
        found = await tables.conversation_by_key(request.owner, request.conversation_key)
        if found is None or found.id == request.fresh.id:
            return await true(tables, request)
        return await conversations.succeed(tables, found, request.fresh, found.reset_policy)

    return [(ledger, "reset_key", reset)]


@broken
def lets_who_waits_follow_the_key() -> list[Patch]:
    async def where_it_waits(tables: Any, target: Any, ticket: Any) -> Any:
        return target

    return [(begin, "_where_it_waits", where_it_waits)]


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
    true_look_up = idempotency.look_up

    def looking_first(true: Any) -> Any:
        async def look_first(process: Process, request: Any) -> Any:
            async def read(tables: Any, _: None) -> Any:
                return await true_look_up(tables, request.target, request.key, request.ticket)

            if request.key is not None:
                seen[request.key] = await process.store.read(read, None)
            return await true(process, request)

        return look_first

    async def as_seen(tables: Any, target: Any, key: Any, ticket: Any) -> Any:
        return seen[key] if key in seen else await true_look_up(tables, target, key, ticket)

    return [
        (entering, "_first_begin", looking_first(entering._first_begin)),
        (entering, "_try_begin", looking_first(entering._try_begin)),
        (idempotency, "look_up", as_seen),
    ]


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

    return [(leaving, "_try_again", try_again)]


@broken
def raises_the_fence_in_doubt_over_whoever_runs() -> list[Patch]:
    async def resolve_doubt(tables: Any, request: Any) -> Certainty:
        branch = await tables.branch(request.branch)
        await tables.save_branch(replace(branch, fence=branch.fence + 1))
        holds = branch.running == request.attempt
        turn = await commit._committed(tables, request.owner, request.attempt)
        return Certainty(turn, branch.fence + 1 if holds else None)

    return [(leaving, "resolve_doubt", resolve_doubt), (tending, "resolve_doubt", resolve_doubt)]


@broken
def frees_the_lane_for_one_who_gives_up_whoever_holds_it() -> list[Patch]:
    async def abandon(tables: Any, request: Any) -> Any:
        ticket = await tables.ticket(request.attempt)
        await tables.drop_ticket(request.attempt)
        if ticket is None:
            return None
        branch = await tables.branch(ticket.branch)
        await tables.save_branch(replace(branch, fence=branch.fence + 1))
        return branch.id

    return [(entering, "abandon", abandon)]


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

    async def look_up(tables: Any, target: Any, key: Any, ticket: Any) -> Any:
        try:
            return await true(tables, target, key, ticket)
        except ConversationDeleted:
            return Fresh()

    return [(idempotency, "look_up", look_up)]


@broken
def sends_a_retry_to_whatever_the_key_names_after_a_reset() -> list[Patch]:
    true = idempotency.look_up

    async def look_up(tables: Any, target: Any, key: Any, ticket: Any) -> Any:
        claim = await tables.claim(target.owner, key.text)
        found = await tables.conversation(target.owner, claim.conversation) if claim else None
        if found is not None and found.former_conversation_key is not None:
            return Fresh()
        return await true(tables, target, key, ticket)

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
        turn = replace(request.turn, number=number, parent=parent)
        request = replace(request, turn=turn, fence=branch.fence)
        await tables.save_branch(replace(branch, running=turn.id))
        return await true(tables, request)

    return [(leaving, "commit", commit_anyway)]


@broken
def commits_without_the_fence() -> list[Patch]:
    return [(commit, "may_commit", lambda branch, request: commit.ran_on_head(branch, request))]


@broken
def deletes_without_raising_the_fence() -> list[Patch]:
    async def drop_the_queue_only(tables: Any, conversation: Any, now: int) -> None:
        for ticket in await tables.tickets(conversation.branch):
            await tables.drop_ticket(ticket.attempt)

    return [(conversations, "_close_lane", drop_the_queue_only)]


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

    async def snapshot(self: Process, branch: Any, place: Any = None) -> History:
        cached = self.cache.prefix(branch.id, branch.head, branch.length)
        return cached if len(cached) else await true(self, branch, place)

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


# What is told of a turn that did not end well.


@broken
def says_not_started_of_what_was_started() -> list[Patch]:
    return [(closing, "OUTCOME_UNKNOWN", closing.NOT_STARTED)]


@broken
def settles_the_whole_draft() -> list[Patch]:
    def settled(journal: Any, failure: Any) -> Any:
        return (*closing.kept(journal, ""), message("developer", "The turn above did not finish."))

    return [(closing, "settled", settled)]


@broken
def keeps_without_the_text() -> list[Patch]:
    true = closing.kept
    return [(closing, "kept", lambda journal, partial: true(journal, ""))]


@broken
def settles_what_was_to_be_forgotten() -> list[Patch]:
    true = ending.end_running

    async def end_running(tables: Any, branch: Any, attempt: Any, failure: Any, now: int, **how: Any) -> Any:
        if attempt.on_failure is OnFailure.FORGET:
            attempt = replace(attempt, on_failure=OnFailure.SETTLE)
        return await true(tables, branch, attempt, failure, now, **how)

    return [(where, "end_running", end_running) for where in (ending, begin, recovery)]


# The queue, and stops that reach their turn.


@broken
def takes_the_lane_past_those_who_wait() -> list[Patch]:
    true = begin.queue_before

    async def queue_before(*arguments: Any, **options: Any) -> Any:
        return [], (await true(*arguments, **options))[1]

    return [(begin, "queue_before", queue_before)]


@broken
def records_stops_and_delivers_none() -> list[Patch]:
    return [(RunningTurn, "interrupt", lambda self, policy: None)]


@broken
def delivers_stops_of_its_own_process_only() -> list[Patch]:
    return [(tending.Tending, "_check_stops", _nothing)]
