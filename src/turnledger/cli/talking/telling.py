"""A turn on the screen, from when it is asked for to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from rich.text import Text

from turnledger.cli.talking.interrupts import Presses
from turnledger.cli.talking.items import told_item
from turnledger.cli.talking.place import Answering, Heard, Restarted
from turnledger.cli.talking.screen import Screen
from turnledger.cli.talking.streamed import Streamed
from turnledger.errors import TurnledgerError
from turnledger.model.attempt import AttemptState, Failure
from turnledger.model.event import ItemDone, TextDelta, TurnFinished, TurnStarted
from turnledger.model.item import Item

FRAME = 0.08
"""Seconds from one look of the screen to the next."""
SHARE = 8.0
"""Drawing takes no more than one part in so many of the time."""
LOWEST = 8
"""Lines of code that are held in however low a window."""
STILL = 0.3
"""Seconds after which a window that changed its width is taken to have the one that it was to have."""
TURNING = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PLAINLY_TURNING = "|/-\\"


class Told:
    """How a turn came to its end."""

    def __init__(self) -> None:
        self.state: AttemptState | None = None
        """None if that is not known: nobody follows it any more."""
        self.may_go_on = False
        """Whether it may come to an end that nobody follows."""
        self.failure: Failure | None = None
        self.problem: TurnledgerError | None = None

    @property
    def is_there(self) -> bool:
        """Whether it is history."""
        return self.problem is None and self.state is not None and self.state.is_committed


class Telling:
    """Shows one turn. Used once."""

    def __init__(self, screen: Screen, *, now: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._now = now
        self._began_at = now()
        self._streamed = Streamed(max(LOWEST, screen.height))
        self._is_told = True  # whether what was streamed so far is on the screen
        self._has_started = False
        self._is_stopping = False
        self._told = Told()
        self._width, self._changed_at = screen.width, float("-inf")

    async def follow(self, answering: Answering, presses: Presses) -> Told:
        """Show the turn until it has ended. Ctrl-C stops it, and what it said is kept; once more, and it is
        left to itself. Whatever is wrong with the turn is told by what is returned."""
        hearing = asyncio.create_task(self._hear(answering), name="turnledger answer")
        pressing = asyncio.create_task(presses.next(), name="turnledger Ctrl-C")
        stopping: asyncio.Task[TurnledgerError | None] | None = None
        try:
            while not hearing.done():
                pause = self._draw()
                await asyncio.wait((hearing, pressing), timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                if not pressing.done() or hearing.done():
                    continue
                if stopping is not None or not answering.is_asked:
                    break  # it does not stop, or nobody knows of it: it is left to itself
                self._is_stopping = True
                stopping = asyncio.create_task(self._stop(answering), name="turnledger stop")
                pressing = asyncio.create_task(presses.next(), name="turnledger Ctrl-C")
        finally:
            for task in (hearing, pressing, stopping):
                if task is not None and not task.done():
                    task.cancel()
                    await asyncio.wait((task,))
            if hearing.cancelled():
                self._told.state = None
                self._told.may_go_on = await answering.leave()
            self._screen.blocks(self._streamed.rest())
            self._screen.settle()
        if not hearing.cancelled():
            hearing.result()
        if stopping is not None and self._told.problem is None and not stopping.cancelled():
            self._told.problem = stopping.result() if self._told.state is None else None
        return self._told

    async def _stop(self, answering: Answering) -> TurnledgerError | None:
        try:
            await answering.stop()
        except TurnledgerError as problem:
            return problem  # it goes on; a second Ctrl-C leaves it
        return None

    async def _hear(self, answering: Answering) -> None:
        try:
            async for event in answering:
                self._take(event)
        except TurnledgerError as problem:
            self._told.problem = problem

    def _take(self, event: Heard) -> None:
        self._is_told = False
        if isinstance(event, TextDelta):
            self._streamed.feed(event.text)
        elif isinstance(event, ItemDone):
            self._take_item(Item(event.item))
        elif isinstance(event, TurnFinished):
            self._told.state, self._told.failure = event.state, event.failure
        elif isinstance(event, TurnStarted):
            self._has_started = True
        elif isinstance(event, Restarted):
            self._finish_text()
            self._screen.say(Text("The answer begins anew:", "yellow"))

    def _take_item(self, item: Item) -> None:
        if item.role == "assistant" and self._streamed.is_blank:
            self._streamed.feed(item.text)  # it was not told by its text
        self._finish_text()
        told = told_item(item)
        if told is not None:
            self._screen.say(told)

    def _finish_text(self) -> None:
        self._screen.blocks(self._streamed.rest())
        self._streamed = Streamed(max(LOWEST, self._screen.height))

    def _draw(self) -> float:
        """Show how it stands; return how long that is good for."""
        began_at = self._now()
        if self._screen.width != self._width:
            self._width, self._changed_at = self._screen.width, began_at
        if began_at - self._changed_at < STILL:
            return FRAME
        if not self._is_told:
            self._screen.blocks(self._streamed.finished(), self._streamed.tail, self._status(began_at))
            self._is_told = True
        else:
            self._screen.blocks((), self._streamed.tail, self._status(began_at))
        return max(FRAME, SHARE * (self._now() - began_at))

    def _status(self, now: float) -> str:
        spent = now - self._began_at
        frames = PLAINLY_TURNING if self._screen.is_ascii else TURNING
        sign = frames[int(spent / FRAME) % len(frames)]
        if self._is_stopping:
            return f"{sign} stopping… Ctrl-C again leaves it to itself"
        doing = "" if self._has_started else "waiting, "
        return f"{sign} {doing}{int(spent)} s, Ctrl-C stops"
