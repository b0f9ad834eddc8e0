"""What a server tells, as values. Fields that a newer server adds are passed over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from turnledger.errors import InvalidId, RequestFailed
from turnledger.model.attempt import AttemptState, Failure
from turnledger.model.event import Event
from turnledger.model.ids import BranchId, ConversationId, Id, ShareId, TokenId, TurnId
from turnledger.model.item import Item
from turnledger.model.turn import TurnKind

Shape = TypeVar("Shape")
Entry = TypeVar("Entry")


class ChatInfo(Struct, frozen=True, kw_only=True):
    """What is known of a chat besides its turns."""

    id: ConversationId
    conversation_key: str | None = None
    scope: str | None = None
    title: str | None = None
    named_by: str | None = None
    """Who gave it its title."""
    metadata: dict[str, str] = {}
    tags: tuple[str, ...] = ()
    pinned: bool = False
    archived: bool = False
    revision: int = 0
    """Of title, metadata, tags, pinned and archived."""
    branch: BranchId | None = None
    created_at: int = 0
    """Milliseconds since 1970, as all times."""
    touched_at: int = 0
    purge_at: int | None = None
    """When one that is deleted goes for good."""
    turn_count: int | None = None
    """Of the branch that it shows; None where it was not told, as in what a search finds."""
    preview: str = ""
    """How its last text begins."""
    is_running: bool = False
    snippet: str = ""
    """Why it was found, where it was searched for: a part of its text."""
    marks: tuple[tuple[int, int], ...] = ()
    """What was sought in the snippet: first character, and the one behind the last."""
    former_conversation_key: str | None = None
    """Of one that was restored: the key that it had, where that names another chat by now."""


class Turn(Struct, frozen=True, kw_only=True, dict=True):
    """A committed turn."""

    id: TurnId
    number: int
    kind: TurnKind
    parent: TurnId | None = None
    created_at: int = 0
    committed_at: int = 0
    raw_input: tuple[Raw, ...] = field(name="input", default=())
    raw_output: tuple[Raw, ...] = field(name="output", default=())
    hidden: tuple[int, ...] = ()
    """The places of items that are not for the user's eyes, counted from 0 through `input` and `output`."""
    details: dict[str, Any] = {}

    @cached_property
    def input(self) -> tuple[Item, ...]:
        """What was asked."""
        return tuple(Item(raw) for raw in self.raw_input)

    @cached_property
    def output(self) -> tuple[Item, ...]:
        """Everything done in answer to it."""
        return tuple(Item(raw) for raw in self.raw_output)

    @property
    def text(self) -> str:
        """The visible text of the answer."""
        return "".join(item.text for item in self.output if item.role == "assistant")


class Attempt(Struct, frozen=True, kw_only=True, dict=True):
    """An attempt that runs, failed or was discarded: it is not in the history."""

    id: TurnId
    state: AttemptState
    failure: Failure | None = None
    created_at: int = 0
    ended_at: int | None = None
    raw_input: tuple[Raw, ...] = field(name="input", default=())
    raw_steps: tuple[Raw, ...] = field(name="steps", default=())
    partial: str = ""
    """Text that belongs to no item yet."""

    @cached_property
    def input(self) -> tuple[Item, ...]:
        return tuple(Item(raw) for raw in self.raw_input)

    @cached_property
    def steps(self) -> tuple[Item, ...]:
        """Items that it has finished."""
        return tuple(Item(raw) for raw in self.raw_steps)


class Answer(Struct, frozen=True, kw_only=True):
    """A turn that was asked for, as it was committed, and its chat as that left it."""

    turn: Turn
    chat: ChatInfo
    branch: BranchId
    state: str = "continued"
    """Where it began: `created`, `continued` or `branched`."""
    is_replayed: bool = False
    """Whether it was there before: the same idempotency_key was answered already."""

    @property
    def text(self) -> str:
        """The visible text of the answer."""
        return self.turn.text


class TurnState(Struct, frozen=True, kw_only=True):
    """How a turn stands."""

    state: str
    chat: ChatInfo
    branch: BranchId | None = None
    turn: Turn | None = None
    failure: Failure | None = None


class Ended(Struct, frozen=True, kw_only=True):
    """How a turn that was stopped ended."""

    state: AttemptState
    committed: bool
    """Whether something of it was kept."""
    failure: Failure | None = None
    turn: TurnId | None = None


class TurnRestarted(Struct, frozen=True, kw_only=True, tag="turn.restarted"):
    """Made by the client: the attempt that was followed ended with its process, and the request was sent
    again under its idempotency_key; or, by its policies, was kept with less than was told. What was told of
    text so far is void, and numbers begin at 1 again."""

    turn: TurnId
    attempt: int


TurnEvent: TypeAlias = Event | TurnRestarted


class ChatPage(Struct, frozen=True, kw_only=True):
    """Turns of a chat, the first made first, and what is not in its history."""

    chat: ChatInfo
    turns: tuple[Turn, ...]
    before: int | None
    """For the page before this one; None if there is none."""
    attempts: tuple[Attempt, ...] = ()


class Page(Struct, Generic[Entry], frozen=True):
    """Some of what was asked for."""

    data: tuple[Entry, ...]
    next: str | None = None
    as_of: str | None = None
    """Of chats: `after` for `client.events`, by which nothing is missed in between."""
    complete: bool = True
    """Of a search: whether all that was committed before can be found."""

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)


class Hit(Struct, frozen=True, kw_only=True):
    """A chat that was found, and where."""

    chat: ChatInfo
    turn: TurnId | None = None
    """None: in the title."""
    branch: BranchId | None = None
    snippet: str = ""
    marks: tuple[tuple[int, int], ...] = ()


class Branch(Struct, frozen=True, kw_only=True):
    """A line of turns of a chat."""

    id: BranchId
    is_current: bool
    turns: int
    shared: int = 0
    """How many of its turns it has from the branch it was made from."""
    base: TurnId | None = None
    head: TurnId | None = None
    is_running: bool = False
    preview: str = ""


class Sibling(Struct, frozen=True, kw_only=True):
    """A turn at the place of another, and a branch that shows it."""

    turn: Turn
    branch: BranchId
    is_current: bool


class Deleted(Struct, frozen=True, kw_only=True):
    """A chat that was deleted."""

    id: ConversationId
    state: str
    purge_at: int | None = None
    """Until when it can be restored."""


class Change(Struct, frozen=True, kw_only=True):
    """What happened to a chat or a turn: thin, follow it up by its ids. `start` and `gap` happen to who
    follows, and to nobody's chats."""

    type: str
    at: int = 0
    position: str = ""
    """`after` for `client.events`, to go on behind this one."""
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


class Model(Struct, frozen=True):
    """A model that may be asked."""

    id: str


class Token(Struct, frozen=True, kw_only=True):
    """A token. `token` is its text, the secret: told once, to whoever has it made."""

    id: TokenId
    owner: str = ""
    name: str = ""
    scopes: tuple[str, ...] = ()
    chat_scope: str | None = None
    chat: ConversationId | None = None
    models: tuple[str, ...] = ()
    created_at: int = 0
    expires_at: int | None = None
    revoked_at: int | None = None
    used_at: int | None = None
    parent: TokenId | None = None
    share: ShareId | None = None
    max_tokens: int | None = None
    """Tokens that an answer may have."""
    n: int | None = None
    """Answers that a request may ask for."""
    keeps: bool | None = None
    """Of one's own: whether the server keeps chats of its scope."""
    token: str | None = None

    def __repr__(self) -> str:
        return f"Token(id={self.id!r}, name={self.name!r})"  # a secret is not shown


class Share(Struct, frozen=True, kw_only=True):
    """A share link. `code` is its secret, and `path` what follows the address of the server in the link: told
    once, to whoever has it made."""

    id: ShareId
    kind: str = ""
    owner: str = ""
    name: str = ""
    scope: str | None = None
    chat: ConversationId | None = None
    models: tuple[str, ...] = ()
    max_uses: int | None = None
    uses: int = 0
    per_minute: int | None = None
    visitor_expires_in: float | None = None
    created_at: int = 0
    expires_at: int | None = None
    revoked_at: int | None = None
    parent: TokenId | None = None
    max_tokens: int | None = None
    n: int | None = None
    turns: int | None = None
    """Turns that all visitors together may have open; so with what follows."""
    turns_per_minute: int | None = None
    bytes: int | None = None
    chats: int | None = None
    stored_bytes: int = 0
    stored_chats: int = 0
    code: str | None = None
    path: str | None = None

    def __repr__(self) -> str:
        return f"Share(id={self.id!r}, name={self.name!r})"


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoded(shape: type[Shape], raw: bytes | Raw) -> Shape:
    """Read what a server told. Raises RequestFailed where it makes no sense."""
    decoder = _decoders.get(shape)
    if decoder is None:
        decoder = _decoders[shape] = msgspec.json.Decoder(shape, dec_hook=_id_of)
    try:
        value: Shape = decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise RequestFailed(
            f"The server's answer is not one that this client understands: {problem}. Check the address, "
            "and that client and server are of about the same version."
        ) from None
    return value


def encoded(value: Mapping[str, Any]) -> bytes:
    """A body of JSON; items stand in it as they were given."""
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, Item):
        return Raw(value.raw)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(type(value))


def _id_of(kind: type, value: Any) -> Any:
    if not issubclass(kind, Id) or not isinstance(value, str):
        raise ValueError(f"{kind.__name__} is a text")
    try:
        return kind(value)
    except InvalidId as problem:
        raise ValueError(str(problem)) from None
