"""Lists of chats: which are wanted, what is told of each, and where a page ends."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from struct import Struct as Packing
from struct import error as PackingError

from msgspec import Struct

from turnledger.errors import InvalidInput
from turnledger.model.conversation import Conversation, ConversationState
from turnledger.model.ids import ConversationId

_CURSOR = Packing(">BQ16sH")
_VERSION = 1
_CURSOR_LENGTH = 36


class Listed(Struct, frozen=True):
    """A chat in a list, as the last commit left it."""

    conversation: Conversation
    turns: int
    """Of the branch that it shows."""
    preview: str
    """How its last text begins; empty before the first turn."""
    is_running: bool


class Wanted(Struct, frozen=True, kw_only=True):
    """Which chats of an owner are to be listed. What is None does not matter."""

    owner: str
    scope: str | None = None
    tag: str | None = None
    archived: bool | None = False
    pinned: bool | None = None
    deleted: bool = False
    """Those that can be restored, and no others."""

    def fits(self, conversation: Conversation) -> bool:
        """Whether it is one of those. Internal ones and those that are not listed never are."""
        state = ConversationState.DELETED if self.deleted else ConversationState.LIVE
        return (
            conversation.owner == self.owner
            and conversation.state is state
            and conversation.is_listed
            and not conversation.internal
            and self.scope in (None, conversation.scope)
            and (self.tag is None or self.tag in conversation.tags)
            and self.archived in (None, conversation.archived)
            and self.pinned in (None, conversation.pinned)
        )


class ListPosition(Struct, frozen=True, order=True):
    """A place in the list, behind which a page goes on: a time and an id, and no row that must be there."""

    at: int
    id: ConversationId

    @classmethod
    def behind(cls, listed: Listed) -> ListPosition:
        return cls(listed.conversation.touched_at, listed.conversation.id)

    @classmethod
    def of(cls, cursor: str) -> ListPosition:
        """The place that a cursor names. Raises InvalidInput for what is none."""
        try:
            if len(cursor) != _CURSOR_LENGTH:
                raise ValueError
            version, at, id, check = _CURSOR.unpack(urlsafe_b64decode(cursor.encode("ascii")))
            if version != _VERSION or check != _check(at, id) or cursor != cls._packed(at, id):
                raise ValueError
            return cls(at, ConversationId.trusted(id))
        except (ValueError, PackingError, binascii.Error):
            raise InvalidInput("That is no cursor. Give `next` of the page before, or none.") from None

    @property
    def cursor(self) -> str:
        """The place as a text that says nothing to who holds it."""
        return self._packed(self.at, self.id.raw)

    @staticmethod
    def _packed(at: int, id: bytes) -> str:
        return urlsafe_b64encode(_CURSOR.pack(_VERSION, at, id, _check(at, id))).decode()


def _check(at: int, id: bytes) -> int:
    return binascii.crc_hqx(at.to_bytes(8) + id, 0)


class Page(Struct, frozen=True):
    """Some of the chats that were asked for, the last used first."""

    chats: tuple[Listed, ...]
    next: str | None = None
    """The cursor of the page behind; None if this is the last one."""
    as_of: str = ""
    """The position among the owner's changes at which it was read: who follows those from here misses nothing
    that the page does not show."""
