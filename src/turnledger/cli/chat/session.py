"""The current chat: which turns are on the screen, and which are requested."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import uuid4

from msgspec.structs import replace
from rich.text import Text

from turnledger.api.chats import ChatInfo
from turnledger.api.turns import Turn
from turnledger.cli.chat.backend import (
    AnyHandle,
    ChatBackend,
    ChatState,
    NewTurn,
    TurnInProgress,
    check_demo,
    last_model,
    question_of,
)
from turnledger.cli.chat.interrupts import Interrupts, drop_keys
from turnledger.cli.chat.picker import title_of
from turnledger.cli.chat.screen import Screen
from turnledger.cli.chat.turn_view import (
    DIM,
    TurnEnd,
    TurnView,
    age_of,
    prompt_label,
    render_notes,
    render_question,
    show_turn,
)
from turnledger.cli.output.sanitize import sanitize_line
from turnledger.errors import ServerUnavailable, TurnledgerError, TurnStopped

OPENED_TURNS = 5
"""Turns shown of a chat that is opened."""
CHECKED_TURNS = 20
"""Turns checked for changes by others."""
QUOTED_LENGTH = 40
"""Characters of a message that identify a turn."""
PATIENCE = 2.0
"""Seconds that the user waits for optional information."""


class ChatView(NamedTuple):
    """A chat as read, and the version of the screen then."""

    handle: AnyHandle
    version: int
    state: ChatState


class Session:
    """Works in one chat after another, on one screen. The first model answers, until the user names another
    or opens a chat that another one answered."""

    def __init__(
        self,
        backend: ChatBackend,
        screen: Screen,
        models: Sequence[str],
        interrupts: Interrupts,
        *,
        is_model_chosen: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.backend = backend
        self.screen = screen
        self.models = models
        self.model = models[0]
        self.is_model_chosen = is_model_chosen
        """Whether the user named the model."""
        self.now = now
        self.is_following = False
        """Whether a turn is on the screen; Ctrl-C stops it."""
        self._interrupts = interrupts
        self.handle: AnyHandle = backend.new()
        self.chat: ChatInfo | None = None
        """None until it exists."""
        self.unsent = ""
        """Typed and not answered: it returns to the prompt."""
        self.edits: dict[str, str] = {}
        """Turn → its failed edit."""
        self._on_screen: dict[int, str] = {}
        self._last_model: str | None = None
        self._failed: NewTurn | None = None
        self._version = 0
        """How often the known state of the chat was replaced."""

    @property
    def label(self) -> str:
        return prompt_label(max(self._on_screen, default=0) + 1)

    def begin(self) -> None:
        self._reset(self.backend.new())

    async def open(self, handle: AnyHandle) -> None:
        """Continue this chat: show its last turns, and the running one, or the one whose process died."""
        state = await handle.read(limit=OPENED_TURNS)
        self._reset(handle)
        self._apply_state(state)
        self._restore_model()
        self._show_heading(state)
        for turn in state.turns:
            show_turn(self.screen, turn)
        unfinished = state.running or state.died
        if unfinished is not None:
            await self._follow_running(unfinished.id, question_of(unfinished))

    def _reset(self, handle: AnyHandle) -> None:
        self.handle, self.chat = handle, None
        self._version += 1
        self._on_screen.clear()
        self._last_model = None
        self.edits.clear()
        self._failed = None

    def _restore_model(self) -> None:
        """Continue with the model that answered last, if it is available."""
        if self._last_model is not None and self._last_model in self.models:
            self.model = self._last_model

    def _show_heading(self, state: ChatState) -> None:
        chat, first = state.chat, state.turns[0].number if state.turns else 1
        self.screen.blank()
        self.screen.print(Text(title_of(chat), "bold"))
        turns, age = count_text(chat.turn_count or 0, "turn"), age_of(chat.touched_at, self.now())
        self.screen.print(Text(f"{chat.id}, {turns}, {age}", DIM))
        if first > 1:
            self.screen.print(Text(f"{count_text(first - 1, 'earlier turn')}: /history shows them", DIM))

    async def show_from(self, number: int) -> None:
        """Print the turns from this number on, as the chat shows them now."""
        turns: list[Turn] = []
        before: int | None = None
        while before is None or before > number:
            state = await self.handle.read(before=before)
            if before is None:
                self._apply_state(state)
            turns[:0] = state.turns
            if not state.turns or state.turns[0].number == 1:
                break
            before = state.turns[0].number
        for turn in turns:
            if turn.number >= number:
                show_turn(self.screen, turn)

    def _apply_state(self, state: ChatState) -> None:
        self._version += 1
        self.chat = state.chat
        self._last_model = last_model(state.turns)
        last = state.turns[-1].number if state.turns else 0
        self._on_screen = {number: id for number, id in self._on_screen.items() if number <= last}
        self._on_screen |= {turn.number: turn.id for turn in state.turns}

    async def catch_up(self, own_turn: str | None = None) -> Turn | None:
        """Show what happened in the chat since it was last read; return the own turn, if it is there."""
        view = await self.read_news()
        while view is not None and not self.show_news(view, own_turn):
            view = await self.read_news()
        return (
            None if view is None else next((turn for turn in view.state.turns if turn.id == own_turn), None)
        )

    async def read_news(self) -> ChatView | None:
        """Read the chat without showing anything; None for a new one."""
        handle, version = self.handle, self._version
        return (
            None if handle.id is None else ChatView(handle, version, await handle.read(limit=CHECKED_TURNS))
        )

    def show_news(self, view: ChatView, own_turn: str | None = None) -> bool:
        """Show the news; return False if the chat was read again since: the screen may be newer."""
        if (view.handle, view.version) != (self.handle, self._version):
            return False
        news = [turn for turn in view.state.turns if self._is_news(turn) and turn.id != own_turn]
        undone = self._count_undone(view.state)
        self._apply_state(view.state)
        if own_turn is None and undone and not news:
            self.screen.blank()
            self.screen.print(Text(f"Undone elsewhere: {count_text(undone, 'turn')}.", "yellow"))
        if news:
            self.screen.blank()
            self.screen.print(Text("New in this chat:", "yellow"))
        for turn in news:
            show_turn(self.screen, turn)
        return True

    def has_news(self, view: ChatView) -> bool:
        return any(map(self._is_news, view.state.turns)) or self._count_undone(view.state) > 0

    def _count_undone(self, state: ChatState) -> int:
        last = state.turns[-1].number if state.turns else 0
        return sum(number > last for number in self._on_screen)

    def _is_news(self, turn: Turn) -> bool:
        version = self._on_screen.get(turn.number)
        # Turns before all those on the screen are old.
        return version != turn.id and turn.number >= min(self._on_screen, default=0)

    async def refresh(self) -> None:
        self._apply_state(await self.handle.read(limit=CHECKED_TURNS))

    async def send(self, text: str) -> None:
        """Send this to the model, and show its answer. If that fails, the text returns to the prompt."""
        try:
            await self.run(NewTurn(model=self.model, text=text, idempotency_key=""))
        except TurnledgerError:
            self.unsent = line_for(text)
            raise

    async def run(self, new_turn: NewTurn) -> None:
        """Run a turn, and show it. A failed one is requested again under the same idempotency_key, so that it
        runs once, whatever became of it. Raises InvalidInput instead of letting the demo model continue the
        chat of another."""
        if self.backend.is_demo and not self.is_model_chosen:
            check_demo(self._last_model, self.model, f"/model {self.model}")
        failed = self._failed
        is_retry = failed is not None and replace(failed, idempotency_key="") == new_turn
        key = failed.idempotency_key if failed is not None and is_retry else uuid4().hex
        new_turn = replace(new_turn, idempotency_key=key)
        running, label = self.handle.start(new_turn), self.label
        end = await self._follow(running)
        self._failed = None
        if end.is_committed:
            await self._show_end(running.turn, label if new_turn.text and new_turn.replaces is None else None)
            if new_turn.replaces is not None or new_turn.regenerates is not None:
                await self._show_version(running.turn)
        else:
            self._restore_text(new_turn, end)

    async def _follow_running(self, turn: str, question: str) -> None:
        self.screen.blank()
        self.screen.print(render_question(max(self._on_screen, default=0) + 1, question))
        running = self.handle.follow(turn)
        end = await self._follow(running)
        if end.is_committed:
            await self._show_end(turn)
        else:
            self._print_reason(end)
            self.unsent = "" if end.may_continue else line_for(question)

    async def _follow(self, running: TurnInProgress) -> TurnEnd:
        self.screen.blank()
        self.is_following = True
        try:
            return await TurnView(self.screen).follow(running, self._interrupts)
        finally:
            self.is_following = False

    async def _show_end(self, turn: str | None, label: str | None = None) -> None:
        """Show notes on how the turn ended, and its number if the prompt showed another. Ignores errors: the
        turn is committed."""
        with suppress(TurnledgerError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                own_turn = await self.catch_up(turn)
                for note in render_notes(own_turn) if own_turn is not None else ():
                    self.screen.print(note)
                if own_turn is not None and label not in (None, prompt_label(own_turn.number)):
                    beginning = sanitize_line(question_of(own_turn))[:QUOTED_LENGTH]
                    self.screen.print(Text(f"Your message is turn {own_turn.number}: {beginning}", DIM))

    async def _show_version(self, turn: str | None) -> None:
        """Print that there are other versions, and how to see them."""
        if turn is None:
            return
        with suppress(TurnledgerError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                ids: list[str] = [version.turn.id for version in await self.handle.versions(turn)]
                hint = f"Version {ids.index(turn) + 1} of {len(ids)}; /prev shows the previous one."
                self.screen.print(Text(hint, DIM))

    def _restore_text(self, new_turn: NewTurn, end: TurnEnd) -> None:
        """Print why there is no answer, and return the text to the prompt."""
        drop_keys()
        if not isinstance(end.problem, TurnStopped):
            self._failed = new_turn
        self._print_reason(end)
        if new_turn.replaces is not None:
            self.edits[new_turn.replaces] = new_turn.text
            kept = _SENT_ONCE if _may_be_committed(end) else "Nothing changed."
            self.screen.print(Text(f"{kept} /edit restores your text.", DIM))
        elif new_turn.regenerates is None:
            self.unsent = line_for(new_turn.text)
            kept = _SENT_ONCE if _may_be_committed(end) else "Nothing was stored."
            self.screen.print(Text(f"{kept} Your text is back in the prompt.", DIM))

    def _print_reason(self, end: TurnEnd) -> None:
        self.screen.blank()
        if isinstance(end.problem, TurnStopped):
            self.screen.print(Text("■ Stopped.", "yellow"))
        elif end.problem is not None:
            self.screen.print(problem_line(end.problem))
        elif end.failure is not None:
            self.screen.print(Text(f"✗ {end.failure.code}: {sanitize_line(end.failure.message)}", "red"))
        elif end.may_continue:
            self.screen.print(
                Text("■ No longer following. If the turn completes, it appears here.", "yellow")
            )
        else:
            self.screen.print(Text("■ Stopped.", "yellow"))


_SENT_ONCE = "If you send it unchanged, it still runs only once."


def _may_be_committed(end: TurnEnd) -> bool:
    return end.may_continue or isinstance(end.problem, ServerUnavailable)


def problem_line(problem: TurnledgerError) -> Text:
    return Text(f"✗ {problem.code}: {sanitize_line(str(problem))}", "red")


def count_text(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def message_in(text: str) -> str:
    """Return the message on a line that is not a command."""
    return text[1:] if text.startswith("//") else text


def line_for(text: str) -> str:
    """Return the line to type for this message."""
    return f"/{text}" if text.startswith("/") else text
