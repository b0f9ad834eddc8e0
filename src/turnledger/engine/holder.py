"""The holder of a turn: which task is inside its block.

A coroutine stays in the task that began it, but an async generator does not: one task may pull its first
item and another task the rest. So a block inside a generator has to be looked for when a stop comes, or the
stop would cancel a task that has nothing to do with the turn any more.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
from collections.abc import Iterator
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any

_SUSPENDABLE = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_OPAQUE = frozenset(
    {"anext_awaitable", "async_generator_asend", "async_generator_athrow", "coroutine_wrapper"}
)
"""Awaitables of the interpreter that drive something and have no attribute that says what."""


def generator_around(frame: FrameType | None) -> FrameType | None:
    """Return the innermost async generator in this stack; None if the code cannot leave its task.

    A generator that contextlib drives is a context manager: its code runs where it was entered.
    """
    while frame is not None and frame.f_code.co_flags & _SUSPENDABLE:
        outer = frame.f_back
        is_manager = outer is not None and outer.f_globals.get("__name__") == "contextlib"
        if frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR and not is_manager:
            return frame
        frame = outer
    return None


def task_inside(generator: FrameType, likely: asyncio.Task[Any] | None) -> asyncio.Task[Any] | None:
    """Return the task that runs or awaits this generator now; None while it is suspended between items."""
    if is_running(generator):
        return asyncio.current_task()
    if likely is not None and generator in _frames(likely):
        return likely
    return next((task for task in asyncio.all_tasks() if generator in _frames(task)), None)


def is_running(generator: FrameType) -> bool:
    """Whether the caller was called by this generator."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not generator:
        frame = frame.f_back
    return frame is not None


def _frames(task: asyncio.Task[Any]) -> Iterator[FrameType | None]:
    """The frames that a suspended task is inside of, the outermost first."""
    link: Any = task.get_coro()
    while link is not None:
        match link:
            case CoroutineType():
                yield link.cr_frame
                link = link.cr_await
            case AsyncGeneratorType():
                yield link.ag_frame
                link = link.ag_await
            case GeneratorType():
                yield link.gi_frame
                link = link.gi_yieldfrom
            case _:
                link = _driven_by(link) if type(link).__name__ in _OPAQUE else None


def _driven_by(awaitable: Any) -> Any:
    for each in gc.get_referents(awaitable):
        if isinstance(each, CoroutineType | AsyncGeneratorType | GeneratorType):
            return each
        if type(each).__name__ in _OPAQUE:
            return each
    return None
