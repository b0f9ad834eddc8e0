"""Started: what needs no waiting is done at once; what does goes on in a task, by calling back, or not."""

import asyncio

import pytest

from turnledger.server.wire.client_stream import Started


async def answer(ready: asyncio.Event, *, last: asyncio.Event | None = None) -> str:
    await ready.wait()
    if last is not None:
        await last.wait()
    return "done"


def is_set() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


async def test_what_needs_no_waiting_is_done_at_once() -> None:
    started = Started(answer(is_set()))
    assert started.is_done
    assert started.result == "done"
    assert await started == "done"


async def test_what_is_raised_before_the_first_wait_is_raised_at_once() -> None:
    async def fail() -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        Started(fail())


async def test_the_rest_can_be_awaited_in_another_task() -> None:
    ready = asyncio.Event()
    started = Started(answer(ready, last=is_set()))
    assert not started.is_done

    async def rest() -> str:
        return await started

    waiting = asyncio.create_task(rest())
    await asyncio.sleep(0)
    ready.set()
    assert await waiting == "done"


async def test_who_awaits_the_rest_and_is_cancelled_cancels_it() -> None:
    seen: list[type[BaseException]] = []

    async def wait() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as problem:
            seen.append(type(problem))
        return "ended well"

    started = Started(wait())

    async def rest() -> str:
        return await started

    waiting = asyncio.create_task(rest())
    await asyncio.sleep(0)
    waiting.cancel()
    assert await waiting == "ended well"
    assert seen == [asyncio.CancelledError]


@pytest.mark.parametrize("is_ready", [False, True])
async def test_it_calls_back_when_it_is_done_without_a_task(is_ready: bool) -> None:
    ready, last, told = asyncio.Event(), asyncio.Event(), asyncio.Event()
    heard: list[str] = []
    if is_ready:
        ready.set()
        last.set()
    tasks = asyncio.all_tasks()

    def hear(result: str) -> None:
        heard.append(result)
        told.set()

    Started(answer(ready, last=last)).call_back(hear)
    assert heard == (["done"] if is_ready else [])
    assert asyncio.all_tasks() == tasks
    ready.set()
    await asyncio.sleep(0)
    last.set()
    await told.wait()
    assert heard == ["done"]


async def test_one_that_lets_others_go_first_is_gone_on_with() -> None:
    async def polite() -> str:
        await asyncio.sleep(0)
        return "done"

    heard: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    Started(polite()).call_back(heard.set_result)
    assert await heard == "done"


async def test_closed_it_calls_nobody_and_has_left_what_it_waited_in() -> None:
    left: list[str] = []

    async def wait(ready: asyncio.Event) -> None:
        try:
            await ready.wait()
        finally:
            left.append("left")

    ready = asyncio.Event()
    heard: list[None] = []
    started = Started(wait(ready))
    started.call_back(heard.append)
    started.close()
    assert left == ["left"]
    ready.set()
    await asyncio.sleep(0)
    assert heard == []
