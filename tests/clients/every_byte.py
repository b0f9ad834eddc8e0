"""Every byte: `python -m tests.clients.every_byte [--client python|async|typescript|browser] …`

Short exchanges are broken between every two bytes: cut, reset, stalled, delayed, doubled. The client must
return the same result and each event once, and the server must have done the request once.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from tests.clients.drivers.all_drivers import CLIENTS, start_driver
from tests.clients.drivers.browser import browser_driver, page_site
from tests.clients.drivers.driver import ClientError, Command, Driver
from tests.clients.places import MovingClock
from tests.clients.player import ScenarioFailed, check_numbers
from tests.crash.tcp_server import TcpServer, run_tcp_server
from turnledger import Ledger
from turnledger.chat import Chat
from turnledger.runners.chat_model import ModelRequest
from turnledger.runners.chat_runner import ChatRunner
from turnledger.runners.demo import DemoModel
from turnledger.server.config.settings import Settings
from turnledger.stores.memory import MemoryStore
from turnledger.testing.fault_proxy import Fault, FaultProxy

KINDS = ("cut", "reset", "stall", "delay", "double")
WAYS = ("sent", "received")
SILENCE = 0.25
"""Seconds after which a client gives up a silent connection; each stall takes as long."""
CLIENT = {
    "model": "demo",
    "timeouts": {"connect": 5, "silence": SILENCE, "write": SILENCE},
    "retries": {"times": 1000, "first_pause": 0.001, "max_pause": 0.05, "patience": 100},
}
PATIENCE = 120.0
BATCH = 2000
"""Cases per server."""
SCOPE = re.compile(r"scope-\d+")
_numbers = count(1)


class CountingModel(DemoModel):
    """The demo model, counting its requests."""

    def __init__(self) -> None:
        super().__init__(pace=0)
        self.request: Counter[str] = Counter()

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        if found := SCOPE.search(bytes(request.messages).decode()):
            self.request[found[0]] += 1
        return super().stream(request)


@dataclass(frozen=True)
class Case:
    """One operation, broken at one byte in one way."""

    operation: str
    exchange: int
    way: str
    byte: int
    kind: str

    @property
    def fault(self) -> Fault:
        place = {self.way: self.byte}
        if self.kind == "cut":
            return Fault(**place)
        if self.kind == "reset":
            return Fault(**place, resets=True)
        if self.kind == "stall":
            return Fault(**place, stalls=True)
        if self.kind == "delay":
            return Fault(**place, pause=0.001)
        return Fault(**place, duplicates=True)

    def __str__(self) -> str:
        return (
            f"--operation {self.operation} --exchange {self.exchange} --way {self.way} --byte {self.byte} "
            f"--kind {self.kind}"
        )


class Lane:
    """A client with its own proxy, so that cases run concurrently."""

    def __init__(self, number: int, driver: Driver, serving: TcpServer, proxy: FaultProxy) -> None:
        self.client = f"client-{number}"
        self.chat = f"chat-{number}"
        self.driver = driver
        self.ledger: Ledger = serving.ledger
        self.proxy = proxy

    async def do(self, verb: str, on: str | None = None, named: str | None = None, **arguments: Any) -> Any:
        command = Command(next(_numbers), verb, arguments, on or self.client, named)
        return await self.driver.do(command, lambda _: None)

    async def begin(self) -> None:
        await self.do("client", named=self.client, base_url=f"http://127.0.0.1:{self.proxy.port}", **CLIENT)

    async def make_chat(self, scope: str, turns: int) -> Chat:
        """Create a chat with this many turns directly in the ledger, and open it with the client."""
        chat = await self.ledger.for_owner("local", scope=scope).conversation()
        for number in range(turns):
            await chat.run(ChatRunner(DemoModel(pace=0), {"model": "demo"}), f"earlier {number}")
        await self.do("chats.open", named=self.chat, id=str(chat.id))
        return chat


@dataclass
class Trial:
    """One operation: prepared, run and checked."""

    lane: Lane
    model: CountingModel
    scope: str
    chat: Chat | None = None

    async def scoped(self) -> list[Any]:
        return [
            each.conversation
            for each in (await self.lane.ledger.for_owner("local", scope=self.scope).list()).chats
        ]

    async def prepare_send(self) -> None:
        self.chat = await self.lane.make_chat(self.scope, 0)

    async def send(self) -> Any:
        request = f"Grüße 東京 🙂 {self.scope}"
        answer = await self.lane.do("chat.send", self.lane.chat, input=request, stream=True)
        check_numbers(answer["events"])
        shown = repr((answer["events"], answer["answer"]["text"], answer["answer"]["turn"]["number"]))
        return shown.replace(self.scope, "")

    async def check_send(self) -> None:
        assert self.chat is not None
        turns = await self.chat.turns()
        texts = [f'You said "Grüße 東京 🙂 {self.scope}". I remember nothing before that.']
        assert [turn.text for turn in turns] == texts, f"{len(turns)} turns"
        assert await self.chat.attempts() == []
        request = self.model.request.pop(self.scope)
        assert request == 1, f"the model received {request} requests"

    async def prepare_fork(self) -> None:
        self.chat = await self.lane.make_chat(self.scope, 1)

    async def fork(self) -> Any:
        made = await self.lane.do("chat.fork", self.lane.chat, "fork", title="Forked")
        return made["id"][:5]

    async def check_fork(self) -> None:
        assert sorted(each.title for each in await self.scoped()) == ["Forked", "earlier 0"]

    async def prepare_rename(self) -> None:
        self.chat = await self.lane.make_chat(self.scope, 0)

    async def rename(self) -> Any:
        answer = await self.lane.do("chat.update", self.lane.chat, title="Mine", revision=1)
        return answer["title"], answer["revision"]

    async def check_rename(self) -> None:
        assert self.chat is not None
        info = await self.chat.info()
        assert (info.title, info.revision) == ("Mine", 2)

    async def prepare_create(self) -> None:
        pass

    async def create(self) -> Any:
        made = await self.lane.do("chats.create", None, "made", scope=self.scope, title="New")
        return made["id"][:5]

    async def check_create(self) -> None:
        assert [each.title for each in await self.scoped()] == ["New"]

    async def prepare_undo(self) -> None:
        self.chat = await self.lane.make_chat(self.scope, 3)

    async def undo(self) -> Any:
        return (await self.lane.do("chat.undo", self.lane.chat))["turn_count"]

    async def check_undo(self) -> None:
        assert self.chat is not None
        assert len(await self.chat.turns()) == 2

    async def prepare_events(self) -> None:
        self.chat = await self.lane.make_chat(self.scope, 1)

    async def events(self) -> Any:
        assert self.chat is not None
        (turn,) = await self.chat.turns()
        answer = await self.lane.do("chat.events", self.lane.chat, turn=str(turn.id))
        check_numbers(answer["events"])
        return answer["events"]

    async def check_events(self) -> None:
        pass

    async def prepare_delete(self) -> None:
        self.chat = await self.lane.make_chat(self.scope, 1)

    async def delete(self) -> Any:
        return await self.lane.do("chat.delete", self.lane.chat)

    async def check_delete(self) -> None:
        assert await self.scoped() == []
        deleted = await self.lane.ledger.for_owner("local", scope=self.scope).list(deleted=True)
        assert len(deleted.chats) == 1


OPERATIONS = ("send", "fork", "rename", "create", "undo", "events", "delete")


class EveryByte:
    """One client on one server, with several lanes."""

    def __init__(
        self, driver: Driver, serving: TcpServer, model: CountingModel, lanes: Sequence[Lane]
    ) -> None:
        self._driver = driver
        self._serving = serving
        self._model = model
        self._lanes = lanes
        self._expected: dict[str, Any] = {}
        self._sizes: dict[str, list[tuple[int, int]]] = {}
        self.happened: Counter[str] = Counter()
        """Faults that happened, by kind."""

    async def measure(self, operation: str) -> list[tuple[int, int]]:
        """Count the bytes each way in each exchange of an unbroken operation."""
        if operation not in self._sizes:
            lane = self._lanes[0]
            before = len(lane.proxy.exchanges)
            self._expected[operation] = await self._try(lane, operation, None)
            answer = lane.proxy.exchanges[before:]
            self._sizes[operation] = [(each.sent, each.received) for each in answer]
        return self._sizes[operation]

    async def cases(self, operations: Sequence[str], kinds: Sequence[str]) -> list[Case]:
        """List all cases. After the last byte of a request only its answer can be cut."""
        found = []
        for operation in operations:
            for exchange, sizes in enumerate(await self.measure(operation)):
                for way, size in zip(WAYS, sizes, strict=True):
                    for byte in range(size + 1):
                        found += [Case(operation, exchange, way, byte, kind) for kind in kinds]
        return found

    async def run(self, cases: Sequence[Case]) -> list[str]:
        """Try the cases in all lanes; return the problems."""
        waiting: Iterator[Case] = iter(cases)
        problems: list[str] = []
        for operation in {case.operation for case in cases}:
            await self.measure(operation)

        async def work(lane: Lane) -> None:
            for case in waiting:
                if (problem := await self._problem(lane, case)) is not None:
                    problems.append(f"{case}: {problem}")

        async with asyncio.TaskGroup() as group:
            for lane in self._lanes:
                group.create_task(work(lane))
        return problems

    async def _problem(self, lane: Lane, case: Case) -> str | None:
        try:
            answer = await self._try(lane, case.operation, case)
        except (AssertionError, ScenarioFailed, ClientError, TimeoutError) as problem:
            return f"{type(problem).__name__}: {problem}"
        expected = self._expected[case.operation]
        return None if answer == expected else f"the answer is {answer!r}, not {expected!r}"

    async def _try(self, lane: Lane, operation: str, case: Case | None) -> Any:
        # Of constant length, so that byte positions stay the same.
        trial = Trial(lane, self._model, f"scope-{next(_numbers):07}")
        async with asyncio.timeout(PATIENCE):
            await getattr(trial, f"prepare_{operation}")()
            if case is not None:
                lane.proxy.plan(*[None] * case.exchange, case.fault)
            faults = lane.proxy.faults
            try:
                answer = await getattr(trial, operation)()
            finally:
                lane.proxy.forget_plans()
                lane.proxy.cut(only_stalled=True)
            if case is not None:
                self.happened[case.kind] += lane.proxy.faults - faults
            await getattr(trial, f"check_{operation}")()
        return answer


@asynccontextmanager
async def every_byte(client: str, lanes: int) -> AsyncIterator[EveryByte]:
    model = CountingModel()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        site = await enter(page_site()) if client == "browser" else None
        settings = Settings(origins=(site.origin,)) if site else None
        serving = await enter(run_tcp_server(model, settings, store=MemoryStore(), clock=MovingClock()))
        driver = await enter(browser_driver(site) if site else start_driver(client))
        made = []
        for number in range(lanes):
            proxy = await enter(FaultProxy(serving.port, by_exchange=True, spared=b"OPTIONS "))
            made.append(Lane(number, driver, serving, proxy))
            await made[-1].begin()
        yield EveryByte(driver, serving, model, made)
        await serving.stop_everything()


async def run_sample(client: str, cases: int, seed: int, lanes: int = 4) -> tuple[list[str], Counter[str]]:
    """Try a sample of all cases; return the problems and the faults that happened."""
    async with every_byte(client, lanes) as trying:
        found = await trying.cases(OPERATIONS, KINDS)
        chosen = Random(seed).sample(found, cases)
        return await trying.run(chosen), trying.happened


async def _chosen(client: str, given: argparse.Namespace) -> list[Case]:
    async with every_byte(client, 1) as trying:
        cases = [
            case
            for case in await trying.cases(given.operation or OPERATIONS, given.kind or KINDS)
            if given.exchange in (None, case.exchange)
            and given.way in (None, case.way)
            and given.byte in (None, case.byte)
        ]
    return Random(given.seed).sample(cases, min(len(cases), given.sample or len(cases)))


async def _main(given: argparse.Namespace) -> int:
    failed = 0
    for client in given.client or CLIENTS:
        cases = await _chosen(client, given)
        happened: Counter[str] = Counter()
        begun, wrong = time.monotonic(), 0
        for start in range(0, len(cases), BATCH):  # a server slows down as its store grows
            async with every_byte(client, given.lanes) as trying:
                problems = await trying.run(cases[start : start + BATCH])
            happened += trying.happened
            wrong += len(problems)
            print(*problems, sep="\n", end="\n" if problems else "", flush=True)
            print(f"{min(start + BATCH, len(cases))} of {len(cases)}", file=sys.stderr, flush=True)
        answer = ", ".join(f"{times} {kind}" for kind, times in sorted(happened.items()))
        print(f"{client}: {len(cases)} cases in {time.monotonic() - begun:.0f} s ({answer}), {wrong} failed")
        failed += wrong
    return 1 if failed else 0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.every_byte", description=__doc__)
    parser.add_argument("--client", action="append", choices=(*CLIENTS, "browser"))
    parser.add_argument("--operation", action="append", choices=OPERATIONS)
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--exchange", type=int)
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--byte", type=int)
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("--sample", type=int, help="so many cases, chosen by the seed; all if it is left out")
    parser.add_argument("--seed", type=int, default=0)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # writes to disconnected clients are expected
    sys.exit(asyncio.run(_main(parser.parse_args())))


if __name__ == "__main__":
    main()
