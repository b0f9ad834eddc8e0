"""Without a conversation nothing is stored: the request goes to its model, and the answer comes back."""

from __future__ import annotations

from turnledger.runners.chat_model import Asked, ChatModel
from turnledger.server.answer import Answer


async def pass_through(asked: Asked, model: ChatModel, answer: Answer, *, stream: bool) -> None:
    """Ask, and tell the client what comes, as it comes. Raises what is to be told as an error. A client that
    goes away ends it: nobody is left to hear the rest."""
    async with answer.outlet.until_gone():
        if not stream:
            answer.whole(await model.complete(asked))
            return
        async with model.stream(asked) as batches:
            async for payloads in batches:
                answer.chunks(payloads)
        answer.done(())
