"""The loop: from one prompt to the next, until the user leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from prompt_toolkit.application import get_app, in_terminal
from prompt_toolkit.history import History
from rich.text import Text

from turnledger.api.chats import ChatInfo
from turnledger.cli.chat.interrupts import Interrupts
from turnledger.cli.chat.picker import Picker, title_of
from turnledger.cli.chat.prompt import CommandCompleter, Prompt, fit_line
from turnledger.cli.chat.session import PATIENCE, Session, message_in, problem_line
from turnledger.cli.chat.slash_commands import COMMANDS, Commands, command_in
from turnledger.cli.chat.turn_view import DIM
from turnledger.cli.output.sanitize import sanitize_line
from turnledger.errors import ConversationDeleted, TurnledgerError

TICK = 0.25
"""Seconds between checks of a running command."""
IDLE_TICKS = 4
"""Silent checks after which the screen says that it is waiting."""


class ChatLoop:
    def __init__(self, session: Session, interrupts: Interrupts, history: History) -> None:
        self._session = session
        self._interrupts = interrupts
        completer = CommandCompleter([(each.name, each.description) for each in COMMANDS], self._arguments_of)
        self._prompt = Prompt(history, completer, self._toolbar)
        self._commands = Commands(session, self)
        self._prompting = asyncio.Event()
        self._news = asyncio.Event()
        """Set when the chat may have changed since it was read."""
        self._is_in_dialog = False

    async def run(self) -> None:
        watch_task = asyncio.create_task(self._watch(), name="turnledger watch")
        is_leaving = False
        try:
            while True:
                try:
                    typed = await self._read_line()
                except EOFError:
                    return
                except KeyboardInterrupt:
                    if is_leaving:
                        return
                    is_leaving = True
                    self._session.screen.print(Text("Press Ctrl-C again or Ctrl-D to quit.", DIM))
                    continue
                is_leaving = False
                if not await self._run_interruptibly(typed):
                    return
        finally:
            watch_task.cancel()
            await asyncio.wait((watch_task,))  # awaiting it directly would hide a cancellation of this task
            if not watch_task.cancelled():
                watch_task.result()

    async def _read_line(self) -> str | None:
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
            session.screen.mark_input()

    async def _run_interruptibly(self, typed: str | None) -> bool:
        """Do what was typed, unless Ctrl-C is pressed before it has an effect; return whether to continue."""
        task = asyncio.create_task(self._run_line(typed), name="turnledger command")
        interrupt = asyncio.create_task(self._interrupts.wait(), name="turnledger Ctrl-C")
        idle_ticks = 0
        try:
            while not task.done():
                await asyncio.wait((task, interrupt), timeout=TICK, return_when=asyncio.FIRST_COMPLETED)
                if interrupt.done():  # wait again at once: a press in between would be lost
                    if not self._session.is_following:
                        task.cancel()
                    interrupt = asyncio.create_task(self._interrupts.wait(), name="turnledger Ctrl-C")
                idle_ticks = 0 if self._is_in_dialog or self._session.is_following else idle_ticks + 1
                if idle_ticks >= IDLE_TICKS and not task.done():
                    status = f"waiting, {int(idle_ticks * TICK)} s, Ctrl-C cancels"
                    self._session.screen.blocks((), None, status)
        finally:
            interrupt.cancel()
            task.cancel()  # on a signal to end, while the backend is still open
            await asyncio.wait((task, interrupt))
            self._session.screen.clear_live()
        if task.cancelled():
            self._session.screen.print(Text("Cancelled.", DIM))
            return True
        return task.result()

    async def _run_line(self, typed: str | None) -> bool:
        try:
            if typed is None:
                await self._commands.pick("")
            elif (command := command_in(typed)) is not None:
                return await self._commands.run(command)
            elif typed.strip():
                await self._session.send(message_in(typed))
        except TurnledgerError as problem:
            self._session.screen.print(problem_line(problem))
        return True

    async def _watch(self) -> None:
        # A separate task: the future of `gather` does not count as cancelled.
        await asyncio.gather(self._watch_changes(), self._print_news())

    async def _watch_changes(self) -> None:
        with suppress(TurnledgerError):  # then the next prompt shows the changes
            async for chat in self._session.backend.changes():
                if chat == self._session.handle.id:
                    self._news.set()

    async def _print_news(self) -> None:
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
                view = await session.read_news()
            except ConversationDeleted as problem:
                async with in_terminal():
                    session.screen.print(problem_line(problem))
                    session.screen.blank()
                return
            if view is None:
                return
            if session.has_news(view):
                # The prompt is hidden while news are printed: nothing may wait here.
                async with in_terminal():
                    if self._prompting.is_set():
                        is_shown = session.show_news(view)
                        session.screen.blank()
            else:
                is_shown = session.show_news(view)
                get_app().invalidate()  # the line below the prompt has the title

    async def pick(self, words: str) -> ChatInfo | None:
        backend = self._session.backend
        picker = Picker(lambda query, limit: backend.chats(query, limit=limit), words, self._session.now)
        with self._dialog():
            return await picker.pick()

    async def edit(self, label: str, text: str) -> str | None:
        """Let the user edit a text; None if they cancel."""
        try:
            with self._dialog():
                return await self._prompt.ask(lambda: label, text)
        except (KeyboardInterrupt, EOFError):
            return None
        finally:
            self._session.screen.mark_input()

    async def confirm(self, question: str) -> bool:
        with self._dialog():
            return await self._prompt.confirm(question)

    @contextmanager
    def _dialog(self) -> Iterator[None]:
        """Stop redrawing the screen during a question to the user."""
        self._session.screen.clear_live()
        self._is_in_dialog = True
        try:
            yield
        finally:
            self._is_in_dialog = False

    def _arguments_of(self, command: str) -> Sequence[str]:
        return self._session.models if command == "model" else ()

    def _toolbar(self, columns: int) -> str:
        chat = self._session.chat
        title = title_of(chat) if chat is not None else "new chat"
        running = "  turn running" if chat is not None and chat.is_running else ""
        details = f"{running}  {sanitize_line(self._session.model)}  /help"
        return fit_line(title, max(8, columns - len(details) - 1)) + (
            details if columns > len(details) + 8 else ""
        )
