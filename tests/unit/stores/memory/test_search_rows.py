"""Places of what can be found in memory: given in order, and put back when a transaction is undone."""

import pytest

from turnledger import Ledger
from turnledger.engine.ports import Tables
from turnledger.errors import InvalidInput
from turnledger.model.ids import ConversationId
from turnledger.model.text.search import TITLES, sought_in
from turnledger.stores.memory import Database, MemoryStore, MemoryTables


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def places(tables: Tables, typed: str) -> list[int]:
    return [each.place for each in await tables.search("local", None, sought_in(typed), None, 10)]


async def test_titles_lie_above_all_turns_and_places_rise() -> None:
    store = MemoryStore()
    async with await Ledger.over(store) as ledger:
        for number in range(3):
            chat = await ledger.conversation(title=f"Heron {number}")
            async with chat.turn("A heron?") as turn:
                turn.emit("Yes.")
        found = await store.read(places, "heron")
    assert found == sorted(found, reverse=True)
    assert [place > TITLES for place in found] == [True] * 3 + [False] * 3


async def test_what_is_undone_takes_no_place() -> None:
    database = Database()
    store = MemoryStore(database)
    async with await Ledger.over(store) as ledger:
        await ledger.conversation(conversation_key="taken")
        before = dict(database.places)
        chat = await ledger.conversation()
        kept = dict(database.places)
        with pytest.raises(InvalidInput):
            await chat.fork(conversation_key="taken")
    assert database.places == kept
    assert len(kept) == len(before) + 1


async def test_places_stay_apart_when_a_removal_is_undone() -> None:
    database = Database()
    store = MemoryStore(database)
    async with await Ledger.over(store) as ledger:
        first, second = [await ledger.conversation(title="Heron") for _ in range(2)]

        async def remove_and_fail(tables: MemoryTables, _: None) -> None:
            tables._remove(database.places, ConversationId(first.id))
            raise InvalidInput("No.")

        with pytest.raises(InvalidInput):
            await store.transact(remove_and_fail, None)  # type: ignore[arg-type]
        third = await ledger.conversation(title="Heron")
        hits = (await ledger.search("heron")).hits
    assert [hit.conversation.id for hit in hits] == [third.id, second.id, first.id]
