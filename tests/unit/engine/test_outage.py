"""Outages: a store that is away is logged when it goes, once a minute, and when it is back."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from turnledger import Ledger
from turnledger.engine.wrapped_store import AnyOperation, WrappedStore, Write
from turnledger.errors import StoreUnavailable
from turnledger.stores.memory import MemoryStore
from turnledger.testing.fake_clock import FakeClock


class AwayStore(WrappedStore):
    """A store that can be away."""

    is_away = False

    async def write(self, write: Write) -> Any:
        self._check()
        return await super().write(write)

    async def look(self, operation: AnyOperation, request: Any, owner: str | None) -> Any:
        self._check()
        return await super().look(operation, request, owner)

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailable("db.example: Connection refused.")


async def test_outage_of_the_store_is_logged_when_it_begins_each_minute_and_at_its_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnledger.engine.process.FIRST_DELAY", 0.0)
    store, clock = AwayStore(MemoryStore()), FakeClock()
    async with await Ledger.over(store, clock=clock) as ledger:
        chat = await ledger.conversation()
        async with chat.turn("q") as turn:
            with caplog.at_level(logging.INFO, "turnledger"):
                store.is_away = True
                for _ in range(25):
                    turn.emit("x")
                    await ledger._process.flusher.flush()
                    await ledger._recovery.run_round()
                    clock.advance(3.0)
                store.is_away = False
                await ledger._recovery.run_round()
                await ledger._recovery.run_round()
    logged = [
        (record.getMessage(), vars(record).get("seconds"), vars(record).get("details"))
        for record in caplog.records
    ]
    assert logged == [
        ("store_fails", 0, "db.example: Connection refused."),
        ("store_fails", 60, "db.example: Connection refused."),
        ("store_works_again", 75, None),
    ]
