"""Stopping a turn: a body that says something else than how is refused, and the turn runs on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.server.asgi import HOST, JSON, ask
from turnledger import Ledger
from turnledger.model.attempt import AttemptState
from turnledger.server.app import make_app
from turnledger.server.models import Models
from turnledger.server.settings import Settings


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
