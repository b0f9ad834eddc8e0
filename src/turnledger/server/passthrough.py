"""Without a conversation nothing is stored: the request goes to its model, and the answer comes back."""

from __future__ import annotations

import re

from turnledger.errors import MalformedAnswer
from turnledger.runners.chat_model import Asked, ChatModel
from turnledger.runners.said_once import SaidOnce
from turnledger.server.answer import Answer

_says_how_it_ended = re.compile(rb'"finish_reason"\s*:\s*"').search
"""Within a text, its quotes would be escaped."""


async def pass_through(asked: Asked, model: ChatModel, answer: Answer, *, stream: bool) -> None:
    """Ask, and tell the client what comes, as it comes, but for roles and names that come again. Raises what
    is to be told as an error. A client that goes away ends it: nobody is left to hear the rest. A stream that
    does not say how it ended is not called done: it may have been cut where nobody could see it."""
    async with answer.outlet.until_gone():
        if not stream:
            answer.whole(await model.complete(asked))
            return
        is_whole = False
        once = SaidOnce()
        async with model.stream(asked) as batches:
            async for payloads in batches:
                answer.chunks(list(map(once.without_repeats, payloads)))
                is_whole = is_whole or any(map(_says_how_it_ended, payloads))
                await (
                    answer.outlet.room()
                )  # no turn waits for a slow client here, and it has no other way to read
        if not is_whole:
            raise MalformedAnswer("The model's answer ended without a finish_reason: it may not be whole.")
        answer.done(())
