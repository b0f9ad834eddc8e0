"""A chat on a memory store, a model with canned answers, and recorded waits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from turnledger import Chat, Ledger
from turnledger.errors import ModelError
from turnledger.runners.chat_model import ModelRequest


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


class Canned:
    """Returns these payloads, and records the requests."""

    def __init__(self, *batches: list[bytes] | ModelError, completion: bytes = b"") -> None:
        self.batches = batches
        self.completion = completion
        self.received: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> bytes:
        self.received.append(request)
        return self.completion

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        self.received.append(request)
        yield self._batches()

    async def _batches(self) -> AsyncIterator[list[bytes]]:
        for batch in self.batches:
            if isinstance(batch, ModelError):
                raise batch
            yield batch

    async def models(self) -> list[dict[str, Any]]:
        return []

    async def close(self) -> None: ...


def whole(message: dict[str, Any], finish_reason: str | None = "stop", **others: Any) -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return msgspec.json.encode({"id": "c", "model": "m-1", "choices": [choice], **others})
