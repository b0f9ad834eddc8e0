"""Without a conversation nothing is stored: the request goes to its model, and the answer comes back."""

from __future__ import annotations

import asyncio

from turnledger.runners.chat_model import Asked, ChatModel
from turnledger.server.answer import Answer


async def pass_through(asked: Asked, model: ChatModel, answer: Answer, *, stream: bool) -> None:
    """Ask, and tell the client what comes, as it comes. Raises what is to be told as an error. A client that
    goes away ends it: nobody is left to hear the rest."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - it is awaited by one
    answer.outlet.watch(task.cancel)
    try:
        await _ask(asked, model, answer, stream=stream)
    except asyncio.CancelledError:
        if not answer.outlet.is_broken or task.uncancel():
            raise


async def _ask(asked: Asked, model: ChatModel, answer: Answer, *, stream: bool) -> None:
    if not stream:
        answer.whole(await model.complete(asked))
        return
    async with model.stream(asked) as payloads:
        async for several in payloads:
            for payload in several:
                answer.chunk(payload)
    answer.done(())
