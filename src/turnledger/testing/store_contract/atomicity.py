"""All or nothing: a turn that fails leaves the history unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from turnledger.chat import Chat
from turnledger.engine.conversations.read import SetAsideAttempt
from turnledger.engine.limits import Limits
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.commit import commit
from turnledger.errors import EmptyTurn, LedgerClosed, MalformedItems, StoreFull, TurnEnded
from turnledger.model.item import Item
from turnledger.model.turn import AttemptState
from turnledger.testing.gates import Gate, When
from turnledger.testing.scripted_model import ScriptedModel, Think
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Contract,
    Stage,
    StageProcess,
    exchange,
    message_texts,
    soon,
    user,
)

BOOM = RuntimeError("the model broke")


async def fail_by_error(stage: Stage, here: StageProcess, chat: Chat) -> None:
    with pytest.raises(RuntimeError, match="the model broke"):
        await chat.run(ScriptedModel(["Hal", BOOM]), "Hello")


async def fail_by_cancellation(stage: Stage, here: StageProcess, chat: Chat) -> None:
    holder = await stage.hold_lane(chat, "Hello", ["Hal"])
    holder.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(holder.task)


async def fail_by_timeout(stage: Stage, here: StageProcess, chat: Chat) -> None:
    with pytest.raises(TimeoutError):
        await run_out_of_time(chat)


async def run_out_of_time(chat: Chat) -> None:
    async with asyncio.timeout(None) as time, chat.turn("Hello") as turn:
        turn.emit("Hal")
        time.reschedule(0)
        await Gate().pass_through()


async def fail_by_empty_turn(stage: Stage, here: StageProcess, chat: Chat) -> None:
    with pytest.raises(EmptyTurn):
        await chat.run(ScriptedModel([]), "Hello")


async def fail_by_malformed_output(stage: Stage, here: StageProcess, chat: Chat) -> None:
    with pytest.raises(MalformedItems, match="reasoning"):
        await chat.run(ScriptedModel([Think()]), "Hello")


async def fail_by_refused_commit(stage: Stage, here: StageProcess, chat: Chat) -> None:
    here.store.refuse(commit, StoreFull())
    with pytest.raises(StoreFull):
        await chat.run(ScriptedModel(["Hal"]), "Hello")


async def fail_by_death(stage: Stage, here: StageProcess, chat: Chat) -> None:
    await stage.hold_lane(chat, "Hello", ["Hal"])
    await stage.bury_others(await stage.process())


Failure: TypeAlias = Callable[[Stage, StageProcess, Chat], Awaitable[None]]


FAILURES: list[tuple[Failure, str, str]] = [
    (fail_by_error, "RuntimeError", "Hal"),
    (fail_by_cancellation, "cancelled", "Hal"),
    (fail_by_timeout, "cancelled", "Hal"),
    (fail_by_empty_turn, "empty_turn", ""),
    (fail_by_malformed_output, "malformed_items", ""),
    (fail_by_refused_commit, "store_full", "Hal"),
    (fail_by_death, "process_died", ""),
]


every_way_to_fail = pytest.mark.parametrize(
    ("fail", "code", "draft"), FAILURES, ids=[failure.__name__ for failure, _, _ in FAILURES]
)


class Atomicity(Contract):
    @every_way_to_fail
    async def test_failed_turn_leaves_history_unchanged_and_is_readable(
        self, stage: Stage, fail: Failure, code: str, draft: str
    ) -> None:
        here = await stage.process()
        chat = await here.chat()
        await exchange(chat, "Are you there?")
        before = await chat.turns()
        await fail(stage, here, chat)
        other = await (await stage.process()).chat(chat)
        assert await chat.turns() == await other.turns() == before
        [aside] = await other.attempts()
        assert aside.attempt.state is AttemptState.FAILED
        assert aside.attempt.failure is not None
        assert (aside.attempt.failure.code, aside.attempt.partial) == (code, draft)
        assert aside.attempt.input == (Item.of("Hello"),)
        assert aside.attempt.ended_at == stage.clock.now_ms()
        model = ScriptedModel(["Hallo!"])
        await soon(chat.run(model, "Hello"))
        assert model.seen == [
            [user("Are you there?"), {"role": "assistant", "content": "Yes."}, user("Hello")]
        ]
        assert await message_texts(chat) == ["Are you there?", "Yes.", "Hello", "Hallo!"]

    @pytest.mark.parametrize("length", [1, 200_000])
    async def test_attempt_shows_the_details_it_began_with(self, stage: Stage, length: int) -> None:
        chat, same = await stage.shared_chat()
        details = {"model": "m", "tools": "x" * length}
        holder = await stage.hold_lane(chat, "Hello", details=details)
        [running] = await same.attempts()
        assert running.attempt.details == (await same.status(running.attempt.id)).details == details
        holder.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(holder.task)
        [failed] = await same.attempts()
        assert failed.attempt.details == (await same.status(failed.attempt.id)).details == details

    async def test_kept_and_completed_turns_carry_the_details_they_began_with(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        async with chat.turn("Hello", details={"model": "m"}) as turn:
            turn.emit("Hal")
            turn.details["usage"] = 3
            turn.stop("keep")
        async with chat.turn("Hello", details={"model": "m"}) as turn:
            turn.emit("Hallo!")
            turn.details["usage"] = 3
        fork = await same.fork()
        for reader in (same, fork):
            assert [each.details for each in await reader.turns()] == [
                {"model": "m"},
                {"model": "m", "usage": 3},
            ]

    async def test_failed_attempts_are_listed_newest_first_in_pages(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        for text in ("one", "two", "three"):
            stage.clock.advance(1)
            with pytest.raises(RuntimeError):
                await chat.run(ScriptedModel([BOOM]), text)

        def inputs(asides: list[SetAsideAttempt]) -> list[str]:
            return [aside.attempt.input[0].text for aside in asides]

        assert inputs(await chat.attempts()) == ["three", "two", "one"]
        assert inputs(await chat.attempts(limit=2)) == ["three", "two"]

    @pytest.mark.parametrize("when", When)
    async def test_turn_cancelled_while_beginning_frees_its_lane(self, stage: Stage, when: When) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        model = ScriptedModel()
        with here.store.hold(begin, when) as gate:
            task = stage.start(chat.run(model, "Hello"))
            await stage.reach(gate, task)
            task.cancel()
            gate.release()
            with pytest.raises(asyncio.CancelledError):
                await soon(task)
        assert await chat.turns() == []
        await exchange(await there.chat(chat), "Hello", "Hallo!", on_busy="reject")
        assert await message_texts(chat) == ["Hello", "Hallo!"]
        assert model.seen == []

    async def test_turn_above_the_size_limit_leaves_nothing(self, stage: Stage) -> None:
        chat = await (await stage.process(Limits(lease_time=LIMITS.lease_time, turn_bytes=1_000))).chat()
        with pytest.raises(MalformedItems, match="1000 bytes"):
            await chat.run(ScriptedModel(["x" * 1_000]), "Hello")
        assert await chat.turns() == []
        await exchange(chat, "Hello")

    async def test_close_with_running_turns_fails_them(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "Hello", ["Hal"])
        await soon(here.ledger.close())
        other = await there.chat(chat)
        assert await other.turns() == []
        [aside] = await other.attempts()
        assert aside.attempt.failure is not None
        assert aside.attempt.failure.code == "ledger_closed"
        await exchange(other, "Hello", on_busy="reject")
        holder.gate.release()
        with pytest.raises((LedgerClosed, TurnEnded)):
            await soon(holder.task)

    async def test_items_are_stored_byte_for_byte(self, stage: Stage) -> None:
        here, there = await stage.processes()
        text = r"é\u00e9 \u0000 \ud83d\ude00"
        odd = Item(f'{{ "role":"user",  "content": "{text}",\n"type":"message","x":1.50}}'.encode())
        chat = await here.chat()
        await exchange(chat, "before")
        async with chat.turn([odd]) as turn:
            await turn.add(odd_output := Item(b'{"type": "web_search_call" , "id":"ws_1", "n": 1e2}'))
            turn.emit("Done.")
        read = (await (await there.chat(chat)).turns())[-1]
        assert read.items[0].raw == odd.raw
        assert read.items[1].raw == odd_output.raw
        assert read == turn.turn

    async def test_acknowledged_turn_survives_restart(self, stage: Stage) -> None:
        if not self.capabilities.survives_restart:
            pytest.skip("the store does not survive a restart")
        chat = await (await stage.process()).chat(conversation_key="k", title="T", metadata={"a": "b"})
        await exchange(chat, "Hello", "Hallo!")
        with pytest.raises(RuntimeError):
            await chat.run(ScriptedModel(["Hal", BOOM]), "Again")
        turns, attempts, found = await chat.turns(), await chat.attempts(), await chat.info()
        again = await (await stage.restart()).chat(conversation_key="k")
        assert await again.turns() == turns
        assert await again.attempts() == attempts
        assert await again.info() == found
