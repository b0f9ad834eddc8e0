"""Recording: the fenced writes of a running attempt into its journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from turnledger.engine.attempt.end import holds_lane
from turnledger.engine.ports import Tables
from turnledger.errors import Superseded
from turnledger.model.ids import BranchId, TurnId


@dataclass(frozen=True)
class RecordRequest:
    """Records numbered from `first`. Repeating the request changes nothing."""

    owner: str
    branch: BranchId
    attempt: TurnId
    fence: int
    first: int
    records: Sequence[bytes]


async def record(tables: Tables, request: RecordRequest) -> None:
    """Append to the journal, if the lane is still held; raise Superseded if not. What is recorded as
    started may act only after this has returned."""
    branch = await tables.branch(request.branch)
    attempt = await tables.attempt(request.owner, request.attempt)
    if attempt is None or not holds_lane(branch, request.attempt, request.fence):
        raise Superseded
    await tables.add_records(request.attempt, request.first, request.records)
    journaled = max(attempt.journaled, request.first + len(request.records))
    await tables.save_attempt(replace(attempt, journaled=journaled))
