"""The commands of the terminal. A line that begins with a slash is one; all other lines go to the model."""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from rich.table import Table
from rich.text import Text

from turnledger.api.chats import ChatInfo
from turnledger.api.turns import Branch, Turn
from turnledger.cli.chat.backend import NewTurn, Version, output_of, question_of
from turnledger.cli.chat.picker import title_of
from turnledger.cli.chat.prompt import truncate
from turnledger.cli.chat.session import Session, count_text, line_for
from turnledger.cli.chat.turn_view import DIM, age_of, describe_turn
from turnledger.cli.output.file import atomic_writer
from turnledger.cli.output.sanitize import sanitize_line
from turnledger.errors import InvalidInput

_COMMAND = re.compile(r"/(?P<name>[^\s/]*)(?:\s+(?P<rest>.*))?", re.DOTALL)


class Command(Struct, frozen=True):
    name: str
    description: str
    arguments: str = ""
    aliases: tuple[str, ...] = ()


COMMANDS = (
    Command("help", "list the commands", aliases=("?",)),
    Command("new", "start a new chat"),
    Command("open", "continue a chat: pick one, or give its number in /list", "[N|ID]"),
    Command("list", "list recent chats, or those with these words", "[WORDS]"),
    Command("history", "print the whole chat"),
    Command("info", "show the chat, and model, time and tokens of the last turn or turn N", "[N]"),
    Command("again", "regenerate the last answer", aliases=("regenerate",)),
    Command("edit", "edit your last message, or that of turn N", "[N]"),
    Command("prev", "previous version of turn N, or of the last turn with several", "[N]", ("<", "‹")),
    Command("next", "next version", "[N]", (">", "›")),
    Command("versions", "list the versions of that turn", "[N]", ("siblings",)),
    Command("branches", "list the branches of the chat"),
    Command("switch", "switch to branch N of /branches", "N"),
    Command("undo", "undo the last turn"),
    Command("fork", "continue in a new chat, from the end or from turn N", "[N]"),
    Command("rename", "rename the chat", "TITLE"),
    Command("model", "switch the model, or list the models", "[NAME]"),
    Command("pin", "pin or unpin the chat; retention keeps pinned chats"),
    Command("archive", "archive the chat: it leaves the list"),
    Command("delete", "delete the chat; it can be restored for a while"),
    Command("export", "write the chat to a file: .md for reading, .jsonl for import", "FILE"),
    Command("quit", "quit, like Ctrl-D", aliases=("exit", "q")),
)
KEYS = (
    ("Enter", "send"),
    ("Alt-Enter, Ctrl-J", "new line"),
    ("Ctrl-C", "stop the answer and keep it; at the prompt: clear the line, or quit"),
    ("Ctrl-O", "pick a chat"),
    ("Ctrl-R", "search your earlier input"),
    ("Ctrl-X Ctrl-E", "open your editor"),
    ("//…", "send a message that starts with a slash"),
)

_BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}


class TypedCommand(Struct, frozen=True):
    """A command as typed. `name` is empty for an unknown one."""

    name: str
    rest: str = ""
    typed: str = ""

    @property
    def nearest(self) -> str | None:
        return next(iter(difflib.get_close_matches(self.typed, _BY_NAME, 1, 0.6)), None)


def command_in(text: str) -> TypedCommand | None:
    """Return the command on a line; None if the line is for the model."""
    match = _COMMAND.fullmatch(text.strip())
    if match is None:
        return None
    found = _BY_NAME.get(match["name"])
    return TypedCommand(found.name if found else "", (match["rest"] or "").strip(), match["name"])


NO_TURNS = "This chat has no turns yet. Send a message first."
LISTED = 20
SEARCHED_TURNS = 50
"""Turns to search for the last one with several versions."""
TITLE_LENGTH = 60


class Dialogs(Protocol):
    async def pick(self, words: str) -> ChatInfo | None: ...
    async def edit(self, label: str, text: str) -> str | None: ...
    async def confirm(self, question: str) -> bool: ...


class Commands:
    def __init__(self, session: Session, dialogs: Dialogs) -> None:
        self._session = session
        self._screen = session.screen
        self._dialogs = dialogs
        self._listed: Sequence[ChatInfo] = ()
        self._branch_ids: Sequence[str] = ()
        self._numbered_chat: str | None = None  # the chat that has these branches

    async def run(self, command: TypedCommand) -> bool:
        """Run a command; return whether to continue. Raises errors to print on one line."""
        if command.name == "quit":
            return False
        if not command.name:
            hint = f" Did you mean /{command.nearest}?" if command.nearest else " /help lists them."
            typed = sanitize_line(command.typed)
            raise InvalidInput(f"Unknown command /{typed}.{hint} To send it to the model, start with //.")
        action: Callable[[str], Awaitable[None]] = getattr(self, f"_{command.name}")
        await action(command.rest)
        return True

    def _print(self, text: str, style: str = DIM) -> None:
        self._screen.print(Text(text, style))

    def _print_line(self, beginning: str, text: str) -> None:
        """Print as much as fits into one line, dimmed unless it begins with a sign."""
        line = truncate(beginning + sanitize_line(text), self._screen.width - 1)
        self._print(line, DIM if beginning.startswith(" ") else "")

    async def _help(self, rest: str) -> None:
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(overflow="fold")
        table.add_column(overflow="fold")
        for command in COMMANDS:
            table.add_row(
                Text(f"/{command.name} {command.arguments}".strip()), Text(command.description, DIM)
            )
        table.add_row()
        for keys, description in KEYS:
            table.add_row(Text(keys), Text(description, DIM))
        self._screen.print(table)

    async def _new(self, rest: str) -> None:
        self._session.begin()
        self._print("New chat.")

    async def _list(self, words: str) -> None:
        self._listed = await self._session.backend.chats(words, limit=LISTED)
        if not self._listed:
            self._print("No chats found." if words else "There are no chats yet.")
            return
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(justify="right", style=DIM)
        table.add_column(overflow="fold")
        table.add_column(no_wrap=True, style=DIM)
        for number, chat in enumerate(self._listed, 1):
            is_here = chat.id == self._session.handle.id
            title = Text(title_of(chat), "bold" if is_here else "")
            if chat.snippet and sanitize_line(chat.snippet) != title_of(chat):
                title.append_text(Text("\n").append_text(_highlight(chat)))
            table.add_row(str(number), title, age_of(chat.touched_at, self._session.now()))
        self._screen.print(table)
        self._print("/open N continues one" + (", /open lets you pick." if self._screen.can_rewrite else "."))

    async def _open(self, name: str) -> None:
        if not name:
            await self.pick("")
        elif name.isascii() and name.isdigit():
            if not 0 < int(name) <= len(self._listed):
                raise InvalidInput(f"No chat has the number {name[:20]}. /list shows the numbers.")
            await self._go_to(self._listed[int(name) - 1].id)
        else:
            await self._go_to(name)

    async def pick(self, words: str) -> None:
        """Let the user pick a chat to continue; list the chats if the screen cannot be redrawn."""
        if not self._screen.can_rewrite:
            await self._list(words)
            return
        chat = await self._dialogs.pick(words)
        if chat is not None:
            await self._go_to(chat.id)

    async def _go_to(self, name: str) -> None:
        await self._session.open(await self._session.backend.open(name))

    async def _history(self, rest: str) -> None:
        await self._session.show_from(1)

    async def _info(self, rest: str) -> None:
        turn = await self._turn(rest)
        chat = (await self._session.handle.read(limit=1)).chat
        marks = ", pinned" if chat.pinned else ""
        self._print(title_of(chat), "bold")
        age = age_of(chat.touched_at, self._session.now())
        self._print(f"{chat.id}, {count_text(chat.turn_count or 0, 'turn')}, {age}{marks}")
        self._print(f"Turn {turn.number}: {describe_turn(turn)}")

    async def _again(self, rest: str) -> None:
        last = await self._turn("")
        await self._session.run(NewTurn(model=self._session.model, regenerates=last.id, idempotency_key=""))

    async def _edit(self, rest: str) -> None:
        turn = await self._turn(rest)
        text = self._session.edits.pop(turn.id, question_of(turn))
        edited = await self._dialogs.edit(f"{turn.number} edit › ", text)
        if edited is None or not edited.strip():
            self._print("Nothing changed.")
            return
        new_turn = NewTurn(model=self._session.model, text=edited, replaces=turn.id, idempotency_key="")
        await self._session.run(new_turn)

    async def _prev(self, rest: str) -> None:
        await self._move(rest, -1)

    async def _next(self, rest: str) -> None:
        await self._move(rest, 1)

    async def _move(self, rest: str, by: int) -> None:
        turn, versions = await self._turn_with_versions(rest)
        at = [version.turn.id for version in versions].index(turn.id) + by
        if not 0 <= at < len(versions):
            which = "later" if by > 0 else "earlier"
            raise InvalidInput(f"Turn {turn.number} has no {which} version. /versions lists all.")
        await self._session.handle.existing.switch(versions[at].branch)
        self._print(f"Turn {turn.number}, version {at + 1} of {len(versions)}:")
        await self._session.show_from(turn.number)

    async def _versions(self, rest: str) -> None:
        turn, versions = await self._turn_with_versions(rest)
        for number, version in enumerate(versions, 1):
            marker = "›" if version.turn.id == turn.id else " "
            answer = " ".join(item.text for item in output_of(version.turn) if item.role == "assistant")
            self._print_line(f"{marker} {number}  ", f"{question_of(version.turn)} → {answer or '(empty)'}")
        self._print("/prev and /next move between them.")

    async def _branches(self, rest: str) -> None:
        found = await self._number_branches()
        for number, each in enumerate(found, 1):
            marker = "›" if each.is_current else " "
            turns = count_text(each.turns, "turn") + (", beside" if each.is_side else "")
            self._print_line(f"{marker} {number}  ", f"{turns}: {each.preview or '(empty)'}")
        if len(found) > 1:
            self._print("/switch N switches to one.")

    async def _number_branches(self) -> list[Branch]:
        """Return the branches of the chat, and number them for /switch."""
        found = await self._session.handle.branches()
        self._branch_ids, self._numbered_chat = [each.id for each in found], self._session.handle.id
        return found

    async def _switch(self, rest: str) -> None:
        if self._numbered_chat != self._session.handle.id:
            await self._number_branches()
        if not rest.isascii() or not rest.isdigit() or not 0 < int(rest) <= len(self._branch_ids):
            raise InvalidInput("Give a number from /branches, as in /switch 2.")
        await self._session.handle.existing.switch(self._branch_ids[int(rest) - 1])
        await self._session.open(self._session.handle)

    async def _undo(self, rest: str) -> None:
        last = await self._turn("")
        await self._session.handle.existing.undo(last.id)
        await self._session.refresh()
        self._session.unsent = line_for(question_of(last))
        self._print(f"Turn {last.number} is undone. Your message is back in the prompt.")

    async def _fork(self, rest: str) -> None:
        turn = (await self._turn(rest)).id if rest else None
        title = title_of((await self._session.handle.read(limit=1)).chat)[:TITLE_LENGTH]
        await self._session.open(await self._session.handle.fork(turn, f"{title} (fork)"))

    async def _rename(self, title: str) -> None:
        if not title:
            raise InvalidInput("Give a title, as in /rename May order.")
        await self._session.handle.existing.update(title=title)
        await self._session.catch_up()
        self._print(f"Renamed to {sanitize_line(title)!r}.")

    async def _model(self, name: str) -> None:
        self._session.models = names = await self._session.backend.models()
        if name:
            if name not in names:
                raise InvalidInput(f"Unknown model {sanitize_line(name)!r}. /model lists the models.")
            self._session.model = name
            self._session.is_model_chosen = True
        for each in names:
            marker = "›" if each == self._session.model else " "
            self._print(f"{marker} {sanitize_line(each)}", "" if marker == "›" else DIM)

    async def _pin(self, rest: str) -> None:
        is_on = self._session.chat is None or not self._session.chat.pinned
        await self._session.handle.existing.update(pinned=is_on)
        await self._session.catch_up()
        self._print("Pinned." if is_on else "Unpinned.")

    async def _archive(self, rest: str) -> None:
        await self._session.handle.existing.update(archived=True)
        self._session.begin()
        self._print("Archived. This is a new chat.")

    async def _delete(self, rest: str) -> None:
        chat = (await self._session.handle.read(limit=1)).chat
        if not await self._dialogs.confirm(f"Delete {title_of(chat)[:TITLE_LENGTH]!r}?"):
            self._print("Nothing was deleted.")
            return
        await self._session.handle.existing.delete()
        self._session.begin()
        self._print(f"Deleted. To restore it: turnledger chats restore {chat.id}. This is a new chat.")

    async def _export(self, name: str) -> None:
        if not name:
            raise InvalidInput("Give a file name, as in /export chat.md or /export chat.jsonl.")
        path = _path(name)
        if path.exists():
            raise InvalidInput(f"{sanitize_line(name)} already exists. Choose another name.")
        pieces = self._session.handle.export(is_markdown=path.suffix != ".jsonl")
        first = await anext(pieces, b"")  # raises errors of the chat before there is a file
        with atomic_writer(path) as write:
            write(first)
            async for piece in pieces:
                write(piece)
        self._print(f"Written to {sanitize_line(str(path))}.")

    async def _turn(self, rest: str) -> Turn:
        """Return the turn with this number, or the last one."""
        if rest and not (rest.isascii() and rest.isdigit() and 0 < int(rest) < 10**9):
            raise InvalidInput("Give the number of a turn, as shown before your message.")
        if self._session.handle.id is None:
            raise InvalidInput(NO_TURNS)
        state = await self._session.handle.read(before=int(rest) + 1 if rest else None, limit=1)
        if not state.turns or (rest and state.turns[-1].number != int(rest)):
            raise InvalidInput(f"There is no turn {rest}. /history shows the turns." if rest else NO_TURNS)
        return state.turns[-1]

    async def _turn_with_versions(self, rest: str) -> tuple[Turn, list[Version]]:
        """Return the turn with this number, or the last one with several versions; and its versions."""
        if rest:
            turn = await self._turn(rest)
            return turn, await self._session.handle.versions(turn.id)
        await self._turn("")
        if len(await self._session.handle.branches()) > 1:
            for turn in reversed((await self._session.handle.read(limit=SEARCHED_TURNS)).turns):
                versions = await self._session.handle.versions(turn.id)
                if len(versions) > 1:
                    return turn, versions
        raise InvalidInput("Each turn has one version. /again and /edit add others.")


def _path(name: str) -> Path:
    return Path(name).expanduser()


def _highlight(chat: ChatInfo) -> Text:
    text = Text(chat.snippet, DIM)
    for start, stop in chat.marks:
        text.stylize("bold", start, stop)
    return text
