"""Two workers are one server also for its links: a use is one use, whichever worker it comes to, and also
when a worker is killed while visitors come."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import msgspec

from tests.crash.served import exchange, request
from tests.crash.several_workers import SeveralWorkers, several_workers
from turnledger import Ledger
from turnledger.model.access.token import digest_of

MOST = 5
VISITORS = 12


async def follow(server: SeveralWorkers, code: str, nonce: str) -> dict[str, Any]:
    """Follow a link as the page does: until there is an answer, and with the same nonce."""
    async with asyncio.timeout(60):
        while True:
            try:
                body = {"code": code, "nonce": nonce}
                heard = await exchange(server.port, request("/api/shares/exchange", body))
                told: dict[str, Any] = msgspec.json.decode(heard.body)
                return told
            except (ConnectionError, msgspec.DecodeError):
                await asyncio.sleep(0)


async def test_each_use_is_one_though_workers_are_killed(tmp_path: Path) -> None:
    async with several_workers(tmp_path, None) as server:
        async with await Ledger.open(server.store) as ledger:
            _, code = await ledger.shares.create(scope="fair", max_uses=MOST)
        nonces = [f"made-up-by-the-page-of-{number:03}" for number in range(VISITORS)]
        coming = [asyncio.create_task(follow(server, code, nonce)) for nonce in nonces for _ in range(2)]
        os.kill(server.pids()[0], signal.SIGKILL)
        told = await asyncio.gather(*coming)
        again = await asyncio.gather(*(follow(server, code, nonce) for nonce in nonces))
    let_in = {each["token"] for each in told if "token" in each}
    assert len(let_in) == MOST
    assert {each["error"]["code"] for each in told if "token" not in each} == {"link_not_valid"}
    assert {each["token"] for each in again if "token" in each} == let_in
    async with await Ledger.open(server.store) as ledger:
        assert [each.uses for each in await ledger.shares.list()] == [MOST]
        made = [each for each in await ledger.tokens.list() if each.share is not None]
        assert {each.digest for each in made} == {digest_of(text) for text in let_in}
        assert await ledger.check() == []
