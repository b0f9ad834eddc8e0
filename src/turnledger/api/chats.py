"""Chats as the API sends them, alone and in lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Generic, TypeAlias, TypeVar

from msgspec import Struct

from turnledger.api.errors import Error
from turnledger.api.fields import Count, Time, one_of, schema
from turnledger.model.conversation import ConversationState, TitleSource
from turnledger.model.ids import BranchId, ConversationId, TurnId

Entry_co = TypeVar("Entry_co", covariant=True)
Mark: TypeAlias = tuple[Count, Count]


class ChatInfo(Struct, frozen=True, kw_only=True):
    """A chat without its turns."""

    id: ConversationId
    conversation_key: str | None = None
    scope: str | None = None
    title: str | None = None
    named_by: Annotated[str, one_of(TitleSource, "The origin of its title.")] | None = None
    metadata: dict[str, str] = {}
    tags: tuple[str, ...] = ()
    pinned: bool = False
    archived: bool = False
    internal: Annotated[bool, schema("Whether it is for programs: no list of people shows it.")] = False
    revision: Annotated[Count, schema("Of title, metadata, tags, pinned and archived.")] = 0
    branch: Annotated[BranchId, schema("The branch that it shows.")]
    created_at: Time = 0
    touched_at: Time = 0
    expires_after: Annotated[float, schema("Seconds without use after which it expires.")] | None = None
    reset: Annotated[str, schema("When its conversation_key moves to a fresh chat.")] = "never"
    purge_at: Annotated[Time, schema("When a deleted chat is purged.")] | None = None

    @property
    def turn_count(self) -> int | None:
        """Turns of the branch it shows; None for chats from a search or a restore."""
        return None

    @property
    def preview(self) -> str:
        """The beginning of its last text."""
        return ""

    @property
    def is_running(self) -> bool:
        """Whether a turn is running in it."""
        return False

    @property
    def snippet(self) -> str:
        """Of a search result: the matching part of its text."""
        return ""

    @property
    def marks(self) -> tuple[tuple[int, int], ...]:
        """The matches in the snippet, each as the offsets of its first character and of the one after it."""
        return ()

    @property
    def former_conversation_key(self) -> str | None:
        """Of a restored chat: its old key, if another chat has taken it."""
        return None


class ListedChat(ChatInfo, frozen=True, kw_only=True):
    """A chat as a list shows it."""

    turn_count: Annotated[Count, schema("Of the branch that it shows.")] = 0
    preview: Annotated[str, schema("The beginning of its last text.")] = ""
    is_running: bool = False


class RestoredChat(ChatInfo, frozen=True, kw_only=True):
    """A restored chat."""

    former_conversation_key: (
        Annotated[str, schema("Its old conversation_key, if another chat has it now.")] | None
    ) = None


class Deletion(Struct, frozen=True, kw_only=True):
    """A deleted chat."""

    id: ConversationId
    state: Annotated[str, schema(enum=[str(ConversationState.DELETED), str(ConversationState.PURGED)])]
    purge_at: Annotated[Time, schema("Until when it can be restored.")] | None = None


class Hit(Struct, frozen=True, kw_only=True):
    """A chat that a search found, and the place of the match."""

    chat: ChatInfo
    turn: Annotated[TurnId, schema("The turn with the match; null: the title.")] | None = None
    branch: Annotated[BranchId, schema("A branch that contains it.")]
    snippet: Annotated[str, schema("A part of the text, on one line.")] = ""
    marks: Annotated[
        tuple[Mark, ...], schema("The matches: the first character of each, and the one after its last.")
    ] = ()


class Listing(Struct, Generic[Entry_co], frozen=True):
    """Entries of one kind."""

    data: tuple[Entry_co, ...]

    def __iter__(self) -> Iterator[Entry_co]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)


class Page(Listing[Entry_co], Generic[Entry_co], frozen=True):
    """A page of entries."""

    next: Annotated[str, schema("The cursor of the next page; null on the last one.")] | None = None

    @property
    def as_of(self) -> str | None:
        """Of chats: pass it as `after` to `client.events` to miss no change since this page."""
        return None

    @property
    def complete(self) -> bool:
        """Of a search: whether the index covers every turn committed before it."""
        return True


class ChatList(Page[ListedChat], frozen=True):
    """Chats, most recently used first."""

    as_of: Annotated[
        str, schema("The `Last-Event-ID` with which `/api/events` continues from this page without a gap.")
    ] = ""


class SearchPage(Page[Entry_co], Generic[Entry_co], frozen=True):
    """A page of search results."""

    complete: Annotated[bool, schema("Whether the index covers every turn committed before.")] = True


class Conflict(Error, frozen=True, kw_only=True):
    """An error, with the current state of the chat that another caller changed."""

    chat: ListedChat
