"""Without a conversation nothing is stored: the request goes to its model, and the answer comes back."""

from __future__ import annotations

import re
from collections.abc import Iterable

from turnledger.errors import ModelError
from turnledger.runners.chat_model import Asked, ChatModel, failure_of_end, finish_reasons_of
from turnledger.runners.said_once import SaidOnce
from turnledger.server.answer import Answer

_finish_reasons = re.compile(rb'"finish_reason"\s*:\s*"([^"]*)"').findall
"""Within a text, their quotes would be escaped."""


async def pass_through(
    asked: Asked, model: ChatModel, answer: Answer, *, stream: bool, is_judged: bool
) -> ModelError | None:
    """Ask, and tell the client what comes, as it comes, but for roles and names that come again. Raises what
    is to be told as an error. A client that goes away ends it: nobody is left to hear the rest. A stream that
    does not say how it ended is not called done: it may have been cut where nobody could see it.

    A `finish_reason` by which a turn would fail is raised if the answer `is_judged`, otherwise returned: the
    client reads it in the answer."""
    async with answer.outlet.until_gone():
        if not stream:
            body = await model.complete(asked)
            failure = _failure(model, _finish_reasons(body))
            if failure is not None and is_judged:
                raise failure
            answer.whole(body)
            return failure
        is_whole, failure = False, None
        once = SaidOnce()
        async with model.stream(asked) as batches:
            async for payloads in batches:
                answer.chunks(list(map(once.without_repeats, payloads)))
                for payload in payloads:
                    if reasons := _finish_reasons(payload):
                        is_whole, failure = True, failure or _failure(model, reasons)
                await (
                    answer.outlet.room()
                )  # no turn waits for a slow client here, and it has no other way to read
        if not is_whole:
            raise failure_of_end(None)
        if failure is not None and is_judged:
            raise failure
        answer.done(())
        return failure


def _failure(model: ChatModel, reasons: Iterable[bytes]) -> ModelError | None:
    known = finish_reasons_of(model)
    told = (reason.decode(errors="replace") for reason in reasons)
    unknown = next((reason for reason in told if reason and reason not in known), None)
    return None if unknown is None else failure_of_end(unknown)
