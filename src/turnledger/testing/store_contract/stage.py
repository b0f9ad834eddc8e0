"""The stage of the contract: processes that share one database, one clock moved by hand, no waiting.

Leases are long and never renewed by themselves, and every write is announced to the other processes at once.
So nothing happens by the passing of real time: a test moves the clock, opens gates and calls `tend`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias, TypeVar

import pytest

from turnledger.chat import Chat
from turnledger.chats import Chats
from turnledger.engine.limits import Limits
from turnledger.engine.ports import Operation, Request, Runner, Store, Sync, Tables
from turnledger.engine.turn.block import TurnBlock
from turnledger.engine.turn.request import BeginRequest
from turnledger.ledger import Ledger
from turnledger.model.conversation import EVERYWHERE, LOCAL, Branch, Conversation, Ticket
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.item import Item, result_of
from turnledger.model.turn import Turn
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.gates import Gate, GatedStore
from turnledger.testing.scripted_model import ScriptedModel, Step

GUARD = 20.0
"""Seconds after which a test is given up: something that had to happen did not."""
LIMITS = Limits(lease_time=600.0, queue_wait=6_000.0, flush_every=6_000.0)
SHORT_WAIT = Limits(lease_time=600.0, queue_wait=60.0, flush_every=6_000.0)
Result = TypeVar("Result")
Answer = TypeVar("Answer")
OpenStore: TypeAlias = Callable[[], Awaitable[Store]]
Play: TypeAlias = Callable[[ScriptedModel], Coroutine[Any, Any, Turn]]


@dataclass(frozen=True)
class Capabilities:
    """What a store can do beyond the promises; tests of the rest are skipped."""

    survives_restart: bool = False
    """What was acknowledged is there after every handle was closed and new ones are opened."""
    gives_hints: bool = True
    """Calls what `watch` was given when another process has written."""


def owned(ledger: Ledger, arguments: dict[str, Any]) -> Chats:
    """Take `owner`, `scope` and `within` out of these arguments, and return the chats that they name."""
    within = arguments.pop("within", EVERYWHERE)
    return ledger.for_owner(arguments.pop("owner", LOCAL), scope=arguments.pop("scope", None), within=within)


@dataclass(frozen=True)
class StageProcess:
    """A ledger over a store handle of its own, as a process would have them."""

    ledger: Ledger
    store: GatedStore

    async def chat(self, like: Chat | None = None, **details: Any) -> Chat:
        """Open a conversation: a new one, or one that another process has."""
        if like is not None:
            return await self.ledger.for_owner(like.owner).conversation(like.id)
        return await owned(self.ledger, details).conversation(**details)

    async def listed(self, **wanted: Any) -> list[Conversation]:
        """A page of the conversations that a list shows."""
        page = await owned(self.ledger, wanted).list(**wanted)
        return [each.conversation for each in page.chats]

    async def tend(self) -> None:
        """Do what the timer of the process does."""
        await self.ledger._tending.tend()

    async def flush(self) -> None:
        """Write down what its turns have told, as its timer does."""
        await self.ledger._process.flushing.flush()


@dataclass(frozen=True)
class Holder:
    """A turn that holds the lane: its model waits at the gate."""

    task: asyncio.Task[Turn]
    gate: Gate
    model: ScriptedModel

    async def finish(self) -> Turn:
        """Let it come to its end."""
        self.gate.release()
        return await soon(self.task)


class Stage:
    def __init__(self, open_store: OpenStore) -> None:
        self._open_store = open_store
        self._processes: list[StageProcess] = []
        self._neighbours: list[GatedStore] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._written = asyncio.Event()
        self._opened = 0
        self.begins: Counter[TurnId] = Counter()
        """How often each attempt has tried to begin."""
        self.clock = FakeClock()

    async def process(self, limits: Limits = LIMITS) -> StageProcess:
        """Start another process on the database."""
        self._opened += 1
        store = _Observed(await self._open_store(), self._neighbours, self._note)
        ledger = await Ledger.over(store, limits=limits, clock=self.clock, random=Random(self._opened))
        store.trips.clear()  # what it takes to open a ledger is nothing that a test counts
        self._processes.append(StageProcess(ledger, store))
        return self._processes[-1]

    async def processes(self, count: int = 2, limits: Limits = LIMITS) -> list[StageProcess]:
        return [await self.process(limits) for _ in range(count)]

    async def shared_chat(self, **details: Any) -> tuple[Chat, Chat]:
        """Make a conversation in one process, and open it in another, too."""
        here, there = await self.processes()
        chat = await here.chat(**details)
        return chat, await there.chat(chat)

    def start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Run something beside the test; it is cancelled when the test ends."""
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return task

    async def hold_lane(
        self, chat: Chat, input: str = "first", script: Sequence[Step] = (), **policies: Any
    ) -> Holder:
        """Start a turn, and return when its model waits at the gate, at the end of the script."""
        return await self.hold(lambda model: chat.run(model, input, **policies), script)

    async def hold(self, run: Play, script: Sequence[Step] = ()) -> Holder:
        """Start any turn that a model plays, and return when its model waits at the gate."""
        gate = Gate()
        model = ScriptedModel([*(script or ["Working"]), gate, " done."])
        holder = Holder(self.start(run(model)), gate, model)
        await self.reach(gate, holder.task)
        return holder

    async def reach(self, gate: Gate, task: asyncio.Task[Any]) -> None:
        """Wait until the gate is reached; if the task ends before, raise what it raises."""
        arrival = self.start(gate.arrived())
        async with asyncio.timeout(GUARD):
            await asyncio.wait((arrival, task), return_when=asyncio.FIRST_COMPLETED)
        if not arrival.done():
            task.result()
            raise AssertionError("the gate was not reached")

    async def queue(
        self, chat: Chat, model: ScriptedModel, input: str, **policies: Any
    ) -> asyncio.Task[Turn]:
        """Start a turn on a busy conversation, and return when it has its ticket and waits for a bell."""
        return await self.line_up(chat, chat.run(model, input, **policies))

    async def line_up(self, chat: Chat, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Start anything that waits for the lane, and return when it has its ticket and waits for a bell."""
        before = {ticket.attempt for ticket in await self.tickets(chat)}
        task = self.start(work)

        async def is_waiting() -> bool:
            task.done() and task.result()
            new = [ticket.attempt for ticket in await self.tickets(chat) if ticket.attempt not in before]
            # The second look is the one after which only a bell wakes it.
            return bool(new) and self.begins[new[0]] >= 2

        await self.until(is_waiting)
        return task

    async def tickets(self, chat: Chat) -> list[Ticket]:
        branch = (await chat.info()).branch
        return await self._processes[0].store.read(_tickets, branch)

    async def fence(self, chat: Chat) -> int:
        branch = await self._processes[0].store.read(_branch, (await chat.info()).branch)
        assert branch is not None
        return branch.fence

    async def until_run(self, process: StageProcess, operation: Callable[..., Any], count: int) -> None:
        """Wait until this process has run a writing operation so many times."""

        async def has_run() -> bool:
            return process.store.trips.count(operation.__name__) >= count

        await self.until(has_run)

    async def until(self, question: Callable[[], Awaitable[bool]]) -> None:
        """Wait for a write after which the answer is yes."""
        async with asyncio.timeout(GUARD):
            while True:
                written = self._written
                if await question():
                    return
                await written.wait()

    async def bury_others(self, process: StageProcess) -> None:
        """Let all other processes fall silent until this one has taken over from them."""
        await process.tend()
        self.clock.advance(LIMITS.lease_time)
        await process.tend()

    async def restart(self) -> StageProcess:
        """Close every process, and open the database anew."""
        await self.close()
        return await self.process()

    async def close(self) -> None:
        """End everything that runs."""
        for task in self._tasks:
            task.cancel()
        async with asyncio.timeout(GUARD):
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._tasks.clear()
            while self._processes:
                await self._processes.pop().ledger.close()

    def _note(self, request: object) -> None:
        if isinstance(request, BeginRequest):
            self.begins[request.attempt] += 1
        self._written.set()
        self._written = asyncio.Event()


class _Observed(GatedStore):
    def __init__(self, store: Store, neighbours: list[GatedStore], note: Callable[[object], None]) -> None:
        super().__init__(store, renews=False, neighbours=neighbours)
        self._note_request = note

    async def transact(
        self, operation: Operation[Request, Answer], request: Request, sync: Sync = Sync.DISK
    ) -> Answer:
        answer = await super().transact(operation, request, sync)
        self._note_request(request)
        return answer


class Contract:
    """What each part of the contract stands on; see turnledger.testing.store_contract."""

    capabilities = Capabilities()
    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    def open_store(self) -> OpenStore:
        raise NotImplementedError("override this fixture: return an async function that opens a store")

    @pytest.fixture
    async def stage(self, open_store: OpenStore) -> AsyncIterator[Stage]:
        stage = Stage(open_store)
        yield stage
        await stage.close()

    @pytest.fixture
    async def stores(self, open_store: OpenStore) -> AsyncIterator[list[Store]]:
        """Two bare handles on one database."""
        stores = [await open_store(), await open_store()]
        yield stores
        for store in stores:
            await store.close()


async def soon(work: Awaitable[Result]) -> Result:
    """Wait for what needs nothing more to happen."""
    async with asyncio.timeout(GUARD):
        return await work


async def refused(
    name: str, work: Awaitable[object], error: type[Exception], match: str | None = None
) -> None:
    """Await what must be refused with this error; if it is not, say which case it was."""
    with pytest.raises(error, match=match):
        pytest.fail(f"{name} was not refused: {await soon(work)}")


async def exchange(chat: Chat, text: str, answer: str = "Yes.", **policies: Any) -> Turn:
    """Run a turn that goes well."""
    return await soon(chat.run(ScriptedModel([answer]), text, **policies))


async def play(block: TurnBlock, runner: Runner) -> Turn:
    """Run the block of a turn with a runner, and return the turn as committed."""
    async with block as running:
        await runner(running)
    assert running.turn is not None
    return running.turn


async def tell(block: TurnBlock, answer: str = "Yes.") -> Turn:
    """Run the block of a turn that goes well."""
    return await soon(play(block, ScriptedModel([answer])))


async def said(chat: Chat) -> list[str]:
    """The texts of all messages in the history, in order."""
    return [item.text for item in await chat.history() if item.type == "message"]


async def asked(chat: Chat) -> list[str]:
    """What was asked in each turn of the history: its last input."""
    return [turn.input[-1].text for turn in await chat.turns(limit=1_000)]


async def chain(chat: Chat, count: int) -> list[Turn]:
    """Run so many turns, asked q1, q2, … and answered a1, a2, …."""
    return [await exchange(chat, f"q{number}", f"a{number}") for number in range(1, count + 1)]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def call(name: str, call_id: str) -> Item:
    """A function call as a model would make it."""
    return Item.of({"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"})


def answer_to(call_id: str, output: str) -> Item:
    """The result of a function call, as a client would send it."""
    return result_of(call("any", call_id), output)


async def _tickets(tables: Tables, branch: BranchId) -> list[Ticket]:
    return await tables.tickets(branch)


async def _branch(tables: Tables, id: BranchId) -> Branch | None:
    return await tables.branch(id)
