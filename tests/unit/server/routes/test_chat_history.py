"""One chat over HTTP: its turns and the attempts outside its history, read at one moment."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.server.asgi import fetch
from turnledger import Chat, Ledger
from turnledger.engine.wrapped_store import AnyOperation, WrappedStore
from turnledger.server.app import make_app
from turnledger.server.config.settings import Settings
from turnledger.server.models.models import Models
from turnledger.stores.memory import MemoryStore


class HeldTurn:
    """A turn that commits when it is released."""

    def __init__(self, chat: Chat) -> None:
        self._began, self._released = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._run(chat))

    async def _run(self, chat: Chat) -> None:
        async with chat.turn("q") as turn:
            turn.emit("a")
            self._began.set()
            await self._released.wait()

    async def began(self) -> None:
        await self._began.wait()

    async def commit(self) -> None:
        self._released.set()
        await self._task


class CommitsBetweenReads(WrappedStore):
    """Lets the held turn commit after so many more reads."""

    held: HeldTurn | None = None
    reads_left = 0

    async def look(self, operation: AnyOperation, request: Any, owner: str | None) -> Any:
        result = await super().look(operation, request, owner)
        if self.held is not None:
            self.reads_left -= 1
            if not self.reads_left:
                held, self.held = self.held, None
                await held.commit()
        return result


async def test_turn_that_commits_between_any_two_reads_of_a_chat_is_shown_once() -> None:
    store = CommitsBetweenReads(MemoryStore())
    async with await Ledger.over(store) as ledger:
        app = make_app(ledger, Models({}), Settings())
        chat = await ledger.conversation()
        for number in range(1, 100):
            held = HeldTurn(chat)
            await held.began()
            store.held, store.reads_left = held, number
            shown = (await fetch(app, f"/api/chats/{chat.id}")).json
            is_committed, is_running = len(shown["turns"]) == number, bool(shown["attempts"])
            assert is_committed != is_running, f"a commit after read {number}"
            assert shown["is_running"] == is_running
            assert shown["turn_count"] == len(shown["turns"])
            if store.held is not None:
                await held.commit()
                break  # the request makes no more reads
    assert number > 1
