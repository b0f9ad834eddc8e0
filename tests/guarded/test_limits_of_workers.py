"""Two workers are one server also for its limits: what one has let in the other counts."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from tests.crash.served import Heard, completion, request
from tests.crash.several_workers import Line, SeveralWorkers, several_workers
from turnledger import Ledger
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import ScriptedUpstream


class Shared:
    """A server with a turn of Ann's in the middle of its answer."""

    def __init__(self, server: SeveralWorkers, gate: Gate) -> None:
        self.server = server
        self.gate = gate
        self.tokens: dict[str, str] = {}
        self.heard = Heard()
        self.asking: asyncio.Task[Heard]
        self.worker = -1

    async def begin(self) -> None:
        async with await Ledger.open(self.server.store) as ledger:
            for owner in ("ann", "bob", "root"):
                scopes = ["admin"] if owner == "root" else ["turns:run", "chats:read"]
                _, self.tokens[owner] = await ledger.tokens.create(owner=owner, scopes=scopes)
        line = await self.server.line()
        self.worker = line.worker
        self.asking = asyncio.create_task(line.ask(self.asked("ann", "one"), self.heard))
        await self.heard.until(lambda heard: heard.text == "Hel")

    def asked(self, owner: str, chat: str) -> bytes:
        return completion("Hi", X_Conversation_Id=chat, Authorization=self.bearer(owner))

    def bearer(self, owner: str) -> str:
        return f"Bearer {self.tokens[owner]}"

    async def other_line(self) -> Line:
        """To the worker that does not run Ann's turn."""
        return await self.server.line(lambda worker: worker != self.worker)

    async def ask_elsewhere(self, owner: str, chat: str = "two") -> Heard:
        return await (await self.other_line()).ask(self.asked(owner, chat))

    async def follow(self, line: Line, heard: Heard | None = None) -> Heard:
        path = f"/api/turns/{self.heard.headers['x-turn-id']}/events"
        return await line.ask(request(path, method="GET", Authorization=self.bearer("ann")), heard)

    async def refusals(self) -> list[str]:
        shown = await self.server.line()
        heard = await shown.ask(request("/metrics", method="GET", Authorization=self.bearer("root")))
        return [line for line in heard.body.decode().splitlines() if line.startswith("turnledger_refusals_")]


@asynccontextmanager
async def shared(folder: Path, *flags: str) -> AsyncIterator[Shared]:
    gate = Gate()
    async with (
        ScriptedUpstream(["Hel", gate, "lo"], otherwise=["Again"]) as upstream,
        several_workers(folder, upstream.url, *flags) as server,
    ):
        turn = Shared(server, gate)
        await turn.begin()
        yield turn


def code(heard: Heard) -> str:
    told = msgspec.json.decode(heard.body)["error"]["code"]
    assert (heard.status, heard.headers["retry-after"].isdigit()) == (429, True)
    return str(told)


async def test_an_owners_turn_on_one_worker_counts_on_the_other_until_it_ends(tmp_path: Path) -> None:
    async with shared(tmp_path, "--owner-turns", "1") as turn:
        assert code(await turn.ask_elsewhere("ann")) == "too_many_turns"
        assert (await turn.ask_elsewhere("bob")).text == "Again"
        assert await turn.refusals() == ['turnledger_refusals_total{limit="owner_turns"} 1.0']
        turn.gate.release()
        assert (await turn.asking).text == "Hello"
        assert (await turn.ask_elsewhere("ann")).text == "Again"


async def test_the_limit_of_all_holds_for_all_workers_together(tmp_path: Path) -> None:
    async with shared(tmp_path, "--turns", "1") as turn:
        assert code(await turn.ask_elsewhere("bob")) == "server_busy"
        turn.gate.release()
        await turn.asking
        assert (await turn.ask_elsewhere("bob")).text == "Again"


async def test_what_a_killed_worker_had_let_in_does_not_count_any_more(tmp_path: Path) -> None:
    async with shared(tmp_path, "--owner-turns", "1") as turn:
        line = await turn.other_line()
        os.kill(turn.server.pids()[turn.worker], signal.SIGKILL)
        await turn.server.event("recovered", worker=line.worker)
        assert (await line.ask(turn.asked("ann", "two"))).text == "Again"


async def test_a_stream_on_one_worker_counts_on_the_other(tmp_path: Path) -> None:
    async with shared(tmp_path, "--owner-streams", "1") as turn:
        reading = Heard()
        following = asyncio.create_task(turn.follow(await turn.other_line(), reading))
        await reading.until(lambda heard: b"Hel" in heard.body)
        same = await turn.server.line(lambda worker: worker == turn.worker)
        assert code(await turn.follow(same)) == "too_many_streams"
        turn.gate.release()
        assert b"turn.finished" in (await following).body


async def test_turns_of_a_minute_are_counted_together(tmp_path: Path) -> None:
    async with shared(tmp_path, "--owner-turns-per-minute", "2") as turn:
        turn.gate.release()
        await turn.asking
        assert (await turn.ask_elsewhere("ann")).text == "Again"
        same = await turn.server.line(lambda worker: worker == turn.worker)
        assert code(await same.ask(turn.asked("ann", "two"))) == "too_many_turns_per_minute"
