"""Usage by owner and model, counted from the stored turns.

Nothing is written for it when a turn commits. A count reads a bounded number of turns, and continues where
the one before ended.
"""

from __future__ import annotations

from msgspec import Struct

from turnledger.engine.ports import WholeStore
from turnledger.model.conversation import EVERYWHERE, Within
from turnledger.model.ids import TurnId
from turnledger.model.usage import ModelUsage, usage_of

TURNS = 1_000
"""Turns counted at once."""
BYTES = 8 * 1024 * 1024
"""Bytes of turns after which a count ends early."""


class CountUsage(Struct, frozen=True):
    after: TurnId | None
    within: Within = EVERYWHERE
    turns: int = TURNS
    bytes: int = BYTES


class UsagePage(Struct, frozen=True):
    """What some turns used, and where the next ones begin."""

    data: tuple[ModelUsage, ...]
    next: TurnId | None
    """The last turn that was counted; None if there was none."""


async def count_usage(whole: WholeStore, request: CountUsage) -> UsagePage:
    """Count the next turns of all owners, in the order of their ids; of deleted conversations, too, until
    they are purged. A caller adds up the pages."""
    found = await whole.turns_of_all(request.after, request.turns, request.bytes)
    counts: dict[tuple[str, str | None], ModelUsage] = {}
    for each in found:
        if request.within.reaches(each.scope, each.conversation):
            used = usage_of(each.owner, each.body, each.log)
            before = counts.get((used.owner, used.model))
            counts[used.owner, used.model] = used if before is None else before + used
    return UsagePage(tuple(counts.values()), found[-1].id if found else None)
