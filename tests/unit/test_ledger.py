"""The ledger: refusals, recovery and probes; it never blocks the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from turnledger import Ledger, Limits, RunningTurn
from turnledger.engine.lane.lease_watch import renew
from turnledger.errors import (
    InvalidInput,
    LedgerClosed,
    MalformedItems,
    OutcomeUnknown,
    StoreFull,
    StoreUnavailable,
    TurnEnded,
)
from turnledger.hosting import Host
from turnledger.model.event import Event, ItemDone, TextDelta, TurnFinished, TurnStarted
from turnledger.model.turn import AttemptState
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.gates import Fate, GatedStore


async def answer(turn: RunningTurn) -> None:
    turn.emit("yes")


async def pays(turn: RunningTurn) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "pay", "arguments": "{}"}

    async def pay() -> str:
        return "paid"

    await turn.call(call, pay)
    turn.emit("done")


async def test_ledger_on_sqlite_never_blocks_the_event_loop(tmp_path: Path) -> None:
    with blockbuster_ctx():
        async with await Ledger.open(f"sqlite:///{tmp_path}/chats.db") as ledger:
            chat = await ledger.conversation(conversation_key="k")
            await asyncio.gather(*(chat.run(answer, f"q{count}") for count in range(5)))
            await chat.run(pays, "pay", idempotency_key="i")
            assert len(await chat.turns()) == 6
            await chat.delete()


async def test_events_are_numbered_without_gaps_and_end_with_the_outcome() -> None:
    events: list[Event] = []
    async with await Ledger.open("memory:") as ledger:
        chat = await ledger.conversation()
        await chat.run(pays, "pay", on_event=events.append)
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    kinds = [type(event) for event in events]
    assert kinds == [TurnStarted, ItemDone, ItemDone, TextDelta, ItemDone, TurnFinished]
    assert isinstance(events[-1], TurnFinished)
    assert events[-1].state is AttemptState.COMPLETED


async def test_event_reader_that_raises_at_the_last_event_does_not_undo_the_commit() -> None:
    def reader(event: Event) -> None:
        if isinstance(event, TurnFinished):
            raise ValueError("broken reader")

    async with await Ledger.open("memory:") as ledger:
        chat = await ledger.conversation()
        assert (await chat.run(answer, "q", on_event=reader)).text == "yes"


async def test_ledger_close_ends_running_turns_and_fails_waiting_ones() -> None:
    started = asyncio.Event()

    async def forever(turn: RunningTurn) -> None:
        started.set()
        await asyncio.get_running_loop().create_future()

    ledger = await Ledger.open("memory:", limits=Limits(lease_time=1000.0, queue_wait=1000.0))
    chat = await ledger.conversation()
    running = asyncio.create_task(chat.run(forever, "q"))
    await started.wait()
    waiting = asyncio.create_task(chat.run(answer, "next"))
    for _ in range(10):  # the memory store answers within a few steps of the loop
        await asyncio.sleep(0)
    assert any(ledger._process.attempts.values())
    await ledger.close()
    with pytest.raises(LedgerClosed):
        await waiting
    running.cancel()
    with pytest.raises((asyncio.CancelledError, LedgerClosed)):
        await running
    with pytest.raises(LedgerClosed):
        await ledger.conversation()


async def test_turn_block_entered_twice_is_refused() -> None:
    async with await Ledger.open("memory:") as ledger:
        block = (await ledger.conversation()).turn("q")
        async with block as turn:
            turn.emit("a")
        with pytest.raises(InvalidInput):
            await block.__aenter__()
        with pytest.raises(TurnEnded):
            turn.emit("more")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"on_busy": "wait"}, "queue, reject, interrupt, rollback"),
        ({"on_stop": "kill"}, "keep, discard"),
        ({"on_failure": "retry"}, "settle, keep, forget"),
        ({"idempotency_key": ""}, "1 to 512"),
    ],
)
async def test_turn_with_an_unknown_policy_is_refused_with_the_known_ones(
    arguments: dict[str, str], names: str
) -> None:
    async with await Ledger.open("memory:") as ledger:
        chat = await ledger.conversation()
        with pytest.raises(InvalidInput, match=names):
            chat.turn("q", **arguments)  # type: ignore[arg-type]


async def test_input_beyond_its_limits_is_refused_and_stores_no_turn() -> None:
    limits = Limits(input_items=2, turn_bytes=500)
    async with await Ledger.open("memory:", limits=limits) as ledger:
        chat = await ledger.conversation()
        with pytest.raises(MalformedItems, match="at most 2 items"):
            chat.turn(["a", "b", "c"])
        with pytest.raises(MalformedItems, match="500 bytes"):
            async with chat.turn("q") as turn:
                turn.emit("x" * 600)
        with pytest.raises(MalformedItems, match="500 bytes"):
            async with chat.turn("q") as turn:
                await turn.add({"type": "message", "role": "assistant", "content": "x" * 600})
        with pytest.raises(InvalidInput, match="16 pairs"):
            await chat.update(metadata={str(count): "" for count in range(17)})
        with pytest.raises(InvalidInput, match="title"):
            await ledger.conversation(title="x" * 513)
        with pytest.raises(InvalidInput, match="limit"):
            await chat.turns(limit=0)
        with pytest.raises(InvalidInput, match="not both"):
            await ledger.conversation(chat.id, conversation_key="k")
        assert await chat.turns() == []


async def test_chat_stop_inside_its_own_turn_block_is_refused_with_a_hint_to_turn_stop() -> None:
    async with await Ledger.open("memory:") as ledger:
        chat = await ledger.conversation()
        async with chat.turn("q") as turn:
            turn.emit("a")
            with pytest.raises(InvalidInput, match=r"turn\.stop"):
                await chat.stop()
        assert turn.state is AttemptState.COMPLETED


async def test_lapsed_conversation_is_not_listed() -> None:
    clock = FakeClock()
    async with await Ledger.over(MemoryStore(Database(ttl_ms=1000)), clock=clock) as ledger:
        kept = await ledger.conversation(expires_after=1000.0)
        await ledger.conversation()
        clock.advance(2.0)
        assert [each.conversation.id for each in (await ledger.list()).chats] == [kept.id]


async def test_at_work_counts_running_and_waiting_turns() -> None:
    async def hang(turn: RunningTurn) -> None:
        await asyncio.Event().wait()

    async with await Ledger.open() as ledger:
        chat = await ledger.conversation()
        assert Host(ledger).at_work() == (0, 0, 0)
        running = asyncio.create_task(chat.run(hang, "q"))
        while Host(ledger).at_work().running < 1:
            await asyncio.sleep(0)
        waiting = asyncio.create_task(chat.run(answer, "next"))
        while Host(ledger).at_work().waiting < 1:
            await asyncio.sleep(0)
        assert Host(ledger).at_work() == (1, 1, 0)
        running.cancel()
        assert (await waiting).text == "yes"
        assert Host(ledger).at_work() == (0, 0, 0)


async def test_recover_ends_the_turns_of_a_dead_process_only(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chats.db"
    code = (
        "import asyncio; from turnledger import Ledger\n"
        "async def run():\n"
        f"    ledger = await Ledger.open({url!r})\n"
        "    chat = await ledger.conversation(conversation_key='k')\n"
        "    async with chat.turn('Hello'):\n"
        "        print('runs', flush=True)\n"
        "        await asyncio.sleep(3600)\n"
        "asyncio.run(run())"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=PIPE, env=environ)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"runs\n"
    async with await Ledger.open(url, limits=Limits(lease_time=3600)) as ledger:
        chat = await ledger.conversation(conversation_key="k")
        await Host(ledger).recover()
        assert [each.attempt.state for each in await chat.attempts()] == [AttemptState.RUNNING]
        process.kill()
        await process.wait()
        await Host(ledger).recover()
        assert [each.attempt.state for each in await chat.attempts()] == [AttemptState.FAILED]


async def test_probe_raises_while_the_store_file_is_moved_away(tmp_path: Path) -> None:
    file = tmp_path / "chats.db"
    async with await Ledger.open(f"sqlite:///{file}") as ledger:
        await Host(ledger).probe()
        file.rename(tmp_path / "elsewhere")
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            await Host(ledger).probe()
        (tmp_path / "elsewhere").rename(file)
        await Host(ledger).probe()
    with pytest.raises(LedgerClosed):
        await Host(ledger).probe()


async def test_probe_with_an_unknown_outcome_raises_the_cause_of_the_store() -> None:
    store = GatedStore(MemoryStore())
    full = OutcomeUnknown("disk is full")
    full.because = StoreFull
    async with await Ledger.over(store) as ledger:
        store.refuse(renew, full)
        with pytest.raises(StoreFull, match="disk is full"):
            await Host(ledger).probe()
        store.lose_answer(renew, Fate.WRITTEN)
        with pytest.raises(StoreUnavailable):
            await Host(ledger).probe()
        await Host(ledger).probe()
