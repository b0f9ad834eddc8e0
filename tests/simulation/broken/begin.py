"""Begin: the idempotency_key, the input, the queue, and what a retry takes up."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.simulation.broken.registry import Patch, broken, nothing
from turnledger import chats
from turnledger.engine import recovery
from turnledger.engine.attempt import idempotency, settle
from turnledger.engine.attempt.idempotency import NewAttempt
from turnledger.engine.conversations import resolve as resolve_module
from turnledger.engine.lifecycle import create as reset_module
from turnledger.engine.process import Process
from turnledger.engine.turn import begin, block, queue
from turnledger.engine.turn.running_turn import OpenTurn
from turnledger.errors import ConversationDeleted
from turnledger.model.conversation import Claim
from turnledger.model.turn import AttemptState

# One key, one conversation.


@broken
def checks_the_conversation_key_before_it_inserts() -> list[Patch]:
    true = resolve_module.resolve

    async def resolve(tables: Any, target: Any, now: int, **how: Any) -> Any:
        if target.fresh is None or target.id is not None or target.conversation_key is None:
            return await true(tables, target, now, **how)
        if await resolve_module.find(tables, target) is not None:
            target = replace(target, fresh=replace(target.fresh, conversation_key=None))
        await tables.add_conversation(target.fresh)
        await tables.add_branch(resolve_module.Branch(id=target.fresh.branch, conversation=target.fresh.id))
        return target.fresh

    return [(resolve_module, "resolve", resolve)]


@broken
def resets_without_comparing_the_conversation() -> list[Patch]:
    true = reset_module.reset

    async def reset(tables: Any, request: Any) -> Any:
        found = await tables.conversation_by_key(request.scope, request.conversation_key)
        if found is None or found.id == request.fresh.id:
            return await true(tables, request)
        return await resolve_module.hand_over_key(tables, found, request.fresh, found.reset_policy)

    return [(chats, "reset_key", reset)]


@broken
def lets_queued_turns_follow_the_key() -> list[Patch]:
    async def where_it_waits(tables: Any, target: Any, ticket: Any) -> Any:
        return target

    return [(begin, "_where_it_waits", where_it_waits)]


# Rule 1: begin itself reads and claims the idempotency_key; queueing claims nothing.


@broken
def looks_up_the_key_before_begin_only() -> list[Patch]:
    seen: dict[Any, Any] = {}
    true_look_up = idempotency.look_up

    true_send = block._send

    async def look_first(process: Process, request: Any) -> Any:
        async def read(tables: Any, _: None) -> Any:
            return await true_look_up(tables, request.target, request.key, request.round.ticket)

        if request.key is not None:
            seen[request.key] = await process.store.read(read, None, request.target.owner)
        return await true_send(process, request)

    async def as_seen(tables: Any, target: Any, key: Any, ticket: Any) -> Any:
        return seen[key] if key in seen else await true_look_up(tables, target, key, ticket)

    return [
        (block, "_send", look_first),
        (idempotency, "look_up", as_seen),
    ]


@broken
def claims_the_key_when_it_queues() -> list[Patch]:
    true = begin._must_wait

    async def must_wait(tables: Any, conversation: Any, branch: Any, request: Any, verdict: Any) -> Any:
        queued = await true(tables, conversation, branch, request, verdict)
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


# Rule 2: a waiting request shares the outcome.


@broken
def runs_again_for_a_waiting_request() -> list[Patch]:
    return [(idempotency, "began_while_waiting", lambda ticket, claim: False)]


# Rule 3: resume only on the head the journal ran on.


@broken
def resumes_on_another_head() -> list[Patch]:
    def can_resume(branch: Any, earlier: Any) -> bool:
        return earlier.state is AttemptState.FAILED and earlier.journaled > 0

    return [(begin, "can_resume", can_resume)]


@broken
def resumes_where_the_retry_would_begin() -> list[Patch]:
    true = begin.take_lane

    async def take_lane(tables: Any, conversation: Any, branch: Any, request: Any, verdict: Any) -> Any:
        if verdict.earlier is not None and request.content.diverge is None:
            verdict = NewAttempt(verdict.claim, replace(verdict.earlier, fork=None))
        return await true(tables, conversation, branch, request, verdict)

    return [(begin, "take_lane", take_lane)]


# Rule 6: the input is checked inside begin, before anything is settled.


@broken
def checks_the_input_before_begin_only() -> list[Patch]:
    return [(begin, "admit", lambda pending, new, **_: tuple(new))]


@broken
def settles_before_it_refuses() -> list[Patch]:
    true_send = block._send

    async def settle_first(process: Process, request: Any) -> Any:
        async def settle_now(tables: Any, _: None) -> None:
            conversation = await resolve_module.find(tables, request.target)
            branch = await tables.branch(conversation.branch) if conversation else None
            if branch is not None and branch.unsettled and branch.running is None:
                waiting = await tables.attempt(branch.unsettled)
                settled = await settle.settle(tables, branch, waiting, request.round.now)
                await tables.save_branch(settled)

        if request.round.is_repeated:
            await process.persist(settle_now, None, request.target.owner)
        return await true_send(process, request)

    return [(block, "_send", settle_first)]


# Rule 7: a journal that was taken up no longer waits.


@broken
def leaves_a_taken_up_journal_pending() -> list[Patch]:
    true = begin.take_up

    async def take_up(tables: Any, branch: Any, earlier: Any, attempt: Any) -> Any:
        records = await tables.journal(earlier.id)
        freed, journal, count = await true(tables, branch, earlier, attempt)
        await tables.add_records(earlier.id, 0, records)
        await tables.save_attempt(earlier)
        return replace(freed, unsettled=branch.unsettled), journal, count

    return [(begin, "take_up", take_up)]


# Append: in the lane, once per key, behind what waits to be settled.


def for_whole_turns(step: str, broken_step: Any) -> list[Patch]:
    """Replace a step of begin for turns that are appended."""
    true = getattr(begin, step)

    async def replaced(*given: Any) -> Any:
        request = next(each for each in given if isinstance(each, begin.BeginRequest))
        return await (broken_step if request.content.is_whole else true)(*given)

    return [(begin, step, replaced)]


@broken
def appends_beside_a_running_turn() -> list[Patch]:
    return for_whole_turns("_must_wait", nothing)


@broken
def appends_without_settling() -> list[Patch]:
    async def ready(tables: Any, branch: Any, request: Any) -> Any:
        return branch, begin.admit(branch.pending, request.content.input, is_whole=True)

    return for_whole_turns("_ready", ready)


@broken
def appends_without_a_claim() -> list[Patch]:
    true = begin._append

    async def append(tables: Any, conversation: Any, branch: Any, request: Any) -> Any:
        return await true(tables, conversation, branch, replace(request, key=None))

    return [(begin, "_append", append)]


# Rule 13: a retry belongs where it first began.


@broken
def sends_a_retry_to_the_new_conversation_of_the_key() -> list[Patch]:
    true = idempotency.look_up

    async def look_up(tables: Any, target: Any, key: Any, ticket: Any) -> Any:
        try:
            return await true(tables, target, key, ticket)
        except ConversationDeleted:
            return NewAttempt()

    return [(idempotency, "look_up", look_up)]


@broken
def sends_a_retry_to_the_new_conversation_after_a_reset() -> list[Patch]:
    true = idempotency.look_up

    async def look_up(tables: Any, target: Any, key: Any, ticket: Any) -> Any:
        claim = await tables.claim(key.text)
        found = await tables.conversation(claim.conversation) if claim else None
        if found is not None and found.former_conversation_key is not None:
            return NewAttempt()
        return await true(tables, target, key, ticket)

    return [(idempotency, "look_up", look_up)]


# The queue, and stops that reach their turn.


@broken
def takes_the_lane_past_the_queue() -> list[Patch]:
    true = queue.queue_before

    async def queue_before(*arguments: Any, **options: Any) -> Any:
        return [], (await true(*arguments, **options))[1]

    return [(queue, "queue_before", queue_before)]


@broken
def records_stops_and_delivers_none() -> list[Patch]:
    return [(OpenTurn, "interrupt", lambda self, policy: None)]


@broken
def delivers_stops_of_its_own_process_only() -> list[Patch]:
    return [(recovery.Recovery, "_check_stops", nothing)]
