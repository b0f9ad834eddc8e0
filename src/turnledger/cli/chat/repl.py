"""From one prompt to the next, until somebody leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from prompt_toolkit.application import get_app, in_terminal
from prompt_toolkit.history import History
from rich.text import Text

from turnledger.cli.chat.backend import SeenChat
from turnledger.cli.chat.commands import COMMANDS, Doing, command_in
from turnledger.cli.chat.interrupts import Presses
from turnledger.cli.chat.picker import Picker, title_of
from turnledger.cli.chat.prompt import CommandCompleter, Prompt, fitted
from turnledger.cli.chat.sanitize import on_one_line
from turnledger.cli.chat.session import PATIENCE, Talker, problem_line, said_in
from turnledger.cli.chat.turn_view import DIM
from turnledger.errors import ConversationDeleted, TurnledgerError

TICK = 0.25
"""Seconds from one look at a command to the next."""
LONG = 4
"""Looks at one that says nothing, after which it is told that it is waited for."""


class ChatLoop:
    """Has a person talk."""

    def __init__(self, talker: Talker, presses: Presses, history: History) -> None:
        self._talker = talker
        self._presses = presses
        completer = CommandCompleter([(each.name, each.meaning) for each in COMMANDS], self._behind)
        self._prompt = Prompt(history, completer, self._toolbar)
        self._doing = Doing(talker, self)
        self._prompting = asyncio.Event()
        self._news = asyncio.Event()
        """Somebody may have done something in the chat, and it was not looked at since."""
        self._is_asking = False

    async def run(self) -> None:
        """Prompt, answer, and so on. Returns when the person leaves."""
        watching = asyncio.create_task(self._keep_watch(), name="turnledger watch")
        is_leaving = False
        try:
            while True:
                try:
                    typed = await self._typed()
                except EOFError:
                    return
                except KeyboardInterrupt:
                    if is_leaving:
                        return
                    is_leaving = True
                    self._talker.screen.say(Text("Ctrl-C again leaves, and so does Ctrl-D.", DIM))
                    continue
                is_leaving = False
                if not await self._acted(typed):
                    return
        finally:
            watching.cancel()
            await asyncio.wait((watching,))  # awaited itself, it would hide a cancellation of this task
            if not watching.cancelled():
                watching.result()

    async def _typed(self) -> str | None:
        talker = self._talker
        # What is wrong is told when something is asked for; nobody waits for the prompt.
        with suppress(TurnledgerError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await talker.catch_up()
        talker.screen.blank()
        unsent, talker.unsent = talker.unsent, ""
        self._prompting.set()
        try:
            return await self._prompt.ask(lambda: talker.label, unsent)
        finally:
            self._prompting.clear()
            talker.screen.is_below_input()

    async def _acted(self, typed: str | None) -> bool:
        """Do what was typed, unless Ctrl-C is pressed while nothing comes of it; return whether to go on."""
        acting = asyncio.create_task(self._act(typed), name="turnledger command")
        pressing = asyncio.create_task(self._presses.next(), name="turnledger Ctrl-C")
        quiet = 0
        try:
            while not acting.done():
                await asyncio.wait((acting, pressing), timeout=TICK, return_when=asyncio.FIRST_COMPLETED)
                if pressing.done():  # only then another one waits: in between, a press would be lost
                    if not self._talker.is_following:
                        acting.cancel()
                    pressing = asyncio.create_task(self._presses.next(), name="turnledger Ctrl-C")
                quiet = 0 if self._is_asking or self._talker.is_following else quiet + 1
                if quiet >= LONG and not acting.done():
                    waited = f"waiting, {int(quiet * TICK)} s, Ctrl-C leaves off"
                    self._talker.screen.blocks((), None, waited)
        finally:
            pressing.cancel()
            acting.cancel()  # if the program is told to end: while there is still a place to leave it in
            await asyncio.wait((acting, pressing))
            self._talker.screen.settle()
        if acting.cancelled():
            self._talker.screen.say(Text("Left off.", DIM))
            return True
        return acting.result()

    async def _act(self, typed: str | None) -> bool:
        """Do what was typed; return whether to go on."""
        try:
            if typed is None:
                await self._doing.pick("")
            elif (given := command_in(typed)) is not None:
                return await self._doing.do(given)
            elif typed.strip():
                await self._talker.say(said_in(typed))
        except TurnledgerError as problem:
            self._talker.screen.say(problem_line(problem))
        return True

    async def _keep_watch(self) -> None:
        # A task of its own: what gather returns does not count as cancelled when it was.
        await asyncio.gather(self._watch(), self._tell_news())

    async def _watch(self) -> None:
        """Hear what others do in the chat."""
        with suppress(TurnledgerError):  # then it is seen at the next prompt
            async for chat in self._talker.place.changes():
                if chat == self._talker.talk.id:
                    self._news.set()

    async def _tell_news(self) -> None:
        """Show it above the prompt; what comes between two prompts, at the next."""
        while True:
            await self._news.wait()
            await self._prompting.wait()
            self._news.clear()
            with suppress(TurnledgerError, TimeoutError):
                await self._show_news()

    async def _show_news(self) -> None:
        talker, is_shown = self._talker, False
        while self._prompting.is_set() and not is_shown:
            try:
                look = await talker.look_around()
            except ConversationDeleted as problem:
                async with in_terminal():
                    talker.screen.say(problem_line(problem))
                    talker.screen.blank()
                return
            if look is None:
                return
            if talker.has_news(look):
                # The prompt is gone while something is shown in its place: nothing is waited for there.
                async with in_terminal():
                    if self._prompting.is_set():
                        is_shown = talker.show_news(look)
                        talker.screen.blank()
            else:
                is_shown = talker.show_news(look)
                get_app().invalidate()  # the line below the prompt has the title

    # What is asked of the person.

    async def pick(self, words: str) -> SeenChat | None:
        """Have a chat picked from a list."""
        place = self._talker.place
        picker = Picker(lambda sought, most: place.chats(sought, limit=most), words, self._talker.now)
        with self._asking():
            return await picker.pick()

    async def edit(self, label: str, text: str) -> str | None:
        """Have a text changed; None if it was left."""
        try:
            with self._asking():
                return await self._prompt.ask(lambda: label, text)
        except (KeyboardInterrupt, EOFError):
            return None
        finally:
            self._talker.screen.is_below_input()

    async def confirm(self, question: str) -> bool:
        """Whether the person says yes."""
        with self._asking():
            return await self._prompt.confirm(question)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Have nothing on the screen that changes but what is asked there."""
        self._talker.screen.settle()
        self._is_asking = True
        try:
            yield
        finally:
            self._is_asking = False

    def _behind(self, command: str) -> Sequence[str]:
        return self._talker.models if command == "model" else ()

    def _toolbar(self, columns: int) -> str:
        chat = self._talker.chat
        title = title_of(chat) if chat is not None else "new chat"
        running = "  a turn runs" if chat is not None and chat.is_running else ""
        about = f"{running}  {on_one_line(self._talker.model)}  /help"
        return fitted(title, max(8, columns - len(about) - 1)) + (about if columns > len(about) + 8 else "")
