"""Whether it lives, whether it can work, and what it counts."""

from __future__ import annotations

import pytest

from tests.unit.server.asgi import ask, serving
from turnledger import Ledger
from turnledger.engine.lane.lease import renew
from turnledger.errors import StoreFull
from turnledger.server.app import make_app
from turnledger.server.config.settings import Settings
from turnledger.server.models.models import Models
from turnledger.server.ops import readiness
from turnledger.stores.memory import MemoryStore
from turnledger.testing.gates import GatedStore


async def test_it_lives_and_can_work() -> None:
    async with serving() as app:
        assert (await ask(app, "/healthz")).json == {"status": "ok"}
        reply = await ask(app, "/readyz")
        assert (reply.status, reply.json) == (200, {"status": "ready"})
        assert (await ask(app, "/healthz", method="HEAD")).status == 200


async def test_without_its_store_it_is_not_ready_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "FRESH", 0.0)
    store = GatedStore(MemoryStore())
    async with await Ledger.over(store) as ledger:
        app = make_app(ledger, Models({}), Settings())
        store.refuse(renew, StoreFull("/home/somebody/chats.db: disk is full."))
        reply = await ask(app, "/readyz")
        assert (reply.status, reply.json["status"]) == (503, "store_full")
        assert "free some space" in reply.json["message"]
        assert b"somebody" not in reply.body
        assert (await ask(app, "/healthz")).status == 200
        assert (await ask(app, "/readyz")).status == 200


async def test_a_server_that_is_about_to_end_is_not_ready() -> None:
    async with serving() as app:
        app.service.shutting_down.set()
        reply = await ask(app, "/readyz")
        assert (reply.status, reply.json["status"]) == (503, "shutting_down")
        assert "about to end" in reply.json["message"]
        assert (await ask(app, "/healthz")).status == 200


async def test_metrics_are_read_as_text() -> None:
    async with serving() as app:
        await ask(app, "/nothing")
        reply = await ask(app, "/metrics")
        assert (reply.header(b"content-type") or b"").startswith(b"text/plain")
        assert b'turnledger_requests_total{status="404"} 1.0' in reply.body
        for name in (b"running_turns", b"queue_length", b"event_readers"):
            assert b"turnledger_" + name + b" 0.0" in reply.body
