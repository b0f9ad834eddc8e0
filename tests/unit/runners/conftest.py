"""A chat on a memory store, and recorded waits."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from turnledger import Chat, Ledger


@pytest.fixture
async def chat() -> AsyncIterator[Chat]:
    async with await Ledger.open("memory:") as ledger:
        yield await ledger.conversation()


class Waits(list[float]):
    """Replaces `sleep`: records the seconds, and returns at once."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def waits() -> Waits:
    return Waits()
