"""Titles: a bounded number is made at once, nobody waits for them, and what goes wrong is logged and left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from turnledger import Ledger
from turnledger.chat import Chat
from turnledger.errors import ModelUnavailable
from turnledger.model.conversation import NamedBy
from turnledger.runners.chat_model import ModelRequest
from turnledger.server.models import titles as titles_module
from turnledger.server.models.models import ResolvedModel
from turnledger.server.models.titles import Titles
from turnledger.testing.gates import Gate


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def ledger(anyio_backend: str) -> AsyncIterator[Ledger]:
    async with await Ledger.open() as ledger:
        yield ledger


class Namer:
    """Says the same to everybody, behind a gate."""

    def __init__(self, problem: BaseException | None = None) -> None:
        self.gate = Gate()
        self.at_once = 0
        self.most_at_once = 0
        self._problem = problem

    async def complete(self, asked: ModelRequest) -> bytes:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.gate.pass_through()
        finally:
            self.at_once -= 1
        if self._problem is not None:
            raise self._problem
        choice = {"message": {"content": "A name"}, "finish_reason": "stop"}
        return msgspec.json.encode({"choices": [choice]})

    def stream(self, asked: ModelRequest) -> Any:
        raise AssertionError("a title is not streamed")

    async def models(self) -> list[dict[str, Any]]:
        return []

    async def close(self) -> None:
        return


async def talk(ledger: Ledger, titles: Titles) -> Chat:
    chat = await ledger.conversation()
    async with chat.turn("Hello there") as turn:
        turn.emit("Hi.")
    assert turn.turn is not None
    titles.consider(turn.conversation, turn.turn)
    return chat


async def made(titles: Titles) -> None:
    while titles.making:
        await asyncio.sleep(0)


async def test_so_many_at_once_so_many_wait_and_the_others_keep_their_words(ledger: Ledger) -> None:
    namer = Namer()
    titles = Titles(ledger, ResolvedModel(namer, "tiny"), at_once=2, waiting=3)
    chats = [await talk(ledger, titles) for _ in range(7)]
    await namer.gate.arrived(2)
    assert len(titles.making) == 5
    namer.gate.release()
    await made(titles)
    assert namer.most_at_once == 2
    by = [(await chat.info()).named_by for chat in chats]
    assert by == [NamedBy.MODEL] * 5 + [NamedBy.WORDS] * 2


@pytest.mark.parametrize("problem", [ModelUnavailable("gone"), TimeoutError(), ValueError("a bug")])
async def test_what_goes_wrong_is_left(ledger: Ledger, problem: BaseException) -> None:
    namer = Namer(problem)
    namer.gate.release()
    titles = Titles(ledger, ResolvedModel(namer, "tiny"))
    chat = await talk(ledger, titles)
    await made(titles)
    assert (await chat.info()).named_by is NamedBy.WORDS


async def test_a_model_that_takes_too_long_is_not_waited_for(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(titles_module, "PATIENCE", 0.0)
    titles = Titles(ledger, ResolvedModel(Namer(), "tiny"))
    chat = await talk(ledger, titles)
    await made(titles)
    assert (await chat.info()).named_by is NamedBy.WORDS


async def test_closing_leaves_off_and_takes_no_more(ledger: Ledger) -> None:
    namer = Namer()
    titles = Titles(ledger, ResolvedModel(namer, "tiny"))
    chat = await talk(ledger, titles)
    await namer.gate.arrived()
    await titles.close()
    assert not titles.making
    await talk(ledger, titles)
    assert not titles.making
    assert (await chat.info()).title == "Hello there"


async def test_what_nobody_lists_is_not_named(ledger: Ledger) -> None:
    titles = Titles(ledger, ResolvedModel(Namer(), "tiny"))
    chat = await ledger.conversation(internal=True)
    async with chat.turn("Hello") as turn:
        turn.emit("Hi.")
    assert turn.turn is not None
    titles.consider(turn.conversation, turn.turn)
    assert not titles.making
