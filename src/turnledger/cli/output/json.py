"""What is told of chats and tokens, by the names that HTTP has for it: `--json` prints these as they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from turnledger.model.flags import gone_in, left_of
from turnledger.model.item import Item

Shape = TypeVar("Shape", bound=Struct)


def reshaped(told: object, shape: type[Shape], **others: Any) -> Shape:
    """The same as a value of this shape, by the names of its fields; the others are given."""
    names = [name for name in shape.__struct_fields__ if name not in others]
    return shape(**{name: getattr(told, name) for name in names}, **others)


class ChatTold(Struct, frozen=True, kw_only=True):
    """What is known of a chat besides its history. Times are milliseconds since 1970."""

    id: str
    conversation_key: str | None
    scope: str | None
    title: str | None
    named_by: str | None
    metadata: dict[str, str]
    tags: tuple[str, ...]
    pinned: bool
    archived: bool
    revision: int
    branch: str
    created_at: int
    touched_at: int
    purge_at: int | None


class ListedChat(ChatTold, frozen=True, kw_only=True):
    """A chat in a list."""

    turn_count: int
    preview: str
    is_running: bool


class ChatPage(Struct, frozen=True):
    """Some of the chats that were asked for, the last used first."""

    data: tuple[ListedChat, ...]
    next: str | None
    """Where the next page begins; None behind the last."""


class HitTold(Struct, frozen=True, kw_only=True):
    """A chat in which all that was sought was found. `marks` are offsets in the snippet."""

    chat: ChatTold
    turn: str | None
    branch: str
    snippet: str
    marks: tuple[tuple[int, int], ...]


class HitPage(Struct, frozen=True):
    """Some of what was found."""

    data: tuple[HitTold, ...]
    next: str | None
    complete: bool
    """Whether all that was committed before can be found."""


class TurnTold(Struct, frozen=True, kw_only=True):
    """A committed turn."""

    id: str
    number: int
    kind: str
    parent: str | None
    created_at: int
    committed_at: int
    input: tuple[Item, ...]
    output: tuple[Item, ...]
    details: dict[str, Any]


class AnyTurn(Protocol):
    """A turn, as a store or a server has it."""

    @property
    def input(self) -> tuple[Item, ...]: ...
    @property
    def output(self) -> tuple[Item, ...]: ...
    @property
    def details(self) -> Mapping[str, Any]: ...


def turns_told(turns: Sequence[AnyTurn], hidden: Sequence[Collection[int]]) -> tuple[TurnTold, ...]:
    """What is told of turns in order, without the items at these places, and their other halves."""
    gone = [set[int]()] * len(turns)
    if any(hidden):
        gone = gone_in([(*turn.input, *turn.output) for turn in turns], hidden)
    return tuple(map(_turn_told, turns, gone))


def _turn_told(turn: AnyTurn, gone: Collection[int]) -> TurnTold:
    return reshaped(
        turn,
        TurnTold,
        input=left_of(turn.input, gone),
        output=left_of(turn.output, gone, len(turn.input)),
        details=dict(turn.details),
    )


class ChatShown(ListedChat, frozen=True, kw_only=True):
    """A chat with its last turns, in order."""

    turns: tuple[TurnTold, ...]
    before: int | None
    """The number before which there are more; None where these are all."""


class DeletedChat(Struct, frozen=True, kw_only=True):
    """A chat that was deleted, and until when it can be restored."""

    id: str
    state: str
    purge_at: int | None


class RestoredChat(ChatTold, frozen=True, kw_only=True):
    """A chat that was brought back."""

    former_conversation_key: str | None
    """The one it had, where that names another chat by now."""


class TokenTold(Struct, frozen=True, kw_only=True):
    """All that is known of a token but what leads to its text."""

    id: str
    owner: str
    name: str
    scopes: tuple[str, ...]
    chat_scope: str | None
    chat: str | None
    models: tuple[str, ...]
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    used_at: int | None
    parent: str | None
    share: str | None
    max_tokens: int | None = None
    n: int | None = None

    def state(self, now: int) -> str:
        """Whether it lets anybody in, in a word."""
        if self.revoked_at is not None:
            return "revoked"
        return "valid" if self.expires_at is None or now < self.expires_at else "expired"


class TokenMade(TokenTold, frozen=True, kw_only=True):
    """A token with its text, the secret."""

    token: str


class TokenList(Struct, frozen=True):
    """Some tokens."""

    data: tuple[TokenTold, ...]
