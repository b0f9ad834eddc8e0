"""Ends of turns that do not complete, and of deleted conversations."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from tests.simulation.broken.registry import Patch, broken
from turnledger.engine.attempt import dead_process, end, stop, unfinished_output
from turnledger.engine.attempt.end import Outcome
from turnledger.engine.lifecycle import delete
from turnledger.engine.turn import begin, commit, queue
from turnledger.model.item import NOT_STARTED, message
from turnledger.model.journal import Journal
from turnledger.model.turn import Attempt, AttemptState, OnBusy, OnFailure, OnStop
from turnledger.stores.memory import tables as memory_tables

# Commit only on a positive end.


@broken
def commits_on_cancellation() -> list[Patch]:
    def ended_well(problem: BaseException | None) -> bool:
        return problem is None or isinstance(problem, asyncio.CancelledError)

    return [(commit, "ended_well", ended_well)]


@broken
def keeps_on_crash() -> list[Patch]:
    keeps = end.is_kept
    return [(end, "is_kept", lambda attempt, failure: failure is end.DIED or keeps(attempt, failure))]


@broken
def rolls_back_and_forgets_effects() -> list[Patch]:
    return [(Journal, "has_effects", property(lambda journal: False))]


@broken
def drops_the_details_of_an_unfinished_turn() -> list[Patch]:
    true = end.turn_behind

    def turn_behind(branch: Any, attempt: Any, *arguments: Any, **others: Any) -> Any:
        return true(branch, replace(attempt, raw_details=b""), *arguments, **others)

    return [(end, "turn_behind", turn_behind)]


# Rule 10: a recorded stop outlives its holder, and reaches the queue.


@broken
def forgets_a_stop_when_the_holder_dies() -> list[Patch]:
    def keeps(attempt: Any, failure: Any) -> bool:
        if failure is None:
            return attempt.stop is not OnStop.DISCARD
        return attempt.on_failure is OnFailure.KEEP

    return [(end, "is_kept", keeps)]


@broken
def drops_only_the_ticket_of_a_stopped_turn() -> list[Patch]:
    async def end_queued(tables: Any, conversation: Any, ticket: Any, now: int) -> Outcome:
        await tables.drop_ticket(ticket.attempt)
        return Outcome(AttemptState.DISCARDED)

    return [(stop, "end_queued", end_queued)]


@broken
def replaces_the_policy_of_a_recorded_stop_when_it_interrupts() -> list[Patch]:
    true = begin._must_wait

    async def must_wait(tables: Any, conversation: Any, branch: Any, request: Any, verdict: Any) -> Any:
        queued = await true(tables, conversation, branch, request, verdict)
        if queued is not None and queued.interrupted is not None:
            policy = OnStop.KEEP if request.policy.on_busy is OnBusy.INTERRUPT else OnStop.DISCARD
            await tables.save_attempt(replace(queued.interrupted, stop=policy))
        return queued

    return [(begin, "_must_wait", must_wait)]


@broken
def replaces_the_policy_of_a_recorded_stop_when_it_stops() -> list[Patch]:
    true = stop.request_stop

    async def request_stop(tables: Any, request: Any) -> Any:
        found = await true(tables, request)
        if isinstance(found, Attempt):
            found = replace(found, stop=request.policy or found.on_stop)
            await tables.save_attempt(found)
        return found

    return [(stop, "request_stop", request_stop)]


# The record of a turn that did not complete.


@broken
def reports_started_calls_as_not_started() -> list[Patch]:
    return [(unfinished_output, "OUTCOME_UNKNOWN", NOT_STARTED)]


@broken
def settles_the_whole_draft() -> list[Patch]:
    def settled(journal: Any, failure: Any) -> Any:
        return (
            *unfinished_output.kept_output(journal, ()),
            message("developer", "The turn above did not commit."),
        )

    return [(unfinished_output, "settled_output", settled)]


@broken
def keeps_without_the_text() -> list[Patch]:
    true = unfinished_output.kept_output
    return [
        (unfinished_output, "kept_output", lambda journal, partial: true(journal, ())),
        (end, "kept_turn_log", lambda *_: b""),
    ]


@broken
def settles_turns_to_be_forgotten() -> list[Patch]:
    true = end.end_running

    async def end_running(tables: Any, branch: Any, attempt: Any, failure: Any, now: int, **how: Any) -> Any:
        if attempt.on_failure is OnFailure.FORGET:
            attempt = replace(attempt, on_failure=OnFailure.SETTLE)
        return await true(tables, branch, attempt, failure, now, **how)

    return [(where, "end_running", end_running) for where in (end, queue, dead_process)]


@broken
def forgets_effects_when_it_deletes() -> list[Patch]:
    true = delete._close_lanes

    async def close_lane(tables: Any, conversation: Any, now: int, *, forget: bool) -> None:
        await true(tables, conversation, now, forget=True)

    return [(delete, "_close_lanes", close_lane)]


@broken
def purges_restorable_conversations() -> list[Patch]:
    return [(memory_tables, "is_restorable", lambda conversation: False)]
