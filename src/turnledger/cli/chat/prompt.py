"""The prompt: a line editor with its own history, completion of commands, and a status line below."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth

from turnledger.cli.output.sanitize import sanitize_line

LARGEST_HISTORY = 512 * 1024
"""Bytes of the history file; a larger one loses its older half."""
STYLE = Style.from_dict(
    {
        "": "bold",
        "number": "nobold dim",
        "bottom-toolbar": "noreverse nobold dim",
        "bottom-toolbar.text": "noreverse nobold dim",
        "completion-menu": "nobold",
    }
)

Toolbar = Callable[[int], str]
"""Returns the line below the prompt, for this many columns."""


class PrivateHistory(FileHistory):
    """A history file that only its user can read, without repeated lines."""

    def append_string(self, string: str) -> None:
        if string.strip() and self.get_strings()[-1:] != [string]:
            super().append_string(string)

    def store_string(self, string: str) -> None:
        with suppress(OSError):  # a full disk costs the history, not the chat
            super().store_string(string)


def history_in(folder: Path) -> History:
    """Return the history of this user; one in memory if there can be no file."""
    path = folder / "chat_history"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        path.chmod(0o600)
        _shorten(path)
    except OSError:
        return InMemoryHistory()
    return PrivateHistory(str(path))


def _shorten(path: Path) -> None:
    if path.stat().st_size <= LARGEST_HISTORY:
        return
    tail = path.read_bytes()[-LARGEST_HISTORY // 2 :]
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    with open(os.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
        file.write(tail[tail.find(b"\n# ") :])
    temporary.replace(path)


class CommandCompleter(Completer):
    def __init__(
        self,
        commands: Sequence[tuple[str, str]],
        arguments_of: Callable[[str], Iterable[str]] = lambda name: (),
    ) -> None:
        self._commands = commands
        self._arguments_of = arguments_of

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        name, space, rest = text[1:].partition(" ")
        if space:
            for each in self._arguments_of(name):
                if each.startswith(rest):
                    yield Completion(each, -len(rest))
            return
        for command, description in self._commands:
            if command.startswith(name):
                yield Completion(f"/{command}", -len(text), display_meta=description)


class Prompt:
    def __init__(self, history: History, completer: Completer, toolbar: Toolbar) -> None:
        self._toolbar = toolbar
        self._is_picking = False
        self._session: PromptSession[str] = PromptSession(
            history=history,
            completer=completer,
            complete_while_typing=Condition(_is_command),
            key_bindings=self._bindings(),
            multiline=True,
            prompt_continuation=lambda width, number, is_wrapped: " " * width,
            enable_suspend=True,
            enable_open_in_editor=True,
            style=STYLE,
        )

    async def ask(self, label: Callable[[], str], default: str = "") -> str | None:
        """Return the line typed; None for Ctrl-O, which opens the list of chats. Raises KeyboardInterrupt for
        Ctrl-C on an empty line, EOFError for Ctrl-D."""
        self._is_picking = False
        text = await self._session.prompt_async(
            lambda: [("class:number", label())],
            default=default,
            bottom_toolbar=self._render_toolbar,
            handle_sigint=False,
        )
        return None if self._is_picking else text

    async def confirm(self, question: str) -> bool:
        session: PromptSession[str] = PromptSession()
        with suppress(KeyboardInterrupt, EOFError):
            return (await session.prompt_async(f"{question} [y/N] ")).strip().lower() in ("y", "yes")
        return False

    def _render_toolbar(self) -> StyleAndTextTuples:
        return [("", self._toolbar(get_app().output.get_size().columns))]

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()

        @bindings.add("enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

        @bindings.add("escape", "enter")
        @bindings.add("c-j")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @bindings.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

        @bindings.add("c-o")
        def _(event: KeyPressEvent) -> None:
            self._is_picking = True
            event.app.exit(result="")

        return bindings


def _is_command() -> bool:
    return get_app().current_buffer.text.startswith("/")


def fit_line(text: str, columns: int) -> str:
    """Return the text on one line of this many columns, with an ellipsis if it is cut."""
    return truncate(sanitize_line(text), columns)


def truncate(line: str, columns: int) -> str:
    if get_cwidth(line) <= columns:
        return line
    kept, width = "", 1
    for char in line:
        width += get_cwidth(char)
        if width > columns:
            break
        kept += char
    return f"{kept}…" if columns > 0 else ""
