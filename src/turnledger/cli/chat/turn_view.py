"""A turn on the screen, from when it is asked for to its end.

An answer while it comes: which of its blocks are finished, and what the last one looks like so far.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from enum import Enum

from msgspec.structs import replace
from rich.text import Text

from turnledger.cli.chat.backend import Answering, Heard, Restarted
from turnledger.cli.chat.interrupts import Presses
from turnledger.cli.chat.items import told_item
from turnledger.cli.chat.markdown import LARGEST, MarkdownBlock, blocks_of
from turnledger.cli.chat.sanitize import harmless
from turnledger.cli.chat.screen import Screen
from turnledger.errors import TurnledgerError
from turnledger.model.attempt import AttemptState, Failure
from turnledger.model.event import ItemDone, TextDelta, TurnFinished, TurnStarted
from turnledger.model.item import Item

_FENCE = re.compile(r" {0,3}(?:`{3,}|~{3,})[^\n]*\n")
_UNDECIDED = re.compile(r"\s*(?:[0-9]{1,9}|[-+*])\s*")
"""May become another item of the list before it."""
CODE_LINES = 40
"""Lines of code that are held until the block ends; of more, the first are finished before."""


class Behind(Enum):
    """What the text that is held comes behind."""

    BLOCK = "block"  # or nothing
    ITEM = "item"  # of a list, of which it may be another
    CODE = "code"  # which goes on in it
    PIECE = "piece"  # of a block that was too large


class Streamed:
    """Takes text as it comes. What it holds, and thereby what a look at it costs, is one block."""

    def __init__(self, code_lines: int = CODE_LINES) -> None:
        self._code_lines = code_lines
        self._text = ""
        self._behind = Behind.BLOCK
        self._half = ""  # of a line's end
        self.is_blank = True
        """Whether nothing was said yet."""

    def feed(self, text: str) -> None:
        """Take what has come."""
        text, self._half = self._half + text, ""
        if text.endswith("\r"):
            text, self._half = text[:-1], "\r"
        self.is_blank = self.is_blank and not text.strip()
        self._text += harmless(text)

    def finished(self) -> list[MarkdownBlock]:
        """Let go of the blocks that nothing can change any more."""
        blocks = blocks_of(self._text)
        if len(blocks) > 1 and _UNDECIDED.fullmatch(blocks[-1].text):
            blocks[-2:] = [replace(blocks[-2], text=f"{blocks[-2].text}\n{blocks[-1].text}")]
        return [*self._all_but_last(blocks), *self._pieces()]

    def _all_but_last(self, blocks: list[MarkdownBlock]) -> list[MarkdownBlock]:
        if len(blocks) < 2:
            return []
        done = [self._placed(blocks[0]), *blocks[1:-1]]
        self._text = blocks[-1].text
        self._behind = Behind.ITEM if blocks[-1].joins else Behind.BLOCK
        return done

    def _pieces(self) -> list[MarkdownBlock]:
        """What is finished of a block that goes on and on."""
        done: list[MarkdownBlock] = []
        fence = _FENCE.match(self._text)
        lines = self._text.split("\n")
        half = self._code_lines // 2
        while fence is not None and len(lines) > self._code_lines:
            done.append(self._placed(MarkdownBlock("\n".join(lines[: half + 1]), closes=False)))
            lines[1 : half + 1] = []
            self._text, self._behind = "\n".join(lines), Behind.CODE
        if len(self._text) > LARGEST:
            done.append(self._placed(MarkdownBlock(self._text)))
            self._text, self._behind = "", Behind.PIECE
        return done

    def _placed(self, first: MarkdownBlock) -> MarkdownBlock:
        """The first block that is held, as it stands behind the one before."""
        is_next_item = self._behind is Behind.ITEM and first.is_item
        goes_on = self._behind in (Behind.CODE, Behind.PIECE)
        return replace(first, joins=is_next_item or goes_on, opens=self._behind is not Behind.CODE)

    @property
    def tail(self) -> MarkdownBlock | None:
        """The block that is not finished."""
        blocks = blocks_of(self._text)
        return self._placed(blocks[0]) if blocks else None

    def rest(self) -> list[MarkdownBlock]:
        """Let go of everything: nothing comes any more."""
        self._text += harmless(self._half)
        done = [*self._all_but_last(blocks_of(self._text)), *self._pieces()]
        tail = self.tail
        self._text, self._behind, self._half = "", Behind.BLOCK, ""
        return done if tail is None else [*done, tail]


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


class TurnEnd:
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
        self._told = TurnEnd()
        self._width, self._changed_at = screen.width, float("-inf")

    async def follow(self, answering: Answering, presses: Presses) -> TurnEnd:
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
