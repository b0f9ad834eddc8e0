"""Uninterrupted work finishes even if its caller is cancelled."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from turnledger.engine.lane.shield import Unstoppable, uninterrupted


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Work:
    """Work that a test ends."""

    def __init__(self, problem: BaseException | None = None) -> None:
        self.may_end = asyncio.Event()
        self.has_ended = False
        self.problem = problem

    async def run(self) -> str:
        await self.may_end.wait()
        self.has_ended = True
        if self.problem is not None:
            raise self.problem
        return "done"


@pytest.mark.parametrize("times", [1, 3])
async def test_cancelled_caller_waits_for_uninterrupted_work_and_is_cancelled_then(times: int) -> None:
    work = Work()
    caller = asyncio.create_task(uninterrupted(work.run()))
    await settle()
    for _ in range(times):
        caller.cancel("enough")
        await settle()
    assert not caller.done()
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await caller
    assert work.has_ended
    assert caller.cancelled()


async def test_caller_cancelled_before_it_waits_finishes_the_uninterrupted_work() -> None:
    work = Work()

    async def call() -> None:
        current = asyncio.current_task()
        current.cancel()
        await uninterrupted(work.run())

    caller = asyncio.create_task(call())
    await settle()
    assert not caller.done()
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert work.has_ended


async def test_cancellation_that_is_taken_back_is_not_raised() -> None:
    work = Work()
    caller = asyncio.create_task(uninterrupted(work.run()))
    await settle()
    caller.cancel()
    await settle()
    assert caller.uncancel() == 0
    work.may_end.set()
    assert await caller == "done"


async def test_second_cancellation_is_raised_when_only_the_first_is_taken_back() -> None:
    work = Work()
    caller = asyncio.create_task(uninterrupted(work.run()))
    await settle()
    for _ in range(2):
        caller.cancel()
        await settle()
    caller.uncancel()
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def cancel_failing_work() -> None:
    work = Work(ValueError("broken"))
    caller = asyncio.create_task(uninterrupted(work.run()))
    await settle()
    caller.cancel()
    await settle()
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller


def test_cancellation_hides_the_exception_of_the_work_and_leaves_none_unretrieved() -> None:
    complaints: list[dict[str, Any]] = []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    loop.run_until_complete(cancel_failing_work())
    gc.collect()
    loop.close()
    assert complaints == []


async def test_uninterrupted_work_that_raises_cancelled_error_passes_it_to_the_caller() -> None:
    work = Work(asyncio.CancelledError("inside"))
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await uninterrupted(work.run())
    current = asyncio.current_task()
    assert current.cancelling() == 0


async def test_timeout_around_uninterrupted_work_is_raised_after_the_work() -> None:
    work = Work()
    asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, work.may_end.set)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await uninterrupted(work.run())
    assert work.has_ended


async def test_cleanup_after_a_cancellation_can_run_uninterrupted() -> None:
    work = Work()

    async def call() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            assert await uninterrupted(work.run()) == "done"

    caller = asyncio.create_task(call())
    await settle()
    caller.cancel()
    await settle()
    assert not caller.done()
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller


@pytest.mark.parametrize("kind", [asyncio.Future, Unstoppable])
async def test_uninterrupted_work_receives_the_error_of_the_future_it_awaits(
    kind: type[asyncio.Future[None]],
) -> None:
    errors: list[str] = []
    answer = kind(loop=asyncio.get_running_loop())

    async def work() -> str:
        try:
            await answer
        except ValueError as problem:
            errors.append(str(problem))
        return "went on"

    asyncio.get_running_loop().call_soon(answer.set_exception, ValueError("refused"))
    assert await uninterrupted(work()) == "went on"
    assert errors == ["refused"]


async def test_cancelled_caller_waits_for_a_future_that_cannot_be_cancelled() -> None:
    answer = Unstoppable(loop=asyncio.get_running_loop())
    answers: list[int] = []

    async def work() -> None:
        answers.append(await answer)

    caller = asyncio.create_task(uninterrupted_call(work))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    answer.set_result(7)
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert answers == [7]


async def uninterrupted_call(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    await uninterrupted(work())


@pytest.mark.parametrize("kind", [asyncio.Future, Unstoppable])
async def test_closed_caller_closes_the_uninterrupted_work(kind: type[asyncio.Future[None]]) -> None:
    """A task that is destroyed with its loop closes its coroutine: no code may wait on from there."""
    answer = kind(loop=asyncio.get_running_loop())
    left: list[str] = []

    async def work() -> None:
        try:
            await answer
        finally:
            left.append("closed")

    caller = uninterrupted_call(work)
    caller.send(None)
    caller.close()
    assert left == ["closed"]
