"""Lists of chats: filters, entries, pages and their cursors."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from struct import Struct as Packing
from struct import error as PackingError

from msgspec import Struct

from turnledger.errors import InvalidInput
from turnledger.model.conversation import Branch, Conversation, ConversationState
from turnledger.model.ids import ConversationId

_CURSOR = Packing(">BQ16sH")
_VERSION = 1
_CURSOR_LENGTH = 36


class ChatEntry(Struct, frozen=True):
    """A chat in a list, as of its last commit."""

    conversation: Conversation
    turns: int
    """Turns of the branch that it shows."""
    preview: str
    """The beginning of its last text; empty before the first turn."""
    is_running: bool


def entry_of(conversation: Conversation, branch: Branch) -> ChatEntry:
    return ChatEntry(conversation, branch.length, branch.preview, branch.running is not None)


class ChatFilter(Struct, frozen=True, kw_only=True):
    """Which chats of an owner to list. None means any."""

    scope: str | None = None
    tag: str | None = None
    archived: bool | None = False
    pinned: bool | None = None
    deleted: bool = False
    """Only chats that can be restored."""

    def matches(self, conversation: Conversation) -> bool:
        """Return whether to list a conversation. Internal and unlisted ones never are."""
        state = ConversationState.DELETED if self.deleted else ConversationState.LIVE
        return (
            conversation.state is state
            and conversation.is_listed
            and not conversation.internal
            and self.scope in (None, conversation.scope)
            and (self.tag is None or self.tag in conversation.tags)
            and self.archived in (None, conversation.archived)
            and self.pinned in (None, conversation.pinned)
        )


class ListPosition(Struct, frozen=True, order=True):
    """A place in the list after which a page begins: a time and an id, not a row that must still exist."""

    at: int
    id: ConversationId

    @classmethod
    def after(cls, listed: ChatEntry) -> ListPosition:
        return cls(listed.conversation.touched_at, listed.conversation.id)

    @classmethod
    def of(cls, cursor: str) -> ListPosition:
        """Decode a cursor. Raises InvalidInput if it is not one."""
        try:
            if len(cursor) != _CURSOR_LENGTH:
                raise ValueError
            version, at, id, check = _CURSOR.unpack(urlsafe_b64decode(cursor.encode("ascii")))
            if version != _VERSION or check != _check(at, id) or cursor != cls._pack(at, id):
                raise ValueError
            return cls(at, ConversationId.trusted(id))
        except (ValueError, PackingError, binascii.Error):
            raise InvalidInput(
                "Invalid cursor. Pass `next` from the previous page.", param="cursor"
            ) from None

    @property
    def cursor(self) -> str:
        """An opaque text."""
        return self._pack(self.at, self.id.raw)

    @staticmethod
    def _pack(at: int, id: bytes) -> str:
        return urlsafe_b64encode(_CURSOR.pack(_VERSION, at, id, _check(at, id))).decode()


def _check(at: int, id: bytes) -> int:
    return binascii.crc_hqx(at.to_bytes(8) + id, 0)


class Page(Struct, frozen=True):
    """A page of chats, most recently used first."""

    chats: tuple[ChatEntry, ...]
    next: str | None = None
    """The cursor of the next page; None for the last."""
    as_of: str = ""
    """The position in the owner's changes as of reading: a client that follows them from here misses none."""
