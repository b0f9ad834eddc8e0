"""A person's home, and the chats that are kept there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from turnledger import Ledger
from turnledger.model.turn import Turn

Answer = TypeVar("Answer")


class Home:
    """Where the terminal keeps everything, when nobody says otherwise."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path / "turnledger"
        self.store = f"sqlite:///{self.folder}/chats.db"

    def asked(self, ask: Callable[[Ledger], Awaitable[Answer]]) -> Answer:
        """What a program finds in the store."""

        async def answer() -> Answer:
            async with await Ledger.open(self.store) as ledger:
                return await ask(ledger)

        return asyncio.run(answer())

    def turns(self) -> list[Turn]:
        """The turns of the chat that was used last."""

        async def look(ledger: Ledger) -> list[Turn]:
            page = await ledger.list(limit=1)
            return await (await ledger.conversation(page.chats[0].conversation.id)).turns()

        return self.asked(look)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)
