"""Work that was begun is finished, whatever happens to who waits for it."""

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
    """Something that ends when a test says so."""

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
async def test_a_cancelled_caller_waits_for_the_end_and_is_cancelled_then(times: int) -> None:
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


async def test_a_caller_cancelled_before_it_waits_finishes_the_work_too() -> None:
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


async def test_a_cancellation_that_was_taken_back_is_not_raised() -> None:
    work = Work()
    caller = asyncio.create_task(uninterrupted(work.run()))
    await settle()
    caller.cancel()
    await settle()
    assert caller.uncancel() == 0
    work.may_end.set()
    assert await caller == "done"


async def test_one_of_two_cancellations_taken_back_still_cancels() -> None:
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


def test_the_cancellation_wins_over_the_exception_and_nothing_is_left_unretrieved() -> None:
    complaints: list[dict[str, Any]] = []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    loop.run_until_complete(cancel_failing_work())
    gc.collect()
    loop.close()
    assert complaints == []


async def test_work_that_cancels_itself_is_raised_as_such() -> None:
    work = Work(asyncio.CancelledError("inside"))
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await uninterrupted(work.run())
    current = asyncio.current_task()
    assert current.cancelling() == 0


async def test_a_timeout_around_it_ends_after_the_work() -> None:
    work = Work()
    asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, work.may_end.set)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await uninterrupted(work.run())
    assert work.has_ended


async def test_a_cleanup_after_a_cancellation_can_be_uninterrupted() -> None:
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
async def test_the_work_gets_the_error_of_what_it_waits_for(kind: type[asyncio.Future[None]]) -> None:
    told: list[str] = []
    answer = kind(loop=asyncio.get_running_loop())

    async def work() -> str:
        try:
            await answer
        except ValueError as problem:
            told.append(str(problem))
        return "went on"

    asyncio.get_running_loop().call_soon(answer.set_exception, ValueError("refused"))
    assert await uninterrupted(work()) == "went on"
    assert told == ["refused"]


async def test_a_cancelled_caller_waits_for_what_cannot_be_stopped() -> None:
    answer = Unstoppable(loop=asyncio.get_running_loop())
    heard: list[int] = []

    async def work() -> None:
        heard.append(await answer)

    caller = asyncio.create_task(uninterrupted_call(work))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    answer.set_result(7)
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert heard == [7]


async def uninterrupted_call(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    await uninterrupted(work())


@pytest.mark.parametrize("kind", [asyncio.Future, Unstoppable])
async def test_closed_caller_closes_the_work_and_ends(kind: type[asyncio.Future[None]]) -> None:
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
