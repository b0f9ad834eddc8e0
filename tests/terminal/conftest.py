"""The home folder of a user, and the chats stored there."""

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
    """The default folder of the terminal."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path / "turnledger"
        self.store = f"sqlite:///{self.folder}/chats.db"

    def run(self, action: Callable[[Ledger], Awaitable[Answer]]) -> Answer:
        """Run work on the store."""

        async def answer() -> Answer:
            async with await Ledger.open(self.store) as ledger:
                return await action(ledger)

        return asyncio.run(answer())

    def turns(self) -> list[Turn]:
        """Turns of the chat used last."""

        async def look(ledger: Ledger) -> list[Turn]:
            page = await ledger.list(limit=1)
            return await (await ledger.conversation(page.chats[0].conversation.id)).turns()

        return self.run(look)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)
