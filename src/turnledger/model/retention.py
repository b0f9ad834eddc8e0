"""Retention: what was removed because its owner keeps chats for so long, or so much of them, and no more."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from turnledger.model.ids import ConversationId


class Reason(StrEnum):
    """Why a conversation was removed by itself."""

    AGE = "age"  # nobody used it for so long: it can be restored
    SIZE = "size"  # its owner stores more than may be, and it was the oldest: it is gone for good


class Retired(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that was removed."""

    owner: str
    conversation: ConversationId
    reason: Reason
    touched_at: int
    """When it was last used."""
    purge_at: int | None
    """Until when it can be restored; None if it cannot."""


class Retained(msgspec.Struct, frozen=True, kw_only=True):
    """What one round of retention did."""

    retired: tuple[Retired, ...] = ()
    """In the order in which they went."""
    full: tuple[str, ...] = ()
    """Owners that store more than may be: what is left of theirs is pinned, runs, or is shown by forks."""
