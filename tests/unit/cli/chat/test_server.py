"""Chats on a server, as the terminal sees them: the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.compat.served import Served, serving
from tests.unit.cli.talking.place_contract import PlaceContract, told, wish
from turnledger.cli.chat.server import OnServer, open_server
from turnledger.errors import ModelUnavailable
from turnledger.testing.gates import Gate

pytestmark = pytest.mark.anyio


@pytest.fixture
async def place() -> AsyncIterator[OnServer]:
    with serving(["You said", Gate()], ["You said", Gate()]) as served:
        place = open_server(served.url, None, None)
        yield place
        await place.close()


class TestOnServer(PlaceContract):
    pass


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as served:
        yield served


async def test_a_chat_in_which_nothing_was_answered_is_not_left_behind(served: Served) -> None:
    place = open_server(served.url, None, None)
    empty, used = place.new(), place.new()
    with pytest.raises(ModelUnavailable):
        await told(empty, wish("/fail", "k"))
    await told(used, wish("Hello"))
    assert len(await place.chats()) == 2
    await place.close()
    left = open_server(served.url, None, None)
    assert [chat.id for chat in await left.chats()] == [used.id]
    await left.close()


async def test_a_chat_stays_whose_first_turn_is_left_or_taken_back(served: Served) -> None:
    place = open_server(served.url, None, None)
    left, undone = place.new(), place.new()
    answering = left.ask(wish("/stall", "k"))
    events = aiter(answering)
    await anext(events)
    await answering.leave()
    await told(undone, wish("Hello"))
    await undone.undo((await undone.look()).turns[0].id)
    await place.close()
    later = open_server(served.url, None, None)
    assert {chat.id for chat in await later.chats()} == {left.id, undone.id}
    talk = await later.open(str(left.id))
    assert answering.turn is not None
    await talk.follow(answering.turn).stop()
    await later.close()


async def test_chats_of_one_scope(served: Served) -> None:
    place = open_server(served.url, None, "mine")
    talk = place.new()
    await told(talk, wish("Hello"))
    everywhere = open_server(served.url, None, None)
    await told(everywhere.new(), wish("Hello to all"))
    assert [chat.id for chat in await place.chats()] == [talk.id]
    assert len(await everywhere.chats()) == 2
    await place.close()
    await everywhere.close()
