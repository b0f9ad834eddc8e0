"""A turn runs on what was there when it began, and reads no more of it than its context can show."""

from collections.abc import AsyncIterator
from random import Random

import pytest
from msgspec.structs import replace

from tests.unit.engine.stage import HandClock
from tests.unit.model.shapes import call, result
from turnledger import Chat, Context, Ledger
from turnledger.engine.history.history import TurnsRequest
from turnledger.engine.ports import Operation, Request, Result
from turnledger.engine.turn.snapshot import FIRST_PAGE
from turnledger.errors import StoreCorrupt
from turnledger.model.item import Item
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


LENGTH = 70


class Reading(MemoryStore):
    """Notes which turns are read."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.read_turns: list[int] = []

    async def read(self, operation: Operation[Request, Result], request: Request) -> Result:
        result = await super().read(operation, request)
        if isinstance(request, TurnsRequest):
            self.read_turns += [turn.number for turn in result]  # type: ignore[attr-defined]
        return result


def one(item: Item) -> int:
    return 1


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def reading(database: Database) -> Reading:
    return Reading(database)


@pytest.fixture
async def long_chat(database: Database, reading: Reading) -> AsyncIterator[Chat]:
    """A long conversation that was held in another process."""
    async with (
        await Ledger.over(MemoryStore(database), clock=HandClock(), random=Random(1)) as other,
        await Ledger.over(reading, clock=HandClock(), random=Random(2)) as ledger,
    ):
        made = await other.conversation()
        for number in range(1, LENGTH + 1):
            async with made.turn(f"q{number}", instructions="Be brief." if number == 3 else None) as turn:
                turn.emit(f"a{number}")
        yield await ledger.conversation(made.id)


@pytest.mark.parametrize("turns", [0, 1, 5, LENGTH - 1, LENGTH, LENGTH + 5])
async def test_the_last_turns_and_one_more_are_read(long_chat: Chat, reading: Reading, turns: int) -> None:
    async with long_chat.turn("q", context=Context.last(turns), instructions_once="") as turn:
        first = max(1, LENGTH - turns)
        assert reading.read_turns == list(range(first, LENGTH + 1))
        assert [each.number for each in turn.history] == reading.read_turns
        assert turn.number == LENGTH + 1
        turn.emit("a")


async def test_the_turn_that_instructs_is_read_by_itself(long_chat: Chat, reading: Reading) -> None:
    async with long_chat.turn("q", context=Context.last(1)) as turn:
        assert [item.text for item in turn.items] == ["Be brief.", f"q{LENGTH}", f"a{LENGTH}", "q"]
        assert sorted(reading.read_turns) == [3, LENGTH - 1, LENGTH]
        turn.emit("a")


@pytest.mark.parametrize(
    ("tokens", "pages"),
    [(0, 1), (10, 1), (2 * FIRST_PAGE - 3, 1), (2 * FIRST_PAGE + 1, 2), (90, 2), (100, 3), (999, 3)],
)
async def test_a_budget_is_filled_page_by_page(
    long_chat: Chat, reading: Reading, tokens: int, pages: int
) -> None:
    async with long_chat.turn("q", context=Context.budget(tokens, one), instructions_once="") as turn:
        count = min(LENGTH, FIRST_PAGE * (2**pages - 1))
        assert len(reading.read_turns) == count
        assert [each.number for each in turn.history] == list(range(LENGTH - count + 1, LENGTH + 1))
        fitting = min(LENGTH, max(0, tokens - 1) // 2)
        assert len(turn.items) == 2 * fitting + 1
        turn.emit("a")


async def test_what_is_hidden_by_a_turn_further_back_takes_nothing_of_the_budget(database: Database) -> None:
    async with (
        await Ledger.over(MemoryStore(database), clock=HandClock(), random=Random(1)) as other,
        await Ledger.over(MemoryStore(database), clock=HandClock(), random=Random(2)) as ledger,
    ):
        long_chat = await other.conversation()
        async with long_chat.turn("q1") as turn:
            await turn.add(call("a"))
        async with long_chat.turn(result("a")) as answer:
            answer.emit("a2")
        for number in range(FIRST_PAGE - 1):
            async with long_chat.turn(f"q{number}") as more:
                more.emit("a")
        await long_chat.flag(turn.id, 1, to_model=False)
        context = Context.budget(1 + 2 * (FIRST_PAGE - 1) + 1, one)
        async with (await ledger.conversation(long_chat.id)).turn("q", context=context) as last:
            assert [item.text for item in last.items][:2] == ["a2", "q0"]
            last.emit("a")


async def test_what_is_cached_is_not_read(long_chat: Chat, reading: Reading) -> None:
    async with long_chat.turn("q") as turn:
        turn.emit("a")
    reading.read_turns.clear()
    for context in (Context.last(2), Context.budget(10, one)):
        async with long_chat.turn("q", context=context) as turn:
            assert len(turn.history) == turn.number - 1
            turn.emit("a")
    assert set(reading.read_turns) <= {3}


async def test_an_end_that_is_all_there_is_may_be_cached(long_chat: Chat, reading: Reading) -> None:
    async with long_chat.turn("q", context=Context.last(LENGTH)) as turn:
        turn.emit("a")
    reading.read_turns.clear()
    async with long_chat.turn("q") as turn:
        assert [each.number for each in turn.history] == list(range(1, LENGTH + 2))
        turn.emit("a")
    assert reading.read_turns == []


async def test_an_end_is_not_cached_as_the_whole(long_chat: Chat) -> None:
    async with long_chat.turn("q", context=Context.last(2)) as turn:
        turn.emit("a")
    async with long_chat.turn("q") as turn:
        assert [each.number for each in turn.history] == list(range(1, LENGTH + 2))
        turn.emit("a")


@pytest.mark.parametrize("context", [Context.last(1), Context.budget(10, one)])
async def test_history_with_a_missing_turn_is_damaged(
    long_chat: Chat, database: Database, context: Context
) -> None:
    [branch] = database.branches.values()
    database.lines[branch.id].pop(LENGTH - 1)
    with pytest.raises(StoreCorrupt):
        async with long_chat.turn("q", context=context):
            pass


async def test_a_head_that_is_another_is_not_taken_for_it(long_chat: Chat, database: Database) -> None:
    [branch] = database.branches.values()
    line = database.lines[branch.id]
    line[LENGTH] = replace(line[LENGTH], id=line[1].id)
    with pytest.raises(StoreCorrupt):
        async with long_chat.turn("q", context=Context.last(1)):
            pass
