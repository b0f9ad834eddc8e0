"""One turn: where it stands; and stopping it, or whichever runs in a chat."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from tests.unit.server.asgi import HOST, JSON, ask
from turnledger import Ledger
from turnledger.errors import ModelTimeout, TurnStopped
from turnledger.model.turn import AttemptState
from turnledger.server.app import make_app
from turnledger.server.config.settings import Settings
from turnledger.server.models.models import Models


@pytest.mark.parametrize("body", [b'{"polcy": "discard"}', b'{"policy": "drop"}', b"[]", b"{"])
async def test_a_stop_that_is_not_understood_stops_nothing(body: bytes) -> None:
    told: list[Any] = []
    async with await Ledger.open("memory:") as ledger:
        app = make_app(ledger, Models({}), Settings())
        async with ledger.turn("Hello") as turn:
            path = f"/api/turns/{turn.id}/stop"
            headers = [HOST, JSON, (b"content-length", b"%d" % len(body))]
            stopping = ask(app, path, method="POST", headers=headers, parts=(body,))
            told.append(await asyncio.create_task(stopping))  # who runs the turn cannot wait for its end
            turn.emit("Hi.")
    assert (told[0].status, turn.state) == (400, AttemptState.COMPLETED)


async def test_where_a_turn_stands_is_told_while_it_runs_and_after() -> None:
    async with await Ledger.open("memory:") as ledger:
        app = make_app(ledger, Models({}), Settings())
        async with ledger.turn("Hello", conversation_key="k") as turn:
            running = await ask(app, f"/api/turns/{turn.id}")
            turn.emit("Hi.")
        after = await ask(app, f"/api/turns/{turn.id}")
    assert (running.status, running.json["state"]) == (200, "running")
    assert (running.json["turn"], running.json["branch"], running.json["failure"]) == (None, None, None)
    assert running.json["chat"]["id"] == str(turn.conversation.id)
    assert (after.json["state"], after.json["turn"]["id"]) == ("completed", str(turn.id))
    assert (after.json["branch"], after.json["chat"]["turn_count"]) == (str(turn.branch.id), 1)


async def test_a_turn_that_failed_says_why_and_one_that_nobody_knows_is_not_there() -> None:
    async with await Ledger.open("memory:") as ledger:
        app = make_app(ledger, Models({}), Settings())
        with pytest.raises(ModelTimeout):
            async with ledger.turn("Hello") as turn:
                raise ModelTimeout
        failed = await ask(app, f"/api/turns/{turn.id}")
        unknown = await ask(app, "/api/turns/turn_01890000000070008000000000000000")
    assert (failed.json["state"], failed.json["failure"]["code"]) == ("failed", "model_timeout")
    assert (unknown.status, unknown.code) == (404, "turn_not_found")


@pytest.mark.parametrize("policy", ["keep", "discard"])
async def test_a_stop_of_a_chat_is_one_of_the_turn_that_runs_there(policy: str) -> None:
    async with await Ledger.open("memory:") as ledger:
        app = make_app(ledger, Models({}), Settings())
        chat = await ledger.conversation()
        began = asyncio.Event()

        async def run() -> None:
            with suppress(TurnStopped):
                async with chat.turn("Hello") as turn:
                    turn.emit("Hi")
                    began.set()
                    await asyncio.Event().wait()

        running = asyncio.create_task(run())
        await began.wait()
        body = msgspec.json.encode({"policy": policy})
        headers = [HOST, JSON, (b"content-length", b"%d" % len(body))]
        path = f"/api/chats/{chat.id}/stop"
        stopped = await ask(app, path, method="POST", headers=headers, parts=(body,))
        again = await ask(app, path, method="POST")
        await running
        state = "kept" if policy == "keep" else "discarded"
        assert (stopped.status, stopped.json["state"]) == (200, state)
        assert stopped.json["committed"] is (policy == "keep")
        assert (again.status, again.json["state"], again.json["turn"]) == (200, None, None)
        [attempt] = (await chat.turns()) or [each.attempt for each in await chat.attempts()]
        assert stopped.json["turn"] == str(attempt.id)
