"""The other end of `story.py`: reads orders as lines of JSON, has a client carry them out, and reports.

An adapter is two functions: `ask` returns a whole answer, `stream` yields its pieces until it is closed.
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


def run(ask: Callable[[str], Awaitable[str]], stream: Callable[[str], AsyncGenerator[str]]) -> None:
    asyncio.run(_run(ask, stream))


async def _run(ask: Callable[[str], Awaitable[str]], stream: Callable[[str], AsyncGenerator[str]]) -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        reply: dict[str, Any] = {"text": "", "error": None}
        try:
            if order["way"] == "ask":
                reply["text"] = await ask(order["text"])
            else:
                async with aclosing(stream(order["text"])) as pieces:
                    async for piece in pieces:
                        reply["text"] += piece
                        if piece and order["way"] == "stop":
                            break
        except Exception as error:
            reply["error"] = f"{type(error).__name__}: {error}"
        print(json.dumps(reply), file=replies, flush=True)
