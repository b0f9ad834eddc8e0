"""Retention: how long new conversations last, and which were removed for their age or size."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from turnledger.model.ids import ConversationId
from turnledger.model.reset_policy import ResetPolicy


class RetentionReason(StrEnum):
    """Why retention removed a conversation."""

    AGE = "age"  # unused for too long: it can be restored
    SIZE = "size"  # the oldest of an owner above the storage limit: it is purged


class RetiredConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that retention removed."""

    owner: str
    conversation: ConversationId
    reason: RetentionReason
    touched_at: int
    purge_at: int | None
    """Until when it can be restored; None if it cannot."""


class RetentionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one round of retention."""

    retired: tuple[RetiredConversation, ...] = ()
    """In the order of removal."""
    full: tuple[str, ...] = ()
    """Owners still above the limit: the rest of their chats is pinned, running or shared with forks."""


class Lifetime(msgspec.Struct, frozen=True, kw_only=True):
    """How long a new conversation lasts, unless its creator chooses; None: not limited here."""

    expires_after: float | None = None
    """Seconds without interaction."""
    reset: ResetPolicy | None = None
    """For one with a conversation_key."""


class Lifetimes(Lifetime, frozen=True, kw_only=True):
    """The lifetime of new conversations, and of those of some scopes."""

    scopes: Mapping[str, Lifetime] = {}

    def of(self, scope: str) -> Lifetime:
        own = self.scopes.get(scope)
        if own is None:
            return self
        expires_after = self.expires_after if own.expires_after is None else own.expires_after
        return Lifetime(expires_after=expires_after, reset=own.reset or self.reset)


NO_LIFETIMES = Lifetimes()
