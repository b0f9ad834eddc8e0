"""The block of a turn: begin, items while it runs, and the outcome recorded when it ends."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tests.unit.engine.stage import BRANCH, branch
from tests.unit.model.shapes import call, some_id
from tests.unit.testing.simulation import run
from turnledger import Ledger, Limits, OnBusy
from turnledger.chat import Chat
from turnledger.engine.admission import Authorization
from turnledger.engine.attempt.commit_in_doubt import resolve_doubt
from turnledger.engine.attempt.end import end
from turnledger.engine.turn.begin import ExpectedHead, begin
from turnledger.engine.turn.commit import FIRST_DELAY, commit, failure_of
from turnledger.engine.turn.running_turn import Draft, RunningTurn, record
from turnledger.engine.wrapped_store import WrappedStore, Write
from turnledger.errors import (
    AdmissionMoved,
    CommitOutcomeUnknown,
    EmptyTurn,
    InvalidInput,
    LedgerClosed,
    MalformedItems,
    ModelUnavailable,
    OutcomeUnknown,
    StoreUnavailable,
    TurnEnded,
    TurnReplayed,
    TurnStopped,
)
from turnledger.model.event import Event, TurnFinished
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.item import Item
from turnledger.model.journal import Journal
from turnledger.model.turn import Failure
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.gates import Fate, GatedStore, When
from turnledger.types import AttemptState, TurnKind


@pytest.fixture
def limits() -> Limits:
    return Limits(doubt_patience=0.0)


async def answer(turn: RunningTurn) -> None:
    turn.emit("yes")


async def test_stop_that_arrives_after_the_block_ended_cancels_no_later_work(
    store: GatedStore, chat: Chat
) -> None:
    async def stopped_turn() -> str:
        try:
            await chat.run(answer, "q")
        except TurnStopped:
            await asyncio.sleep(0)
            return "went on"
        return "was not stopped"

    with store.hold(begin, When.AFTER) as gate:
        task = asyncio.create_task(stopped_turn())
        await gate.arrived()
        stopping = asyncio.create_task(chat.stop())
        await asyncio.sleep(0)
    assert await task == "went on"
    await stopping


@pytest.mark.parametrize("is_in_doubt", [False, True])
async def test_closing_ledger_refuses_a_turn_whose_begin_is_under_way_and_frees_the_lane(
    store: GatedStore, ledger: Ledger, chat: Chat, database: Database, is_in_doubt: bool
) -> None:
    if is_in_doubt:
        store.lose_answer(begin, Fate.WRITTEN)
    with store.hold(begin, When.AFTER) as gate:
        task = asyncio.create_task(chat.run(answer, "q"))
        await gate.arrived()
        closing = asyncio.create_task(ledger.close())
        await asyncio.sleep(0)
    await closing
    with pytest.raises(LedgerClosed):
        await task
    assert not any(branch.running for branch in database.branches.values())
    assert database.leases == {}


async def test_cancelled_close_continues_and_a_second_close_waits_for_it(ledger: Ledger) -> None:
    first = asyncio.create_task(ledger.close())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await ledger.close()
    with pytest.raises(LedgerClosed):
        await ledger.conversation()


async def test_begin_that_must_reach_the_disk_is_run_exactly_twice(store: GatedStore, ledger: Ledger) -> None:
    with store.hold(begin) as gate:
        gate.release()
        await ledger.run(answer, "q", conversation_key="k")
        assert gate._arrivals == 2


async def test_undo_stopped_in_the_queue_raises_turn_stopped(database: Database, chat: Chat) -> None:
    await chat.run(answer, "a")
    async with chat.turn("b") as turn:
        turn.emit("yes")
        undoing = asyncio.create_task(chat.undo())
        while not database.tickets:
            await asyncio.sleep(0)
        await chat.stop(next(iter(database.tickets)))
    with pytest.raises(TurnStopped):
        await undoing
    assert len(await chat.turns()) == 2


@pytest.mark.parametrize("is_busy", [False, True])
async def test_begin_or_ticket_in_doubt_whose_caller_is_refused_afterwards_is_taken_back(
    store: GatedStore, chat: Chat, database: Database, is_busy: bool
) -> None:
    versions = iter([1])  # authorized at the first request, and not at the second

    async def readmit() -> int | None:
        return next(versions, None)

    how = Authorization(0, until=1, readmit=readmit)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(chat.turn("first")) if is_busy else None
        store.lose_answer(begin, Fate.WRITTEN)
        with pytest.raises(AdmissionMoved):
            async with Chat(chat._process, chat.as_opened, authorization=how).turn("q"):
                pass
        assert database.tickets == {}
        if first is not None:
            first.emit("yes")
    assert not any(branch.running for branch in database.branches.values())


async def test_turn_block_that_was_run_cannot_be_run_again(chat: Chat) -> None:
    block = chat.turn("q")
    turn = await block.run(answer)
    assert turn.id == block.id
    with pytest.raises(InvalidInput):
        await block.run(answer)


async def test_replay_of_another_turn_inside_the_runner_is_raised(ledger: Ledger, chat: Chat) -> None:
    other = await ledger.conversation()
    await other.run(answer, "q", idempotency_key="i")

    async def replay_elsewhere(turn: RunningTurn) -> None:
        async with other.turn("q", idempotency_key="i"):
            pytest.fail("the block was run")

    with pytest.raises(TurnReplayed):
        await chat.run(replay_elsewhere, "q")
    assert await chat.turns() == []


def test_expected_head_matches_only_the_same_branch_and_head() -> None:
    head, other = some_id(TurnId, 1), some_id(TurnId, 2)
    seen = ExpectedHead(BRANCH, head)
    assert seen.is_still(branch(head=head, fence=7))
    assert not seen.is_still(branch(head=other))
    assert not seen.is_still(branch(head=None))
    assert not seen.is_still(branch(id=some_id(BranchId, 9), head=head))


async def test_stop_of_a_turn_with_calls_of_every_type_states_their_results(chat: Chat) -> None:
    async with chat.turn("Hello") as turn:
        await turn.add(call("a"), call("b", "shell_call"), call("c", "custom_tool_call"))
        turn.stop()
    assert [item.call_id for item in (await chat.turns())[0].output] == ["a", "b", "c"] * 2


@pytest.mark.parametrize("call_id", ["", 5])
async def test_call_with_an_invalid_id_does_not_block_the_lane(chat: Chat, call_id: str | int) -> None:
    with suppress(MalformedItems):  # it may be refused, at any point
        async with chat.turn("Hello") as turn:
            await turn.add({"type": "shell_call", "call_id": call_id})
            turn.stop()
    async with chat.turn("Again", on_busy=OnBusy.REJECT) as turn:
        turn.emit("Hi")


@pytest.mark.parametrize("details", [{"model": object()}, {"long": "x" * 1000}, 5])
async def test_invalid_details_fail_the_turn_and_free_the_lane(details: Any) -> None:
    limits = Limits(turn_bytes=1000)
    async with await Ledger.over(MemoryStore(), limits=limits) as ledger:
        chat = await ledger.conversation()
        with pytest.raises(InvalidInput, match="details"):
            async with chat.turn("Hello") as turn:
                turn.emit("Hi")
                turn.details = details
        assert [each.attempt.failure.code for each in await chat.attempts() if each.attempt.failure] == [
            "invalid_input"
        ]
        async with chat.turn("Again", on_busy=OnBusy.REJECT) as turn:
            turn.emit("Hi")


@pytest.mark.parametrize(
    "details", [{"model": object()}, {"long": "x" * 1000}, {"deep": msgspec.Raw(b"[" * 200 + b"]" * 200)}, 5]
)
async def test_turn_with_invalid_details_does_not_begin(details: Any) -> None:
    async with await Ledger.open("memory:", limits=Limits(turn_bytes=1000)) as ledger:
        chat = await ledger.conversation()
        with pytest.raises(InvalidInput, match="details"):
            chat.turn("q", details=details)
        assert await chat.attempts() == []


async def test_details_are_stored_with_a_committed_turn_only(chat: Chat) -> None:
    async with chat.turn("Hello") as turn:
        turn.emit("Hi")
        turn.details["model"] = "m"
    async with chat.turn("Again") as turn:
        assert [each.details for each in turn.history] == [{"model": "m"}]
        turn.emit("Half")
        turn.details["model"] = "m"
        turn.stop()
    assert [each.details for each in await chat.turns()] == [{"model": "m"}, {}]


CALL = {"type": "function_call", "call_id": "c", "name": "pay", "arguments": "{}"}


async def test_cancelled_add_that_was_written_is_recorded_as_a_step(store: GatedStore, chat: Chat) -> None:
    async with chat.turn("q") as turn:
        turn.emit("Let me see. ")
        with store.hold(record) as gate:
            adding = asyncio.create_task(turn.add(CALL))
            await gate.arrived()
            adding.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await adding
        assert [item.type for item in turn.steps] == ["message", "function_call"]
        assert turn.text == ""

        async def pay() -> str:
            return "paid"

        await turn.call(CALL, pay)
    [committed] = await chat.turns()
    assert [item.type for item in committed.output] == ["message", "function_call", "function_call_output"]


async def test_turn_whose_record_has_an_unknown_outcome_accepts_no_more_items(
    store: GatedStore, chat: Chat
) -> None:
    store.lose_answer(record, *[Fate.WRITTEN] * 5)
    with pytest.raises(OutcomeUnknown):
        async with chat.turn("q", on_failure="keep") as turn:
            with pytest.raises(OutcomeUnknown):
                await turn.add(CALL)
            with pytest.raises(TurnEnded):
                await turn.add(CALL)
    [kept] = await chat.turns()
    assert kept.kind is TurnKind.INTERRUPTED
    assert [item.type for item in kept.output] == ["function_call", "function_call_output"]


@pytest.mark.parametrize(
    ("emitted", "shown", "text"),
    [
        (["a", "b"], ["a", "b"], "ab"),
        (["\ud83d", "\ude00!"], ["", "\U0001f600!"], "\U0001f600!"),
        (["x\ud83d", "y"], ["x", "\ufffdy"], "x\ufffdy"),
        (["\ude00"], ["\ufffd"], "\ufffd"),
        (["\ud83d"], [""], ""),
    ],
)
def test_surrogate_halves_in_emitted_text_are_joined_or_replaced(
    emitted: list[str], shown: list[str], text: str
) -> None:
    draft = Draft((), (), Journal(), 1000)
    assert [draft.emit(each) for each in emitted] == shown
    assert draft.text == text


async def test_record_with_one_lost_answer_raises_outcome_unknown(store: GatedStore, chat: Chat) -> None:
    """The store is out of reach at the last try; what the first one wrote may be there all the same."""
    store.lose_answer(record, Fate.LATE)
    store.refuse(record, times=4)
    with pytest.raises(OutcomeUnknown):
        async with chat.turn("q") as turn:
            await turn.add(CALL)


async def test_put_items_come_last_and_leave_their_calls_to_the_client(chat: Chat) -> None:
    async with chat.turn("q") as turn:
        turn.put()
        await turn.add({"role": "assistant", "content": "First."})
        turn.emit("Then.")
        turn.put(CALL, {**CALL, "call_id": "d"})
        assert [item.text for item in turn.steps] == ["First."]
    [committed] = await chat.turns()
    assert [item.text or item.call_id for item in committed.output] == ["First.", "Then.", "c", "d"]
    results = [{"type": "function_call_output", "call_id": each, "output": "paid"} for each in "cd"]
    async with chat.turn(results) as turn:
        turn.emit("Thanks.")


async def test_items_after_a_put_are_refused(chat: Chat) -> None:
    async with chat.turn("q") as turn:
        await turn.add({**CALL, "call_id": "before"})
        turn.put(CALL)
        with pytest.raises(InvalidInput, match="ended the answer"):
            turn.emit("more")
        with pytest.raises(InvalidInput, match="ended the answer"):
            await turn.add({"role": "assistant", "content": "more"})
        with pytest.raises(InvalidInput, match="ended the answer"):
            turn.put(CALL)
        with pytest.raises(InvalidInput, match="ended the answer"):
            await turn.start({**CALL, "call_id": "before"})
    [committed] = await chat.turns()
    assert [item.call_id for item in committed.output] == ["before", "c"]


async def test_put_of_an_item_that_breaks_the_history_is_refused_and_the_turn_continues(chat: Chat) -> None:
    async with chat.turn("q") as turn:
        with pytest.raises(MalformedItems):
            turn.put({"type": "function_call_output", "call_id": "never asked", "output": ""})
        turn.emit("Sorry.")
    assert [turn.text for turn in await chat.turns()] == ["Sorry."]


async def test_stopped_turn_leaves_out_its_put_items(chat: Chat) -> None:
    async with chat.turn("q") as turn:
        turn.emit("Let me")
        turn.put(CALL)
        turn.stop()
    [kept] = await chat.turns()
    assert [item.type for item in kept.output] == ["message"]


def test_put_items_count_towards_the_turn_size_limit() -> None:
    draft = Draft((), (), Journal(), 100)
    with pytest.raises(MalformedItems, match="grown past 100"):
        draft.end_with((Item.of({**CALL, "arguments": "x" * 100}),))
    with pytest.raises(EmptyTurn):
        draft.whole()


def test_text_and_other_deltas_together_count_towards_the_turn_size_limit() -> None:
    draft = Draft((), (), Journal(), 100)
    draft.emit("x" * 60)
    draft.parts(40)
    with pytest.raises(MalformedItems, match="grown past 100"):
        draft.parts(41)


GUARD = 20.0
"""Seconds after which a task that should have ended is given up."""


async def break_down(turn: RunningTurn) -> None:
    turn.emit("ye")
    raise ValueError("the model broke")


async def test_stop_during_the_commit_cancels_no_task(store: GatedStore, chat: Chat) -> None:
    with store.hold(commit) as gate:
        task = asyncio.create_task(chat.run(answer, "q"))
        await gate.arrived()
        stopping = asyncio.create_task(chat.stop())
        await asyncio.sleep(0)
        gate.release()
        assert (await task).text == "yes"
        stopped = await stopping
    assert stopped.state is AttemptState.COMPLETED
    assert task.cancelling() == 0


async def test_stop_during_a_failing_end_leaves_the_error_visible(store: GatedStore, chat: Chat) -> None:
    with store.hold(end) as gate:
        task = asyncio.create_task(chat.run(break_down, "q"))
        await gate.arrived()
        stopping = asyncio.create_task(chat.stop())
        await asyncio.sleep(0)
        gate.release()
        with pytest.raises(ValueError, match="broke"):
            await task
        await stopping
    assert task.cancelling() == 0


async def test_write_of_another_task_under_way_at_the_end_belongs_to_the_turn(
    store: GatedStore, chat: Chat
) -> None:
    """The call is started while the block is left: the turn must not be committed as if it were not."""
    acted = []

    async def pay() -> str:
        acted.append("paid")
        return "paid"

    with pytest.raises(MalformedItems, match="started"):
        async with chat.turn("q") as turn:
            await turn.add(CALL)
            with store.hold(record) as starting:
                paying = asyncio.create_task(turn.call(CALL, pay))
                await starting.arrived()
            turn.emit("Done.")
    with pytest.raises(TurnEnded):
        await paying
    assert acted == ["paid"]
    await chat.run(answer, "next")
    assert [turn.kind for turn in await chat.turns()] == [TurnKind.SETTLED, TurnKind.COMPLETED]


async def test_items_after_the_block_raise_turn_ended(chat: Chat) -> None:
    async with chat.turn("q") as turn:
        turn.emit("a")
    with pytest.raises(TurnEnded):
        turn.emit("b")
    with pytest.raises(TurnEnded):
        await turn.add(CALL)


async def test_turn_finished_is_not_sent_before_the_end_is_recorded(
    store: GatedStore, ledger: Ledger, chat: Chat
) -> None:
    events: list[Event] = []
    store.refuse(end, times=5)
    with pytest.raises(OutcomeUnknown):
        async with chat.turn("q", on_event=events.append) as turn:
            turn.emit("half")
            turn.stop()
    assert not any(isinstance(event, TurnFinished) for event in events)
    await ledger._recovery.run_round()
    assert isinstance(events[-1], TurnFinished)
    assert (events[-1].state, turn.state) == (AttemptState.KEPT, AttemptState.KEPT)


def test_commit_that_the_store_refuses_is_repeated_after_growing_pauses() -> None:
    tries: list[float] = []

    class Refusing(WrappedStore):
        async def write(self, write: Write) -> Any:
            if write.operation is commit:
                tries.append(asyncio.get_running_loop().time())
                if len(tries) < 5:
                    raise StoreUnavailable
            return await super().write(write)

    async def main() -> None:
        async with await Ledger.over(Refusing(MemoryStore()), clock=FakeClock()) as ledger:
            await (await ledger.conversation()).run(answer, "q")

    run(0, main)
    pauses = [after - before for before, after in pairwise(tries)]
    assert pauses == pytest.approx([FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY, 8 * FIRST_DELAY])


async def test_empty_turn_whose_end_cannot_be_recorded_raises_empty_turn(
    store: GatedStore, ledger: Ledger, chat: Chat
) -> None:
    store.refuse(end, times=5)
    with pytest.raises(EmptyTurn):
        async with chat.turn("q"):
            pass
    await ledger._recovery.run_round()
    assert [each.attempt.state for each in await chat.attempts()] == [AttemptState.FAILED]


async def test_commit_that_was_lost_keeps_the_text_under_on_failure_keep(
    store: GatedStore, ledger: Ledger, chat: Chat
) -> None:
    store.lose_answer(commit, Fate.LOST)
    store.refuse(resolve_doubt)
    with pytest.raises(CommitOutcomeUnknown) as caught:
        await chat.run(answer, "q", on_failure="keep")
    assert isinstance(caught.value.__cause__, StoreUnavailable)
    await ledger._recovery.run_round()
    [turn] = await chat.turns()
    assert (turn.kind, turn.text) == (TurnKind.INTERRUPTED, "yes")


@pytest.mark.parametrize(
    ("problem", "code", "message"),
    [
        (ModelUnavailable("The model is down."), "model_unavailable", "The model is down."),
        (ValueError("no such city"), "ValueError", "ValueError: no such city"),
        (ValueError(), "ValueError", "ValueError"),
    ],
)
def test_failure_message_names_only_foreign_classes(problem: Exception, code: str, message: str) -> None:
    assert failure_of(problem) == Failure(code, message)


async def test_failure_message_with_invalid_unicode_is_recorded_escaped(chat: Chat) -> None:
    async def fail(turn: RunningTurn) -> None:
        raise ValueError("half a character: \ud83d")

    with pytest.raises(ValueError, match="half"):
        await chat.run(fail, "q")
    [aside] = await chat.attempts()
    assert aside.attempt.failure.message.endswith("\\ud83d")


async def test_cancellation_in_the_tick_a_stopped_turn_ends_is_raised(chat: Chat) -> None:
    async def work() -> None:
        this = asyncio.current_task()
        assert this is not None
        async with chat.turn("q") as turn:
            turn.emit("half")
            turn.stop()
            asyncio.get_running_loop().call_soon(this.cancel)
        await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.wait((task,), timeout=GUARD)
    assert task.cancelled()
    [turn] = await chat.turns()
    assert turn.kind is TurnKind.INTERRUPTED


@pytest.mark.parametrize("problem", [None, ValueError("broken")])
@pytest.mark.parametrize("cancelled_too", [False, True])
async def test_stop_that_arrives_at_the_end_of_the_block_takes_back_only_its_own_cancellation(
    ledger: Ledger, chat: Chat, problem: Exception | None, cancelled_too: bool
) -> None:
    caught: list[str] = []

    async def work() -> None:
        this = asyncio.current_task()
        assert this is not None
        try:
            async with chat.turn("q") as turn:
                turn.emit("half")
                ledger._process.interrupt_here(turn.id, None)
                if cancelled_too:
                    asyncio.get_running_loop().call_soon(this.cancel)
                if problem is not None:
                    raise problem
        except (TurnStopped, ValueError) as raised:
            caught.append(type(raised).__name__)
        await asyncio.sleep(0)

    task = asyncio.create_task(work())
    await asyncio.wait((task,), timeout=GUARD)
    assert task.cancelled() is cancelled_too
    if not cancelled_too:
        assert caught == ["ValueError" if problem else "TurnStopped"]
        assert task.cancelling() == 0
    [turn] = await chat.turns()
    assert turn.kind is TurnKind.INTERRUPTED
