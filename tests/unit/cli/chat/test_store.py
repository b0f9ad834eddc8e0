"""Chats of a store, as the terminal sees them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.unit.cli.talking.place_contract import STALLING, PlaceContract, told, wish
from turnledger.cli.chat.store import OnStore, StoreModels, TitleWriter
from turnledger.ledger import Ledger
from turnledger.runners.chat_model import ModelRequest
from turnledger.runners.demo import DemoModel
from turnledger.server.models.models import Models, ResolvedModel

pytestmark = pytest.mark.anyio


async def at_once(seconds: float) -> None:
    await asyncio.sleep(0)


class Stalling(DemoModel):
    """Says `You said`, whatever it is asked, and waits."""

    def stream(self, asked: ModelRequest):  # type: ignore[no-untyped-def]
        messages = [{"role": "user", "content": "/stall after 2"}]
        return super().stream(ModelRequest(messages, asked.settings))


@pytest.fixture
async def place() -> AsyncIterator[OnStore]:
    stalling = Stalling(pace=0, patience=3600)
    known = {
        "demo": ResolvedModel(DemoModel(sleep=at_once), "demo"),
        STALLING: ResolvedModel(stalling, "demo"),
    }
    place = OnStore(await Ledger.open(), StoreModels(Models(known)), "memory")
    yield place
    await place.close()


class TestOnStore(PlaceContract):
    pass


async def test_what_is_hidden_from_people_is_not_shown(place: OnStore) -> None:
    talk = place.new()
    await told(talk, wish("A secret"))
    (turn,) = (await talk.look()).turns
    await (await place.ledger.conversation(talk.id)).flag(turn.id, 1, to_user=False)
    (turn,) = (await talk.look()).turns
    assert (turn.asked, turn.output) == ("A secret", ())
    (version,) = await talk.versions(turn.id)
    assert version.turn == turn


async def test_results_that_came_with_a_turn_are_seen(place: OnStore) -> None:
    chat = await place.ledger.conversation()
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    async with chat.turn("Look") as turn:
        turn.put(call)
    async with chat.turn({"type": "function_call_output", "call_id": "c", "output": "A cat"}) as turn:
        turn.emit("It is a cat.")
    first, second = (await (await place.open(chat.id)).look()).turns
    assert (first.asked, [item.type for item in first.output]) == ("Look", ["function_call"])
    assert (second.asked, [item.type for item in second.output]) == ("", ["function_call_output", "message"])


async def test_a_turn_that_is_left_ends_with_nothing(place: OnStore) -> None:
    talk = place.new()
    answering = talk.ask(wish("Stall", model=STALLING))
    async for _ in answering:
        break
    assert await answering.leave() is False
    assert (await talk.look()).turns == []


async def test_a_model_names_a_chat_behind_its_first_turn(place: OnStore) -> None:
    place.naming = TitleWriter(place.ledger, ResolvedModel(DemoModel(sleep=at_once), "demo"))
    talk = place.new()
    changes = place.changes()
    await told(talk, wish("Hello"))
    while (await talk.look()).chat.title == "Hello":
        await anext(changes)
    title = (await talk.look()).chat.title
    assert title is not None
    assert title.startswith("You said")
    await told(talk, wish("Again"))
    assert (await talk.look()).chat.title == title
