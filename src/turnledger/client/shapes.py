"""Shapes that the client makes from responses; those of the responses are in turnledger.api."""

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
    """A requested turn as committed, and its chat after it."""

    turn: Turn
    chat: ChatInfo
    branch: BranchId
    state: str = "continued"
    """Where it began: `created`, `continued` or `branched`."""
    is_replayed: bool = False
    """Whether the same idempotency_key was answered before."""

    @property
    def text(self) -> str:
        return self.turn.text


class StopOutcome(Struct, frozen=True, kw_only=True):
    """How a turn that was stopped ended."""

    state: AttemptState
    committed: bool
    """Whether some of it was kept."""
    failure: Failure | None = None
    turn: TurnId | None = None


class TurnRestarted(Struct, frozen=True, kw_only=True, tag="turn.restarted"):
    """Made by the client: text received so far is void, and event numbers start at 1 again. The attempt ended
    with its process, and the request was sent again under its idempotency_key; or it was kept by its policies
    with less than was sent."""

    turn: TurnId
    attempt: int


TurnEvent: TypeAlias = Event | TurnRestarted


class ChatPage(Struct, frozen=True, kw_only=True):
    """Turns of a chat, the oldest first, and attempts outside its history."""

    chat: ChatInfo
    turns: tuple[Turn, ...]
    before: int | None
    """Cursor of the previous page; None if there is none."""
    attempts: tuple[Attempt, ...] = ()
    """The running attempt and failed ones, the newest first. A queued turn is not among them."""


class FoundChat(ChatInfo, frozen=True, kw_only=True):
    """A chat that a search found."""

    snippet: str
    marks: tuple[Mark, ...]


class Model(Struct, frozen=True):
    """A model that the caller may use."""

    id: str


def decode_shape(shape: type[Shape], raw: bytes | msgspec.Raw) -> Shape:
    """Decode a response. Ignores fields that a newer server adds. Raises RequestFailed if it is malformed."""
    try:
        return json.decode(shape, raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise RequestFailed(
            f"Unexpected answer from the server: {problem}. Check base_url and the versions of "
            "client and server."
        ) from None
