"""One schedule: a seed decides servers, clients, their requests, and everything that goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import Any

from turnledger.engine.ports import Store
from turnledger.errors import TurnledgerError
from turnledger.model.retention import ResetPolicy
from turnledger.testing.loop import Deadlock, Livelock, SimulatedLoop
from turnledger.testing.machine import Machine
from turnledger.testing.simulation.clients import deeds
from turnledger.testing.simulation.clients.flags import flag_and_ask
from turnledger.testing.simulation.clients.keyless import KeylessClients
from turnledger.testing.simulation.clients.names import Names
from turnledger.testing.simulation.clients.readers import EventReaders
from turnledger.testing.simulation.clients.requests import Asking
from turnledger.testing.simulation.clients.resend import ResendingClients
from turnledger.testing.simulation.faults import CALM, Medium, Weather
from turnledger.testing.simulation.oracle.checker import Violation, check
from turnledger.testing.simulation.oracle.lapses import PERIOD
from turnledger.testing.simulation.power import SHARE, Power
from turnledger.testing.simulation.servers import Scene, Servers
from turnledger.testing.simulation.stores import machine, open_inner
from turnledger.testing.simulation.wall_clock import WallClock
from turnledger.testing.simulation.world import LEASE_TIME, World

STEP_LIMIT = 300_000

HABITS = (
    ["ask"] * 8 + ["stop", "rename", "hang"],
    ["ask"] * 4 + ["stop"] * 2 + ["hang"],
    ["ask"] * 4 + ["delete"],
    ["ask"] * 4 + ["reset"],
    ["ask"] * 6 + ["close"],
    ["ask"],
    ["ask"] * 2 + ["diverge"] * 4 + ["undo", "switch"],
    ["ask"] * 3 + ["diverge"] * 3 + ["undo"] * 2,
    ["ask"] + ["diverge"] * 4 + ["hang", "stop"],
    ["ask"] * 6 + ["diverge"] + ["fork"] * 3 + ["undo"] + ["delete"] * 2,
    ["ask"] * 3 + ["diverge"] * 3 + ["undo", "switch", "fork"] + ["reset"] * 2,
)
"""What the clients of a schedule like to do."""
TASTES: dict[str, Callable[[int], list[str]]] = {
    "resend": lambda habits: ["resend"] * habits,
    "flag": lambda habits: ["flag"] * habits,
    "brief": lambda habits: [],
    "listen": lambda habits: [],
    "keyed fork": lambda habits: ["fork"] * (habits // 3 + 1),
    "undo once": lambda habits: ["undo once"] * (habits // 3 + 1),
    "restore": lambda habits: (["delete"] + ["restore"] * 2) * (habits // 4 + 1) + ["purge"],
    "say": lambda habits: ["say"] * habits * 2,
    "wander": lambda habits: (["diverge"] * 2 + ["wander"] * 4 + ["fork"]) * (habits // 4 + 1),
    "clock": lambda habits: [],
    "lapse": lambda habits: [],
    "forget": lambda habits: ["forget"] * (habits // 2 + 1),
}
"""What clients of some schedules do besides, and how much of it for so many habits."""
TASTE = 0.2
"""How many schedules have each of them."""
SELDOM = {"lapse": 0.05, "forget": 0.05}
"""Those that fewer have: long turns take long, and what was forgotten is not there to be checked."""
WITH_TTL = 0.03
"""How many schedules run on a memory store whose `ttl` ends conversations."""
DAY = 24 * 3600.0
"""Longer than any schedule."""
BRANCHING = frozenset({"diverge", "undo", "switch", "fork", "wander", "forget"})
LATER = BRANCHING | {"resend", "flag", "restore", "undo once", "say"}
FEW, MANY = (1, 2, 3, 5), (2, 3, 5, 7)
"""How often a client does something: more where there has to be a history first."""


@dataclass(frozen=True)
class ScheduleReport:
    """What a schedule amounted to."""

    seed: int
    asks: int
    turns: int
    crashes: int
    steps: int


class Schedule:
    """A running schedule."""

    def __init__(
        self,
        seed: int,
        loop: SimulatedLoop,
        open_inner: Callable[[], Awaitable[Store]],
        random: Random,
        machine: Machine | None = None,
        always: Collection[str] = (),
        ttl_ms: int | None = None,
    ) -> None:
        self._seed = seed
        self._loop = loop
        self._random = random
        # Dice of its own: a schedule without any of them is what it would be if there were none.
        tasting = Random(f"{seed} tastes")
        medium = Medium(Random(random.random()), Weather.draw(random))
        drawn = [taste for taste in TASTES if tasting.random() < SELDOM.get(taste, TASTE)]
        tastes = [taste for taste in TASTES if taste in drawn or taste in always]
        if "resend" in tastes and "say" in tastes:
            tastes.remove("say")  # whoever resends a history is known by words that nobody else says
        world = World()
        if machine is not None:
            medium.power = Power(Random(f"{seed} cuts"), machine, world)
        keys = ("alpha",) if random.random() < 0.7 else ("alpha", "beta")
        world.ttl_ms = ttl_ms
        lapses = "lapse" in tastes or ttl_ms is not None
        world.watches_time = "clock" in tastes or lapses
        period = PERIOD if "lapse" in tastes else DAY
        names = Names(
            keys,
            ("gamma", "delta") if "keyed fork" in tastes else (),
            # A time of their own would take the place of the store's.
            details=_lasting(period) if world.watches_time and ttl_ms is None else None,
            lapse=lapses,
        )
        self._habits = random.choice(HABITS)
        for taste in tastes:
            self._habits = self._habits + TASTES[taste](len(self._habits))
        self._is_branching = bool(BRANCHING & set(self._habits))
        self._needs_history = bool(LATER & set(self._habits))
        world.looks_at_models = "flag" in tastes or "brief" in tastes
        knows_death = random.random() < 0.5
        self._wall = WallClock(loop)
        self._jumps = "clock" in tastes
        servers = Servers(loop, open_inner, world, random, medium, knows_death=knows_death, wall=self._wall)
        self._scene = Scene(random, world, names, servers)
        self._listening = EventReaders(self._scene) if "listen" in tastes else None
        self._asking = Asking(
            self._scene,
            acts=self._is_branching,
            diverges="diverge" in self._habits,
            briefs="brief" in tastes,
            lasts=lapses,
            attend=self._listening.attend if self._listening else None,
        )
        self._resending = ResendingClients(self._scene, self._asking)
        self._keyless = KeylessClients(self._scene, self._asking)

    async def run(self) -> ScheduleReport:
        """Storm, then calm, then the check."""
        servers = self._scene.servers
        if self._listening is not None:
            self._listening.start()
        for _ in range(self._random.choice((1, 2, 2, 3))):
            await servers.start()
        going_wrong: asyncio.Future[None] | None = None
        if self._jumps:
            going_wrong = asyncio.ensure_future(self._wall.go_wrong(Random(f"{self._seed} clock")))
        clients = [self._client(number) for number in range(self._random.choice((1, 2, 3, 4)))]
        await asyncio.gather(*clients)
        if going_wrong is not None:
            going_wrong.cancel()
        servers.medium.weather = CALM
        if servers.medium.power is not None:
            servers.lose_power()
            servers.medium.power.is_steady = True
        await asyncio.sleep(LEASE_TIME * 8)
        server = await servers.start()
        await asyncio.sleep(LEASE_TIME * 4)
        if self._listening is not None:
            await self._listening.come_to_an_end()
        assert server.ledger is not None
        turns = await check(self._scene.world, server.ledger, self._scene.names.keys)
        return ScheduleReport(self._seed, self._asking.asks, turns, servers.crashes, self._loop.steps)

    async def _client(self, number: int) -> None:
        for count in range(self._random.choice(MANY if self._needs_history else FEW)):
            power = self._scene.servers.medium.power
            if power is not None and power.fails(0.1):
                self._scene.servers.lose_power()
            name = self._random.choice(self._scene.names.all)
            await self._act(number, self._random.choice(self._habits), name, f"q{number}.{count}")

    async def _act(self, client: int, habit: str, name: str, token: str) -> None:
        scene, asking, do = self._scene, self._asking, self._scene.servers.do
        match habit:
            case "ask":
                await asking.ask_and_answer(token)
            case "diverge":
                await asking.ask_elsewhere(token)
            case "hang":
                await asking.ask_and_stop(token)
            case "stop":
                await do(deeds.stop(scene, name))
            case "close":
                await scene.servers.close_one()
            case "rename":
                await do(deeds.rename(scene, name, token))
            case "undo":
                await do(deeds.undo(scene, name))
            case "undo once":
                await asking.undo_once(name, token)
            case "switch":
                await do(deeds.switch(scene, name))
            case "wander":
                await do(deeds.switch(scene, name, and_back=True))
            case "forget":
                await do(deeds.forget(scene, name))
            case "fork":
                await asking.fork_or_ask(name, token)
            case "reset":
                await do(deeds.reset(scene, self._random.choice(scene.names.keys)))
            case "resend":
                await self._resending.resend(client, name, token)
            case "say":
                await self._keyless.say(name, token)
            case "flag":
                await flag_and_ask(scene, asking, name, token)
            case "delete":
                await do(deeds.delete(scene, name, purge="restore" not in self._habits))
            case "restore":
                await do(deeds.restore(scene))
            case "purge":
                await do(deeds.purge(scene))


def _lasting(period: float) -> dict[str, Any]:
    return {"expires_after": period, "reset": ResetPolicy.idle(period)}


def simulate(seed: int, store: str = "memory", always: Collection[str] = ()) -> ScheduleReport:
    """Run the schedule of this seed, with these tastes besides those that it has; raise Violation, naming the
    seed, if a promise was broken."""
    loop = SimulatedLoop(seed, step_limit=STEP_LIMIT)
    try:
        # Dice of its own: a schedule on steady power is what it would be if there were no other.
        loses_power = Random(f"{seed} power").random() < SHARE
        has_ttl = store == "memory" and Random(f"{seed} ttl").random() < WITH_TTL
        ttl_ms = round(PERIOD * 1000) if has_ttl else None
        with machine(store, ttl_ms) if loses_power else open_inner(store, ttl_ms) as opener:
            place = None if callable(opener) else opener
            opener = opener if callable(opener) else opener.open
            schedule = Schedule(seed, loop, opener, Random(f"{seed}"), place, always, ttl_ms)
            try:
                report = loop.run_until_complete(schedule.run())
            except Violation as violation:
                raise Violation(seed, store, violation.what, *violation.others) from None
            except TurnledgerError as problem:
                raise Violation(seed, store, f"the store cannot be read: {problem!r}") from None
            except (Deadlock, Livelock) as problem:
                raise Violation(seed, store, f"the schedule does not come to an end: {problem}") from None
            if loop.errors:
                raise Violation(seed, store, f"a task failed: {loop.errors[0]}")
            return report
    finally:
        loop.close()
