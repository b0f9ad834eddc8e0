"""Deleting: what can be restored is whole, and nothing of it is forgotten."""

from __future__ import annotations

from typing import Any

from tests.simulation.broken.registry import Patch, broken
from turnledger.engine.lifecycle import delete
from turnledger.stores.memory import tables as memory_tables


@broken
def forgets_what_tools_did_when_it_deletes() -> list[Patch]:
    true = delete._close_lane

    async def close_lane(tables: Any, conversation: Any, now: int, *, forget: bool) -> None:
        await true(tables, conversation, now, forget=True)

    return [(delete, "_close_lane", close_lane)]


@broken
def sweeps_what_can_be_restored() -> list[Patch]:
    return [(memory_tables, "is_restorable", lambda conversation: False)]
