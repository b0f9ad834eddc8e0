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

from turnledger.cli.chat.backend import (
    ChatBackend,
    ChatState,
    NewTurn,
    SeenChat,
    SeenTurn,
    Talk,
    TurnInProgress,
)
from turnledger.cli.chat.interrupts import Interrupts, forget_keys
from turnledger.cli.chat.picker import title_of
from turnledger.cli.chat.sanitize import on_one_line
from turnledger.cli.chat.screen import Screen
from turnledger.cli.chat.turn_view import (
    DIM,
    TurnEnd,
    TurnView,
    age_of,
    notes,
    prompt_label,
    question,
    show_turn,
)
from turnledger.errors import ServerUnavailable, TurnledgerError, TurnStopped

LAST = 5
"""Turns shown of a chat that is opened."""
NEWS = 20
"""Turns checked for changes by others."""
LONGEST = 40
"""Characters of a message that identify a turn."""
PATIENCE = 2.0
"""Seconds that the user waits for optional information."""


class ChatView(NamedTuple):
    """A chat as read, and the version of the screen then."""

    talk: Talk
    known: int
    seen: ChatState


class Session:
    """Works in one chat after another, on one screen. The first model answers, until the user names another
    or opens a chat that another one answered."""

    def __init__(
        self,
        place: ChatBackend,
        screen: Screen,
        models: Sequence[str],
        interrupts: Interrupts,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.place = place
        self.screen = screen
        self.models = models
        self.model = models[0]
        self.now = now
        self.is_following = False
        """Whether a turn is on the screen; Ctrl-C stops it."""
        self._interrupts = interrupts
        self.talk: Talk = place.new()
        self.chat: SeenChat | None = None
        """None until it exists."""
        self.unsent = ""
        """Typed and not answered: it returns to the prompt."""
        self.edits: dict[str, str] = {}
        """Turn → its failed edit."""
        self._on_screen: dict[int, str] = {}
        self._failed: NewTurn | None = None
        self._known = 0
        """How often the known state of the chat was replaced."""

    @property
    def label(self) -> str:
        return prompt_label(max(self._on_screen, default=0) + 1)

    def begin(self) -> None:
        self._enter(self.place.new())

    async def open(self, talk: Talk) -> None:
        """Continue this chat: show its last turns, and the running one, or the one whose process died."""
        seen = await talk.look(limit=LAST)
        self._enter(talk)
        self._take(seen)
        self._take_model(seen)
        self._show_heading(seen)
        for turn in seen.turns:
            show_turn(self.screen, turn)
        unfinished = seen.running or seen.died
        if unfinished is not None:
            await self._follow_running(unfinished.id, unfinished.asked)

    def _enter(self, talk: Talk) -> None:
        self.talk, self.chat = talk, None
        self._known += 1
        self._on_screen.clear()
        self.edits.clear()
        self._failed = None

    def _take_model(self, seen: ChatState) -> None:
        """Continue with the model that answered last, if it is available."""
        answered = seen.turns[-1].details.get("model") if seen.turns else None
        if isinstance(answered, str) and answered in self.models:
            self.model = answered

    def _show_heading(self, seen: ChatState) -> None:
        chat, first = seen.chat, seen.turns[0].number if seen.turns else 1
        self.screen.blank()
        self.screen.say(Text(title_of(chat), "bold"))
        about = f"{chat.id}, {counted(chat.turns, 'turn')}, {age_of(chat.touched_at, self.now())}"
        self.screen.say(Text(about, DIM))
        if first > 1:
            self.screen.say(Text(f"{counted(first - 1, 'earlier turn')}: /history shows all", DIM))

    async def show_from(self, number: int) -> None:
        """Print the turns from this number on, as the chat shows them now."""
        turns: list[SeenTurn] = []
        before: int | None = None
        while before is None or before > number:
            seen = await self.talk.look(before=before)
            if before is None:
                self._take(seen)
            turns[:0] = seen.turns
            if not seen.turns or seen.turns[0].number == 1:
                break
            before = seen.turns[0].number
        for turn in turns:
            if turn.number >= number:
                show_turn(self.screen, turn)

    def _take(self, seen: ChatState) -> None:
        self._known += 1
        self.chat = seen.chat
        last = seen.turns[-1].number if seen.turns else 0
        self._on_screen = {number: id for number, id in self._on_screen.items() if number <= last}
        self._on_screen |= {turn.number: turn.id for turn in seen.turns}

    async def catch_up(self, own: str | None = None) -> SeenTurn | None:
        """Show what happened in the chat since it was last read; return the own turn, if it is there."""
        look = await self.look_around()
        while look is not None and not self.show_news(look, own):
            look = await self.look_around()
        return None if look is None else next((turn for turn in look.seen.turns if turn.id == own), None)

    async def look_around(self) -> ChatView | None:
        """Read the chat without showing anything; None for a new one."""
        talk, known = self.talk, self._known
        return None if talk.id is None else ChatView(talk, known, await talk.look(limit=NEWS))

    def show_news(self, look: ChatView, own: str | None = None) -> bool:
        """Show the news; return False if the chat was read again since: the screen may be newer."""
        if (look.talk, look.known) != (self.talk, self._known):
            return False
        news = [turn for turn in look.seen.turns if self._is_news(turn) and turn.id != own]
        undone = self._undone(look.seen)
        self._take(look.seen)
        if own is None and undone and not news:
            self.screen.blank()
            self.screen.say(Text(f"Taken back elsewhere: {counted(undone, 'turn')}.", "yellow"))
        if news:
            self.screen.blank()
            self.screen.say(Text("Meanwhile, elsewhere:", "yellow"))
        for turn in news:
            show_turn(self.screen, turn)
        return True

    def has_news(self, look: ChatView) -> bool:
        return any(map(self._is_news, look.seen.turns)) or self._undone(look.seen) > 0

    def _undone(self, seen: ChatState) -> int:
        last = seen.turns[-1].number if seen.turns else 0
        return sum(number > last for number in self._on_screen)

    def _is_news(self, turn: SeenTurn) -> bool:
        known = self._on_screen.get(turn.number)
        # Turns before all those on the screen are old.
        return known != turn.id and turn.number >= min(self._on_screen, default=0)

    async def forget_behind(self) -> None:
        self._take(await self.talk.look(limit=NEWS))

    async def say(self, text: str) -> None:
        """Send this to the model, and show its answer. If that fails, the text returns to the prompt."""
        try:
            await self.ask(NewTurn(model=self.model, text=text, idempotency_key=""))
        except TurnledgerError:
            self.unsent = typed_for(text)
            raise

    async def ask(self, wish: NewTurn) -> None:
        """Run a turn, and show it. A failed one is requested again under the same idempotency_key, so that it
        runs once, whatever became of it."""
        failed = self._failed
        is_again = failed is not None and replace(failed, idempotency_key="") == wish
        key = failed.idempotency_key if failed is not None and is_again else uuid4().hex
        wish = replace(wish, idempotency_key=key)
        answering, label = self.talk.ask(wish), self.label
        end = await self._follow(answering)
        self._failed = None
        if end.is_there:
            await self._show_end(answering.turn, label if wish.text and wish.replaces is None else None)
            if wish.replaces is not None or wish.regenerates is not None:
                await self._show_version(answering.turn)
        else:
            self._take_back(wish, end)

    async def _follow_running(self, turn: str, asked: str) -> None:
        self.screen.blank()
        self.screen.say(question(max(self._on_screen, default=0) + 1, asked))
        answering = self.talk.follow(turn)
        end = await self._follow(answering)
        if end.is_there:
            await self._show_end(turn)
        else:
            self._say_why(end)
            self.unsent = "" if end.may_go_on else typed_for(asked)

    async def _follow(self, answering: TurnInProgress) -> TurnEnd:
        self.screen.blank()
        self.is_following = True
        try:
            return await TurnView(self.screen).follow(answering, self._interrupts)
        finally:
            self.is_following = False

    async def _show_end(self, turn: str | None, label: str | None = None) -> None:
        """Show notes on how the turn ended, and its number if the prompt showed another. Ignores errors: the
        turn is committed."""
        with suppress(TurnledgerError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                own = await self.catch_up(turn)
                for note in notes(own) if own is not None else ():
                    self.screen.say(note)
                if own is not None and label not in (None, prompt_label(own.number)):
                    beginning = on_one_line(own.asked)[:LONGEST]
                    self.screen.say(Text(f"Yours is turn {own.number}: {beginning}", DIM))

    async def _show_version(self, turn: str | None) -> None:
        """Say that there are other versions, and how to see them."""
        if turn is None:
            return
        with suppress(TurnledgerError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                ids = [version.turn.id for version in await self.talk.versions(turn)]
                hint = f"Version {ids.index(turn) + 1} of {len(ids)}; /prev shows the one before."
                self.screen.say(Text(hint, DIM))

    def _take_back(self, wish: NewTurn, end: TurnEnd) -> None:
        """Say why there is no answer, and return the text to the prompt."""
        forget_keys()
        if not isinstance(end.problem, TurnStopped):
            self._failed = wish
        self._say_why(end)
        if wish.replaces is not None:
            self.edits[wish.replaces] = wish.text
            kept = _SAID_ONCE if _may_be_there(end) else "Nothing has changed."
            self.screen.say(Text(f"{kept} /edit has your text again.", DIM))
        elif wish.regenerates is None:
            self.unsent = typed_for(wish.text)
            kept = _SAID_ONCE if _may_be_there(end) else "Nothing of it is kept."
            self.screen.say(Text(f"{kept} Your text is in the prompt again.", DIM))

    def _say_why(self, end: TurnEnd) -> None:
        self.screen.blank()
        if isinstance(end.problem, TurnStopped):
            self.screen.say(Text("■ Stopped.", "yellow"))
        elif end.problem is not None:
            self.screen.say(problem_line(end.problem))
        elif end.failure is not None:
            self.screen.say(Text(f"✗ {end.failure.code}: {on_one_line(end.failure.message)}", "red"))
        elif end.may_go_on:
            self.screen.say(Text("■ Left to itself. If it is answered, that is shown here.", "yellow"))
        else:
            self.screen.say(Text("■ Stopped.", "yellow"))


_SAID_ONCE = "Sent as it is, it is still said once."


def _may_be_there(end: TurnEnd) -> bool:
    return end.may_go_on or isinstance(end.problem, ServerUnavailable)


def problem_line(problem: TurnledgerError) -> Text:
    return Text(f"✗ {problem.code}: {on_one_line(str(problem))}", "red")


def counted(number: int, of_what: str) -> str:
    return f"{number} {of_what}{'' if number == 1 else 's'}"


def said_in(text: str) -> str:
    """Return the message on a line that is not a command."""
    return text[1:] if text.startswith("//") else text


def typed_for(text: str) -> str:
    """Return the line to type for this message."""
    return f"/{text}" if text.startswith("/") else text
