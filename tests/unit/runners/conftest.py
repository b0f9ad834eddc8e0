"""What tests of runners share: a chat over a memory store, and waits that are counted instead of waited."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from turnledger import Chat, Ledger


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def chat() -> AsyncIterator[Chat]:
    async with await Ledger.open("memory:") as ledger:
        yield await ledger.conversation()


class Waits(list[float]):
    """Stands for `sleep`: notes how long was asked for, and returns at once."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def waits() -> Waits:
    return Waits()
