"""Chats as text for people. The contents are hostile: only printable characters reach the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from turnledger.api.chats import ChatInfo, Hit
from turnledger.api.turns import ChatContext, ChatHistory, Job, Turn
from turnledger.cli.options import date_of
from turnledger.cli.output.sanitize import sanitize, sanitize_line
from turnledger.cli.output.table import Column, Record
from turnledger.model.item import Item
from turnledger.model.text.plain import plain
from turnledger.model.turn import TurnKind

COLUMNS = (
    Column("LAST USED"),
    Column("TURNS", is_optional=True),
    Column("ID"),
    Column("TITLE", min_width=20),
)
JOB_COLUMNS = (
    Column("REQUESTED"),
    Column("STATE"),
    Column("TURN"),
    Column("CHAT"),
    Column("MODEL", min_width=8, is_optional=True),
)
TAB = 4


class TextLine(NamedTuple):
    text: str
    indent: int = 0
    style: str = ""

    def __str__(self) -> str:
        return f"{' ' * self.indent}{self.text}"


def record_of(chat: ChatInfo) -> Record:
    marks = [name for name in ("pinned", "archived") if getattr(chat, name)]
    marks += ["running"] if chat.is_running else []
    title = " ".join([*(f"[{mark}]" for mark in marks), title_of(chat) or sanitize_line(chat.preview) or "-"])
    used = date_of(chat.touched_at)
    turns = f"{chat.turn_count} turn{'' if chat.turn_count == 1 else 's'}"
    return Record((used, str(chat.turn_count), chat.id, title), (title, chat.id, f"{used}, {turns}"))


def record_of_job(job: Job) -> Record:
    model = sanitize_line(str(job.details.get("model") or "-"))
    state = job.state if not job.resumes else f"{job.state}, resumed {job.resumes}x"
    requested = date_of(job.created_at)
    cells = (requested, state, job.id, job.chat, model)
    return Record(cells, (job.id, f"in {job.chat}", f"{state}, requested {requested}, {model}"))


def title_of(chat: ChatInfo) -> str:
    """Return the title on one line; empty if there is none."""
    return sanitize_line(chat.title or "")


def pieces_of(hit: Hit) -> list[tuple[str, bool]]:
    """Return the snippet of a hit in pieces, each with whether it matched."""
    pieces, end = [], 0
    for start, stop in hit.marks:
        pieces += [(_clean(hit.snippet[end:start]), False), (_clean(hit.snippet[start:stop]), True)]
        end = stop
    return [*pieces, (_clean(hit.snippet[end:]), False)]


def _clean(text: str) -> str:
    return plain(sanitize(text))  # control characters are escaped, line breaks included


def lines_of(chat: ChatHistory) -> Iterator[TextLine]:
    yield TextLine(title_of(chat) or "(no title)", style="bold")
    yield TextLine(plain(", ".join(_facts(chat))), style="dim")
    for turn in chat.turns:
        yield TextLine("")
        yield from _lines_of_turn(turn)
    if chat.is_running:
        yield TextLine("")
        yield TextLine("[running] The next turn is not complete yet.", style="dim")


def lines_of_context(context: ChatContext) -> Iterator[TextLine]:
    yield TextLine(", ".join(_sizes(context)), style="dim")
    for item in context.items:
        yield from _lines_of_item(item)


def _sizes(context: ChatContext) -> Iterator[str]:
    yield f"{context.tokens} tokens"
    if context.budget is not None:
        yield f"{context.left} left of {context.budget}"
    yield f"{context.turns} turn{'' if context.turns == 1 else 's'} in the history"


def _lines_of_turn(turn: Turn) -> Iterator[TextLine]:
    kind = "" if turn.kind == TurnKind.COMPLETED else f", {turn.kind}"
    yield TextLine(plain(f"[{turn.number}] {date_of(turn.committed_at)} {turn.id}{kind}"), style="dim")
    for item in (*turn.input, *turn.output):
        yield from _lines_of_item(item)
    if turn.kind == TurnKind.INTERRUPTED and not turn.output:
        yield from _labelled_lines("assistant", "(stopped before any text)")


def _facts(chat: ChatInfo) -> Iterator[str]:
    yield chat.id
    if chat.conversation_key is not None:
        yield f"conversation_key {chat.conversation_key!r}"
    if chat.scope:
        yield f"scope {chat.scope!r}"
    if chat.tags:
        yield f"tagged {' '.join(map(repr, chat.tags))}"
    yield from (name for name in ("pinned", "archived") if getattr(chat, name))
    yield f"last used {date_of(chat.touched_at)} UTC"


def _lines_of_item(item: Item) -> Iterator[TextLine]:
    fields = item.fields
    if item.is_call:
        yield TextLine(plain(f"{fields.get('name')}({fields.get('arguments', fields.get('input', ''))})"), 2)
    elif item.is_result:
        yield from _labelled_lines("result", _text_of(fields.get("output", "")))
    elif item.role is not None:
        text = "(empty answer)" if item.is_empty_answer else _text_of(fields.get("content") or "")
        yield from _labelled_lines(item.role, text)


def _text_of(content: object) -> str:
    """Return the text of a message or a result; for a part without text, such as an image, its type."""
    if not isinstance(content, list):
        return str(content)
    return "".join(_part_text(part) for part in content)


def _part_text(part: object) -> str:
    if not isinstance(part, dict):
        return str(part)
    return str(part.get("text") or part.get("refusal") or f"[{part.get('type')}]")


def _labelled_lines(label: str, text: str) -> Iterator[TextLine]:
    """Yield a text of several lines, indented so far that none can pass for a label."""
    first, *others = text.expandtabs(TAB).splitlines() or [""]
    yield TextLine(plain(f"{label}: {sanitize(first)}"), 2)
    for line in others:
        yield TextLine(plain(sanitize(line)), 4)
