"""Finishing what was begun: store writes that a cancelled caller still waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def uninterrupted(work: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end whatever happens to the caller; a cancellation is raised again afterwards.

    The caller then knows that the work is over, not how it went: it asks the store.
    """
    task = asyncio.ensure_future(work)
    caller = asyncio.current_task()
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as cancellation:
            cancelled = cancellation
    # A cancellation that was taken back meanwhile (Task.uncancel) is not the caller's any more.
    if cancelled is not None and caller is not None and caller.cancelling():
        if not task.cancelled():
            task.exception()
        raise cancelled
    return task.result()
