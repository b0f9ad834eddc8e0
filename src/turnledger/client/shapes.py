"""What the client makes of the answers of a server, whose shapes are in turnledger.api."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from turnledger.api import json
from turnledger.api.chats import ChatInfo, Mark
from turnledger.api.turns import Attempt, Turn
from turnledger.errors import RequestFailed
from turnledger.model.event import Event
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.turn import AttemptState, Failure

Shape = TypeVar("Shape")


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


class FoundChat(ChatInfo, frozen=True, kw_only=True):
    """A chat that a search found."""

    snippet: str
    marks: tuple[Mark, ...]


class Model(Struct, frozen=True):
    """A model that may be asked."""

    id: str


def decoded(shape: type[Shape], raw: bytes | msgspec.Raw) -> Shape:
    """Read what a server told. Fields that a newer server adds are passed over. Raises RequestFailed where it
    makes no sense."""
    try:
        return json.decode(shape, raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise RequestFailed(
            f"The server's answer is not one that this client understands: {problem}. Check the address, "
            "and that client and server are of about the same version."
        ) from None
