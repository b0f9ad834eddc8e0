"""A token that ends during a request has no further effect and uses up no limit of its owner."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
import pytest
from starlette.types import Message

from tests.guarded.test_limits import PATH, House, house
from tests.guarded.town import Town, body_of, town
from tests.unit.server.asgi import HOST, JSON, Reply, fetch
from turnledger.hosting import Host
from turnledger.model.access.token import Token, TokenScope

ALL = tuple(TokenScope)
GOOD = msgspec.json.encode({"model": "demo", "messages": [{"role": "user", "content": "Hi"}]})
BAD = (b"{", b'{"model":"nope","messages":[]}', b'{"model":"demo","messages":[7]}', b'{"model":"demo"}')


async def bearer(here: House, **fields: Any) -> tuple[Token, list[tuple[bytes, bytes]]]:
    token, text = await Host(here.ledger).tokens.create(owner="ann", scopes=ALL, **fields)
    named = (b"x-conversation-id", b"one")
    return token, [HOST, JSON, (b"authorization", f"Bearer {text}".encode()), named]


async def post(here: House, headers: list[tuple[bytes, bytes]], body: bytes = GOOD) -> Reply:
    return await fetch(here.app, PATH, method="POST", headers=headers, parts=(body,))


@pytest.mark.parametrize("body", BAD)
async def test_malformed_request_of_a_revoked_token_is_answered_with_token_revoked(body: bytes) -> None:
    async with house() as here:
        here.model.gate.release()
        token, headers = await bearer(here)
        assert (await post(here, headers)).status == 200
        assert (await post(here, headers, body)).status in (400, 404)
        await Host(here.ledger).tokens.revoke(token.id)
        refused = await post(here, headers, body)
        assert (refused.status, refused.code) == (401, "token_revoked")


@pytest.mark.parametrize("body", BAD)
async def test_malformed_tokenless_request_is_answered_with_missing_token(body: bytes) -> None:
    async with house() as here:
        here.model.gate.release()
        assert (await here.fetch(None, "one")).status == 200
        await Host(here.ledger).tokens.create(owner="ann", scopes=ALL)
        refused = await post(here, [HOST, JSON, (b"x-conversation-id", b"one")], body)
        assert (refused.status, refused.code) == (401, "missing_token")


@pytest.mark.parametrize("body", [GOOD, *BAD])
async def test_revoked_token_does_not_use_up_the_turn_limit_of_its_owner(body: bytes) -> None:
    async with house(owner_turns_per_minute=3) as here:
        here.model.gate.release()
        token, headers = await bearer(here)
        assert (await post(here, headers)).status == 200
        await Host(here.ledger).tokens.revoke(token.id)
        assert [(await post(here, headers, body)).status for _ in range(5)] == [401] * 5
        assert (await here.fetch("ann", "one")).status == 200


async def test_revoked_token_with_a_slow_body_does_not_hold_a_turn_slot() -> None:
    async with house(owner_turns=1) as here:
        token, headers = await bearer(here)
        assert (await post(here, headers, b"{")).status == 400
        await Host(here.ledger).tokens.revoke(token.id)
        here.clock.advance(11)
        slow = Slow(here, PATH, headers)
        assert await slow.status() == 401
        assert not slow.awaited.is_set()


async def test_token_that_expires_in_the_queue_starts_no_turn() -> None:
    async with house() as here:
        _, headers = await bearer(here, lifetime=10)
        first = await here.begin("ann", "one")
        waiting = asyncio.create_task(post(here, headers))
        while Host(here.ledger).at_work().waiting != 1:
            await asyncio.sleep(0)
        here.clock.advance(10)
        here.model.gate.release()
        assert (await first).status == 200
        refused = await waiting
        assert (refused.status, refused.code) == (401, "token_expired")
        chat = await here.ledger.for_owner("ann").conversation(conversation_key="one")
        assert len(await chat.turns()) == 1


async def test_token_that_expires_before_the_body_arrives_starts_no_turn() -> None:
    async with house() as here:
        here.model.gate.release()
        _, headers = await bearer(here, lifetime=10)
        slow = Slow(here, PATH, headers)
        await slow.awaited.wait()
        here.clock.advance(10)
        slow.body.put_nowait(GOOD)
        assert await slow.status() == 401
        assert (await here.ledger.for_owner("ann").list()).chats == ()


async def test_token_revoked_before_the_body_arrives_stops_no_turn() -> None:
    async with house() as here:
        token, headers = await bearer(here)
        running = await here.begin("ann", "one")
        (turn,) = here.ledger._process.running
        slow = Slow(here, f"/api/turns/{turn}/stop", headers)
        await slow.awaited.wait()
        await Host(here.ledger).tokens.revoke(token.id)
        slow.body.put_nowait(b"{}")
        assert await slow.status() == 401
        here.model.gate.release()
        assert (await running).status == 200


async def test_token_revoked_before_the_body_arrives_changes_no_data_on_every_route() -> None:
    async with town() as place:
        walked = [each for each in place.operations() if "requestBody" in each.about and not each.is_public]
        assert len(walked) > 10
        for operation in walked:
            token, text = await Host(place.ledger).tokens.create(owner="alice", scopes=ALL)
            path = re.sub(r"{(\w+)}", lambda found: place.ids[found[1]], operation.path)
            shown = (b"authorization", f"Bearer {text}".encode())
            headers = [HOST, JSON, shown]
            slow = Slow(place, path, headers, operation.method)
            async with asyncio.timeout(20):
                await slow.awaited.wait()
            await Host(place.ledger).tokens.revoke(token.id)
            before = await place.alices()
            body = place.bodies[operation.name] if operation.name in place.bodies else body_of(operation)
            slow.body.put_nowait(msgspec.json.encode(body))
            assert await slow.status() == 401, operation.name
            assert await place.alices() == before, operation.name


async def test_attached_follower_ends_when_its_token_is_revoked() -> None:
    async with house() as here:
        token, headers = await bearer(here)
        first = await here.begin("ann", "one", idempotency_key="once")
        follower = asyncio.create_task(post(here, [*headers, (b"idempotency-key", b"once")]))
        await here.until("readers", 1)
        await here.app.service.token_watch.check_tokens()
        await Host(here.ledger).tokens.revoke(token.id)
        await here.app.service.token_watch.check_tokens()
        refused = await follower
        assert (refused.status, refused.code) == (401, "token_revoked")
        assert here.counters.sum("readers") == 0
        here.model.gate.release()
        assert (await first).status == 200


class Slow:
    """A request with a body that the test sends later."""

    def __init__(
        self, here: House | Town, path: str, headers: list[tuple[bytes, bytes]], method: str = "POST"
    ) -> None:
        self.awaited = asyncio.Event()
        self.body: asyncio.Queue[bytes] = asyncio.Queue()
        self._answers: list[Message] = []
        declared = [*headers, (b"content-length", b"9")]
        scope = {"type": "http", "method": method, "path": path, "headers": declared, "query_string": b""}
        self.pending = asyncio.create_task(here.app(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        self.awaited.set()
        return {"type": "http.request", "body": await self.body.get()}

    async def _send(self, message: Message) -> None:
        self._answers.append(message)

    async def status(self) -> int:
        await self.pending
        return int(self._answers[0]["status"])
