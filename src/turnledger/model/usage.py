"""What models were used for: turns, tokens and bytes, by owner and model."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from turnledger.errors import StoreError
from turnledger.model import codec
from turnledger.model.conversation import TEXT_LENGTH
from turnledger.model.item import object_of

MOST_TOKENS = 10**12
"""The most that one turn can report: imported turns say what they like."""


class ModelUsage(Struct, frozen=True, kw_only=True):
    """What the stored turns of an owner used of a model."""

    owner: str
    model: str | None
    """None for turns that name no model, such as those of a library or an import."""
    turns: int
    input_tokens: int
    """As models reported them; turns without a report count as 0."""
    output_tokens: int
    bytes: int
    """Of the turns and their event logs."""

    def __add__(self, other: ModelUsage) -> ModelUsage:
        return ModelUsage(
            owner=self.owner,
            model=self.model,
            turns=self.turns + other.turns,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            bytes=self.bytes + other.bytes,
        )


class _Details(codec.Document, frozen=True):
    """Of the body of a turn only what its runner stored with it."""

    details: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def usage_of(owner: str, body: bytes, log: int) -> ModelUsage:
    """Return what a turn used, by its stored body and the size of its log. A damaged one names no model."""
    try:
        kept = codec.decode(_Details, body).details
        details = {} if isinstance(kept, msgspec.UnsetType) else object_of(kept)
    except StoreError:
        details = {}  # reading the turn, or a check, reports the damage
    model, usage = details.get("model"), details.get("usage")
    used = usage if isinstance(usage, dict) else {}
    return ModelUsage(
        owner=owner,
        model=model if isinstance(model, str) and len(model) <= TEXT_LENGTH else None,
        turns=1,
        input_tokens=_count(used, "prompt_tokens", "input_tokens"),
        output_tokens=_count(used, "completion_tokens", "output_tokens"),
        bytes=len(body) + log,
    )


def _count(used: dict[str, Any], *names: str) -> int:
    found = next((used[name] for name in names if name in used), 0)
    return found if type(found) is int and 0 <= found <= MOST_TOKENS else 0
