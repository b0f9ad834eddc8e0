"""Reading along: what somebody sees of a chat who came by a link to it.

What people said to each other there, and no more: no key or note of its owner, no tool at work, no attempt
that failed, nothing that was hidden from the user.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from turnledger.chat import Chat
from turnledger.model.conversation import NamedBy
from turnledger.model.item import Item
from turnledger.model.text.plain import first_words

WITHHELD: Mapping[str, Any] = {"conversation_key": None, "metadata": {}, "tags": [], "attempts": []}
"""What is the owner's own, and what it looks like then."""
ROLES = ("user", "assistant")


async def as_readers_see(chat: Chat, shown: Mapping[str, Any]) -> dict[str, Any]:
    """A chat as it is shown, without what is not for readers."""
    withheld = {name: value for name, value in WITHHELD.items() if name in shown}
    if shown.get("named_by") == NamedBy.WORDS:
        withheld["title"] = await _words(chat)
    return {
        **shown,
        **withheld,
        "turns": [_turn(turn) for turn in shown["turns"]],
    }


async def _words(chat: Chat) -> str | None:
    """The first words that readers see. A chat keeps its name when these are hidden, edited or taken back."""
    for turn in await chat.turns(before=2, limit=1):
        [hidden] = await chat.hidden([turn])
        return first_words(_messages(enumerate(turn.input), hidden))
    return None


def _turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    said, hidden = len(turn["input"]), turn["hidden"]
    return {
        **turn,
        "input": _messages(enumerate(turn["input"]), hidden),
        "output": _messages(enumerate(turn["output"], said), hidden),
        "hidden": [],
        "details": {},
    }


def _messages(items: Iterable[tuple[int, Item]], hidden: Collection[int]) -> list[Item]:
    return [item for place, item in items if place not in hidden and _is_said(item)]


def _is_said(item: Item) -> bool:
    return item.type == "message" and item.fields.get("role") in ROLES
