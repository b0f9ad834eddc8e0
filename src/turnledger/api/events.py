"""What happens to the chats of an owner, as `/api/events` sends it."""

from __future__ import annotations

from msgspec import Struct

from turnledger.model.ids import BranchId, ConversationId, TurnId


class Change(Struct, frozen=True, kw_only=True):
    """What happened to a chat or a turn: thin, follow it up by its ids. `start` and `gap` are about the
    stream, and about no chat."""

    type: str
    at: int = 0
    position: str = ""
    """`after` for `client.events`, to go on behind this one. It is sent as the id of the event."""
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
