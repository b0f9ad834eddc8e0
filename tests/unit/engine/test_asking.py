"""What a caller asks for is checked before anything begins."""

from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from tests.unit.engine.stage import HandClock
from tests.unit.model.shapes import assistant, call, result, user
from turnledger import Chat, Context, Ledger, Limits
from turnledger.engine.asking import begin_request
from turnledger.engine.context import ALL
from turnledger.engine.idempotency import fingerprint
from turnledger.errors import InvalidInput, MalformedItems, NoNewInput
from turnledger.model.instructions import Instructions
from turnledger.model.item import message
from turnledger.stores.memory import MemoryStore

LIMITS = Limits(input_items=3, turn_bytes=400)


@pytest.fixture
async def chat() -> AsyncIterator[Chat]:
    async with await Ledger.over(MemoryStore(), clock=HandClock(), random=Random(1), limits=LIMITS) as ledger:
        yield await ledger.conversation()


async def test_a_plain_request_asks_for_nothing_special(chat: Chat) -> None:
    request = begin_request(chat._process, chat._target(), "Hello")
    assert (request.input, request.instructions, request.priming) == ((user(),), None, ())
    assert request.context is ALL
    assert request.key is None


async def test_everything_is_passed_on(chat: Chat) -> None:
    context = Context.last(3)
    request = begin_request(
        chat._process,
        chat._target(),
        "Hello",
        instructions_once="Sing.",
        priming=[user(), assistant()],
        context=context,
        idempotency_key="i",
    )
    given = Instructions((message("system", "Sing."),), is_lasting=False)
    assert (request.instructions, request.priming) == (given, (user(), assistant()))
    assert request.context is context
    assert request.key is not None
    assert request.key.fingerprint == fingerprint(
        (user(),), instructions=given, priming=(user(), assistant())
    )


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"instructions": "x" * 400}, MalformedItems, "instructions is too large"),
        ({"instructions_once": ["a"] * 4}, MalformedItems, "instructions is too large"),
        ({"instructions": "a", "instructions_once": "b"}, InvalidInput, "not both"),
        ({"instructions": user()}, MalformedItems, "system or developer"),
        ({"priming": ["a"] * 4}, MalformedItems, "primes the turn is too large"),
        ({"priming": [call()]}, MalformedItems, "result for each"),
        ({"priming": [result()]}, MalformedItems, "no such call"),
        ({"input": ["a"] * 4}, MalformedItems, "input is too large"),
        ({"input": " ", "instructions": "Be brief."}, NoNewInput, "user message"),
        ({"idempotency_key": ""}, InvalidInput, "idempotency_key"),
        ({"on_busy": "maybe"}, InvalidInput, "queue, reject"),
    ],
)
async def test_what_cannot_be_done_is_refused_at_once(
    chat: Chat, options: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        chat.turn(**{"input": "Hello", **options})


def test_requests_differ_by_their_instructions_and_priming() -> None:
    items = (message("system", "a"),)
    lasting, once = Instructions(items), Instructions(items, is_lasting=False)
    prints = [
        fingerprint((user(),)),
        fingerprint((user(), *items)),
        fingerprint((user(),), None, None),
        fingerprint((user(),), instructions=Instructions(())),
        fingerprint((user(),), instructions=lasting),
        fingerprint((user(),), instructions=once),
        fingerprint((user(),), priming=items),
        fingerprint((user(),), instructions=lasting, priming=items),
        fingerprint((user(),), instructions=Instructions((*items, *items))),
    ]
    assert len(set(prints)) == len(prints)
