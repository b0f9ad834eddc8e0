"""The chat that one is in: what of it is on the screen, and the turns that are asked for there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import uuid4

from msgspec.structs import replace
from rich.text import Text

from turnledger.cli.chat.backend import Answering, ChatBackend, ChatState, SeenChat, SeenTurn, Talk, Wish
from turnledger.cli.chat.interrupts import Presses, forget_keys
from turnledger.cli.chat.picker import title_of
from turnledger.cli.chat.sanitize import on_one_line
from turnledger.cli.chat.screen import Screen
from turnledger.cli.chat.turn_view import (
    DIM,
    Telling,
    TurnEnd,
    age_of,
    notes,
    prompt_label,
    question,
    show_turn,
)
from turnledger.errors import ServerUnavailable, TurnledgerError, TurnStopped

LAST = 5
"""Turns that are shown of a chat that is opened."""
NEWS = 20
"""Turns that are looked at for what others did."""
LONGEST = 40
"""Characters of what was said that tell which turn is meant."""
PATIENCE = 2.0
"""Seconds that a person waits for what is only good to know."""


class ChatView(NamedTuple):
    """A chat as it was found, by who knew so much of it then."""

    talk: Talk
    known: int
    seen: ChatState


class Talker:
    """Talks in one chat after another, on one screen. Of the models, the first is asked, until a person names
    another or goes on with a chat in which another has answered."""

    def __init__(
        self,
        place: ChatBackend,
        screen: Screen,
        models: Sequence[str],
        presses: Presses,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.place = place
        self.screen = screen
        self.models = models
        self.model = models[0]
        self.now = now
        self.is_following = False
        """Whether a turn is on the screen, which Ctrl-C stops."""
        self._presses = presses
        self.talk: Talk = place.new()
        self.chat: SeenChat | None = None
        """None until there is one to be seen."""
        self.unsent = ""
        """What was typed and not answered: it is back in the prompt."""
        self.edits: dict[str, str] = {}
        """Turn → what was to stand in its place, and failed."""
        self._on_screen: dict[int, str] = {}
        self._failed: Wish | None = None
        self._known = 0
        """How often what is known of the chat was replaced."""

    @property
    def label(self) -> str:
        """What stands before the input of the next turn."""
        return prompt_label(max(self._on_screen, default=0) + 1)

    # Which chat.

    def begin(self) -> None:
        """Go on with a chat that is not there yet."""
        self._enter(self.place.new())

    async def open(self, talk: Talk) -> None:
        """Go on with this chat: show how it ends, and what runs there, or did when its process died."""
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
        """Go on with the model that answered last, if it is one of those."""
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
        """Note what is on the screen by now."""
        self._known += 1
        self.chat = seen.chat
        last = seen.turns[-1].number if seen.turns else 0
        self._on_screen = {number: id for number, id in self._on_screen.items() if number <= last}
        self._on_screen |= {turn.number: turn.id for turn in seen.turns}

    # What others do.

    async def catch_up(self, own: str | None = None) -> SeenTurn | None:
        """Show what has happened in the chat since it was looked at; return the turn that was made here, if
        one was."""
        look = await self.look_around()
        while look is not None and not self.show_news(look, own):
            look = await self.look_around()
        return None if look is None else next((turn for turn in look.seen.turns if turn.id == own), None)

    async def look_around(self) -> ChatView | None:
        """Look at the chat, and show nothing yet; None while there is none."""
        talk, known = self.talk, self._known
        return None if talk.id is None else ChatView(talk, known, await talk.look(limit=NEWS))

    def show_news(self, look: ChatView, own: str | None = None) -> bool:
        """Show what is new in it; False if somebody has looked since: then it may be older than what is on
        the screen."""
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
        """Whether there is something new to be seen."""
        return any(map(self._is_news, look.seen.turns)) or self._undone(look.seen) > 0

    def _undone(self, seen: ChatState) -> int:
        last = seen.turns[-1].number if seen.turns else 0
        return sum(number > last for number in self._on_screen)

    def _is_news(self, turn: SeenTurn) -> bool:
        known = self._on_screen.get(turn.number)
        # What lies before all that is on the screen is old, not new.
        return known != turn.id and turn.number >= min(self._on_screen, default=0)

    async def forget_behind(self) -> None:
        """Look at the chat after a turn was taken back here."""
        self._take(await self.talk.look(limit=NEWS))

    # Turns.

    async def say(self, text: str) -> None:
        """Say this to the model, and show its answer. What cannot be said is in the prompt again."""
        try:
            await self.ask(Wish(model=self.model, text=text, idempotency_key=""))
        except TurnledgerError:
            self.unsent = typed_for(text)
            raise

    async def ask(self, wish: Wish) -> None:
        """Have a turn, and show it. One that failed is asked for again under its name: so whatever became of
        it, it is there once."""
        failed = self._failed
        is_again = failed is not None and replace(failed, idempotency_key="") == wish
        key = failed.idempotency_key if failed is not None and is_again else uuid4().hex
        wish = replace(wish, idempotency_key=key)
        answering, label = self.talk.ask(wish), self.label
        told = await self._told(answering)
        self._failed = None
        if told.is_there:
            await self._show_end(answering.turn, label if wish.text and wish.replaces is None else None)
            if wish.replaces is not None or wish.regenerates is not None:
                await self._show_version(answering.turn)
        else:
            self._take_back(wish, told)

    async def _follow_running(self, turn: str, asked: str) -> None:
        self.screen.blank()
        self.screen.say(question(max(self._on_screen, default=0) + 1, asked))
        answering = self.talk.follow(turn)
        told = await self._told(answering)
        if told.is_there:
            await self._show_end(turn)
        else:
            self._say_why(told)
            self.unsent = "" if told.may_go_on else typed_for(asked)

    async def _told(self, answering: Answering) -> TurnEnd:
        self.screen.blank()
        self.is_following = True
        try:
            return await Telling(self.screen).follow(answering, self._presses)
        finally:
            self.is_following = False

    async def _show_end(self, turn: str | None, label: str | None = None) -> None:
        """Say how it ended, if there is more to say than what it said, and which turn it is, if another had
        the number that it was asked under. It is there in any case."""
        with suppress(TurnledgerError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                own = await self.catch_up(turn)
                for note in notes(own) if own is not None else ():
                    self.screen.say(note)
                if own is not None and label not in (None, prompt_label(own.number)):
                    said = on_one_line(own.asked)[:LONGEST]
                    self.screen.say(Text(f"Yours is turn {own.number}: {said}", DIM))

    async def _show_version(self, turn: str | None) -> None:
        """Say that there are others, and how to see them."""
        if turn is None:
            return
        with suppress(TurnledgerError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                ids = [version.turn.id for version in await self.talk.versions(turn)]
                told = f"Version {ids.index(turn) + 1} of {len(ids)}; /prev shows the one before."
                self.screen.say(Text(told, DIM))

    def _take_back(self, wish: Wish, told: TurnEnd) -> None:
        """Say why there is no answer, and have the text again."""
        forget_keys()
        if not isinstance(told.problem, TurnStopped):
            self._failed = wish
        self._say_why(told)
        if wish.replaces is not None:
            self.edits[wish.replaces] = wish.text
            kept = _SAID_ONCE if _may_be_there(told) else "Nothing has changed."
            self.screen.say(Text(f"{kept} /edit has your text again.", DIM))
        elif wish.regenerates is None:
            self.unsent = typed_for(wish.text)
            self.screen.say(Text(_whether_kept(told), DIM))

    def _say_why(self, told: TurnEnd) -> None:
        self.screen.blank()
        if isinstance(told.problem, TurnStopped):
            self.screen.say(Text("■ Stopped.", "yellow"))
        elif told.problem is not None:
            self.screen.say(problem_line(told.problem))
        elif told.failure is not None:
            self.screen.say(Text(f"✗ {told.failure.code}: {on_one_line(told.failure.message)}", "red"))
        elif told.may_go_on:
            self.screen.say(Text("■ Left to itself. If it is answered, that is shown here.", "yellow"))
        else:
            self.screen.say(Text("■ Stopped.", "yellow"))


_SAID_ONCE = "Sent as it is, it is still said once."


def _may_be_there(told: TurnEnd) -> bool:
    return told.may_go_on or isinstance(told.problem, ServerUnavailable)


def _whether_kept(told: TurnEnd) -> str:
    kept = _SAID_ONCE if _may_be_there(told) else "Nothing of it is kept."
    return f"{kept} Your text is in the prompt again."


def problem_line(problem: TurnledgerError) -> Text:
    """What went wrong, on one line."""
    return Text(f"✗ {problem.code}: {on_one_line(str(problem))}", "red")


def counted(number: int, of_what: str) -> str:
    """So many of them, in words."""
    return f"{number} {of_what}{'' if number == 1 else 's'}"


def said_in(text: str) -> str:
    """What a line says to the model that is no command."""
    return text[1:] if text.startswith("//") else text


def typed_for(text: str) -> str:
    """What has to be typed to say this."""
    return f"/{text}" if text.startswith("/") else text
