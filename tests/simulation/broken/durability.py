"""Durability: writes that clients may learn of wait for the disk, in their own transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from tests.simulation.broken.registry import Patch, broken
from turnledger.engine.attempt.dead_process import take_over
from turnledger.engine.attempt.end import end
from turnledger.engine.conversations.flags import flag
from turnledger.engine.lifecycle.delete import delete
from turnledger.engine.ports import Sync
from turnledger.engine.process import Process
from turnledger.engine.turn import begin, validation
from turnledger.engine.turn.commit import commit
from turnledger.engine.turn.running_turn import record
from turnledger.engine.wrapped_store import WrappedStore, Write


class Unsynced(WrappedStore):
    """A store that does not sync some operations."""

    def __init__(self, store: Any, operations: tuple[Callable[..., Any], ...]) -> None:
        super().__init__(store)
        self._operations = operations

    async def write(self, write: Write) -> Any:
        is_synced = write.operation not in self._operations
        return await super().write(write if is_synced else write._replace(sync=Sync.PROCESS))


def unsynced(*operations: Callable[..., Any]) -> Patch:
    """Make these operations survive only the death of their process."""
    true = Process.__init__

    def init(self: Process, store: Any, *others: Any) -> None:
        true(self, Unsynced(store, operations), *others)

    return Process, "__init__", init


def undemanded(*steps: str) -> list[Patch]:
    """Make these steps of a begin not require the disk."""

    def durable(given: Any) -> Any:
        if not isinstance(given, begin.BeginRequest):
            return given
        return replace(given, round=replace(given.round, is_durable=True))

    def without(step: str) -> Callable[..., Any]:
        true = getattr(begin, step)

        async def undemanded(*given: Any) -> Any:
            return await true(*map(durable, given))

        return undemanded

    return [(begin, step, without(step)) for step in steps]


@broken
def commits_without_sync() -> list[Patch]:
    return [unsynced(commit)]


@broken
def records_starts_without_sync() -> list[Patch]:
    return [unsynced(record)]


@broken
def takes_over_without_sync() -> list[Patch]:
    return [unsynced(take_over), *undemanded("_free_of_dead")]


@broken
def settles_without_sync() -> list[Patch]:
    return undemanded("_ready", "_settled")


@broken
def moves_without_sync() -> list[Patch]:
    return undemanded("_move")


@broken
def appends_without_sync() -> list[Patch]:
    true = validation._begin
    return [
        *undemanded("_append"),
        (validation, "_begin", lambda *given, is_durable=False, **asked: true(*given, **asked)),
    ]


@broken
def creates_without_sync() -> list[Patch]:
    return undemanded("_lane")


@broken
def ends_without_sync() -> list[Patch]:
    return [unsynced(end)]


@broken
def deletes_without_sync() -> list[Patch]:
    return [unsynced(delete)]


@broken
def flags_without_sync() -> list[Patch]:
    return [unsynced(flag)]
