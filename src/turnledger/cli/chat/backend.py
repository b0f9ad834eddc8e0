"""Chats as the terminal sees them, on a server or in a store with models of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from turnledger.api.chats import ChatInfo, ListedChat, Mark
from turnledger.api.turns import Attempt, Branch, Turn
from turnledger.errors import ConversationNotFound, InvalidInput
from turnledger.model.event import Event
from turnledger.model.flags import visible_items
from turnledger.model.ids import ConversationId
from turnledger.model.item import Item
from turnledger.model.turn import AttemptState

DIED = "process_died"


class FoundChat(ListedChat, frozen=True, kw_only=True):
    """A chat with the passage that a search found, and the matches in it."""

    snippet: str
    marks: tuple[Mark, ...]


def question_of(turn: Turn | Attempt) -> str:
    """Return the text of its messages that its owner sees."""
    return "\n\n".join(item.text for item in _visible_input(turn) if item.is_user_message)


def output_of(turn: Turn) -> tuple[Item, ...]:
    """Return everything else that its owner sees, in order: tool results sent with it, and the output."""
    results = (item for item in _visible_input(turn) if not item.is_user_message)
    return (*results, *visible_items(turn.output, turn.hidden, len(turn.input)))


def _visible_input(turn: Turn | Attempt) -> Sequence[Item]:
    return visible_items(turn.input, turn.hidden) if isinstance(turn, Turn) else turn.input


class ChatState(Struct, frozen=True):
    """A chat, some of its turns in order, and the attempts outside its history."""

    chat: ChatInfo
    turns: Sequence[Turn]
    attempts: Sequence[Attempt] = ()

    @property
    def running(self) -> Attempt | None:
        return next((each for each in self.attempts if each.state is AttemptState.RUNNING), None)

    @property
    def died(self) -> Attempt | None:
        """The attempt whose process died, if no turn began or ended since: a starting process may have ended
        it before it could be seen running."""
        return next(filter(self._has_died, self.attempts), None)

    def _has_died(self, attempt: Attempt) -> bool:
        is_dead = attempt.failure is not None and attempt.failure.code == DIED
        is_last = attempt.ended_at is not None and attempt.ended_at >= self.chat.touched_at
        return attempt.state is AttemptState.FAILED and is_dead and is_last


class Version(NamedTuple):
    """One of several turns at the same place, and the branch that shows it."""

    turn: Turn
    branch: str


class NewTurn(Struct, frozen=True, kw_only=True):
    """A requested turn: a message, an edit of a turn, or another answer to it."""

    model: str
    text: str = ""
    replaces: str | None = None
    regenerates: str | None = None
    idempotency_key: str


class AnswerRestarted(Struct, frozen=True):
    """The answer starts over: what was received so far is void."""


TurnUpdate: TypeAlias = Event | AnswerRestarted


class TurnInProgress(Protocol):
    """A turn in progress. Iterated once, to its end; then raises its error, if it has one."""

    @property
    def turn(self) -> str | None:
        """None until known."""
        ...

    @property
    def is_requested(self) -> bool:
        """Whether it was requested, and will run unless it is stopped."""
        ...

    def __aiter__(self) -> AsyncIterator[TurnUpdate]: ...

    async def stop(self) -> None:
        """End the turn now, and keep what there is. Returns once that is decided. A waiting turn ends without
        a trace: iterating raises TurnStopped."""
        ...

    async def leave(self) -> bool:
        """Stop following; return whether the turn may continue where it runs."""
        ...


class ExistingChat(Protocol):
    """The methods that chats of the library and of the client have in common."""

    @property
    def id(self) -> ConversationId | None: ...
    async def update(self, *, title: str = ..., pinned: bool = ..., archived: bool = ...) -> object: ...
    async def switch(self, branch: str) -> object: ...
    async def undo(self, turn: str) -> object: ...
    async def delete(self) -> object: ...


AnyChat_co = TypeVar("AnyChat_co", bound=ExistingChat, covariant=True)


class ChatHandle(ABC, Generic[AnyChat_co]):
    """One chat. All methods raise TurnledgerErrors."""

    def __init__(self, chat: AnyChat_co | None) -> None:
        self._chat = chat

    @property
    def id(self) -> str | None:
        """None until its first turn has begun."""
        return None if self._chat is None else self._chat.id

    @property
    def existing(self) -> AnyChat_co:
        if self._chat is None:
            raise ConversationNotFound("This chat has no turns yet. Send a message first.")
        return self._chat

    @abstractmethod
    def start(self, new_turn: NewTurn) -> TurnInProgress: ...
    @abstractmethod
    def follow(self, turn: str) -> TurnInProgress: ...
    @abstractmethod
    async def read(self, *, before: int | None = None, limit: int = 50) -> ChatState: ...
    @abstractmethod
    async def versions(self, turn: str) -> list[Version]: ...
    @abstractmethod
    async def branches(self) -> list[Branch]: ...
    @abstractmethod
    async def fork(self, turn: str | None, title: str) -> ChatHandle[AnyChat_co]: ...
    @abstractmethod
    def export(self, *, is_markdown: bool) -> AsyncIterator[bytes]: ...


AnyHandle: TypeAlias = ChatHandle[ExistingChat]


class ChatBackend(Protocol):
    """Holds chats, and has models to answer in them."""

    @property
    def name(self) -> str: ...

    @property
    def is_demo(self) -> bool:
        """Whether the demo model answers, because no other is configured."""
        ...

    async def models(self) -> list[str]:
        """Return the names of the models, the default first."""
        ...

    def new(self) -> AnyHandle: ...

    async def open(self, name: str) -> AnyHandle: ...

    async def chats(self, words: str = "", *, limit: int = 20) -> Sequence[ChatInfo]:
        """Return the chats used last; with words, those that contain them."""
        ...

    def changes(self) -> AsyncIterator[str]:
        """Yield the id of a chat whenever it changes, without end."""
        ...

    async def close(self) -> None: ...


def last_model(turns: Iterable[Turn]) -> str | None:
    """Return the last model that the turns name."""
    models = [model for each in turns if isinstance(model := each.details.get("model"), str)]
    return models[-1] if models else None


def check_demo(answered: str | None, demo: str, choice: str) -> None:
    """Raise InvalidInput if another model answered last: the demo model continues its chat only on request,
    which `choice` shows how to make."""
    if answered not in (None, demo):
        raise InvalidInput(
            f"{answered!r} answered last, but only the demo model is configured. Use --server URL, "
            f"turnledger.toml, or {choice}."
        )
