"""Leaving a turn: whatever happens meanwhile, the caller is told what the store decided, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from turnledger import AttemptState, Ledger, Limits, RunningTurn, TurnKind
from turnledger.chat import Chat
from turnledger.engine.attempt.end import end
from turnledger.engine.turn.commit import commit, resolve_doubt
from turnledger.engine.turn.running_turn import record
from turnledger.errors import (
    CommitOutcomeUnknown,
    MalformedItems,
    OutcomeUnknown,
    StoreUnavailable,
    TurnEnded,
    TurnStopped,
)
from turnledger.model.event import Event, TurnFinished
from turnledger.stores.memory import MemoryStore
from turnledger.testing.gates import Fate, GatedStore

GUARD = 20.0
"""Seconds after which a task that should have ended is given up."""
CALL = {"type": "function_call", "call_id": "c", "name": "pay", "arguments": "{}"}


@pytest.fixture
def store() -> GatedStore:
    return GatedStore(MemoryStore())


@pytest.fixture
async def ledger(store: GatedStore) -> AsyncIterator[Ledger]:
    async with await Ledger.over(store, limits=Limits(doubt_patience=0.0)) as ledger:
        yield ledger


@pytest.fixture
async def chat(ledger: Ledger) -> Chat:
    return await ledger.conversation()


async def answer(turn: RunningTurn) -> None:
    turn.emit("yes")


async def break_down(turn: RunningTurn) -> None:
    turn.emit("ye")
    raise ValueError("the model broke")


async def test_a_stop_that_comes_during_the_commit_cancels_nobody(store: GatedStore, chat: Chat) -> None:
    with store.hold(commit) as gate:
        task = asyncio.create_task(chat.run(answer, "q"))
        await gate.arrived()
        stopping = asyncio.create_task(chat.stop())
        await asyncio.sleep(0)
        gate.release()
        assert (await task).text == "yes"
        stopped = await stopping
    assert stopped is not None
    assert stopped.state is AttemptState.COMPLETED
    assert task.cancelling() == 0


async def test_a_stop_that_comes_during_a_failing_end_hides_no_error(store: GatedStore, chat: Chat) -> None:
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


async def test_a_write_of_another_task_that_is_under_way_belongs_to_the_turn(
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


async def test_after_the_block_nothing_can_be_added(chat: Chat) -> None:
    async with chat.turn("q") as turn:
        turn.emit("a")
    with pytest.raises(TurnEnded):
        turn.emit("b")
    with pytest.raises(TurnEnded):
        await turn.add(CALL)


async def test_an_end_that_is_not_recorded_yet_is_not_told_as_one(
    store: GatedStore, ledger: Ledger, chat: Chat
) -> None:
    told: list[Event] = []
    store.refuse(end, times=5)
    with pytest.raises(OutcomeUnknown):
        async with chat.turn("q", on_event=told.append) as turn:
            turn.emit("half")
            turn.stop()
    assert not any(isinstance(event, TurnFinished) for event in told)
    await ledger._tending.tend()
    assert isinstance(told[-1], TurnFinished)
    assert (told[-1].state, turn.state) == (AttemptState.KEPT, AttemptState.KEPT)


async def test_a_doubt_that_ends_badly_keeps_the_text_where_policy_says_so(
    store: GatedStore, ledger: Ledger, chat: Chat
) -> None:
    store.lose_answer(commit, Fate.LOST)
    store.refuse(resolve_doubt)
    with pytest.raises(CommitOutcomeUnknown) as caught:
        await chat.run(answer, "q", on_failure="keep")
    assert isinstance(caught.value.__cause__, StoreUnavailable)
    await ledger._tending.tend()
    [turn] = await chat.turns()
    assert (turn.kind, turn.text) == (TurnKind.INTERRUPTED, "yes")


async def test_a_message_that_is_no_unicode_can_be_recorded(chat: Chat) -> None:
    async def fail(turn: RunningTurn) -> None:
        raise ValueError("half a character: \ud83d")

    with pytest.raises(ValueError, match="half"):
        await chat.run(fail, "q")
    [aside] = await chat.attempts()
    assert aside.attempt.failure is not None
    assert aside.attempt.failure.message.endswith("\\ud83d")


async def test_cancellation_in_the_tick_in_which_a_stopped_turn_is_left_is_raised(chat: Chat) -> None:
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
async def test_stop_that_arrives_with_the_end_of_the_block_takes_back_its_own_cancellation_only(
    ledger: Ledger, chat: Chat, problem: Exception | None, cancelled_too: bool
) -> None:
    went_on: list[str] = []

    async def work() -> None:
        this = asyncio.current_task()
        assert this is not None
        try:
            async with chat.turn("q") as turn:
                turn.emit("half")
                ledger._process.interrupt_here(turn.id)
                if cancelled_too:
                    asyncio.get_running_loop().call_soon(this.cancel)
                if problem is not None:
                    raise problem
        except (TurnStopped, ValueError) as raised:
            went_on.append(type(raised).__name__)
        await asyncio.sleep(0)

    task = asyncio.create_task(work())
    await asyncio.wait((task,), timeout=GUARD)
    assert task.cancelled() is cancelled_too
    if not cancelled_too:
        assert went_on == ["ValueError" if problem else "TurnStopped"]
        assert task.cancelling() == 0
    [turn] = await chat.turns()
    assert turn.kind is TurnKind.INTERRUPTED
