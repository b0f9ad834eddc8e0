"""A turn on the screen: a committed one at once, a running one from its request to its end.

While an answer arrives, finished blocks stay as they are, and only the last one is redrawn.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import Enum

from msgspec.structs import replace
from rich.text import Text

from turnledger.api.turns import Turn
from turnledger.cli.chat.backend import AnswerRestarted, TurnInProgress, TurnUpdate, output_of, question_of
from turnledger.cli.chat.interrupts import Interrupts
from turnledger.cli.chat.markdown import MAX_BLOCK, MarkdownBlock, blocks_of
from turnledger.cli.chat.screen import Screen
from turnledger.cli.output.sanitize import sanitize, sanitize_line
from turnledger.errors import TurnledgerError
from turnledger.model.event import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TurnFinished,
    TurnResumed,
    TurnStarted,
)
from turnledger.model.item import Item
from turnledger.model.turn import AttemptState, Failure, TurnKind

DIM = "dim"
MAX_CHARACTERS = 300
"""Characters shown of a call or a result."""
MAX_ACTIVITY = 40
"""Characters shown of reasoning or a call that streams in."""
_KINDS = {
    TurnKind.INTERRUPTED: "Stopped: the answer is incomplete.",
    TurnKind.SETTLED: "Failed after its tools had acted; only the calls and results are kept.",
}
_ENDS = {
    "length": "The model reached its length limit: the answer is cut off.",
    "content_filter": "The answer was cut off by a content filter.",
}

_USAGE_NAMES = (
    (("prompt_tokens", "input_tokens"), "input tokens"),
    (("completion_tokens", "output_tokens"), "output tokens"),
)
"""Usage that a model may report, by its names, and the words for it here."""


def render_item(item: Item) -> Text | None:
    """Return a tool call, its result, or the model's reasoning on one line; None for all others."""
    fields = item.fields
    if item.is_reasoning:
        reasoning = _join_texts(fields.get("summary")) or _join_texts(fields.get("content"))
        return _render_thought(reasoning) if reasoning.strip() else None
    if item.is_call:
        call = f"{fields.get('name')}({fields.get('arguments', fields.get('input', ''))})"
        return Text(f"⚙ {_shorten(call)}", DIM)
    if item.is_result:
        return Text(f"→ {_shorten(str(fields.get('output', '')))}", DIM)
    return None


def show_turn(screen: Screen, turn: Turn) -> None:
    screen.blank()
    screen.print(render_question(turn.number, question_of(turn)))
    screen.blank()
    for item in output_of(turn):
        if item.role == "assistant":
            screen.blocks(blocks_of(sanitize(item.text)))
        elif (line := render_item(item)) is not None:
            screen.print(line)
    for note in render_notes(turn):
        screen.print(note)


def render_question(number: int, text: str) -> Text:
    """Return the question as the prompt showed it."""
    label = prompt_label(number)
    lines = sanitize(text or "(no message)").split("\n")
    return Text.assemble((label, DIM), (("\n" + " " * len(label)).join(lines), "bold"))


def prompt_label(number: int) -> str:
    return f"{number} › "


def render_notes(turn: Turn) -> Iterator[Text]:
    if turn.kind in _KINDS:
        yield Text(f"■ {_KINDS[turn.kind]}", "yellow")
    if any(item.is_empty_answer for item in output_of(turn)[-1:]):
        yield Text("■ The model returned an empty answer.", "yellow")
    reason = turn.details.get("finish_reason")
    if isinstance(reason, str) and reason in _ENDS:
        yield Text(f"■ {_ENDS[reason]}", "yellow")


def describe_turn(turn: Turn) -> str:
    """Return the model, the time and the tokens of a turn, as far as known."""
    facts = [f"{(turn.committed_at - turn.created_at) / 1000:.1f} s"]
    model, usage = turn.details.get("model"), turn.details.get("usage")
    if isinstance(model, str):
        facts.insert(0, sanitize_line(model))
    used: dict[str, object] = usage if isinstance(usage, dict) else {}
    for names, noun in _USAGE_NAMES:
        facts += [f"{used[name]} {noun}" for name in names if isinstance(used.get(name), int)][:1]
    return ", ".join(facts)


def _join_texts(parts: object) -> str:
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return " ".join(text for text in texts if isinstance(text, str))


def _render_thought(text: str) -> Text:
    return Text(f"∴ {_shorten(text)}", DIM)


def _end_of(text: str) -> str:
    """Return the end of a text that grows, on part of a line."""
    line = sanitize_line(text[-2 * MAX_ACTIVITY :])
    return line if len(line) <= MAX_ACTIVITY else f"…{line[1 - MAX_ACTIVITY :]}"


def _shorten(text: str) -> str:
    line = sanitize_line(text)
    return line if len(line) <= MAX_CHARACTERS else f"{line[: MAX_CHARACTERS - 1]}…"


MINUTE, HOUR, DAY = 60, 3600, 24 * 3600


def age_of(at: int, now: float) -> str:
    """Return the time since `at`, in milliseconds since 1970; `now` is in seconds. Long ago, it is a date."""
    passed = now - at / 1000
    if passed < MINUTE:
        return "just now"
    if passed < HOUR:
        return f"{int(passed / MINUTE)} min ago"
    if passed < DAY:
        return f"{int(passed / HOUR)} h ago"
    if passed < 30 * DAY:
        days = int(passed / DAY)
        return "yesterday" if days == 1 else f"{days} days ago"
    return datetime.fromtimestamp(at / 1000).astimezone().strftime("%Y-%m-%d")


_FENCE = re.compile(r" {0,3}(?:`{3,}|~{3,})[^\n]*\n")
_UNDECIDED = re.compile(r"\s*(?:[0-9]{1,9}|[-+*])\s*")
"""May become another item of the list before it."""
CODE_LINES = 40
"""Lines of code held until the block ends; of a longer one, the first are finished earlier."""


class PreviousBlock(Enum):
    """The kind of the block before the held text."""

    BLOCK = "block"  # or nothing
    ITEM = "item"  # of a list; the held text may be the next one
    CODE = "code"  # that continues in the held text
    PIECE = "piece"  # of a block that was too large


class StreamedMarkdown:
    """Takes text as it arrives. It holds one block, which bounds the cost of each redraw."""

    def __init__(self, code_lines: int = CODE_LINES) -> None:
        self._code_lines = code_lines
        self._text = ""
        self._previous = PreviousBlock.BLOCK
        self._half = ""  # half of a line ending
        self.is_blank = True

    def feed(self, text: str) -> None:
        text, self._half = self._half + text, ""
        if text.endswith("\r"):
            text, self._half = text[:-1], "\r"
        self.is_blank = self.is_blank and not text.strip()
        self._text += sanitize(text)

    def take_finished(self) -> list[MarkdownBlock]:
        """Return and forget the blocks that further text cannot change."""
        blocks = blocks_of(self._text)
        if len(blocks) > 1 and _UNDECIDED.fullmatch(blocks[-1].text):
            blocks[-2:] = [replace(blocks[-2], text=f"{blocks[-2].text}\n{blocks[-1].text}")]
        return [*self._take_all_but_last(blocks), *self._take_pieces()]

    def _take_all_but_last(self, blocks: list[MarkdownBlock]) -> list[MarkdownBlock]:
        if len(blocks) < 2:
            return []
        done = [self._join_previous(blocks[0]), *blocks[1:-1]]
        self._text = blocks[-1].text
        self._previous = PreviousBlock.ITEM if blocks[-1].joins else PreviousBlock.BLOCK
        return done

    def _take_pieces(self) -> list[MarkdownBlock]:
        """Return the finished pieces of a long block that is not complete."""
        done: list[MarkdownBlock] = []
        fence = _FENCE.match(self._text)
        lines = self._text.split("\n")
        half = self._code_lines // 2
        while fence is not None and len(lines) > self._code_lines:
            done.append(self._join_previous(MarkdownBlock("\n".join(lines[: half + 1]), closes=False)))
            lines[1 : half + 1] = []
            self._text, self._previous = "\n".join(lines), PreviousBlock.CODE
        if len(self._text) > MAX_BLOCK:
            done.append(self._join_previous(MarkdownBlock(self._text)))
            self._text, self._previous = "", PreviousBlock.PIECE
        return done

    def _join_previous(self, first: MarkdownBlock) -> MarkdownBlock:
        """Join the first held block to the previous one."""
        is_next_item = self._previous is PreviousBlock.ITEM and first.is_item
        continues = self._previous in (PreviousBlock.CODE, PreviousBlock.PIECE)
        return replace(first, joins=is_next_item or continues, opens=self._previous is not PreviousBlock.CODE)

    @property
    def tail(self) -> MarkdownBlock | None:
        blocks = blocks_of(self._text)
        return self._join_previous(blocks[0]) if blocks else None

    def flush(self) -> list[MarkdownBlock]:
        """Return and forget everything: no more text follows."""
        self._text += sanitize(self._half)
        done = [*self._take_all_but_last(blocks_of(self._text)), *self._take_pieces()]
        tail = self.tail
        self._text, self._previous, self._half = "", PreviousBlock.BLOCK, ""
        return done if tail is None else [*done, tail]


FRAME = 0.08
"""Seconds between two redraws."""
DRAW_SHARE = 8.0
"""Drawing takes at most one part in this many of the time."""
MIN_CODE_LINES = 8
"""Lines of code held in a window of any height."""
RESIZE_PAUSE = 0.3
"""Seconds after which a resized window is taken to have its final width."""
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
ASCII_SPINNER = "|/-\\"


class TurnEnd:
    def __init__(self) -> None:
        self.state: AttemptState | None = None
        """None if unknown: the turn is no longer followed."""
        self.may_continue = False
        """Whether it may continue unfollowed."""
        self.failure: Failure | None = None
        self.problem: TurnledgerError | None = None

    @property
    def is_committed(self) -> bool:
        return self.problem is None and self.state is not None and self.state.is_committed


class TurnView:
    """Shows one running turn. Used once."""

    def __init__(self, screen: Screen, *, now: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._now = now
        self._began_at = now()
        self._streamed = StreamedMarkdown(max(MIN_CODE_LINES, screen.height))
        self._is_drawn = True  # whether the text streamed so far is on the screen
        self._spoken: set[type] = set()  # kinds of text that streamed in, and whose message has not come yet
        self._thought = ""  # reasoning that streams in
        self._is_thought_shown = False
        self._calls: dict[str, str] = {}  # calls that stream in, by their ids
        self._has_started = False
        self._is_stopping = False
        self._end = TurnEnd()
        self._width, self._changed_at = screen.width, float("-inf")

    async def follow(self, running: TurnInProgress, interrupts: Interrupts) -> TurnEnd:
        """Show the turn until it has ended. Ctrl-C stops it and keeps the answer so far; a second one stops
        following it. Errors of the turn are part of the result."""
        reading = asyncio.create_task(self._read_events(running), name="turnledger answer")
        interrupt = asyncio.create_task(interrupts.wait(), name="turnledger Ctrl-C")
        stopping: asyncio.Task[TurnledgerError | None] | None = None
        try:
            while not reading.done():
                pause = self._draw()
                await asyncio.wait((reading, interrupt), timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                if not interrupt.done() or reading.done():
                    continue
                if stopping is not None or not running.is_requested:
                    break  # it does not stop, or was never sent: stop following
                self._is_stopping = True
                stopping = asyncio.create_task(self._stop(running), name="turnledger stop")
                interrupt = asyncio.create_task(interrupts.wait(), name="turnledger Ctrl-C")
        finally:
            for task in (reading, interrupt, stopping):
                if task is not None and not task.done():
                    task.cancel()
                    await asyncio.wait((task,))
            if reading.cancelled():
                self._end.state = None
                self._end.may_continue = await running.leave()
            self._screen.blocks(self._streamed.flush())
            self._screen.clear_live()
        if not reading.cancelled():
            reading.result()
        if stopping is not None and self._end.problem is None and not stopping.cancelled():
            self._end.problem = stopping.result() if self._end.state is None else None
        return self._end

    async def _stop(self, running: TurnInProgress) -> TurnledgerError | None:
        try:
            await running.stop()
        except TurnledgerError as problem:
            return problem  # it continues; a second Ctrl-C stops following
        return None

    async def _read_events(self, running: TurnInProgress) -> None:
        try:
            async for event in running:
                self._handle_event(event)
        except TurnledgerError as problem:
            self._end.problem = problem

    def _handle_event(self, event: TurnUpdate) -> None:
        self._is_drawn = False
        if isinstance(event, TextDelta | RefusalDelta):
            self._show_thought()
            self._spoken.add(type(event))
            self._streamed.feed(event.text)
        elif isinstance(event, ReasoningDelta):
            self._thought += event.text
        elif isinstance(event, ItemAdded):
            self._show_thought()
            call = Item(event.item)
            self._calls[call.call_id or ""] = f"{call.fields.get('name')}("
        elif isinstance(event, ArgumentsDelta):
            self._calls[event.call_id] = self._calls.get(event.call_id, "") + event.text
        elif isinstance(event, ItemDone):
            self._handle_item(Item(event.item))
        elif isinstance(event, TurnFinished):
            self._end.state, self._end.failure = event.state, event.failure
        elif isinstance(event, TurnStarted):
            self._has_started = True
        elif isinstance(event, AnswerRestarted | TurnResumed):
            if isinstance(event, AnswerRestarted):
                self._finish_text()
            self._start_over()
            self._screen.print(Text("The answer restarts:", "yellow"))

    def _start_over(self) -> None:
        """Drop what streams in, as far as it is not on the screen for good."""
        self._streamed = StreamedMarkdown(max(MIN_CODE_LINES, self._screen.height))
        self._thought, self._is_thought_shown = "", False
        self._spoken.clear()
        self._calls.clear()

    def _show_thought(self) -> None:
        """Show reasoning on one line once something follows it: its item comes after the text."""
        if self._thought.strip() and not self._is_thought_shown:
            self._screen.print(_render_thought(self._thought))
            self._is_thought_shown = True
        self._thought = ""

    def _handle_item(self, item: Item) -> None:
        if item.is_reasoning and self._is_thought_shown:
            self._is_thought_shown = False
            return
        self._thought = "" if item.is_reasoning else self._thought
        self._calls.pop(item.call_id or "", None)
        if item.role == "assistant":
            kind = RefusalDelta if item.is_refusal else TextDelta
            if kind not in self._spoken:
                self._streamed.feed(item.text)  # it was not streamed
            self._spoken.discard(kind)
        self._finish_text()
        line = render_item(item)
        if line is not None:
            self._screen.print(line)

    def _finish_text(self) -> None:
        self._screen.blocks(self._streamed.flush())
        self._streamed = StreamedMarkdown(max(MIN_CODE_LINES, self._screen.height))

    def _draw(self) -> float:
        """Redraw; return the seconds until the next redraw."""
        began_at = self._now()
        if self._screen.width != self._width:
            self._width, self._changed_at = self._screen.width, began_at
        if began_at - self._changed_at < RESIZE_PAUSE:
            return FRAME
        if not self._is_drawn:
            self._screen.blocks(self._streamed.take_finished(), self._streamed.tail, self._status(began_at))
            self._is_drawn = True
        else:
            self._screen.blocks((), self._streamed.tail, self._status(began_at))
        return max(FRAME, DRAW_SHARE * (self._now() - began_at))

    def _status(self, now: float) -> str:
        elapsed = now - self._began_at
        frames = ASCII_SPINNER if self._screen.is_ascii else SPINNER
        frame = frames[int(elapsed / FRAME) % len(frames)]
        if self._is_stopping:
            return f"{frame} stopping… Ctrl-C again stops following"
        phase = "" if self._has_started else "waiting, "
        return f"{frame} {phase}{int(elapsed)} s, Ctrl-C stops{self._activity()}"

    def _activity(self) -> str:
        """Return the end of the reasoning or of the call that streams in."""
        if self._calls:
            mark, growing = "⚙", next(reversed(self._calls.values()))
        elif self._thought.strip():
            mark, growing = "∴", self._thought
        else:
            return ""
        return f"  {'>' if self._screen.is_ascii else mark} {_end_of(growing)}"
