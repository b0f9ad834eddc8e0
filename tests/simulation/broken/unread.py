"""Turns that nobody reads, and that give way."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.simulation.broken.registry import Patch, broken
from turnledger.engine import recovery
from turnledger.engine.attempt import give_way
from turnledger.model.turn import OnStop


@broken
def gives_way_while_others_read() -> list[Patch]:
    return [(give_way.ReadWatch, "is_unread", lambda *_: True)]


@broken
def decides_to_give_way_before_its_transaction() -> list[Patch]:
    async def give_way(tables: Any, request: Any) -> bool:
        attempt = await tables.attempt(request.attempt)
        if attempt is not None and attempt.stop is None:
            await tables.save_attempt(replace(attempt, stop=OnStop.KEEP))
        return attempt is not None

    return [(recovery, "give_way", give_way)]


@broken
def goes_on_while_nobody_reads() -> list[Patch]:
    async def find_wanted(*_: Any) -> None:
        return None

    return [(recovery, "find_wanted", find_wanted)]
