"""The other end of `story.py`: reads orders as lines of JSON, has a client carry them out, and reports.

An adapter is two functions: `ask` returns a whole answer, `stream` yields its pieces until it is closed. One
for the Responses API has a third, `review`: it returns the id of its conversation or of its last response.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

BASE_URL = os.environ["COMPAT_URL"] + "/v1"
CONVERSATION = {"X-Conversation-Id": os.environ["COMPAT_CONVERSATION"]}
MODEL = os.environ["COMPAT_MODEL"]
replies, sys.stdout = sys.stdout, sys.stderr  # packages print, too


Ask = Callable[[str], Awaitable[str]]
Stream = Callable[[str], AsyncGenerator[str]]
Review = Callable[[], Awaitable[str]]


def run(ask: Ask, stream: Stream, review: Review | None = None) -> None:
    asyncio.run(_run(ask, stream, review))


async def _run(ask: Ask, stream: Stream, review: Review | None) -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        reply: dict[str, Any] = {"text": "", "error": None}
        try:
            if order["way"] == "ask":
                reply["text"] = await ask(order["text"])
            elif order["way"] == "review":
                assert review is not None
                reply["text"] = await review()
            else:
                async with aclosing(stream(order["text"])) as pieces:
                    async for piece in pieces:
                        reply["text"] += piece
                        if piece and order["way"] == "stop":
                            break
        except Exception as error:
            reply["error"] = f"{type(error).__name__}: {error}"
        print(json.dumps(reply), file=replies, flush=True)
