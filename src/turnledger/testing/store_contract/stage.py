"""The stage of the contract: processes that share one database and one fake clock.

Leases are long and not renewed, and every write notifies the other processes at once. Nothing depends on real
time: a test advances the clock, opens gates and calls `tend`.
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
from turnledger.engine.ports import Runner, Store, Tables
from turnledger.engine.turn.begin import BeginRequest
from turnledger.engine.turn.block import TurnBlock
from turnledger.engine.wrapped_store import Write
from turnledger.ledger import Ledger
from turnledger.model.conversation import EVERYWHERE, LOCAL, Branch, Conversation, Ticket
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.item import Item, result_of
from turnledger.model.turn import Turn
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.gates import Gate, GatedStore
from turnledger.testing.scripted_model import ScriptedModel, Step

GUARD = 20.0
"""Seconds until a test that waits in vain fails."""
LIMITS = Limits(lease_time=600.0, queue_wait=6_000.0, flush_every=6_000.0)
SHORT_WAIT = Limits(lease_time=600.0, queue_wait=60.0, flush_every=6_000.0)
Result = TypeVar("Result")
OpenStore: TypeAlias = Callable[[], Awaitable[Store]]
StartTurn: TypeAlias = Callable[[ScriptedModel], Coroutine[Any, Any, Turn]]


@dataclass(frozen=True)
class Capabilities:
    """Optional abilities of a store; tests of missing ones are skipped."""

    survives_restart: bool = False
    """Acknowledged writes are there after all handles were closed and reopened."""
    gives_hints: bool = True
    """Calls the callback of `watch` when another process has written."""


def chats_of(ledger: Ledger, arguments: dict[str, Any]) -> Chats:
    """Pop `owner`, `scope` and `within` from these arguments and return the chats they select."""
    within = arguments.pop("within", EVERYWHERE)
    return ledger.for_owner(arguments.pop("owner", LOCAL), scope=arguments.pop("scope", None), within=within)


@dataclass(frozen=True)
class StageProcess:
    """A ledger on its own store handle, like one process."""

    ledger: Ledger
    store: GatedStore

    async def chat(self, like: Chat | None = None, **details: Any) -> Chat:
        """Open a new conversation, or the one of another process."""
        if like is not None:
            return await self.ledger.for_owner(like.owner).conversation(like.id)
        return await chats_of(self.ledger, details).conversation(**details)

    async def list_chats(self, **wanted: Any) -> list[Conversation]:
        page = await chats_of(self.ledger, wanted).list(**wanted)
        return [each.conversation for each in page.chats]

    async def tend(self) -> None:
        """Run the periodic maintenance once."""
        await self.ledger._recovery.run_round()

    async def flush(self) -> None:
        """Write the events of running turns, as the timer does."""
        await self.ledger._process.flusher.flush()


@dataclass(frozen=True)
class Holder:
    """A turn that holds the lane: its model waits at the gate."""

    task: asyncio.Task[Turn]
    gate: Gate
    model: ScriptedModel

    async def finish(self) -> Turn:
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
        """Begins tried, by attempt."""
        self.clock = FakeClock()

    async def process(self, limits: Limits = LIMITS) -> StageProcess:
        self._opened += 1
        store = _ObservedStore(await self._open_store(), self._neighbours, self._note)
        ledger = await Ledger.over(store, limits=limits, clock=self.clock, random=Random(self._opened))
        store.operations.clear()  # tests do not count the writes of opening
        self._processes.append(StageProcess(ledger, store))
        return self._processes[-1]

    async def processes(self, count: int = 2, limits: Limits = LIMITS) -> list[StageProcess]:
        return [await self.process(limits) for _ in range(count)]

    async def shared_chat(self, **details: Any) -> tuple[Chat, Chat]:
        """Create a conversation in one process and open it in another."""
        here, there = await self.processes()
        chat = await here.chat(**details)
        return chat, await there.chat(chat)

    def start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Start a task that is cancelled when the test ends."""
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return task

    async def hold_lane(
        self, chat: Chat, input: str = "first", script: Sequence[Step] = (), **policies: Any
    ) -> Holder:
        """Start a turn and return when its model waits at the gate behind the script."""
        return await self.hold(lambda model: chat.run(model, input, **policies), script)

    async def hold(self, run: StartTurn, script: Sequence[Step] = ()) -> Holder:
        """Start any turn and return when its model waits at the gate."""
        gate = Gate()
        model = ScriptedModel([*(script or ["Working"]), gate, " done."])
        holder = Holder(self.start(run(model)), gate, model)
        await self.reach(gate, holder.task)
        return holder

    async def reach(self, gate: Gate, task: asyncio.Task[Any]) -> None:
        """Wait until the gate is reached; raise the error of the task if it ends before."""
        arrival = self.start(gate.arrived())
        async with asyncio.timeout(GUARD):
            await asyncio.wait((arrival, task), return_when=asyncio.FIRST_COMPLETED)
        if not arrival.done():
            task.result()
            raise AssertionError("the gate was not reached")

    async def queue(
        self, chat: Chat, model: ScriptedModel, input: str, **policies: Any
    ) -> asyncio.Task[Turn]:
        """Start a turn on a busy conversation and return when it waits with its ticket."""
        return await self.line_up(chat, chat.run(model, input, **policies))

    async def line_up(self, chat: Chat, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Start any work that waits for the lane and return when it waits with its ticket."""
        before = {ticket.attempt for ticket in await self.tickets(chat)}
        task = self.start(work)

        async def is_waiting() -> bool:
            task.done() and task.result()
            new = [ticket.attempt for ticket in await self.tickets(chat) if ticket.attempt not in before]
            # After its second look at the queue, only a bell wakes it.
            return bool(new) and self.begins[new[0]] >= 2

        await self.until(is_waiting)
        return task

    async def tickets(self, chat: Chat) -> list[Ticket]:
        branch = (await chat.info()).branch
        return await self._processes[0].store.read(_tickets, branch, chat.owner)

    async def fence(self, chat: Chat) -> int:
        branch = await self._processes[0].store.read(_branch, (await chat.info()).branch, chat.owner)
        assert branch is not None
        return branch.fence

    async def until_run(self, process: StageProcess, operation: Callable[..., Any], count: int) -> None:
        """Wait until this process has run a writing operation `count` times."""

        async def has_run() -> bool:
            return process.store.operations.count(operation.__name__) >= count

        await self.until(has_run)

    async def until(self, question: Callable[[], Awaitable[bool]]) -> None:
        """Wait for a write after which `question` returns True."""
        async with asyncio.timeout(GUARD):
            while True:
                written = self._written
                if await question():
                    return
                await written.wait()

    async def bury_others(self, process: StageProcess) -> None:
        """Let the leases of all other processes expire and take over from them."""
        await process.tend()
        self.clock.advance(LIMITS.lease_time)
        await process.tend()

    async def restart(self) -> StageProcess:
        """Close every process and reopen the database."""
        await self.close()
        return await self.process()

    async def close(self) -> None:
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


class _ObservedStore(GatedStore):
    def __init__(self, store: Store, neighbours: list[GatedStore], note: Callable[[object], None]) -> None:
        super().__init__(store, renews=False, neighbours=neighbours)
        self._note_request = note

    async def write(self, write: Write) -> Any:
        answer = await super().write(write)
        self._note_request(write.request)
        return answer


class Contract:
    """Fixtures of each part of the contract."""

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

    @pytest.fixture
    def here(self, stores: list[Store]) -> Store:
        return stores[0]

    @pytest.fixture
    def there(self, stores: list[Store]) -> Store:
        return stores[1]


async def soon(work: Awaitable[Result]) -> Result:
    """Await work that should end without further steps of the test; fail after GUARD seconds."""
    async with asyncio.timeout(GUARD):
        return await work


async def expect_refusal(
    name: str, work: Awaitable[object], error: type[Exception], match: str | None = None
) -> None:
    """Expect this error; if there is none, fail with the name of the case."""
    with pytest.raises(error, match=match):
        pytest.fail(f"{name} was not refused: {await soon(work)}")


async def exchange(chat: Chat, text: str, answer: str = "Yes.", **policies: Any) -> Turn:
    """Run a turn with this answer."""
    return await soon(chat.run(ScriptedModel([answer]), text, **policies))


async def play(block: TurnBlock, runner: Runner) -> Turn:
    """Run the block of a turn with a runner and return the committed turn."""
    async with block as running:
        await runner(running)
    assert running.turn is not None
    return running.turn


async def run_block(block: TurnBlock, answer: str = "Yes.") -> Turn:
    """Run the block of a turn with this answer."""
    return await soon(play(block, ScriptedModel([answer])))


async def message_texts(chat: Chat) -> list[str]:
    return [item.text for item in await chat.history() if item.type == "message"]


async def input_texts(chat: Chat) -> list[str]:
    """Read the last input of each turn of the history."""
    return [turn.input[-1].text for turn in await chat.turns(limit=1_000)]


async def chain(chat: Chat, count: int) -> list[Turn]:
    """Run turns with the inputs q1, q2, … and the answers a1, a2, …."""
    return [await exchange(chat, f"q{number}", f"a{number}") for number in range(1, count + 1)]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def call(name: str, call_id: str) -> Item:
    return Item.of({"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"})


def answer_to(call_id: str, output: str) -> Item:
    return result_of(call("any", call_id), output)


async def _tickets(tables: Tables, branch: BranchId) -> list[Ticket]:
    return await tables.tickets(branch)


async def _branch(tables: Tables, id: BranchId) -> Branch | None:
    return await tables.branch(id)
