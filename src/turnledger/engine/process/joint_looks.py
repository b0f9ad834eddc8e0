"""Joint looks: readers of one turn that are woken at once look at the store once, together."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TypeAlias

from turnledger.engine.attempt.stored_events import LookRequest, Over, Runs, Waits, look
from turnledger.engine.ports import Store

Found: TypeAlias = Waits | Runs | Over | None


class JointLooks:
    """The looks that were asked for and are not taken yet. Whoever asks for the same until then takes part:
    a look that has begun may be too old for who was woken since."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asked: dict[LookRequest, asyncio.Task[Found]] = {}

    async def take(self, request: LookRequest) -> Found:
        """What is known of a turn by now; see `look`. Who is cancelled leaves the others their look."""
        same = replace(request, now=0)  # the time is that of whoever asked first
        task = self._asked.get(same)
        if task is None:
            task = asyncio.create_task(self._take(same, request), name="turnledger look")
            task.add_done_callback(_heed)
            self._asked[same] = task
        return await asyncio.shield(task)

    async def _take(self, same: LookRequest, request: LookRequest) -> Found:
        # A task starts after all who were woken together have asked.
        del self._asked[same]
        return await self._store.read(look, request)


def _heed(task: asyncio.Task[Found]) -> None:
    """Take note of an error that everybody left before it came."""
    if not task.cancelled():
        task.exception()
