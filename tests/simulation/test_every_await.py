"""Cancel a turn at each of its awaits: the exception reports the true outcome and the next turn works.

Each scene runs once per await of its victim task. After each run: the cancellation was raised, its exception
matches the history, no tool ran twice, lane and queue are empty, the store is consistent, and the next turn
commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import aclosing, suppress
from enum import Enum
from itertools import product
from random import Random
from types import coroutine
from typing import Any, TypeAlias

import pytest

from turnledger import Ledger, RunningTurn
from turnledger.chat import Chat
from turnledger.engine.attempt import end as end_module
from turnledger.engine.lane.shield import Unstoppable
from turnledger.engine.ports import Result, Store
from turnledger.engine.tables.jobs import ReadyJob
from turnledger.engine.turn import block as block_module
from turnledger.engine.turn import commit
from turnledger.engine.turn import queue as queue_module
from turnledger.engine.turn import worker as worker_module
from turnledger.engine.turn.block import TurnBlock
from turnledger.engine.turn.worker import JobWorker
from turnledger.engine.wrapped_store import AnyOperation, WrappedStore, Write
from turnledger.errors import TurnledgerError, TurnStopped, turn_of
from turnledger.model.ids import TurnId
from turnledger.model.item import OUTCOME_UNKNOWN
from turnledger.testing.gates import Gate
from turnledger.testing.simulated_loop import SimulatedLoop
from turnledger.testing.simulation.stores import open_inner
from turnledger.testing.simulation.wall_clock import SimulatedClock, WallClock
from turnledger.types import TurnKind

MOST_AWAITS = 200
CALL = {"type": "function_call", "call_id": "c", "name": "pay", "arguments": "{}"}


class When(Enum):
    """When the task is cancelled, seen from one of its awaits."""

    BEFORE = "before"  # in the step that leads to it
    WAITING = "waiting"  # once the task waits
    TWICE = "twice"  # once the task waits, and again at its next await
    READY = "ready"  # the awaited result is there, and the task has not continued yet


class HesitantStore(WrappedStore):
    """A store whose every operation makes its caller wait, before it is done and after."""

    def __init__(self, store: Store, kind: type[asyncio.Future[Any]]) -> None:
        super().__init__(store)
        self._kind = kind

    async def write(self, write: Write) -> Any:
        await self._hesitate()
        result = await super().write(write)
        await self._hesitate()
        return result

    async def look(self, operation: AnyOperation, request: Any, owner: str | None) -> Any:
        await asyncio.sleep(0)
        return await super().look(operation, request, owner)

    async def _hesitate(self) -> None:
        loop = asyncio.get_running_loop()
        answer = self._kind(loop=loop)
        loop.call_soon(_set, answer)
        await answer


def _set(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_result(None)


class Victim:
    """A coroutine whose task is cancelled at one of its awaits."""

    def __init__(self, at: int, when: When) -> None:
        self._at = at
        self._when = when
        self.awaits = 0

    @coroutine
    def run(self, work: Coroutine[Any, Any, Result]) -> Generator[Any, None, Result]:
        problem: BaseException | None = None
        while True:
            try:
                waits_for = work.send(None) if problem is None else work.throw(problem)
            except StopIteration as stop:
                result: Result = stop.value
                return result
            self.awaits += 1
            if self.awaits in (self._at, self._at + (self._when is When.TWICE)):
                self._cancel(waits_for)
            problem = None
            try:
                yield waits_for
            except BaseException as thrown:
                problem = thrown

    def _cancel(self, waits_for: asyncio.Future[Any] | None) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._when is When.BEFORE:
            task.cancel()
        elif self._when is When.READY and waits_for is not None:
            waits_for.add_done_callback(lambda _: task.cancel())
        else:
            asyncio.get_running_loop().call_soon(task.cancel)


class Scene:
    """One run on a chat of its own."""

    def __init__(self, ledger: Ledger, chat: Chat) -> None:
        self.ledger = ledger
        self.chat = chat
        self.paid: list[TurnId] = []
        self.turn: TurnId | None = None
        """The turn that the victim runs, if it runs one."""
        self._helpers: list[asyncio.Task[Any]] = []

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._helpers.append(task)
        return task

    async def end(self) -> None:
        for task in self._helpers:
            with suppress(TurnledgerError, asyncio.CancelledError):
                await task

    async def play(self, block: TurnBlock, then: Callable[[RunningTurn], Any] | None = None) -> None:
        """Run a whole turn: text, an item, a tool, text; and then whatever the scene is about."""
        self.turn = block.id
        async with block as turn:
            turn.emit("One. ")
            await turn.add({"type": "message", "role": "assistant", "content": "Two. "})
            await turn.call(CALL, lambda: self._pay(turn))
            turn.emit("Three.")
            if then is not None:
                then(turn)

    async def _pay(self, turn: RunningTurn) -> str:
        self.paid.append(turn.id)
        await asyncio.sleep(1)
        return "paid"


SceneRun: TypeAlias = Callable[[Scene], Coroutine[Any, Any, Coroutine[Any, Any, None]]]
"""Sets the scene, and returns what the victim does."""


async def a_turn(scene: Scene) -> Coroutine[Any, Any, None]:
    return scene.play(scene.chat.turn("q"))


async def a_turn_that_makes_its_conversation(scene: Scene) -> Coroutine[Any, Any, None]:
    return scene.play(scene.ledger.turn("q", conversation_key=f"key of {scene.chat.id}"))


async def a_turn_that_stops_itself(scene: Scene) -> Coroutine[Any, Any, None]:
    return scene.play(scene.chat.turn("q"), RunningTurn.stop)


async def a_turn_that_is_kept_when_it_fails(scene: Scene) -> Coroutine[Any, Any, None]:
    return scene.play(scene.chat.turn("q", on_failure="keep"))


async def a_turn_that_fails(scene: Scene) -> Coroutine[Any, Any, None]:
    return scene.play(scene.chat.turn("q"), _fail)


async def a_turn_that_is_stopped(scene: Scene) -> Coroutine[Any, Any, None]:
    block = scene.chat.turn("q")

    async def stop() -> None:
        await asyncio.sleep(0.5)  # while its tool acts
        await scene.chat.stop(block.id)

    scene.begin(stop())
    return scene.play(block)


async def a_turn_that_is_stopped_as_it_ends(scene: Scene) -> Coroutine[Any, Any, None]:
    return scene.play(scene.chat.turn("q"), lambda turn: scene.ledger._process.interrupt_here(turn.id, None))


async def a_resumed_turn(scene: Scene) -> Coroutine[Any, Any, None]:
    with suppress(ValueError):
        await scene.play(scene.chat.turn("q", idempotency_key=scene.chat.id), _fail)
    return scene.play(scene.chat.turn("q", idempotency_key=scene.chat.id))


async def a_replay(scene: Scene) -> Coroutine[Any, Any, None]:
    await scene.play(scene.chat.turn("q", idempotency_key=scene.chat.id))
    scene.turn = None
    return _run(scene.chat.turn("q", idempotency_key=scene.chat.id))


async def a_wait_for_the_same_turn(scene: Scene) -> Coroutine[Any, Any, None]:
    await _hold(scene, idempotency_key=scene.chat.id)
    return _run(scene.chat.turn("held", idempotency_key=scene.chat.id))


async def a_wait_in_the_queue(scene: Scene) -> Coroutine[Any, Any, None]:
    await _hold(scene)
    return scene.play(scene.chat.turn("q"))


async def an_interruption(scene: Scene) -> Coroutine[Any, Any, None]:
    await _hold(scene)
    return scene.play(scene.chat.turn("q", on_busy="interrupt"))


async def a_stop(scene: Scene) -> Coroutine[Any, Any, None]:
    await _hold(scene)

    async def stop() -> None:
        await scene.chat.stop()

    return stop()


async def a_generator(scene: Scene) -> Coroutine[Any, Any, None]:
    block = scene.chat.turn("q")
    scene.turn = block.id

    async def texts() -> AsyncGenerator[str, None]:
        async with block as turn:
            for text in ("One. ", "Two."):
                turn.emit(text)
                yield text
                await asyncio.sleep(1)

    async def read() -> None:
        async with aclosing(texts()) as opened:
            async for _ in opened:
                await asyncio.sleep(1)

    return read()


async def an_edit(scene: Scene) -> Coroutine[Any, Any, None]:
    await scene.play(scene.chat.turn("first"))
    [turn] = await scene.chat.turns()
    return scene.play(scene.chat.edit(turn.id, "q"))


async def an_undo(scene: Scene) -> Coroutine[Any, Any, None]:
    await scene.play(scene.chat.turn("first"))
    scene.turn = None

    async def undo() -> None:
        await scene.chat.undo()

    return undo()


async def a_turn_in_parallel(scene: Scene) -> Coroutine[Any, Any, None]:
    first = await scene.chat.run(_answer, "first")
    await _hold(scene)
    return scene.play(scene.chat.turn("q", after=first.id))


async def an_append_in_the_queue(scene: Scene) -> Coroutine[Any, Any, None]:
    await _hold(scene)

    async def append() -> None:
        await scene.chat.append(["q", {"role": "assistant", "content": "From elsewhere."}])

    return append()


def _fail(_: RunningTurn) -> None:
    raise ValueError("broken")


async def _answer(turn: RunningTurn) -> None:
    turn.emit("Yes.")


async def _run(block: TurnBlock) -> None:
    await block.run(_answer)


async def _hold(scene: Scene, **options: Any) -> None:
    """Have another turn run for a while."""
    running = Gate()

    async def hold(turn: RunningTurn) -> None:
        turn.emit("Holding")
        running._arrival.set()
        await asyncio.sleep(3)

    scene.begin(scene.chat.run(hold, "held", **options))
    await running._arrival.wait()


SCENES: list[SceneRun] = [
    a_turn,
    a_turn_that_makes_its_conversation,
    a_turn_that_stops_itself,
    a_turn_that_is_kept_when_it_fails,
    a_turn_that_fails,
    a_turn_that_is_stopped,
    a_turn_that_is_stopped_as_it_ends,
    a_resumed_turn,
    a_replay,
    a_wait_for_the_same_turn,
    a_wait_in_the_queue,
    an_interruption,
    a_stop,
    a_generator,
    an_edit,
    an_undo,
    a_turn_in_parallel,
    an_append_in_the_queue,
]


CASES = [
    *product(["memory"], [asyncio.Future, Unstoppable], SCENES),
    ("sqlite", Unstoppable, a_turn),  # what SQLite makes its callers wait for cannot be cancelled
]


@pytest.mark.parametrize("when", When, ids=[when.value for when in When])
@pytest.mark.parametrize(
    ("store", "kind", "scene"),
    CASES,
    ids=[f"{store}-{kind.__name__}-{scene.__name__}" for store, kind, scene in CASES],
)
def test_cancellation_at_every_await_is_raised_with_the_true_outcome_and_leaves_the_lane_free(
    store: str, kind: type[asyncio.Future[Any]], scene: SceneRun, when: When
) -> None:
    cancel_at_every_await(store, kind, scene, when)


async def swallows_the_reason_of_a_stop(running: RunningTurn, problem: BaseException | None) -> Any:
    other = await OTHER_REASON(running, problem)
    return None if isinstance(other, asyncio.CancelledError) and other is not problem else other


async def does_not_finish(work: Coroutine[Any, Any, Result]) -> Result:
    return await work


async def leaves_what_it_began(*_: Any) -> None:
    return None


def does_nothing(*_: Any) -> None:
    return None


async def keeps_what_never_ran(tables: Any, *running: Any, drop: bool = False, **options: Any) -> Any:
    return await END_RUNNING(tables, *running, **options)


OTHER_REASON, END_RUNNING = commit._other_reason, end_module.end_running


@pytest.mark.parametrize(
    ("where", "what", "how", "scene"),
    [
        (commit, "_other_reason", swallows_the_reason_of_a_stop, a_turn_that_is_stopped_as_it_ends),
        (commit, "uninterrupted", does_not_finish, a_turn),
        (block_module, "uninterrupted", does_not_finish, a_wait_in_the_queue),
        (block_module, "_give_up", leaves_what_it_began, a_turn),
        (commit, "_tell_outcome", does_nothing, a_turn),
        (queue_module, "end_running", keeps_what_never_ran, a_turn_that_is_kept_when_it_fails),
    ],
)
def test_cancellation_at_every_await_catches_the_broken_engine(
    monkeypatch: pytest.MonkeyPatch, where: Any, what: str, how: Any, scene: SceneRun
) -> None:
    monkeypatch.setattr(where, what, how)
    with pytest.raises((AssertionError, TurnledgerError)):
        for when in When:
            cancel_at_every_await("memory", asyncio.Future, scene, when)


@pytest.mark.parametrize("when", When, ids=[when.value for when in When])
@pytest.mark.parametrize("kind", [asyncio.Future, Unstoppable])
def test_durable_work_cancelled_at_every_await_is_resumed_and_completed(
    kind: type[asyncio.Future[Any]], when: When
) -> None:
    cancel_work_at_every_await(kind, when)


@pytest.mark.parametrize(
    ("where", "what", "how"),
    [(worker_module, "abandon_block", leaves_what_it_began), (commit, "_let_go", does_nothing)],
)
def test_durable_work_cancelled_at_every_await_catches_the_broken_engine(
    monkeypatch: pytest.MonkeyPatch, where: Any, what: str, how: Any
) -> None:
    monkeypatch.setattr(where, what, how)
    with pytest.raises((AssertionError, TurnledgerError, TimeoutError)):
        for when in When:
            cancel_work_at_every_await(asyncio.Future, when)


def cancel_work_at_every_await(kind: type[asyncio.Future[Any]], when: When) -> None:
    async def cancel_at(ledger: Ledger, at: int) -> bool:
        return await _work_cancelled_at(ledger, at, when)

    _try_every_await("memory", kind, cancel_at)


async def _work_cancelled_at(ledger: Ledger, at: int, when: When) -> bool:
    """Run a job whose first execution is cancelled, and check everything after it."""
    scene = Scene(ledger, await ledger.conversation())
    id, victim, executions = await scene.chat.enqueue("q"), Victim(at, when), 0

    class Worker(JobWorker):
        async def _run_job(self, ready: ReadyJob) -> None:
            nonlocal executions
            executions += 1
            work = super()._run_job(ready)
            await (victim.run(work) if executions == 1 else work)

    async def answer(turn: RunningTurn, _: object) -> None:
        await turn.call(CALL, lambda: scene._pay(turn))
        turn.emit("Three.")

    worker = asyncio.create_task(Worker(ledger._process, answer, 1).run())
    async with asyncio.timeout(600):
        ended = await scene.chat.outcome(id)
    worker.cancel()
    await asyncio.wait((worker,))
    where = f"await {at}"
    assert ended.turn is not None, where
    assert ended.turn.kind is TurnKind.COMPLETED, where
    results = [item.fields["output"] for item in ended.turn.output if item.is_result]
    # A call that was started, and whose outcome is unknown, is not run again.
    assert results == ["paid"] or (results == [OUTCOME_UNKNOWN] and executions == 2), where
    assert await ledger.jobs() == [], where
    await _check(scene, None, where)
    return victim.awaits >= at


def cancel_at_every_await(store: str, kind: type[asyncio.Future[Any]], scene: SceneRun, when: When) -> None:
    """Play the scene until its victim has been cancelled at each of its awaits."""

    async def cancel_at(ledger: Ledger, at: int) -> bool:
        return await _cancelled_at(ledger, scene, at, when)

    _try_every_await(store, kind, cancel_at)


def _try_every_await(
    store: str, kind: type[asyncio.Future[Any]], cancel_at: Callable[[Ledger, int], Awaitable[bool]]
) -> None:
    loop = SimulatedLoop(0, disorder=0.0)
    server = loop.process("server")

    async def serve() -> None:
        inner: Any = HesitantStore(await open_store(), kind)
        ledger = await Ledger.over(inner, clock=SimulatedClock(loop, WallClock(loop), 0), random=Random(0))
        for at in range(1, MOST_AWAITS):
            if not await cancel_at(ledger, at):
                assert at > 1, "the victim never waited"
                assert await ledger.check(at_rest=True) == []
                await ledger.close()
                return
        raise AssertionError("the victim waits without end")

    with open_inner(store) as open_store:
        try:
            loop.run_until_complete(server.spawn(serve()))
        finally:
            server.kill()  # a broken ledger may never close
            loop.close()
    assert not loop.errors


async def _cancelled_at(ledger: Ledger, run: SceneRun, at: int, when: When) -> bool:
    """Play the scene and check everything after it; whether the victim waited so often."""
    scene = Scene(ledger, await ledger.conversation())
    work, victim = await run(scene), Victim(at, when)
    task = asyncio.create_task(_awaited(victim, work))
    await asyncio.wait((task,))
    was_cancelled = victim.awaits >= at
    assert task.cancelled() is was_cancelled, f"await {at}: {task}"
    problem: BaseException | None = None
    if was_cancelled:
        try:
            await task
        except asyncio.CancelledError as cancelled:
            problem = cancelled
    elif not isinstance(task.exception(), TurnStopped | ValueError):
        await task
    await scene.end()
    await _check(scene, problem, f"await {at}")
    return was_cancelled


async def _awaited(victim: Victim, work: Coroutine[Any, Any, None]) -> None:
    await victim.run(work)


async def _check(scene: Scene, problem: BaseException | None, where: str) -> None:
    ledger, chat = scene.ledger, scene.chat
    process = ledger._process
    assert (process.attempts, process.running, process.doubts) == ({}, {}, {}), where
    if scene.turn is not None:
        chats = [chat]
        with suppress(TurnledgerError):
            chats.append(await ledger.conversation(conversation_key=f"key of {chat.id}", create=False))
        branches = [(each, listed.branch.id) for each in chats for listed in await each.branches()]
        turns = {turn.id: turn for each, branch in branches for turn in await each.turns(branch=branch)}
        found = turns.get(scene.turn)
        if problem is not None:
            assert turn_of(problem) == found, where
        if found is not None and found.kind is TurnKind.COMPLETED:
            assert found.text.endswith(("Three.", "Two.")), where
    assert len(scene.paid) == len(set(scene.paid)), where
    await chat.run(_answer, "next", on_busy="reject")
    assert (await chat.turns())[-1].text == "Yes.", where
