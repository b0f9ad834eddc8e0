"""The commands of the terminal: what begins with a slash, and is not said to the model."""

from __future__ import annotations

import difflib
import re

from msgspec import Struct

_COMMAND = re.compile(r"/(?P<name>[^\s/]*)(?:\s+(?P<rest>.*))?", re.DOTALL)


class Command(Struct, frozen=True):
    """One command, and what is said of it."""

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


class Given(Struct, frozen=True):
    """A command as it was typed. `name` is empty for one that is not known."""

    name: str
    rest: str = ""
    typed: str = ""

    @property
    def nearest(self) -> str | None:
        """The known name that comes nearest to what was typed."""
        return next(iter(difflib.get_close_matches(self.typed, _BY_NAME, 1, 0.6)), None)


def command_in(text: str) -> Given | None:
    """The command that a line is; None if it is said to the model."""
    match = _COMMAND.fullmatch(text.strip())
    if match is None:
        return None
    found = _BY_NAME.get(match["name"])
    return Given(found.name if found else "", (match["rest"] or "").strip(), match["name"])


def said_in(text: str) -> str:
    """What a line says to the model that is no command."""
    return text[1:] if text.startswith("//") else text


def typed_for(text: str) -> str:
    """What has to be typed to say this."""
    return f"/{text}" if text.startswith("/") else text
