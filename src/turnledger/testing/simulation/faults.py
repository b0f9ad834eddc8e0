"""Faults: a store that crashes its process, loses or delays answers, and applies lost writes late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from turnledger.engine.lane.lease_watch import renew
from turnledger.engine.ports import Store, Sync
from turnledger.engine.turn.begin import HistoryMoved, MustReachDisk
from turnledger.engine.wrapped_store import AnyOperation, WrappedStore, Write
from turnledger.errors import OutcomeUnknown, StoreUnavailable, TurnledgerError
from turnledger.model.ids import LeaseId

if TYPE_CHECKING:
    from turnledger.testing.simulation.power import Power


class WriteFate(Enum):
    """What may happen to a write. A read may only crash, pause or be refused."""

    WELL = auto()
    CRASH_BEFORE = auto()
    CRASH_INSIDE = auto()  # rolled back
    CRASH_AFTER = auto()  # written, without an answer
    REFUSED = auto()  # an error, nothing written
    LOST_DONE = auto()  # unknown outcome; written
    LOST_UNDONE = auto()  # unknown outcome; not written
    LOST_LATE = auto()  # unknown outcome; may be written later, before the next write of the process
    PAUSE_BEFORE = auto()  # the process pauses, possibly for longer than a lease
    PAUSE_AFTER = auto()


_RATES = {
    "CRASH": (0.01, 0.05),
    "PAUSE": (0.02, 0.1),
    "REFUSED": (0.05, 0.3),
    "LOST": (0.02, 0.1, 0.4),
}


@dataclass(frozen=True)
class Weather:
    """Fault rates per write, drawn for each schedule so that some are calm."""

    rates: tuple[tuple[WriteFate, float], ...]
    latency: float
    hints_lost: float

    @classmethod
    def draw(cls, random: Random) -> Weather:
        rates = []
        for fate in WriteFate:
            if fate is not WriteFate.WELL and random.random() < 0.4:
                rates.append((fate, random.choice(_RATES[fate.name.partition("_")[0]])))
        return cls(tuple(rates), random.choice((0.0, 0.002, 0.05)), random.choice((0.0, 0.3, 1.0)))

    def fate(self, random: Random) -> WriteFate:
        drawn = random.random()
        for fate, rate in self.rates:
            drawn -= rate
            if drawn < 0:
                return fate
        return WriteFate.WELL


CALM = Weather((), 0.0, 0.0)


class _Undo(Exception):
    pass


@dataclass
class Medium:
    """Shared by the stores of all processes: the weather, and undecided writes."""

    random: Random
    weather: Weather
    power: Power | None = None
    """None for a machine that never loses power."""
    in_flight: list[tuple[FaultyStore, Callable[[], Any]]] = field(default_factory=list)

    async def decide_in_flight(self, writer: FaultyStore) -> None:
        """Apply or drop late writes: those of the writer for certain, those of others by chance."""
        waiting, self.in_flight = self.in_flight, []
        for store, write in waiting:
            if store is not writer and self.random.random() < 0.7:
                self.in_flight.append((store, write))
            elif self.random.random() < 0.5:
                try:
                    await write()
                except (TurnledgerError, MustReachDisk, HistoryMoved):
                    continue


class FaultyStore(WrappedStore):
    """The store of one simulated process. `die` kills it as kill -9 does."""

    def __init__(
        self,
        inner: Store,
        medium: Medium,
        *,
        die: Callable[[], None],
        pause: Callable[[], None],
        observe: Callable[[AnyOperation, str | None], AnyOperation],
        on_result: Callable[[Any], None],
        is_holder_dead: Callable[[LeaseId], bool],
        on_lease: Callable[[LeaseId], None],
    ) -> None:
        super().__init__(inner)
        self._medium = medium
        self._die = die
        self._pause = pause
        self._observe = observe
        self._on_result = on_result
        self._is_holder_dead = is_holder_dead
        self._on_lease = on_lease
        self._keeper: asyncio.Task[None] | None = None
        self.is_starting = True
        """No faults happen while the process starts."""

    async def write(self, write: Write) -> Any:
        if self.is_starting:
            return await self._write(write)
        fate = self._medium.weather.fate(self._medium.random)
        await self._latency()
        if fate is WriteFate.PAUSE_BEFORE:
            self._pause()
            await asyncio.sleep(0)
        await self._medium.decide_in_flight(self)
        await self._before(fate, write)
        result = await self._write(write)
        if fate is WriteFate.CRASH_AFTER:
            await self._crash()
        if fate is WriteFate.LOST_DONE:
            raise OutcomeUnknown
        if fate is WriteFate.PAUSE_AFTER:
            self._pause()
        await self._latency()
        self._on_result(result)
        return result

    async def _write(self, write: Write) -> Any:
        power = self._medium.power
        before = power.before_write() if power else 0
        # On the rows of all owners, which the observer reads, too.
        observed = self._observe(write.operation, write.owner)
        result = await super().write(write._replace(operation=observed, owner=None))
        if power:
            power.after_write(before, write.request)
        return result

    async def _before(self, fate: WriteFate, write: Write) -> None:
        match fate:
            case WriteFate.CRASH_BEFORE:
                await self._crash()
            case WriteFate.CRASH_INSIDE:
                await self._run_and_undo(write)
                await self._crash()
            case WriteFate.REFUSED:
                raise StoreUnavailable
            case WriteFate.LOST_UNDONE:
                raise OutcomeUnknown
            case WriteFate.LOST_LATE:
                self._medium.in_flight.append((self, partial(self._write, write)))
                raise OutcomeUnknown

    async def _run_and_undo(self, write: Write) -> None:
        async def run_and_raise(rows: Any, request: Any) -> None:
            await write.operation(rows, request)
            raise _Undo

        try:
            await super().write(Write(run_and_raise, write.request, write.owner))
        except (_Undo, TurnledgerError, MustReachDisk, HistoryMoved):
            return

    async def _crash(self) -> None:
        self._die()
        await asyncio.get_running_loop().create_future()

    async def _latency(self) -> None:
        if self._medium.weather.latency:
            await asyncio.sleep(self._medium.random.random() * self._medium.weather.latency)

    async def look(self, operation: AnyOperation, request: Any, owner: str | None) -> Any:
        if self.is_starting:
            return await super().look(operation, request, owner)
        fate = self._medium.weather.fate(self._medium.random)
        await self._latency()
        if fate in (WriteFate.CRASH_BEFORE, WriteFate.CRASH_AFTER):
            await self._crash()
        if fate is WriteFate.REFUSED:
            raise StoreUnavailable
        if fate is WriteFate.PAUSE_BEFORE:
            self._pause()
            await asyncio.sleep(0)
        return await super().look(operation, request, owner)

    def watch(self, changed: Callable[[], None]) -> None:
        loop, context = asyncio.get_running_loop(), copy_context()

        def hint() -> None:
            if self._medium.random.random() >= self._medium.weather.hints_lost:
                loop.call_soon(changed, context=context)

        self.inner.watch(hint)

    def is_holder_dead(self, id: LeaseId) -> bool:
        return self._is_holder_dead(id)

    async def keep_lease(self, id: LeaseId, every: float) -> None:
        self._on_lease(id)
        await self._beat(id)
        self._keeper = asyncio.create_task(self._renew(id, every))

    async def _renew(self, id: LeaseId, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            await self._beat(id)

    async def _beat(self, id: LeaseId) -> None:
        if self._medium.power is not None:
            self._medium.power.before_write()
        await super().write(Write(self._observe(renew, None), id, None, Sync.PROCESS))

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
