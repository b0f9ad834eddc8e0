"""A chat as seen by a visitor with a link to it.

Only the messages, and which answers reached the length limit: no key or metadata of its owner, no tool
calls, no failed attempts, no hidden items.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from turnledger.api.turns import ShownChat, Turn
from turnledger.chat import Chat
from turnledger.model.change import ChangeKind, LiveChange
from turnledger.model.conversation import TitleSource
from turnledger.model.item import Item, raws
from turnledger.model.reset_policy import NEVER
from turnledger.model.turn import first_words

ROLES = ("user", "assistant")


async def show_to_reader(chat: Chat, view: ShownChat) -> ShownChat:
    title: dict[str, Any] = (
        {"title": await _title_for_reader(chat)} if view.named_by == TitleSource.WORDS else {}
    )
    return replace(
        view,
        conversation_key=None,
        expires_after=None,
        reset=str(NEVER),
        metadata={},
        tags=(),
        attempts=(),
        turns=tuple(map(_show_turn, view.turns)),
        **title,
    )


VISIBLE_CHANGES = frozenset(
    {
        ChangeKind.START,
        ChangeKind.GAP,
        ChangeKind.CHAT_CHANGED,
        ChangeKind.CHAT_DELETED,
        ChangeKind.CHAT_RESTORED,
        ChangeKind.CHAT_SWITCHED,
        ChangeKind.TURN_COMMITTED,
        ChangeKind.TURN_FLAGGED,
    }
)
"""Attempts that run or failed are not shown."""


def changes_for_reader(changes: Sequence[LiveChange]) -> list[LiveChange]:
    """Return the changes of the chat that a reader may notice, without their content: it reads the chat."""
    return [
        replace(change, scope="", turn=None, branch=None, detail=None, chat=None)
        for change in changes
        if change.kind in VISIBLE_CHANGES
    ]


async def _title_for_reader(chat: Chat) -> str | None:
    """Return the first words that readers see: the stored title stays when its words are hidden or edited."""
    for turn in await chat.turns(before=2, limit=1):
        [hidden] = await chat.hidden([turn])
        return first_words(_messages(enumerate(turn.input), hidden.from_user))
    return None


def _show_turn(turn: Turn) -> Turn:
    count = len(turn.input)
    return replace(
        turn,
        raw_input=raws(_messages(enumerate(turn.input), turn.hidden)),
        raw_output=raws(_messages(enumerate(turn.output, count), turn.hidden)),
        hidden=(),
        hidden_from_model=(),
        details={"finish_reason": "length"} if turn.details.get("finish_reason") == "length" else {},
    )


def _messages(items: Iterable[tuple[int, Item]], hidden: Collection[int]) -> list[Item]:
    return [item for index, item in items if index not in hidden and _is_chat_message(item)]


def _is_chat_message(item: Item) -> bool:
    return item.type == "message" and item.fields.get("role") in ROLES
