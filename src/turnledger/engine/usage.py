"""Usage: what each owner stores, counted where it costs next to nothing, and kept within bounds.

A branch knows the bytes of its own turns, in the row that every commit writes anyway. The owner's row counts
them in whole blocks, so that few commits write it, too: it is the one row that all turns of an owner share,
and they would wait for each other there.
"""

from __future__ import annotations

from turnledger.engine.ports import Tables
from turnledger.errors import StorageFull
from turnledger.model.conversation import Branch
from turnledger.model.turn import Turn
from turnledger.model.usage import Usage, in_blocks


async def store_turn(tables: Tables, owner: str, branch: Branch, turn: Turn, log: bytes) -> int:
    """Insert a turn of a branch, and return the bytes of all its turns. The caller saves the branch."""
    await tables.add_turn(turn, log)
    stored = branch.bytes + len(turn.body) + len(log)
    more = in_blocks(stored) - in_blocks(branch.bytes)
    if more:
        await tables.count_bytes(owner, more)
    return stored


async def check_room(tables: Tables, owner: str, limit: int) -> None:
    """Raise StorageFull if the owner stores as much as may be. The turn that reaches the limit still fits."""
    if await tables.stored_bytes(owner) >= limit:
        raise StorageFull(limit)


async def usage(tables: Tables, owner: str) -> Usage:
    """What is stored for an owner."""
    return Usage(bytes=await tables.stored_bytes(owner))
