"""Requests to a scripted upstream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from turnledger.runners.chat_model import ModelRequest
from turnledger.runners.upstream.upstream import Upstream
from turnledger.testing.upstream import ScriptedUpstream

REQUEST = ModelRequest([{"role": "user", "content": "Hi"}], {"model": "m", "x_unknown": [1]})


@asynccontextmanager
async def upstream(url: str, **options: Any) -> AsyncIterator[Upstream]:
    model = Upstream(url, **options)
    try:
        yield model
    finally:
        await model.close()


@asynccontextmanager
async def open_upstream(scripted: ScriptedUpstream, **options: Any) -> AsyncIterator[Upstream]:
    async with scripted, upstream(scripted.url, **options) as model:
        yield model


async def payloads(model: Upstream, request: ModelRequest = REQUEST) -> list[bytes]:
    async with model.stream(request) as batches:
        return [payload async for batch in batches for payload in batch]


def text_of(chunks: Sequence[bytes]) -> str:
    choices = [choice for chunk in chunks for choice in msgspec.json.decode(chunk)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)
