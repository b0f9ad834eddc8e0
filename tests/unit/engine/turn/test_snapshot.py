"""A turn runs on what was there when it began, and asks the store for no more than it needs."""

from collections.abc import AsyncIterator
from random import Random

import pytest

from tests.unit.engine.stage import HandClock
from turnledger import Chat, Context, Ledger
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.gates import GatedStore


@pytest.fixture
def store() -> GatedStore:
    return GatedStore(MemoryStore(Database()))


@pytest.fixture
async def chat(store: GatedStore) -> AsyncIterator[Chat]:
    async with await Ledger.over(store, clock=HandClock(), random=Random(1)) as ledger:
        yield await ledger.conversation()


async def say(chat: Chat, text: str, **options: object) -> list[str]:
    async with chat.turn(text, **options) as turn:  # type: ignore[arg-type]
        seen = [item.text for item in turn.items]
        turn.emit("a")
    return seen


async def test_a_turn_that_needs_nothing_special_reads_nothing(chat: Chat, store: GatedStore) -> None:
    await say(chat, "q")
    store.trips.clear()
    await say(chat, "q")
    assert store.trips == ["begin", "commit"]


async def test_instructions_in_force_are_not_read_again_where_the_history_is_known(
    chat: Chat, store: GatedStore
) -> None:
    await say(chat, "q", instructions="Be brief.")
    store.trips.clear()
    assert (await say(chat, "q"))[0] == "Be brief."
    assert store.trips == ["begin", "commit"]


async def test_flags_are_read_once_for_each_change(chat: Chat, store: GatedStore) -> None:
    await say(chat, "q1")
    turn = (await chat.turns())[0]
    await chat.flag(turn.id, 0, to_model=False)
    store.trips.clear()
    assert await say(chat, "q2") == ["a", "q2"]
    assert await say(chat, "q3") == ["a", "q2", "a", "q3"]
    assert await say(chat, "q4", context=Context.last(2)) == ["q2", "a", "q3", "a", "q4"]
    assert store.trips.count("read_flags") == 1
    await chat.flag(turn.id, 1, to_model=False)
    assert await say(chat, "q5", context=Context.last(9)) == ["q2", "a", "q3", "a", "q4", "a", "q5"]
    assert store.trips.count("read_flags") == 2


async def test_a_flag_that_changes_nothing_makes_nobody_read_again(chat: Chat, store: GatedStore) -> None:
    await say(chat, "q1")
    turn = (await chat.turns())[0]
    await chat.flag(turn.id, 0, to_model=False)
    await say(chat, "q2")
    store.trips.clear()
    await chat.flag(turn.id, 0, to_model=False)
    assert await say(chat, "q3") == ["a", "q2", "a", "q3"]
    assert "read_flags" not in store.trips


async def test_flags_of_others_are_not_read(chat: Chat, store: GatedStore) -> None:
    await say(chat, "q")
    other = await Ledger(chat._process).conversation(owner="eve")
    await say(other, "q")
    await other.flag((await other.turns())[0].id, to_model=False)
    store.trips.clear()
    assert await say(chat, "q2") == ["q", "a", "q2"]
    assert store.trips == ["begin", "commit"]


async def test_a_snapshot_does_not_change_while_the_turn_runs(chat: Chat) -> None:
    await say(chat, "q", instructions="Be brief.")
    first = (await chat.turns())[0]
    async with chat.turn("q2") as turn:
        before = turn.items
        await chat.flag(first.id, to_model=False)
        assert turn.items == before
        assert [item.text for item in turn.instructions] == ["Be brief."]
        turn.emit("a")
    assert await say(chat, "q3") == ["Be brief.", "q2", "a", "q3"]
