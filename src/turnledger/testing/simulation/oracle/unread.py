"""Check that a turn gives way only when nobody reads it."""

from __future__ import annotations

import asyncio

from turnledger.model.ids import TurnId
from turnledger.model.turn import OnStop
from turnledger.testing.simulation.world import LEASE_TIME, World

UNREAD = LEASE_TIME / 2
"""Seconds without a sign of a reader elsewhere after which a turn is unread."""


def note_sign(world: World, turn: TurnId) -> None:
    world.read_at[turn] = asyncio.get_running_loop().time()


def check_yield(world: World, turn: TurnId) -> None:
    """Record a stop by the holder; report one of a turn whose client is there, or that others read."""
    world.recorded_stops.setdefault(turn, OnStop.KEEP)
    if turn not in world.left:
        world.violations.append(f"{turn} gave way while its client was there")
    since = asyncio.get_running_loop().time() - world.read_at.get(turn, -UNREAD)
    if since < UNREAD:
        world.violations.append(f"{turn} gave way {since:.1f} s after it was read")
