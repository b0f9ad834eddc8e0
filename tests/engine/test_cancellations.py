"""Cancellation: the exception reports how the turn ended, and no stop or ended task blocks a lane."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from tests.engine.views import BrokenEngine, BrokenEngines, check_fails
from turnledger.chat import Chat
from turnledger.engine.attempt.commit_in_doubt import resolve_doubt
from turnledger.engine.limits import Limits
from turnledger.engine.recovery import Recovery
from turnledger.engine.turn import commit as commit_module
from turnledger.engine.turn import running_turn
from turnledger.engine.turn.commit import commit
from turnledger.errors import (
    CommitOutcomeUnknown,
    InvalidInput,
    TurnEnded,
    TurnStopped,
    turn_of,
)
from turnledger.model.turn import AttemptState, TurnKind
from turnledger.testing.gates import Fate, Gate, When
from turnledger.testing.scripted_model import ScriptedModel
from turnledger.testing.store_contract import stage as stages
from turnledger.testing.store_contract.stage import LIMITS, Stage, StageProcess, exchange, message_texts, soon

IN_DOUBT = Limits(lease_time=600.0, flush_every=6_000.0, doubt_patience=0.0)


async def stream(chat: Chat, gate: Gate, left: list[BaseException | None]) -> AsyncGenerator[str, None]:
    """Run a turn inside an async generator, as programs do that stream an answer."""
    try:
        async with chat.turn("q") as turn:
            turn.emit("Half")
            yield "Half"
            await gate.pass_through()
            turn.emit(" done.")
            yield " done."
    except BaseException as problem:
        left.append(problem)
        raise
    left.append(None)


class TestCancellations:
    @pytest.mark.parametrize("when", When)
    async def test_cancellation_during_the_commit_carries_the_committed_turn(
        self, stage: Stage, here: StageProcess, chat: Chat, when: When
    ) -> None:
        with here.store.hold(commit, when) as gate:
            task = stage.start(chat.run(ScriptedModel(["Whole."]), "q"))
            await stage.reach(gate, task)
            task.cancel()
            gate.release()
            with pytest.raises(asyncio.CancelledError) as cancelled:
                await soon(task)
        [turn] = await chat.turns()
        assert turn_of(cancelled.value) == turn
        assert turn.kind is TurnKind.COMPLETED
        assert turn.id in cancelled.value.__notes__[0]

    async def test_cancellation_inside_the_block_notes_that_the_turn_is_not_in_the_history(
        self, stage: Stage, chat: Chat
    ) -> None:
        holder = await stage.hold_lane(chat)
        holder.task.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await soon(holder.task)
        assert turn_of(cancelled.value) is None
        assert "not in the history" in cancelled.value.__notes__[0]

    async def test_cancellation_of_a_turn_kept_on_failure_carries_the_kept_turn(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        holder = await stage.hold_lane(chat, on_failure="keep")
        holder.task.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await soon(holder.task)
        [turn] = await chat.turns()
        assert turn.kind is TurnKind.INTERRUPTED
        assert turn_of(cancelled.value) == turn

    async def test_cancellation_during_a_commit_of_unknown_outcome_raises_commit_outcome_unknown(
        self, stage: Stage
    ) -> None:
        here = await stage.process(IN_DOUBT)
        chat = await here.chat()
        here.store.lose_answer(commit, Fate.WRITTEN)
        here.store.refuse(resolve_doubt)
        with here.store.hold(commit) as gate:
            task = stage.start(chat.run(ScriptedModel(["Whole."]), "q"))
            await stage.reach(gate, task)
            task.cancel()
            gate.release()
            with pytest.raises(asyncio.CancelledError) as cancelled:
                await soon(task)
        with pytest.raises(CommitOutcomeUnknown):
            turn_of(cancelled.value)
        await here.tend()
        await exchange(chat, "next", on_busy="reject")

    async def test_timeout_during_the_commit_raises_timeout_error_with_the_committed_turn(
        self, stage: Stage, here: StageProcess, chat: Chat
    ) -> None:

        async def run() -> None:
            async with asyncio.timeout(None) as time:
                with here.store.hold(commit) as gate:
                    held = stage.start(gate.arrived())
                    held.add_done_callback(lambda _: time.reschedule(0))
                    held.add_done_callback(lambda _: asyncio.get_running_loop().call_later(0, gate.release))
                    await chat.run(ScriptedModel(["Whole."]), "q")

        with pytest.raises(TimeoutError) as timeout:
            await soon(run())
        assert [turn_of(timeout.value)] == await chat.turns()

    async def test_task_group_with_a_turn_cancelled_during_its_commit_ends_and_keeps_the_turn(
        self, stage: Stage, here: StageProcess, chat: Chat
    ) -> None:

        async def run() -> None:
            async with asyncio.TaskGroup() as group:
                with here.store.hold(commit) as gate:
                    running = group.create_task(chat.run(ScriptedModel(["Whole."]), "q"))
                    await stage.reach(gate, running)
                raise ValueError("a sibling failed")

        with pytest.raises(ExceptionGroup) as group:
            await soon(run())
        assert [str(each) for each in group.value.exceptions] == ["a sibling failed"]
        assert await message_texts(chat) == ["q", "Whole."]

    async def test_stop_cancels_the_task_that_continues_the_generator(self, stage: Stage, chat: Chat) -> None:
        """The test reads the first text and another task the rest, so the test may request the stop."""
        gate, left = Gate(), list[BaseException | None]()
        texts = stream(chat, gate, left)
        assert await anext(texts) == "Half"
        reading = stage.start(_rest(texts))
        await stage.reach(gate, reading)
        ended = await soon(chat.stop())
        assert ended.state is AttemptState.KEPT
        with pytest.raises(TurnStopped) as stopped:
            await soon(reading)
        assert stopped.value.turn == ended.turn
        assert left == [stopped.value]
        this = asyncio.current_task()
        assert (this.cancelling(), reading.cancelling()) == (0, 0)

    async def test_stop_of_a_turn_whose_generator_is_suspended_ends_it_and_cancels_no_task(
        self, chat: Chat
    ) -> None:
        left = list[BaseException | None]()
        texts = stream(chat, Gate(), left)
        assert await anext(texts) == "Half"
        ended = await soon(chat.stop(policy="discard"))
        assert ended.state is AttemptState.DISCARDED
        assert left == []
        await exchange(chat, "next", on_busy="reject")
        await texts.aclose()
        assert isinstance(left[0], GeneratorExit)
        assert await message_texts(chat) == ["next", "Yes."]

    @pytest.mark.parametrize("way", ["stop", "interrupt", "aclosing"])
    async def test_suspended_turn_of_a_live_task_runs_until_it_is_stopped_interrupted_or_closed(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat, way: str
    ) -> None:
        """No time ends it: its reader may be slow."""
        suspended, over = asyncio.Event(), asyncio.Event()
        texts = stream(chat, Gate(), [])

        async def leave_the_loop() -> None:
            async with contextlib.AsyncExitStack() as stack:
                if way == "aclosing":
                    await stack.enter_async_context(contextlib.aclosing(texts))
                async for _ in texts:
                    break
            suspended.set()
            await over.wait()

        living = stage.start(leave_the_loop())
        await soon(suspended.wait())
        for _ in range(3):
            stage.clock.advance(LIMITS.lease_time * 100)
            await here.store.beat()
            await here.tend()
            await there.tend()
        runs = [each for each in await same.attempts() if each.attempt.state is AttemptState.RUNNING]
        assert bool(runs) is (way != "aclosing")
        if way == "stop":
            ended = await soon(same.stop(policy="discard"))
            assert ended.state is AttemptState.DISCARDED
        await exchange(same, "next", on_busy="interrupt" if way == "interrupt" else "reject")
        assert not living.done()
        over.set()
        await soon(living)
        await texts.aclose()

    async def test_stopped_turn_raises_turn_stopped_when_its_suspended_generator_resumes(
        self, chat: Chat
    ) -> None:
        gate, left = Gate(), list[BaseException | None]()
        gate.release()
        texts = stream(chat, gate, left)
        await anext(texts)
        ended = await soon(chat.stop())
        with pytest.raises(TurnStopped) as stopped:
            await anext(texts)
        assert stopped.value.turn == ended.turn

    async def test_stopped_turn_raises_turn_stopped_when_its_suspended_block_ends(self, chat: Chat) -> None:
        async def stream_once() -> AsyncIterator[str]:
            async with chat.turn("q") as turn:
                turn.emit("Half")
                yield "Half"

        texts = stream_once()
        await anext(texts)
        ended = await soon(chat.stop())
        with pytest.raises(TurnStopped) as stopped:
            await anext(texts)
        assert stopped.value.turn == ended.turn

    @pytest.mark.parametrize("on_busy", ["interrupt", "rollback"])
    async def test_interrupting_turn_ends_a_suspended_turn_whose_task_has_ended(
        self, stage: Stage, chat: Chat, on_busy: str
    ) -> None:
        texts = stream(chat, Gate(), [])
        await stage.start(_first(texts))
        await exchange(chat, "next", on_busy=on_busy)
        assert await message_texts(chat) == [
            *(["q", "Half"] if on_busy == "interrupt" else []),
            "next",
            "Yes.",
        ]
        await texts.aclose()

    async def test_turn_whose_task_has_ended_fails_after_a_lease_time_and_frees_its_lane(
        self, stage: Stage, here: StageProcess, chat: Chat
    ) -> None:
        left = list[BaseException | None]()
        texts = stream(chat, Gate(), left)
        await stage.start(_first(texts))
        waiting = await stage.queue(chat, ScriptedModel(["Yes."]), "next")
        await here.tend()
        stage.clock.advance(LIMITS.lease_time / 2)
        await here.tend()
        assert not waiting.done()
        stage.clock.advance(LIMITS.lease_time / 2)
        await here.tend()
        await soon(waiting)
        assert await message_texts(chat) == ["next", "Yes."]
        [aside] = await chat.attempts()
        assert aside.attempt.failure.code == "task_ended"
        await texts.aclose()

    async def test_turn_whose_generator_another_task_continues_completes(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        gate, left = Gate(), list[BaseException | None]()
        texts = stream(chat, gate, left)
        await stage.start(_first(texts))
        reading = stage.start(_rest(texts))
        await stage.reach(gate, reading)
        for _ in range(3):
            await here.tend()
            stage.clock.advance(LIMITS.lease_time)
            await here.store.beat()
        gate.release()
        await soon(reading)
        assert left == [None]
        assert await message_texts(chat) == ["q", "Half done."]

    async def test_turn_failed_with_its_task_raises_turn_ended_when_its_generator_resumes(
        self, stage: Stage, here: StageProcess, chat: Chat
    ) -> None:
        gate = Gate()
        gate.release()
        texts = stream(chat, gate, [])
        await stage.start(_first(texts))
        await here.tend()
        stage.clock.advance(LIMITS.lease_time)
        await here.tend()
        with pytest.raises(TurnEnded, match="ended without leaving"):
            await anext(texts)
        await exchange(chat, "next", on_busy="reject")

    async def test_stop_cancels_the_task_assigned_to_the_turn(self, stage: Stage, chat: Chat) -> None:
        """A block that is entered and left by hand can go from one task to another, too."""
        block, gate = chat.turn("q"), Gate()
        turn = await block.__aenter__()

        async def take_over() -> None:
            this = asyncio.current_task()
            assert this is not None
            turn.task = this
            try:
                turn.emit("Half")
                await gate.pass_through()
            except BaseException as problem:
                await block.__aexit__(type(problem), problem, None)
                raise

        with pytest.raises(InvalidInput, match=r"turn\.stop"):
            await chat.stop()
        working = stage.start(take_over())
        await stage.reach(gate, working)
        ended = await soon(chat.stop())
        assert ended is not None
        with pytest.raises(TurnStopped):
            await soon(working)

    async def test_stop_from_inside_a_turn_in_a_generator_is_refused(self, chat: Chat) -> None:

        async def texts() -> AsyncIterator[str]:
            async with chat.turn("q") as turn:
                with pytest.raises(InvalidInput, match=r"turn\.stop"):
                    await chat.stop()
                turn.emit("Whole.")
                yield "Whole."

        assert [text async for text in texts()] == ["Whole."]
        assert await message_texts(chat) == ["q", "Whole."]


async def _first(texts: AsyncIterator[str]) -> None:
    await anext(texts)


async def _rest(texts: AsyncIterator[str]) -> list[str]:
    return [text async for text in texts]


# Engines with one rule left out.


BROKEN = BrokenEngines()
Rules = TestCancellations


@BROKEN.caught_by(Rules.test_stop_cancels_the_task_that_continues_the_generator, running_turn, "task_inside")
def cancels_the_task_that_entered(generator: Any, likely: asyncio.Task[Any] | None) -> Any:
    return likely


@BROKEN.caught_by(
    Rules.test_stop_cancels_the_task_that_continues_the_generator, running_turn.OpenTurn, "is_inside"
)
def takes_the_entering_task_for_inside(self: Any) -> bool:
    return self.task is asyncio.current_task()


@BROKEN.caught_by(
    Rules.test_stop_of_a_turn_whose_generator_is_suspended_ends_it_and_cancels_no_task,
    Recovery,
    "_end_unheld",
)
def leaves_the_block_to_itself(self: Recovery, running: Any, reason: Any) -> None:
    return None


@BROKEN.caught_by(
    Rules.test_turn_whose_task_has_ended_fails_after_a_lease_time_and_frees_its_lane,
    Recovery,
    "_end_unheld_turns",
)
async def ends_nothing(self: Recovery) -> None:
    return None


@BROKEN.caught_by(
    Rules.test_cancellation_of_a_turn_kept_on_failure_carries_the_kept_turn, commit_module, "_tell_outcome"
)
def reports_nothing(*_: Any) -> None:
    return None


@BROKEN.each
async def test_engine_without_one_of_its_cancellation_rules_fails_a_test(
    engine: BrokenEngine, fixtures: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "GUARD", 0.2)  # what a rule prevents is a wait without end
    await check_fails(engine, fixtures)
