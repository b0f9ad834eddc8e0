"""Changes to an owner's chats, as `/api/events` sends them."""

from __future__ import annotations

from msgspec import Struct

from turnledger.model.ids import BranchId, ConversationId, TurnId


class Change(Struct, frozen=True, kw_only=True):
    """A change to a chat or a turn. It carries little: fetch the rest by its ids. `start` and `gap` concern
    the stream, not a chat."""

    type: str
    at: int = 0
    position: str = ""
    """Pass it as `after` to `client.events` to continue after this change. It is the id of the event."""
    chat: ConversationId | None = None
    scope: str | None = None
    turn: TurnId | None = None
    branch: BranchId | None = None
    outcome: str | None = None
    code: str | None = None
    reason: str | None = None
    title: str | None = None
    metadata: dict[str, str] | None = None
    tags: tuple[str, ...] | None = None
    pinned: bool | None = None
    archived: bool | None = None
    revision: int | None = None
