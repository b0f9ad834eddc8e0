"""Chats as the terminal sees them, on a server or in a store with models of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from turnledger.api.turns import Turn
from turnledger.errors import InvalidInput
from turnledger.model.event import Event
from turnledger.model.flags import visible_items
from turnledger.model.item import Item
from turnledger.model.turn import AttemptState, Failure, TurnKind

DIED = "process_died"


class ChatSummary(Struct, frozen=True, kw_only=True):
    """A chat in a list. `found` is the passage that a search found, `marks` the matches in it."""

    id: str
    title: str | None
    preview: str
    turns: int
    touched_at: int
    is_running: bool = False
    is_pinned: bool = False
    found: str = ""
    marks: tuple[tuple[int, int], ...] = ()


class DisplayedTurn(Struct, frozen=True, kw_only=True):
    id: str
    number: int
    kind: TurnKind
    question: str
    """The text of its messages."""
    output: tuple[Item, ...]
    """Everything else in order: tool results sent with it, and the output."""
    details: Mapping[str, Any] = {}
    took_ms: int = 0
    """From the request to the end."""


def make_displayed_turn(turn: Turn) -> DisplayedTurn:
    """Return a turn without the items hidden from its owner."""
    question = visible_items(turn.input, turn.hidden)
    return DisplayedTurn(
        id=turn.id,
        number=turn.number,
        kind=turn.kind,
        question=text_of(question),
        output=(*without_messages(question), *visible_items(turn.output, turn.hidden, len(turn.input))),
        details=turn.details,
        took_ms=turn.committed_at - turn.created_at,
    )


class UnfinishedTurn(Struct, frozen=True):
    id: str
    question: str


class ChatState(Struct, frozen=True):
    """A chat, some of its turns in order, and the running one. `died` is the attempt whose process died, if
    nothing happened since: a starting process may have ended it before it could be seen running."""

    chat: ChatSummary
    branch: str
    turns: Sequence[DisplayedTurn]
    running: UnfinishedTurn | None = None
    died: UnfinishedTurn | None = None


class AttemptLike(Protocol):
    """An attempt outside the history."""

    @property
    def id(self) -> str: ...
    @property
    def state(self) -> AttemptState: ...
    @property
    def failure(self) -> Failure | None: ...
    @property
    def ended_at(self) -> int | None: ...
    @property
    def input(self) -> tuple[Item, ...]: ...


def find_running(attempts: Iterable[AttemptLike]) -> UnfinishedTurn | None:
    return next((_unfinished_of(each) for each in attempts if each.state is AttemptState.RUNNING), None)


def find_died(attempts: Iterable[AttemptLike], touched_at: int) -> UnfinishedTurn | None:
    """Return the attempt whose process died, if no turn began or ended since."""
    return next((_unfinished_of(each) for each in attempts if _has_died(each, touched_at)), None)


def _unfinished_of(attempt: AttemptLike) -> UnfinishedTurn:
    return UnfinishedTurn(attempt.id, text_of(attempt.input))


def _has_died(attempt: AttemptLike, touched_at: int) -> bool:
    is_dead = attempt.failure is not None and attempt.failure.code == DIED
    is_last = attempt.ended_at is not None and attempt.ended_at >= touched_at
    return attempt.state is AttemptState.FAILED and is_dead and is_last


class Version(Struct, frozen=True):
    """One of several turns at the same place, and the branch that shows it."""

    turn: DisplayedTurn
    branch: str


class BranchSummary(Struct, frozen=True):
    id: str
    length: int
    preview: str
    is_current: bool
    is_side: bool


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


class ChatHandle(Protocol):
    """One chat. All methods raise TurnledgerErrors."""

    @property
    def id(self) -> str | None:
        """None until its first turn has begun."""
        ...

    def start(self, new_turn: NewTurn) -> TurnInProgress: ...
    def follow(self, turn: str) -> TurnInProgress: ...

    async def read(self, *, before: int | None = None, limit: int = 50) -> ChatState: ...

    async def versions(self, turn: str) -> list[Version]: ...
    async def branches(self) -> list[BranchSummary]: ...
    async def switch(self, branch: str) -> None: ...
    async def undo(self, turn: str) -> None: ...
    async def fork(self, turn: str | None, title: str) -> ChatHandle: ...
    async def rename(self, title: str) -> None: ...
    async def pin(self, on: bool) -> None: ...
    async def archive(self) -> None: ...
    async def delete(self) -> None: ...
    def export(self, *, is_markdown: bool) -> AsyncIterator[bytes]: ...


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

    def new(self) -> ChatHandle: ...

    async def open(self, name: str) -> ChatHandle: ...

    async def chats(self, words: str = "", *, limit: int = 20) -> list[ChatSummary]:
        """Return the chats used last; with words, those that contain them."""
        ...

    def changes(self) -> AsyncIterator[str]:
        """Yield the id of a chat whenever it changes, without end."""
        ...

    async def close(self) -> None: ...


def last_model(turns: Iterable[DisplayedTurn]) -> str | None:
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


def text_of(items: Iterable[Item]) -> str:
    return "\n\n".join(item.text for item in items if item.is_user_message)


def without_messages(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return the other items: tool results."""
    return tuple(item for item in items if not item.is_user_message)
