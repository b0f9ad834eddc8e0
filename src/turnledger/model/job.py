"""A job: the request of a durable turn, whose work outlives its process.

Its row is there from the request until the turn has ended. While it waits it has a ticket, and while it runs
an attempt of the same id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from turnledger.model import codec
from turnledger.model.conversation import ROW
from turnledger.model.ids import ConversationId, TokenId, TurnId
from turnledger.model.item import Item, checked_items, object_of, raws
from turnledger.model.turn import AttemptBody, Instructions, OnFailure, OnStop

LISTED_INPUT = 16 * 1024
"""Most bytes of an input that a list of jobs shows."""
MOST_RESUMES = 3
"""How often a job is resumed after its process has died."""


class JobBody(AttemptBody, frozen=True, kw_only=True):
    """What a store keeps of a job as one value: the attempt to be made, and what only its begin needs."""

    primer: tuple[msgspec.Raw, ...] | msgspec.UnsetType = msgspec.UNSET
    turns: int | None = None
    """The most turns of the history to show."""
    tokens: int | None = None
    """The budget of the history to show."""
    on_stop: OnStop = OnStop.KEEP
    on_failure: OnFailure = OnFailure.SETTLE
    token: TokenId | None = None
    """The token that authorized it; None: not checked."""

    @property
    def details_object(self) -> dict[str, Any]:
        return object_of(msgspec.Raw(self.raw_details)) if self.raw_details else {}

    @property
    def input_items(self) -> tuple[Item, ...]:
        return checked_items(self.input)

    @property
    def primer_items(self) -> tuple[Item, ...]:
        return () if isinstance(self.primer, msgspec.UnsetType) else checked_items(self.primer)


class TurnJob(Struct, frozen=True, kw_only=True, dict=True):
    id: TurnId
    """The id of the attempt, and of the turn it becomes."""
    owner: str
    conversation: ConversationId
    created_at: int
    resumes: int = 0
    """How often its process died, or lost its store, and left it to be resumed."""
    body: bytes

    @codec.computed_once
    def request(self) -> JobBody:
        return codec.decode(JobBody, self.body)

    @property
    def bytes(self) -> int:
        """What it counts for its owner."""
        return ROW + len(self.body)


@dataclass(frozen=True)
class ListedJob:
    """Durable work of an owner that waits or runs."""

    id: TurnId
    conversation: ConversationId
    state: str
    """QUEUED, or AttemptState.RUNNING, also while it waits to be resumed."""
    created_at: int
    resumes: int
    details: Mapping[str, Any]
    input: tuple[Item, ...]
    """Empty if it is larger than LISTED_INPUT."""
    before: int
    """How many turns run or wait before it."""


def job_body(
    input: tuple[Item, ...],
    instructions: Instructions | None,
    raw_details: bytes,
    *,
    primer: tuple[Item, ...] = (),
    turns: int | None = None,
    tokens: int | None = None,
    on_stop: OnStop = OnStop.KEEP,
    on_failure: OnFailure = OnFailure.SETTLE,
    token: TokenId | None = None,
) -> bytes:
    attempt = AttemptBody.of(input, instructions, "", raw_details)
    fields = {name: getattr(attempt, name) for name in AttemptBody.__struct_fields__}
    return codec.encode(
        JobBody(
            **fields,
            primer=raws(primer) if primer else msgspec.UNSET,
            turns=turns,
            tokens=tokens,
            on_stop=on_stop,
            on_failure=on_failure,
            token=token,
        )
    )
