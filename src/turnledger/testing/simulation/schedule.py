"""One schedule: its seed decides servers, clients, requests and faults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import Any

from turnledger.engine.ports import Store
from turnledger.errors import TurnledgerError
from turnledger.model.reset_policy import ResetPolicy
from turnledger.testing.machine import Machine
from turnledger.testing.simulated_loop import Deadlock, Livelock, SimulatedLoop
from turnledger.testing.simulation.clients import actions
from turnledger.testing.simulation.clients.durable_work import WorkClients
from turnledger.testing.simulation.clients.flags import flag_and_send
from turnledger.testing.simulation.clients.keyless_clients import KeylessClients
from turnledger.testing.simulation.clients.leaving_clients import LeavingClients
from turnledger.testing.simulation.clients.names import Names
from turnledger.testing.simulation.clients.readers import EventReaders
from turnledger.testing.simulation.clients.requests import RequestSender
from turnledger.testing.simulation.clients.resending_clients import ResendingClients
from turnledger.testing.simulation.faults import CALM, Medium, Weather
from turnledger.testing.simulation.oracle.checker import Violation, check
from turnledger.testing.simulation.oracle.lapses import PERIOD
from turnledger.testing.simulation.power import SHARE, Power
from turnledger.testing.simulation.servers import Scene, Servers
from turnledger.testing.simulation.stores import machine, open_inner
from turnledger.testing.simulation.wall_clock import WallClock
from turnledger.testing.simulation.world import LEASE_TIME, World

STEP_LIMIT = 300_000

ACTION_MIXES = (
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
"""Actions of the clients of a schedule, weighted; one of these is drawn."""
FEATURES: dict[str, Callable[[int], list[str]]] = {
    "resend": lambda count: ["resend"] * count,
    "flag": lambda count: ["flag"] * count,
    "brief": lambda count: [],
    "listen": lambda count: [],
    "keyed fork": lambda count: ["fork"] * (count // 3 + 1),
    "undo once": lambda count: ["undo once"] * (count // 3 + 1),
    "restore": lambda count: (["delete"] + ["restore"] * 2) * (count // 4 + 1) + ["purge"],
    "say": lambda count: ["say"] * count * 2,
    "wander": lambda count: (["diverge"] * 2 + ["wander"] * 4 + ["fork"]) * (count // 4 + 1),
    "clock": lambda count: [],
    "lapse": lambda count: [],
    "forget": lambda count: ["forget"] * (count // 2 + 1),
    "append": lambda count: ["append"] * (count // 2 + 1),
    "work": lambda count: ["work"] * count,
    "parallel": lambda count: ["parallel"] * count + ["show"] * (count // 4 + 1),
    "leave": lambda count: ["leave"] * (count // 4 + 1),
    "die": lambda count: [],
    "late": lambda count: ["late"] * count,
    "ask again": lambda count: ["ask again"] * count,
    "beside": lambda count: ["work beside"] * count,
    "fail over": lambda count: [],
}
"""Additional actions of some schedules, by the number of actions already drawn."""
FEATURE_SHARE = 0.2
"""Share of schedules that have each feature."""
ON_REQUEST = ("die", "late", "ask again", "beside", "fail over")
"""Features that are never drawn: drawing them would change the schedules recorded for broken engines."""
RARE_FEATURES = {"lapse": 0.05, "forget": 0.05, "append": 0.1, "parallel": 0.1, "leave": 0.1}
"""Long turns are slow to simulate, forgotten effects cannot be checked, appended turns run no model, and many
branches take long to check."""
TTL_SHARE = 0.03
"""Share of schedules on a memory store whose `ttl` ends conversations."""
DAY = 24 * 3600.0
"""Longer than any schedule."""
BRANCHING = frozenset({"diverge", "undo", "switch", "fork", "wander", "forget", "parallel", "work beside"})
NEEDS_HISTORY = BRANCHING | {"resend", "flag", "restore", "undo once", "say", "late", "ask again"}
FEW, MANY = (1, 2, 3, 5), (2, 3, 5, 7)
"""Actions per client: more where they need a history."""


@dataclass(frozen=True)
class ScheduleReport:
    seed: int
    requests: int
    turns: int
    crashes: int
    steps: int


class Schedule:
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
        # Separate dice, so that features do not change the schedules without them.
        feature_dice = Random(f"{seed} tastes")
        medium = Medium(Random(random.random()), Weather.draw(random))
        drawn = [
            feature
            for feature in FEATURES
            if feature_dice.random() < RARE_FEATURES.get(feature, FEATURE_SHARE) and feature not in ON_REQUEST
        ]
        features = [feature for feature in FEATURES if feature in drawn or feature in always]
        if "resend" in features and "say" in features:
            features.remove("say")  # resent histories are recognized by unique texts
        self._fails_over = "fail over" in features
        if self._fails_over and "listen" in features:
            features.remove("listen")  # what readers have received of a draft may be lost
        world = World()
        if machine is not None:
            medium.power = Power(Random(f"{seed} cuts"), machine, world)
        keys = ("alpha",) if random.random() < 0.7 else ("alpha", "beta")
        world.ttl_ms = ttl_ms
        lapses = "lapse" in features or ttl_ms is not None
        world.checks_expiry = "clock" in features or lapses
        period = PERIOD if "lapse" in features else DAY
        names = Names(
            keys,
            ("gamma", "delta") if "keyed fork" in features else (),
            # Their own expiry would replace the ttl of the store.
            details=_expiry(period) if world.checks_expiry and ttl_ms is None else None,
            may_lapse=lapses,
        )
        self._actions = random.choice(ACTION_MIXES)
        for feature in features:
            self._actions = self._actions + FEATURES[feature](len(self._actions))
        if (
            "close" in self._actions
        ):  # its clients would wait for a model that a closed ledger does not cancel
            self._actions = [each for each in self._actions if each != "leave"]
        self._is_branching = bool(BRANCHING & set(self._actions))
        self._needs_history = bool(NEEDS_HISTORY & set(self._actions))
        world.records_model_views = "flag" in features or "brief" in features
        detects_death = random.random() < 0.5
        self._wall = WallClock(loop)
        self._jumps = "clock" in features
        servers = Servers(
            loop, open_inner, world, random, medium, detects_death=detects_death, wall=self._wall
        )
        self._scene = Scene(random, world, names, servers)
        self._listening = EventReaders(self._scene) if "listen" in features else None
        self._sender = RequestSender(
            self._scene,
            acts=self._is_branching,
            diverges="diverge" in self._actions,
            briefs="brief" in features,
            lasts=lapses,
            follow=self._listening.follow if self._listening else None,
        )
        self._resending = ResendingClients(self._scene, self._sender)
        self._keyless = KeylessClients(self._scene, self._sender)
        follow = self._listening.follow if self._listening else None
        self._work = WorkClients(self._scene, self._sender, f"{seed} work", follow, dies="die" in features)
        self._leaving = LeavingClients(self._scene, self._sender, f"{seed} leave")
        servers.runs_jobs = "work" in features or "beside" in features

    async def run(self) -> ScheduleReport:
        """Run the clients under faults, wait until all is calm, then check."""
        servers = self._scene.servers
        if self._listening is not None:
            self._listening.start()
        for _ in range(self._random.choice((1, 2, 2, 3))):
            await servers.start()
        jumping: asyncio.Future[None] | None = None
        if self._jumps:
            jumping = asyncio.ensure_future(self._wall.jump_repeatedly(Random(f"{self._seed} clock")))
        failing = asyncio.ensure_future(self._fail_over()) if self._fails_over else None
        clients = [self._client(number) for number in range(self._random.choice((1, 2, 3, 4)))]
        await asyncio.gather(*clients)
        for each in (jumping, failing):
            if each is not None:
                each.cancel()
        servers.medium.weather = CALM
        if servers.medium.power is not None:
            servers.lose_power()
            servers.medium.power.is_steady = True
        await asyncio.sleep(LEASE_TIME * 8)
        server = await servers.start()
        await asyncio.sleep(LEASE_TIME * 4)
        assert server.ledger is not None
        await self._work.finish(server.ledger)
        if self._listening is not None:
            await self._listening.finish()
        turns = await check(self._scene.world, server.ledger, self._scene.names.keys)
        return ScheduleReport(self._seed, self._sender.count, turns, servers.crashes, self._loop.steps)

    async def _fail_over(self) -> None:
        """Promote a standby now and then: the processes live on, and unsynced writes are lost."""
        dice, power = Random(f"{self._seed} fail over"), self._scene.servers.medium.power
        while power is not None:
            await asyncio.sleep(dice.choice((0.1, 1.0, 5.0)) * dice.random())
            power.fail_over()
            await asyncio.sleep(LEASE_TIME * 4)

    async def _client(self, number: int) -> None:
        for count in range(self._random.choice(MANY if self._needs_history else FEW)):
            power = self._scene.servers.medium.power
            if power is not None and power.should_fail(0.1):
                self._scene.servers.lose_power()
            name = self._random.choice(self._scene.names.all)
            await self._act(number, self._random.choice(self._actions), name, f"q{number}.{count}")

    async def _act(self, client: int, action: str, name: str, token: str) -> None:
        scene, sender, do = self._scene, self._sender, self._scene.servers.do
        match action:
            case "ask":
                await sender.send_and_answer(token)
            case "append":
                await sender.append(token)
            case "diverge":
                await sender.diverge(token)
            case "hang":
                await sender.send_and_stop(token)
            case "late":
                await sender.stop_late(token)
            case "stop":
                await do(actions.stop(scene, name))
            case "close":
                await scene.servers.close_one()
            case "rename":
                await do(actions.rename(scene, name, token))
            case "undo":
                await do(actions.undo(scene, name))
            case "undo once":
                await sender.undo_once(name, token)
            case "switch":
                await do(actions.switch(scene, name))
            case "wander":
                await do(actions.switch(scene, name, and_back=True))
            case "parallel":
                await sender.run_in_parallel(name, token, purge="restore" not in self._actions)
            case "show":
                await do(actions.show(scene, name))
            case "forget":
                await do(actions.forget(scene, name))
            case "fork":
                await sender.fork_or_send(name, token)
            case "reset":
                await do(actions.reset(scene, self._random.choice(scene.names.keys)))
            case "resend":
                await self._resending.resend(client, name, token)
            case "ask again":
                await self._resending.ask_again(name, token)
            case "say":
                await self._keyless.send(name, token)
            case "work":
                await self._work.send(token)
            case "work beside":
                await self._work.send_beside(name, token)
            case "leave":
                await self._leaving.leave(token)
            case "flag":
                await flag_and_send(scene, sender, name, token)
            case "delete":
                await do(actions.delete(scene, name, purge="restore" not in self._actions))
            case "restore":
                await do(actions.restore(scene))
            case "purge":
                await do(actions.purge(scene))


def _expiry(period: float) -> dict[str, Any]:
    return {"expires_after": period, "reset": ResetPolicy.idle(period)}


def simulate(seed: int, store: str = "memory", always: Collection[str] = ()) -> ScheduleReport:
    """Run the schedule of this seed, with the features `always` in addition to the drawn ones; raise
    Violation if a promise was broken."""
    loop = SimulatedLoop(seed, step_limit=STEP_LIMIT)
    try:
        # Separate dice, so that power loss does not change the schedules without it.
        loses_power = Random(f"{seed} power").random() < SHARE or "fail over" in always
        has_ttl = store == "memory" and Random(f"{seed} ttl").random() < TTL_SHARE
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
