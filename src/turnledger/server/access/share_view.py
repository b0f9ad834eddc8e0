"""Reading along: what somebody sees of a chat who came by a link to it.

What people said to each other there, and no more: no key or note of its owner, no tool at work, no attempt
that failed, nothing that was hidden from the user.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from msgspec.structs import replace

from turnledger.api.turns import ShownChat, Turn
from turnledger.chat import Chat
from turnledger.model import codec
from turnledger.model.conversation import NamedBy
from turnledger.model.item import Item
from turnledger.model.text.plain import first_words

ROLES = ("user", "assistant")


async def as_readers_see(chat: Chat, shown: ShownChat) -> ShownChat:
    """A chat as it is shown, without what is not for readers."""
    title: dict[str, Any] = {"title": await _words(chat)} if shown.named_by == NamedBy.WORDS else {}
    return replace(
        shown,
        conversation_key=None,
        metadata={},
        tags=(),
        attempts=(),
        turns=tuple(map(_turn, shown.turns)),
        **title,
    )


async def _words(chat: Chat) -> str | None:
    """The first words that readers see. A chat keeps its name when these are hidden, edited or taken back."""
    for turn in await chat.turns(before=2, limit=1):
        [hidden] = await chat.hidden([turn])
        return first_words(_messages(enumerate(turn.input), hidden))
    return None


def _turn(turn: Turn) -> Turn:
    said = len(turn.input)
    return replace(
        turn,
        raw_input=codec.raws(_messages(enumerate(turn.input), turn.hidden)),
        raw_output=codec.raws(_messages(enumerate(turn.output, said), turn.hidden)),
        hidden=(),
        details={},
    )


def _messages(items: Iterable[tuple[int, Item]], hidden: Collection[int]) -> list[Item]:
    return [item for place, item in items if place not in hidden and _is_said(item)]


def _is_said(item: Item) -> bool:
    return item.type == "message" and item.fields.get("role") in ROLES
