"""The loop: from one prompt to the next, until the user leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from prompt_toolkit.application import get_app, in_terminal
from prompt_toolkit.history import History
from rich.text import Text

from turnledger.cli.chat.backend import SeenChat
from turnledger.cli.chat.commands import COMMANDS, Commands, command_in
from turnledger.cli.chat.interrupts import Interrupts
from turnledger.cli.chat.picker import Picker, title_of
from turnledger.cli.chat.prompt import CommandCompleter, Prompt, fitted
from turnledger.cli.chat.sanitize import on_one_line
from turnledger.cli.chat.session import PATIENCE, Session, problem_line, said_in
from turnledger.cli.chat.turn_view import DIM
from turnledger.errors import ConversationDeleted, TurnledgerError

TICK = 0.25
"""Seconds between checks of a running command."""
LONG = 4
"""Silent checks after which the screen says that it is waiting."""


class ChatLoop:
    def __init__(self, session: Session, interrupts: Interrupts, history: History) -> None:
        self._session = session
        self._interrupts = interrupts
        completer = CommandCompleter([(each.name, each.meaning) for each in COMMANDS], self._behind)
        self._prompt = Prompt(history, completer, self._toolbar)
        self._commands = Commands(session, self)
        self._prompting = asyncio.Event()
        self._news = asyncio.Event()
        """Set when the chat may have changed since it was read."""
        self._is_asking = False

    async def run(self) -> None:
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
                    self._session.screen.say(Text("Ctrl-C again leaves, and so does Ctrl-D.", DIM))
                    continue
                is_leaving = False
                if not await self._acted(typed):
                    return
        finally:
            watching.cancel()
            await asyncio.wait((watching,))  # awaiting it directly would hide a cancellation of this task
            if not watching.cancelled():
                watching.result()

    async def _typed(self) -> str | None:
        session = self._session
        # Errors show with the next request; the prompt must not wait.
        with suppress(TurnledgerError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await session.catch_up()
        session.screen.blank()
        unsent, session.unsent = session.unsent, ""
        self._prompting.set()
        try:
            return await self._prompt.ask(lambda: session.label, unsent)
        finally:
            self._prompting.clear()
            session.screen.is_below_input()

    async def _acted(self, typed: str | None) -> bool:
        """Do what was typed, unless Ctrl-C is pressed before it has an effect; return whether to continue."""
        acting = asyncio.create_task(self._act(typed), name="turnledger command")
        pressing = asyncio.create_task(self._interrupts.next(), name="turnledger Ctrl-C")
        quiet = 0
        try:
            while not acting.done():
                await asyncio.wait((acting, pressing), timeout=TICK, return_when=asyncio.FIRST_COMPLETED)
                if pressing.done():  # wait again at once: a press in between would be lost
                    if not self._session.is_following:
                        acting.cancel()
                    pressing = asyncio.create_task(self._interrupts.next(), name="turnledger Ctrl-C")
                quiet = 0 if self._is_asking or self._session.is_following else quiet + 1
                if quiet >= LONG and not acting.done():
                    waited = f"waiting, {int(quiet * TICK)} s, Ctrl-C leaves off"
                    self._session.screen.blocks((), None, waited)
        finally:
            pressing.cancel()
            acting.cancel()  # on a signal to end, while the backend is still open
            await asyncio.wait((acting, pressing))
            self._session.screen.settle()
        if acting.cancelled():
            self._session.screen.say(Text("Left off.", DIM))
            return True
        return acting.result()

    async def _act(self, typed: str | None) -> bool:
        try:
            if typed is None:
                await self._commands.pick("")
            elif (given := command_in(typed)) is not None:
                return await self._commands.do(given)
            elif typed.strip():
                await self._session.say(said_in(typed))
        except TurnledgerError as problem:
            self._session.screen.say(problem_line(problem))
        return True

    async def _keep_watch(self) -> None:
        # A separate task: the future of `gather` does not count as cancelled.
        await asyncio.gather(self._watch(), self._tell_news())

    async def _watch(self) -> None:
        with suppress(TurnledgerError):  # then the next prompt shows the changes
            async for chat in self._session.place.changes():
                if chat == self._session.talk.id:
                    self._news.set()

    async def _tell_news(self) -> None:
        """Show news above the prompt; news between two prompts at the next one."""
        while True:
            await self._news.wait()
            await self._prompting.wait()
            self._news.clear()
            with suppress(TurnledgerError, TimeoutError):
                await self._show_news()

    async def _show_news(self) -> None:
        session, is_shown = self._session, False
        while self._prompting.is_set() and not is_shown:
            try:
                look = await session.look_around()
            except ConversationDeleted as problem:
                async with in_terminal():
                    session.screen.say(problem_line(problem))
                    session.screen.blank()
                return
            if look is None:
                return
            if session.has_news(look):
                # The prompt is hidden while news are printed: nothing may wait here.
                async with in_terminal():
                    if self._prompting.is_set():
                        is_shown = session.show_news(look)
                        session.screen.blank()
            else:
                is_shown = session.show_news(look)
                get_app().invalidate()  # the line below the prompt has the title

    async def pick(self, words: str) -> SeenChat | None:
        place = self._session.place
        picker = Picker(lambda sought, most: place.chats(sought, limit=most), words, self._session.now)
        with self._asking():
            return await picker.pick()

    async def edit(self, label: str, text: str) -> str | None:
        """Let the user edit a text; None if they cancel."""
        try:
            with self._asking():
                return await self._prompt.ask(lambda: label, text)
        except (KeyboardInterrupt, EOFError):
            return None
        finally:
            self._session.screen.is_below_input()

    async def confirm(self, question: str) -> bool:
        with self._asking():
            return await self._prompt.confirm(question)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Stop redrawing the screen during a question to the user."""
        self._session.screen.settle()
        self._is_asking = True
        try:
            yield
        finally:
            self._is_asking = False

    def _behind(self, command: str) -> Sequence[str]:
        return self._session.models if command == "model" else ()

    def _toolbar(self, columns: int) -> str:
        chat = self._session.chat
        title = title_of(chat) if chat is not None else "new chat"
        running = "  a turn runs" if chat is not None and chat.is_running else ""
        about = f"{running}  {on_one_line(self._session.model)}  /help"
        return fitted(title, max(8, columns - len(about) - 1)) + (about if columns > len(about) + 8 else "")
