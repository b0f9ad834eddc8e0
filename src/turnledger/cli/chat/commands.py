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

from turnledger.cli.chat.backend import NewTurn, SeenBranch, SeenChat, SeenTurn, Version
from turnledger.cli.chat.picker import title_of
from turnledger.cli.chat.prompt import within
from turnledger.cli.chat.sanitize import on_one_line
from turnledger.cli.chat.session import Session, counted, typed_for
from turnledger.cli.chat.turn_view import DIM, about, age_of
from turnledger.cli.output.file import writing_to
from turnledger.errors import InvalidInput

_COMMAND = re.compile(r"/(?P<name>[^\s/]*)(?:\s+(?P<rest>.*))?", re.DOTALL)


class Command(Struct, frozen=True):
    name: str
    meaning: str
    takes: str = ""
    also: tuple[str, ...] = ()


COMMANDS = (
    Command("help", "what can be done here", also=("?",)),
    Command("new", "begin another chat"),
    Command("open", "go on with a chat: pick it, or by its number in /list", "[N|ID]"),
    Command("list", "the last chats, or those in which these words stand", "[WORDS]"),
    Command("history", "print the chat from its beginning"),
    Command("info", "which chat it is, and time and tokens of the last answer, or of turn N", "[N]"),
    Command("again", "have the last answer made anew", also=("regenerate",)),
    Command("edit", "change what you said, last or in turn N", "[N]"),
    Command("prev", "the version before, of turn N or of the last with several", "[N]", ("<", "‹")),
    Command("next", "the version behind it", "[N]", (">", "›")),
    Command("versions", "all versions of that turn", "[N]", ("siblings",)),
    Command("branches", "all lines that this chat has taken"),
    Command("switch", "go on with line N of /branches", "N"),
    Command("undo", "take back the last turn"),
    Command("fork", "go on in a new chat, from the end or from turn N", "[N]"),
    Command("rename", "call the chat something else", "TITLE"),
    Command("model", "ask another model, or see which there are", "[NAME]"),
    Command("pin", "keep the chat from being removed by age, or no more"),
    Command("archive", "put the chat out of the list"),
    Command("delete", "delete the chat; it can be restored for a while"),
    Command("export", "write the chat to a file: .md to read, .jsonl to import", "FILE"),
    Command("quit", "leave; so does Ctrl-D", also=("exit", "q")),
)
KEYS = (
    ("Enter", "say it"),
    ("Alt-Enter, Ctrl-J", "a new line"),
    ("Ctrl-C", "stop the answer and keep it; at the prompt: clear it, leave"),
    ("Ctrl-O", "pick a chat"),
    ("Ctrl-R", "search what you typed before"),
    ("Ctrl-X Ctrl-E", "write in your editor"),
    ("//…", "say to the model what begins with a slash"),
)

_BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.also)}


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


LISTED = 20
LOOKED_AT = 50
"""Turns to search for the last one with several versions."""
LONGEST_TITLE = 60


class Person(Protocol):
    async def pick(self, words: str) -> SeenChat | None: ...
    async def edit(self, label: str, text: str) -> str | None: ...
    async def confirm(self, question: str) -> bool: ...


class Commands:
    def __init__(self, session: Session, person: Person) -> None:
        self._session = session
        self._screen = session.screen
        self._person = person
        self._listed: Sequence[SeenChat] = ()
        self._lines: Sequence[str] = ()
        self._lines_of: str | None = None  # the chat that has these branches

    async def do(self, given: TypedCommand) -> bool:
        """Run a command; return whether to continue. Raises errors to print on one line."""
        if given.name == "quit":
            return False
        if not given.name:
            near = f" Did you mean /{given.nearest}?" if given.nearest else " /help lists them."
            typed = on_one_line(given.typed)
            raise InvalidInput(f"Unknown command /{typed}.{near} To send it to the model, start with //.")
        does: Callable[[str], Awaitable[None]] = getattr(self, f"_{given.name}")
        await does(given.rest)
        return True

    def _say(self, text: str, style: str = DIM) -> None:
        self._screen.say(Text(text, style))

    def _say_short(self, beginning: str, text: str) -> None:
        """Print as much as fits into one line, dimmed unless it begins with a sign."""
        line = within(beginning + on_one_line(text), self._screen.width - 1)
        self._say(line, DIM if beginning.startswith(" ") else "")

    async def _help(self, rest: str) -> None:
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(overflow="fold")
        table.add_column(overflow="fold")
        for command in COMMANDS:
            table.add_row(Text(f"/{command.name} {command.takes}".strip()), Text(command.meaning, DIM))
        table.add_row()
        for keys, meaning in KEYS:
            table.add_row(Text(keys), Text(meaning, DIM))
        self._screen.say(table)

    async def _new(self, rest: str) -> None:
        self._session.begin()
        self._say("A new chat.")

    async def _list(self, words: str) -> None:
        self._listed = await self._session.place.chats(words, limit=LISTED)
        if not self._listed:
            self._say("Nothing was found." if words else "There are no chats yet.")
            return
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(justify="right", style=DIM)
        table.add_column(overflow="fold")
        table.add_column(no_wrap=True, style=DIM)
        for number, chat in enumerate(self._listed, 1):
            is_here = chat.id == self._session.talk.id
            title = Text(title_of(chat), "bold" if is_here else "")
            if chat.found and on_one_line(chat.found) != title_of(chat):
                title.append_text(Text("\n").append_text(_marked(chat)))
            table.add_row(str(number), title, age_of(chat.touched_at, self._session.now()))
        self._screen.say(table)
        self._say(
            "/open N goes on with one" + (", /open lets you pick." if self._screen.can_rewrite else ".")
        )

    async def _open(self, name: str) -> None:
        if not name:
            await self.pick("")
        elif name.isascii() and name.isdigit():
            if not 0 < int(name) <= len(self._listed):
                raise InvalidInput("No chat has this number. /list shows the numbers.")
            await self._go_to(self._listed[int(name) - 1].id)
        else:
            await self._go_to(name)

    async def pick(self, words: str) -> None:
        """Let the user pick a chat to continue; list the chats if the screen cannot be redrawn."""
        if not self._screen.can_rewrite:
            await self._list(words)
            return
        chat = await self._person.pick(words)
        if chat is not None:
            await self._go_to(chat.id)

    async def _go_to(self, name: str) -> None:
        await self._session.open(await self._session.place.open(name))

    async def _history(self, rest: str) -> None:
        await self._session.show_from(1)

    async def _info(self, rest: str) -> None:
        turn = await self._turn(rest)
        chat = (await self._session.talk.look(limit=1)).chat
        marks = ", pinned" if chat.is_pinned else ""
        self._say(title_of(chat), "bold")
        self._say(
            f"{chat.id}, {counted(chat.turns, 'turn')}, {age_of(chat.touched_at, self._session.now())}{marks}"
        )
        self._say(f"Turn {turn.number}: {about(turn)}")

    async def _again(self, rest: str) -> None:
        last = await self._turn("")
        await self._session.ask(NewTurn(model=self._session.model, regenerates=last.id, idempotency_key=""))

    async def _edit(self, rest: str) -> None:
        turn = await self._turn(rest)
        text = self._session.edits.pop(turn.id, turn.asked)
        text_now = await self._person.edit(f"{turn.number} edit › ", text)
        if text_now is None or not text_now.strip():
            self._say("Nothing was changed.")
            return
        wish = NewTurn(model=self._session.model, text=text_now, replaces=turn.id, idempotency_key="")
        await self._session.ask(wish)

    async def _prev(self, rest: str) -> None:
        await self._move(rest, -1)

    async def _next(self, rest: str) -> None:
        await self._move(rest, 1)

    async def _move(self, rest: str, by: int) -> None:
        turn, versions = await self._turn_of_versions(rest)
        at = [version.turn.id for version in versions].index(turn.id) + by
        if not 0 <= at < len(versions):
            raise InvalidInput(f"Turn {turn.number} shows its {'last' if by > 0 else 'first'} version.")
        await self._session.talk.switch(versions[at].branch)
        self._say(f"Turn {turn.number}, version {at + 1} of {len(versions)}:")
        await self._session.show_from(turn.number)

    async def _versions(self, rest: str) -> None:
        turn, versions = await self._turn_of_versions(rest)
        for number, version in enumerate(versions, 1):
            sign = "›" if version.turn.id == turn.id else " "
            answer = " ".join(item.text for item in version.turn.output if item.role == "assistant")
            self._say_short(f"{sign} {number}  ", f"{version.turn.asked} → {answer or '(nothing)'}")
        self._say("/prev and /next move between them.")

    async def _branches(self, rest: str) -> None:
        found = await self._numbered()
        for number, each in enumerate(found, 1):
            sign = "›" if each.is_current else " "
            about = f"{counted(each.length, 'turn')}: {each.preview or '(nothing)'}"
            self._say_short(f"{sign} {number}  ", about)
        if len(found) > 1:
            self._say("/switch N goes on with one.")

    async def _numbered(self) -> list[SeenBranch]:
        """Return the branches of the chat, and number them for /switch."""
        found = await self._session.talk.branches()
        self._lines, self._lines_of = [each.id for each in found], self._session.talk.id
        return found

    async def _switch(self, rest: str) -> None:
        if self._lines_of != self._session.talk.id:
            await self._numbered()
        if not rest.isascii() or not rest.isdigit() or not 0 < int(rest) <= len(self._lines):
            raise InvalidInput("Name a number of /branches, as in /switch 2.")
        await self._session.talk.switch(self._lines[int(rest) - 1])
        await self._session.open(self._session.talk)

    async def _undo(self, rest: str) -> None:
        last = await self._turn("")
        await self._session.talk.undo(last.id)
        await self._session.forget_behind()
        self._session.unsent = typed_for(last.asked)
        self._say(f"Turn {last.number} is taken back. What you said is in the prompt again.")

    async def _fork(self, rest: str) -> None:
        turn = (await self._turn(rest)).id if rest else None
        title = title_of((await self._session.talk.look(limit=1)).chat)[:LONGEST_TITLE]
        await self._session.open(await self._session.talk.fork(turn, f"{title} (fork)"))

    async def _rename(self, title: str) -> None:
        if not title:
            raise InvalidInput("Name the chat, for example: /rename May order.")
        await self._session.talk.rename(title)
        await self._session.catch_up()
        self._say(f"The chat is called {on_one_line(title)!r}.")

    async def _model(self, name: str) -> None:
        self._session.models = names = await self._session.place.models()
        if name:
            if name not in names:
                raise InvalidInput(f"Unknown model {on_one_line(name)!r}. /model lists the models.")
            self._session.model = name
        for each in names:
            sign = "›" if each == self._session.model else " "
            self._say(f"{sign} {on_one_line(each)}", "" if sign == "›" else DIM)

    async def _pin(self, rest: str) -> None:
        is_on = self._session.chat is None or not self._session.chat.is_pinned
        await self._session.talk.pin(is_on)
        await self._session.catch_up()
        self._say("The chat is pinned." if is_on else "The chat is pinned no more.")

    async def _archive(self, rest: str) -> None:
        await self._session.talk.archive()
        self._session.begin()
        self._say("The chat is archived. This is a new one.")

    async def _delete(self, rest: str) -> None:
        chat = (await self._session.talk.look(limit=1)).chat
        if not await self._person.confirm(f"Delete {title_of(chat)[:LONGEST_TITLE]!r}?"):
            self._say("Nothing was deleted.")
            return
        await self._session.talk.delete()
        self._session.begin()
        self._say(f"Deleted. `turnledger chats restore {chat.id}` brings it back. This is a new chat.")

    async def _export(self, name: str) -> None:
        if not name:
            raise InvalidInput("Name a file, as in /export chat.md or /export chat.jsonl.")
        path = _path(name)
        if path.exists():
            raise InvalidInput(f"{on_one_line(name)} exists already. Name another file.")
        pieces = self._session.talk.export(is_markdown=path.suffix != ".jsonl")
        first = await anext(pieces, b"")  # raises errors of the chat before there is a file
        with writing_to(path) as write:
            write(first)
            async for piece in pieces:
                write(piece)
        self._say(f"Written to {on_one_line(str(path))}.")

    async def _turn(self, rest: str) -> SeenTurn:
        """Return the turn with this number, or the last one."""
        if rest and not (rest.isascii() and rest.isdigit() and 0 < int(rest) < 10**9):
            raise InvalidInput("Name a turn by its number, as shown before your message.")
        if self._session.talk.id is None:
            raise InvalidInput("This chat has no turns yet.")
        seen = await self._session.talk.look(before=int(rest) + 1 if rest else None, limit=1)
        if not seen.turns or (rest and seen.turns[-1].number != int(rest)):
            raise InvalidInput("There is no such turn here." if rest else "This chat has no turns yet.")
        return seen.turns[-1]

    async def _turn_of_versions(self, rest: str) -> tuple[SeenTurn, list[Version]]:
        """Return the turn with this number, or the last one with several versions; and its versions."""
        if rest:
            turn = await self._turn(rest)
            return turn, await self._session.talk.versions(turn.id)
        await self._turn("")
        if len(await self._session.talk.branches()) > 1:
            for turn in reversed((await self._session.talk.look(limit=LOOKED_AT)).turns):
                versions = await self._session.talk.versions(turn.id)
                if len(versions) > 1:
                    return turn, versions
        raise InvalidInput("Each turn has one version. /again and /edit make others.")


def _path(name: str) -> Path:
    return Path(name).expanduser()


def _marked(chat: SeenChat) -> Text:
    shown = Text(chat.found, DIM)
    for start, stop in chat.marks:
        shown.stylize("bold", start, stop)
    return shown
