"""The block of a turn: stops and closings on the way in are not lost, and it runs once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.unit.engine.stage import BRANCH, branch
from tests.unit.model.shapes import some_id
from turnledger import Ledger, RunningTurn
from turnledger.chat import Chat
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.request import ExpectedHead
from turnledger.errors import (
    AdmissionMoved,
    InvalidInput,
    LedgerClosed,
    TurnReplayed,
    TurnStopped,
)
from turnledger.model.ids import BranchId, TurnId
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.gates import Fate, GatedStore, When


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def store(database: Database) -> GatedStore:
    return GatedStore(MemoryStore(database))


@pytest.fixture
async def ledger(store: GatedStore) -> AsyncIterator[Ledger]:
    async with await Ledger.over(store) as ledger:
        yield ledger


@pytest.fixture
async def chat(ledger: Ledger) -> Chat:
    return await ledger.conversation()


async def answer(turn: RunningTurn) -> None:
    turn.emit("yes")


async def test_a_stop_that_the_block_outran_cancels_nothing_later(store: GatedStore, chat: Chat) -> None:
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


async def test_closing_turns_back_who_is_on_the_way_in(
    store: GatedStore, ledger: Ledger, chat: Chat, database: Database
) -> None:
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


async def test_a_cancelled_close_goes_on_and_a_second_one_waits_for_it(ledger: Ledger) -> None:
    first = asyncio.create_task(ledger.close())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await ledger.close()
    with pytest.raises(LedgerClosed):
        await ledger.conversation()


async def test_a_begin_that_must_reach_the_disk_is_run_once_more_and_not_twice(
    store: GatedStore, ledger: Ledger
) -> None:
    with store.hold(begin) as gate:
        gate.release()
        await ledger.run(answer, "q", conversation_key="k")
        assert gate._arrivals == 2


async def test_a_move_that_is_stopped_while_it_waits_says_so(database: Database, chat: Chat) -> None:
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


async def test_begin_in_doubt_whose_caller_is_refused_afterwards_leaves_no_lane_taken(
    store: GatedStore, ledger: Ledger, chat: Chat, database: Database
) -> None:
    versions = iter([1])  # authorized when it asks, and not when it asks again

    async def readmit() -> int | None:
        return next(versions, None)

    store.lose_answer(begin, Fate.WRITTEN)
    with pytest.raises(AdmissionMoved):
        async with chat.turn("q", admitted=0, admitted_until=1, readmit=readmit):
            pass
    assert not any(branch.running for branch in database.branches.values())


async def test_ticket_in_doubt_of_a_caller_who_is_refused_afterwards_is_withdrawn(
    store: GatedStore, ledger: Ledger, chat: Chat, database: Database
) -> None:
    versions = iter([1])

    async def readmit() -> int | None:
        return next(versions, None)

    async with chat.turn("first") as first:
        store.lose_answer(begin, Fate.WRITTEN)
        with pytest.raises(AdmissionMoved):
            async with chat.turn("q", admitted=0, admitted_until=1, readmit=readmit):
                pass
        assert database.tickets == {}
        first.emit("yes")


async def test_begin_in_doubt_of_a_ledger_that_closes_leaves_no_lane_taken(
    store: GatedStore, ledger: Ledger, chat: Chat, database: Database
) -> None:
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


pytestmark = pytest.mark.anyio


async def test_a_block_that_was_run_cannot_be_run_again() -> None:
    async with await Ledger.open("memory:") as ledger:
        block = (await ledger.conversation()).turn("q")
        turn = await block.run(answer)
        assert turn.id == block.id
        with pytest.raises(InvalidInput):
            await block.run(answer)


async def test_a_replay_of_another_turn_inside_the_runner_is_not_taken_for_ones_own() -> None:
    async with await Ledger.open("memory:") as ledger:
        other = await ledger.conversation()
        await other.run(answer, "q", idempotency_key="i")

        async def asks_elsewhere(turn: RunningTurn) -> None:
            async with other.turn("q", idempotency_key="i"):
                pytest.fail("the block was run")

        chat = await ledger.conversation()
        with pytest.raises(TurnReplayed):
            await chat.run(asks_elsewhere, "q")
        assert await chat.turns() == []


def test_it_is_the_same_line_with_the_same_branch_and_head_only() -> None:
    head, other = some_id(TurnId, 1), some_id(TurnId, 2)
    seen = ExpectedHead(BRANCH, head)
    assert seen.is_still(branch(head=head, fence=7))
    assert not seen.is_still(branch(head=other))
    assert not seen.is_still(branch(head=None))
    assert not seen.is_still(branch(id=some_id(BranchId, 9), head=head))
