"""Limits and share-link uses hold across two workers, even if one is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.crash.several_workers import Line, SeveralWorkers, several_workers
from tests.crash.tcp_server import PartialResponse, completion, exchange, request
from turnledger import Ledger
from turnledger.hosting import Host
from turnledger.model.access.token import digest_of
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import ScriptedUpstream


class Shared:
    """A server with a turn of Ann's in the middle of its answer."""

    def __init__(self, server: SeveralWorkers, gate: Gate) -> None:
        self.server = server
        self.gate = gate
        self.tokens: dict[str, str] = {}
        self.response = PartialResponse()
        self.pending: asyncio.Task[PartialResponse]
        self.worker = -1

    async def begin(self) -> None:
        async with await Ledger.open(self.server.store) as ledger:
            for owner in ("ann", "bob", "root"):
                scopes = ["admin"] if owner == "root" else ["turns:run", "chats:read"]
                _, self.tokens[owner] = await Host(ledger).tokens.create(owner=owner, scopes=scopes)
        line = await self.server.line()
        self.worker = line.worker
        self.pending = asyncio.create_task(line.exchange(self.completion_of("ann", "one"), self.response))
        await self.response.until(lambda response: response.text == "Hel")

    def completion_of(self, owner: str, chat: str) -> bytes:
        return completion("Hi", X_Conversation_Id=chat, Authorization=self.bearer(owner))

    def bearer(self, owner: str) -> str:
        return f"Bearer {self.tokens[owner]}"

    async def other_line(self) -> Line:
        """To the worker that does not run Ann's turn."""
        return await self.server.line(lambda worker: worker != self.worker)

    async def same_line(self) -> Line:
        return await self.server.line(lambda worker: worker == self.worker)

    async def send_elsewhere(self, owner: str, chat: str = "two") -> PartialResponse:
        return await (await self.other_line()).exchange(self.completion_of(owner, chat))

    async def follow(self, line: Line, response: PartialResponse | None = None) -> PartialResponse:
        path = f"/api/turns/{self.response.headers['x-turn-id']}/events"
        return await line.exchange(request(path, method="GET", Authorization=self.bearer("ann")), response)

    async def refusals(self) -> list[str]:
        shown = await self.server.line()
        response = await shown.exchange(request("/metrics", method="GET", Authorization=self.bearer("root")))
        return [
            line for line in response.body.decode().splitlines() if line.startswith("turnledger_refusals_")
        ]


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


def code(response: PartialResponse) -> str:
    found = msgspec.json.decode(response.body)["error"]["code"]
    assert (response.status, response.headers["retry-after"].isdigit()) == (429, True)
    return str(found)


async def test_owner_limits_hold_across_workers(tmp_path: Path) -> None:
    flags = ("--owner-turns", "1", "--owner-streams", "1", "--owner-turns-per-minute", "2")
    async with shared(tmp_path, *flags) as turn:
        assert code(await turn.send_elsewhere("ann")) == "too_many_turns"
        assert (await turn.send_elsewhere("bob")).text == "Again"
        assert await turn.refusals() == ['turnledger_refusals_total{limit="owner_turns"} 1.0']
        reading = PartialResponse()
        following = asyncio.create_task(turn.follow(await turn.other_line(), reading))
        await reading.until(lambda response: b"Hel" in response.body)
        assert code(await turn.follow(await turn.same_line())) == "too_many_streams"
        turn.gate.release()
        assert (await turn.pending).text == "Hello"
        assert b"turn.finished" in (await following).body
        assert (await turn.send_elsewhere("ann")).text == "Again"
        again = await (await turn.same_line()).exchange(turn.completion_of("ann", "two"))
        assert code(again) == "too_many_turns_per_minute"


async def test_server_limit_holds_across_workers_until_a_turn_ends_or_its_worker_is_killed(
    tmp_path: Path,
) -> None:
    async with shared(tmp_path, "--owner-turns", "1", "--turns", "1") as turn:
        line = await turn.other_line()
        assert code(await line.exchange(turn.completion_of("bob", "two"))) == "server_busy"
        os.kill(turn.server.pids()[turn.worker], signal.SIGKILL)
        await turn.server.event("recovered", worker=line.worker)
        assert (await turn.send_elsewhere("ann")).text == "Again"
        assert (await turn.send_elsewhere("bob")).text == "Again"


MOST = 5
VISITORS = 12


async def follow_link(server: SeveralWorkers, code: str, nonce: str) -> dict[str, Any]:
    """Follow a link as the page does: until there is an answer, and with the same nonce."""
    async with asyncio.timeout(60):
        while True:
            try:
                body = {"code": code, "nonce": nonce}
                response = await exchange(server.port, request("/api/shares/exchange", body))
                answer: dict[str, Any] = msgspec.json.decode(response.body)
                return answer
            except (ConnectionError, msgspec.DecodeError):
                await asyncio.sleep(0)


async def test_share_link_uses_are_counted_once_when_a_worker_is_killed(tmp_path: Path) -> None:
    async with several_workers(tmp_path, None) as server:
        async with await Ledger.open(server.store) as ledger:
            _, code = await Host(ledger).shares.create(scope="fair", max_uses=MOST)
        nonces = [f"made-up-by-the-page-of-{number:03}" for number in range(VISITORS)]
        coming = [asyncio.create_task(follow_link(server, code, nonce)) for nonce in nonces for _ in range(2)]
        os.kill(server.pids()[0], signal.SIGKILL)
        answers = await asyncio.gather(*coming)
        again = await asyncio.gather(*(follow_link(server, code, nonce) for nonce in nonces))
    let_in = {each["token"] for each in answers if "token" in each}
    assert len(let_in) == MOST
    assert {each["error"]["code"] for each in answers if "token" not in each} == {"link_not_valid"}
    assert {each["token"] for each in again if "token" in each} == let_in
    async with await Ledger.open(server.store) as ledger:
        assert [each.uses for each in await Host(ledger).shares.list()] == [MOST]
        made = [each for each in await Host(ledger).tokens.list() if each.share is not None]
        assert {each.digest for each in made} == {digest_of(text) for text in let_in}
        assert await ledger.check() == []
