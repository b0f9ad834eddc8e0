"""One schedule: a seed decides servers, clients, their requests, and everything that goes wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeAlias

from turnledger.chat import Chat
from turnledger.engine.asking import begin_request, target_of
from turnledger.engine.block import TurnBlock
from turnledger.engine.ending import Ended
from turnledger.engine.limits import Limits
from turnledger.engine.outcome import committed
from turnledger.engine.ports import Store
from turnledger.errors import Superseded, TurnledgerError, TurnReplayed
from turnledger.ledger import OWNER, Ledger
from turnledger.model.attempt import OnBusy, OnStop
from turnledger.model.event import Event
from turnledger.model.ids import LeaseId, TurnId
from turnledger.model.turn import Turn, TurnKind
from turnledger.testing.loop import Deadlock, Livelock, Process, SimulatedLoop
from turnledger.testing.simulation.checker import Violation, check
from turnledger.testing.simulation.faults import CALM, FaultyStore, Medium, Weather
from turnledger.testing.simulation.observing import observed
from turnledger.testing.simulation.stores import open_inner
from turnledger.testing.simulation.world import Ask, Kind, ModelFailed, Seen, World

Work: TypeAlias = Callable[[Ledger], Coroutine[Any, Any, None]]

LEASE_TIME = 10.0
STEP_LIMIT = 300_000
LIMITS = Limits(
    lease_time=LEASE_TIME,
    queue_length=6,
    queue_wait=40.0,
    doubt_patience=1.0,
    attempts_kept=10_000_000.0,
    purge_rows=3,
)


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
BRANCHING = frozenset({"diverge", "undo", "switch", "fork"})
FEW, MANY = (1, 2, 3, 5), (2, 3, 5, 7)
"""How often a client does something: more where there has to be a history first."""


class SimulatedClock:
    """Virtual time; each process's wall clock is off by its own amount."""

    def __init__(self, loop: SimulatedLoop, skew_ms: int) -> None:
        self._loop = loop
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self._skew_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()


@dataclass
class Server:
    """A simulated process that serves turns."""

    process: Process
    death: asyncio.Future[None]
    ledger: Ledger | None = None


@dataclass(frozen=True)
class Report:
    """What a schedule amounted to."""

    seed: int
    asks: int
    turns: int
    crashes: int
    steps: int


@dataclass
class Schedule:
    """A running schedule."""

    seed: int
    loop: SimulatedLoop
    open_inner: Callable[[], Awaitable[Store]]
    random: Random
    world: World = field(default_factory=World)
    servers: list[Server] = field(default_factory=list)
    crashes: int = 0
    asks: int = 0
    freed: Counter[str] = field(default_factory=Counter)
    """Deletions and resets that came back, per conversation_key."""
    being_freed: Counter[str] = field(default_factory=Counter)
    """Those on their way, or whose outcome nobody knows: nobody can tell what comes before and after."""

    def __post_init__(self) -> None:
        self.medium = Medium(Random(self.random.random()), Weather.draw(self.random))
        self.keys = ("alpha",) if self.random.random() < 0.7 else ("alpha", "beta")
        self.habits = self.random.choice(HABITS)
        self.is_branching = bool(BRANCHING & set(self.habits))
        self.knows_death = self.random.random() < 0.5
        self.gone: set[LeaseId] = set()
        self.forks: list[str] = []

    @property
    def names(self) -> tuple[str, ...]:
        """What clients know conversations by: conversation_keys, and ids of forks."""
        return (*self.keys, *self.forks)

    async def run(self) -> Report:
        """Storm, then calm, then the check."""
        for _ in range(self.random.choice((1, 2, 2, 3))):
            await self.start_server()
        clients = [self._client(number) for number in range(self.random.choice((1, 2, 3, 4)))]
        await asyncio.gather(*clients)
        self.medium.weather = CALM
        await asyncio.sleep(LEASE_TIME * 8)
        server = await self.start_server()
        await asyncio.sleep(LEASE_TIME * 4)
        assert server.ledger is not None
        turns = await check(self.world, server.ledger, self.keys)
        return Report(self.seed, self.asks, turns, self.crashes, self.loop.steps)

    # Servers.

    async def start_server(self) -> Server:
        process = self.loop.process(f"server {len(self.servers)}")
        server = Server(process, self.loop.create_future())
        self.servers.append(server)
        seed = self.random.getrandbits(64)
        ready = self.loop.create_future()
        process.spawn(self._serve(server, seed, ready))
        await ready
        return server

    async def _serve(self, server: Server, seed: int, ready: asyncio.Future[None]) -> None:
        random = Random(seed)
        store = FaultyStore(
            await self.open_inner(),
            self.medium,
            die=lambda: self._die(server),
            pause=lambda: server.process.pause(LEASE_TIME * random.choice((0.3, 1.2, 3.0))),
            observe=lambda operation: observed(operation, self.world),
            told=self.world.told,
            is_gone=self.gone.__contains__,
        )
        clock = SimulatedClock(self.loop, random.choice((0, 0, -7_000, 30_000)))
        server.ledger = await Ledger.over(store, limits=LIMITS, clock=clock, random=random)
        ready.set_result(None)
        await asyncio.get_running_loop().create_future()

    def _die(self, server: Server) -> None:
        self.crashes += 1
        if server.ledger is not None and self.knows_death:
            self.gone.add(server.ledger._process.lease)
        if not server.death.done():
            server.death.set_result(None)
        server.process.kill()

    async def _some_server(self) -> Server:
        alive = [server for server in self.servers if server.process.alive and server.ledger is not None]
        if not alive or (len(alive) < 2 and self.random.random() < 0.3):
            return await self.start_server()
        return self.random.choice(alive)

    # Clients.

    async def _client(self, number: int) -> None:
        for count in range(self.random.choice(MANY if self.is_branching else FEW)):
            token = f"q{number}.{count}"
            name = self.random.choice(self.names)
            match self.random.choice(self.habits):
                case "ask":
                    await self._ask_and_answer(token)
                case "diverge":
                    await self._ask_elsewhere(token)
                case "hang":
                    await self._ask_and_stop(token)
                case "stop":
                    await self._on_server(self._stop(name))
                case "close":
                    await self._close_some_server()
                case "rename":
                    await self._on_server(self._rename(name, token))
                case "undo":
                    await self._on_server(self._undo(name))
                case "switch":
                    await self._on_server(self._switch(name))
                case "fork":
                    await self._fork_or_ask(name, token)
                case "reset":
                    await self._on_server(self._reset(self.random.choice(self.keys)))
                case "delete":
                    await self._on_server(self._delete(name))

    def _draw(self, token: str) -> Ask:
        return Ask.draw(self.random, token, self.names, acts=self.is_branching)

    async def _ask_elsewhere(self, token: str) -> None:
        """Edit or regenerate; now and then with an idempotency_key that is used for another place, too."""
        ask = await self._diverging(self._draw(token))
        asking = [ask]
        if ask.is_late:
            # Somebody else goes on behind the head it began on, as soon as it is given up for dead.
            other = replace(self._draw(f"{token}+"), conversation=ask.conversation)
            asking.append(replace(other, on_busy=OnBusy.QUEUE, fails_at=(-1,), pace=0.0, is_late=False))
        await asyncio.gather(*(self._ask(each) for each in asking))
        if ask.kind is not Kind.ASK and ask.idempotency_key and self.random.random() < 0.2:
            other = await self._diverging(ask)
            await self._ask(replace(ask, instead_of=other.instead_of))

    async def _diverging(self, ask: Ask) -> Ask:
        """The same request in the place of a turn that its client sees, if it sees one."""
        turns = [turn.id for turn in await self._shown(ask.conversation)]
        if not turns:
            return ask
        if self.random.random() < 0.4:
            # What is asked again may be results, whatever the request is drawn to be.
            turn = self.random.choice((None, *turns))
            return replace(ask, kind=Kind.REGENERATE, instead_of=turn, answers_call=False)
        answers = self.random.random() < 0.1
        return replace(ask, kind=Kind.EDIT, instead_of=self.random.choice(turns), answers_call=answers)

    async def _fork_or_ask(self, name: str, token: str) -> None:
        """Fork at a turn that the client sees; ask if it sees none."""
        turns = await self._shown(name)
        if not turns:
            await self._ask_and_answer(token)
            return
        # What was settled behind a turn, or waits to be settled behind the last one, has to come along.
        telling = [turn.parent for turn in turns if turn.kind is TurnKind.SETTLED]
        places = [None, *(turn.id for turn in turns), *telling, *telling, turns[-1].id]
        await self._on_server(self._fork(name, self.random.choice(places)))

    async def _shown(self, name: str) -> list[Turn]:
        """The turns that a client sees, if a server answers."""
        turns: list[Turn] = []

        async def see(ledger: Ledger) -> None:
            with suppress(TurnledgerError):
                chat = await self._open(ledger, name)
                turns.extend(await chat.turns())

        await self._on_server(see)
        return turns

    async def _ask_and_stop(self, token: str) -> None:
        """Ask a model that never ends, and stop it from anywhere: the stop has to reach it in time."""
        ask = replace(self._draw(token), hangs=True, on_busy=OnBusy.QUEUE)
        if "diverge" in self.habits:
            ask = await self._diverging(ask)
        asking = asyncio.ensure_future(self._on_server(self._handle(ask)))
        for _ in range(40):
            await asyncio.wait((asking,), timeout=LEASE_TIME)
            if asking.done():
                return
            await self._on_server(self._stop(ask.conversation, any_turn=False), given_up_after=LEASE_TIME * 8)
        self.world.intrusions.append(f"{token} could not be stopped")
        asking.cancel()

    async def _close_some_server(self) -> None:
        server = await self._some_server()
        ledger, server.ledger = server.ledger, None
        if ledger is not None and server.process.alive:
            task = server.process.spawn(ledger.close())
            await asyncio.wait((task, server.death), return_when=asyncio.FIRST_COMPLETED)

    async def _ask_and_answer(self, token: str) -> None:
        """Ask; where the model called back, bring the result, now and then twice."""
        blank = self.random.random() < 0.05
        ask = self._draw(" " if blank else token)
        await self._ask(ask)
        if not ask.leaves_call:
            return
        answers = [
            replace(self._draw(f"{token}!{count}"), answers_call=True, conversation=ask.conversation)
            for count in range(self.random.choice((0, 1, 2)))
        ]
        await asyncio.gather(*(self._ask(answer) for answer in answers))

    async def _ask(self, ask: Ask) -> None:
        """Send a request, as impatient clients do: twice at once, again after a failure, or given up."""
        self.asks += 1
        copies = 2 if ask.idempotency_key and self.random.random() < 0.3 else 1
        tries = self.random.choice((1, 3, 4)) if ask.idempotency_key else 1
        for _ in range(tries):
            given_up_after = self.random.choice((None, None, None, 0.01, 1.0, 15.0))
            await asyncio.gather(*(self._on_server(self._handle(ask), given_up_after) for _ in range(copies)))
            is_answered = any(seen.ask is ask and seen.turn is not None for seen in self.world.seen)
            if is_answered and self.random.random() < 0.7:
                return

    async def _on_server(self, work: Work, given_up_after: float | None = None) -> None:
        """Have a server do something; return when it is done, given up or dead."""
        server = await self._some_server()
        if server.ledger is None or not server.process.alive:
            return
        task = server.process.spawn(work(server.ledger))
        waiting = (task, server.death)
        await asyncio.wait(waiting, timeout=given_up_after, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and not server.death.done():
            task.cancel()
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        elif task.done() and task.cancelled():
            self.world.intrusions.append("a task was cancelled, and nobody had cancelled it")

    def _generation(self, name: str) -> int | None:
        """How often the key was freed; None while that cannot be told."""
        return None if self.being_freed[name] else self.freed[name]

    async def _open(self, ledger: Ledger, name: str, *, create: bool = True) -> Chat:
        if name in self.forks:
            return await ledger.conversation(name)
        return await ledger.conversation(conversation_key=name, create=create)

    def _handle(self, ask: Ask) -> Work:
        async def handle(ledger: Ledger) -> None:
            told: list[Event] = []
            try:
                turn = await self._run(await self._block(ledger, ask, told), ask)
            except (TurnledgerError, ModelFailed) as problem:
                code = problem.code if isinstance(problem, TurnledgerError) else "model_failed"
                self.world.seen.append(Seen(ask, None, b"", code, None))
                if code == Superseded.code and not self.world.was_taken_over(ask):
                    self.world.intrusions.append(f"{ask.token} lost its lane, and nobody had taken it")
            else:
                self.world.seen.append(Seen(ask, turn.id, turn.body, "", self.world.begun_in[turn.id]))
                if told:
                    self.world.heard[turn.id] = told

        return handle

    async def _block(self, ledger: Ledger, ask: Ask, told: list[Event]) -> TurnBlock:
        """What a client does that runs the model."""
        if ask.by_key and ask.kind is Kind.ASK and ask.conversation in self.keys:
            target = target_of(ledger._process, None, ask.conversation, OWNER)
            request = begin_request(ledger._process, target, ask.input, **ask.policies)
            return TurnBlock(ledger._process, request, told.append)
        generation = self._generation(ask.conversation)
        chat = await self._open(ledger, ask.conversation)
        if generation is not None and generation == self._generation(ask.conversation):
            self.world.opened.setdefault((ask.conversation, generation), set()).add(chat.id)
        if ask.kind is Kind.REGENERATE:
            return chat.regenerate(ask.instead_of, on_event=told.append, **ask.policies)
        if ask.kind is Kind.EDIT and ask.instead_of is not None:
            return chat.edit(ask.instead_of, ask.input, on_event=told.append, **ask.policies)
        return chat.turn(ask.input, on_event=told.append, **ask.policies)

    async def _run(self, block: TurnBlock, ask: Ask) -> Turn:
        """Run the model; the id of the attempt is known before it begins."""
        self.world.asked[block.id] = ask
        try:
            async with block as running:
                await self.world.runner(ask, self.random)(running)
        except TurnReplayed as replay:
            return replay.turn
        return committed(Ended(running.state, running.turn))

    def _stop(self, name: str, *, any_turn: bool = True) -> Work:
        policy = self.random.choice((None, *OnStop))

        async def stop(ledger: Ledger) -> None:
            try:
                chat = await self._open(ledger, name)
                known = [*self.world.begun_at, *self.world.waiting_since][-4:]
                turn = self.random.choice((None, *known)) if any_turn else None
                ended = await chat.stop(turn, policy=policy)
            except TurnledgerError:
                return
            if ended is not None and ended.turn is not None:
                self.world.stops.append((ended.turn.id, ended.state))

        return stop

    def _rename(self, name: str, title: str) -> Work:
        async def rename(ledger: Ledger) -> None:
            with suppress(TurnledgerError):
                chat = await self._open(ledger, name)
                await chat.update(title=title)

        return rename

    def _undo(self, name: str) -> Work:
        forget = self.random.random() < 0.2
        on_busy = self.random.choice(tuple(OnBusy))

        async def undo(ledger: Ledger) -> None:
            with suppress(TurnledgerError):
                chat = await self._open(ledger, name)
                await chat.undo(forget=forget, on_busy=on_busy)

        return undo

    def _switch(self, name: str) -> Work:
        on_busy = self.random.choice(tuple(OnBusy))

        async def switch(ledger: Ledger) -> None:
            with suppress(TurnledgerError):
                chat = await self._open(ledger, name)
                turns = await chat.turns()
                if turns:
                    siblings = await chat.siblings(self.random.choice(turns).id)
                    await chat.switch(self.random.choice(siblings).branch, on_busy=on_busy)

        return switch

    def _fork(self, name: str, turn: TurnId | None) -> Work:
        async def fork(ledger: Ledger) -> None:
            with suppress(TurnledgerError):
                chat = await self._open(ledger, name)
                made = await chat.fork(turn)
                self.forks.append(made.id)

        return fork

    def _delete(self, name: str) -> Work:
        async def delete(ledger: Ledger) -> None:
            try:
                chat = await self._open(ledger, name, create=False)
            except TurnledgerError:
                return
            self.being_freed[name] += 1
            try:
                await chat.delete()
            except TurnledgerError:
                return
            self.freed[name] += 1
            self.being_freed[name] -= 1

        return delete

    def _reset(self, conversation_key: str) -> Work:
        async def reset(ledger: Ledger) -> None:
            try:
                old = await ledger.conversation(conversation_key=conversation_key, create=False)
            except TurnledgerError:
                return
            self.being_freed[conversation_key] += 1
            try:
                new = await ledger.reset(conversation_key, replaces=old.id)
            except TurnledgerError:
                return
            if new.is_new:
                self.world.replaced.setdefault(old.id, set()).add(new.id)
            self.freed[conversation_key] += 1
            self.being_freed[conversation_key] -= 1

        return reset


def simulate(seed: int, store: str = "memory") -> Report:
    """Run the schedule of this seed; raise Violation, naming the seed, if a promise was broken."""
    loop = SimulatedLoop(seed, step_limit=STEP_LIMIT)
    try:
        with open_inner(store) as opener:
            schedule = Schedule(seed, loop, opener, Random(f"{seed}"))
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
