"""The demo model: a chat model without a network and without chance, to try everything with.

It says what it was asked and what it remembers, so that one can see what became of a turn. Words at the
beginning of a message make it think, call tools, fail, stall or crawl; `/help` lists them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from turnledger.errors import MalformedAnswer, ModelTimeout, ModelUnavailable
from turnledger.runners.call_deltas import CallDeltas
from turnledger.runners.chat_model import Asked
from turnledger.runners.demo_part import Ending, Part, decoded, part_of

_FAILED = "The demo model failed, as it was asked to."
_STALLED = "The demo model stalled, as it was asked to."
_CUT = "The demo model broke off, as it was asked to."


class DemoModel:
    """Answers word by word, one every `pace` seconds; with `/slow`, one every `slow_pace`. A stall ends with
    ModelTimeout after `patience` seconds. Time is what `sleep` and `now` make it."""

    def __init__(
        self,
        *,
        pace: float = 0.02,
        slow_pace: float = 0.5,
        patience: float = 60.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._pace = pace
        self._slow_pace = slow_pace
        self._patience = patience
        self._sleep = sleep
        self._now = now

    async def complete(self, asked: Asked) -> bytes:
        """Say it all at once; see ChatModel."""
        part = part_of(asked)
        if part.is_slow:
            await self._sleep(self._slow_pace * len(part.deltas))
        await self._end(part)
        if part.ending is Ending.CUT:
            raise MalformedAnswer(_CUT)
        choice = {"index": 0, "message": _message(part), "finish_reason": part.finish_reason}
        whole = self._answer("chat.completion", asked, [choice])
        return msgspec.json.encode({**whole, "usage": part.usage})

    @asynccontextmanager
    async def stream(self, asked: Asked) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Say it word by word; see ChatModel."""
        part = part_of(asked)
        if part.ending is Ending.FAILS and not part.deltas:
            raise ModelUnavailable(_FAILED)
        chunks = self._chunks(asked, part)
        try:
            yield chunks
        finally:
            await chunks.aclose()

    async def models(self) -> list[dict[str, Any]]:
        """List the one model there is; see ChatModel."""
        return [{"id": "demo", "object": "model", "created": 0, "owned_by": "turnledger"}]

    async def close(self) -> None:
        """There is nothing to let go of."""

    async def _chunks(self, asked: Asked, part: Part) -> AsyncGenerator[list[bytes], None]:
        pace = self._slow_pace if part.is_slow else self._pace
        wants_usage = _wants_usage(asked.stream_options)
        usage: dict[str, Any] = {"usage": None} if wants_usage else {}  # as OpenAI's: null until the last
        yield self._chunk(asked, {"role": "assistant", "content": ""}, **usage)
        for delta in part.deltas:
            await self._sleep(pace)
            yield self._chunk(asked, delta, **usage)
        await self._end(part)
        if part.ending is Ending.CUT:
            return
        yield self._chunk(asked, {}, part.finish_reason, **usage)
        if wants_usage:
            whole = self._answer("chat.completion.chunk", asked, [])
            yield [msgspec.json.encode({**whole, "usage": part.usage})]

    async def _end(self, part: Part) -> None:
        if part.ending is Ending.FAILS:
            raise ModelUnavailable(_FAILED)
        if part.ending is Ending.STALLS:
            await self._sleep(self._patience)
            raise ModelTimeout(_STALLED)

    def _chunk(
        self, asked: Asked, delta: dict[str, Any], finish_reason: str | None = None, **more: Any
    ) -> list[bytes]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return [msgspec.json.encode({**self._answer("chat.completion.chunk", asked, [choice]), **more})]

    def _answer(self, kind: str, asked: Asked, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": "chatcmpl-demo",
            "object": kind,
            "created": int(self._now()),
            "model": asked.settings.get("model", "demo"),
            "choices": choices,
        }


def _message(part: Part) -> dict[str, Any]:
    """The message that the deltas make together."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls = CallDeltas()
    for delta in part.deltas:
        calls.add(delta.get("tool_calls", []))
        for name in ("content", "refusal", "reasoning_content"):
            if name in delta:
                message[name] = (message.get(name) or "") + delta[name]
    if gathered := calls.whole():
        message["tool_calls"] = gathered
    return message


def _wants_usage(options: Any) -> bool:
    options = decoded(options)
    return isinstance(options, dict) and options.get("include_usage") is True
