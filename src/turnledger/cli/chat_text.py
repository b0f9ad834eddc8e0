"""Chats as a terminal shows them. What people and models said is hostile: nothing of it reaches the terminal
but what can be printed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import typer

from turnledger.cli.at_store import table
from turnledger.cli.expiry import date_of
from turnledger.engine.searching import Hit
from turnledger.model.conversation import Conversation
from turnledger.model.item import Item
from turnledger.model.listing import Listed
from turnledger.model.printable import plain
from turnledger.model.turn import Turn, TurnKind

LEFT_OUT = frozenset({"owner", "is_listed", "former_conversation_key", "reset_policy"})


def about(conversation: Conversation) -> dict[str, Any]:
    """What is told of a chat, by the names of its fields."""
    names = [name for name in conversation.__struct_fields__ if name not in LEFT_OUT]
    return {name: getattr(conversation, name) for name in names}


def turn_told(turn: Turn, items: tuple[Item, ...]) -> dict[str, Any]:
    """What is told of a turn: of its items, those that are given."""
    told = {name: getattr(turn, name) for name in ("id", "number", "kind", "created_at", "committed_at")}
    return {**told, "items": [msgspec.Raw(item.raw) for item in items]}


def listed(each: Listed) -> dict[str, Any]:
    """What is told of a chat in a list."""
    told = {name: getattr(each, name) for name in ("turns", "preview", "is_running")}
    return {**about(each.conversation), **told}


def table_of(chats: Sequence[Listed]) -> list[str]:
    """Chats as a table, a line for each; none for none."""
    return table([("LAST USED", "TURNS", "ID", "TITLE"), *map(_cells, chats)]) if chats else []


def _cells(each: Listed) -> tuple[str, ...]:
    found = each.conversation
    marks = [name for name in ("pinned", "archived") if getattr(found, name)]
    marks += ["running"] if each.is_running else []
    title = " ".join([found.title or each.preview or "-", *(f"[{mark}]" for mark in marks)])
    return date_of(found.touched_at), str(each.turns), found.id, title


def hit_told(hit: Hit) -> dict[str, Any]:
    """What is told of something that was found; `marks` are offsets in the snippet."""
    told = {name: getattr(hit, name) for name in ("turn", "branch", "snippet", "marks")}
    return {**about(hit.conversation), **told}


def hit_lines(hit: Hit) -> list[str]:
    """Something that was found: the chat, and what of it was sought, marked on a terminal."""
    pieces, end = [], 0
    for start, stop in hit.marks:
        pieces += [plain(hit.snippet[end:start]), typer.style(plain(hit.snippet[start:stop]), bold=True)]
        end = stop
    pieces.append(plain(hit.snippet[end:]))
    found = hit.conversation
    return [plain(f"{found.id}  {found.title or '-'}"), f"  {''.join(pieces)}"]


def lines_of(conversation: Conversation, turns: Iterable[tuple[Turn, tuple[Item, ...]]]) -> Iterator[str]:
    """A chat from its title to its last word."""
    yield plain(conversation.title or "(no title)")
    yield plain(", ".join(_facts(conversation)))
    for turn, items in turns:
        kind = "" if turn.kind is TurnKind.COMPLETED else f", {turn.kind}"
        yield ""
        yield f"[{turn.number}] {date_of(turn.committed_at)} {turn.id}{kind}"
        for item in items:
            yield from _lines(item)


def _facts(conversation: Conversation) -> Iterator[str]:
    yield conversation.id
    if conversation.conversation_key is not None:
        yield f"conversation_key {conversation.conversation_key!r}"
    if conversation.scope:
        yield f"scope {conversation.scope!r}"
    if conversation.tags:
        yield f"tagged {' '.join(map(repr, conversation.tags))}"
    yield from (name for name in ("pinned", "archived") if getattr(conversation, name))
    yield f"last used {date_of(conversation.touched_at)} UTC"


def _lines(item: Item) -> Iterator[str]:
    fields = item.fields
    if item.is_call:
        yield plain(f"  {fields.get('name')}({fields.get('arguments', fields.get('input', ''))})")
    elif item.is_result:
        yield from _under("result", str(fields.get("output", "")))
    elif item.role is not None:
        yield from _under(item.role, item.text)


def _under(who: str, text: str) -> Iterator[str]:
    """A text of several lines: each begins far enough to the right to be taken for nothing else."""
    first, *others = text.splitlines() or [""]
    yield plain(f"  {who}: {first}")
    for line in others:
        yield plain(f"    {line}")
