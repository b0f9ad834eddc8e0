"""The end of a history is read as far as a context can show it, and shows what the whole would show."""

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
def store(database: Database) -> Reading:
    return Reading(database)


@pytest.fixture
async def chat(database: Database, store: Reading) -> AsyncIterator[Chat]:
    """A long conversation that was held in another process."""
    async with (
        await Ledger.over(MemoryStore(database), clock=HandClock(), random=Random(1)) as other,
        await Ledger.over(store, clock=HandClock(), random=Random(2)) as ledger,
    ):
        made = await other.conversation()
        for number in range(1, LENGTH + 1):
            async with made.turn(f"q{number}", instructions="Be brief." if number == 3 else None) as turn:
                turn.emit(f"a{number}")
        yield await ledger.conversation(made.id)


@pytest.mark.parametrize("turns", [0, 1, 5, LENGTH - 1, LENGTH, LENGTH + 5])
async def test_the_last_turns_and_one_more_are_read(chat: Chat, store: Reading, turns: int) -> None:
    async with chat.turn("q", context=Context.last(turns), instructions_once="") as turn:
        first = max(1, LENGTH - turns)
        assert store.read_turns == list(range(first, LENGTH + 1))
        assert [each.number for each in turn.history] == store.read_turns
        assert turn.number == LENGTH + 1
        turn.emit("a")


async def test_the_turn_that_instructs_is_read_by_itself(chat: Chat, store: Reading) -> None:
    async with chat.turn("q", context=Context.last(1)) as turn:
        assert [item.text for item in turn.items] == ["Be brief.", f"q{LENGTH}", f"a{LENGTH}", "q"]
        assert sorted(store.read_turns) == [3, LENGTH - 1, LENGTH]
        turn.emit("a")


@pytest.mark.parametrize(
    ("tokens", "pages"),
    [(0, 1), (10, 1), (2 * FIRST_PAGE - 3, 1), (2 * FIRST_PAGE + 1, 2), (90, 2), (100, 3), (999, 3)],
)
async def test_a_budget_is_filled_page_by_page(chat: Chat, store: Reading, tokens: int, pages: int) -> None:
    async with chat.turn("q", context=Context.budget(tokens, one), instructions_once="") as turn:
        count = min(LENGTH, FIRST_PAGE * (2**pages - 1))
        assert len(store.read_turns) == count
        assert [each.number for each in turn.history] == list(range(LENGTH - count + 1, LENGTH + 1))
        fitting = min(LENGTH, max(0, tokens - 1) // 2)
        assert len(turn.items) == 2 * fitting + 1
        turn.emit("a")


async def test_what_is_hidden_by_a_turn_further_back_takes_nothing_of_the_budget(database: Database) -> None:
    async with (
        await Ledger.over(MemoryStore(database), clock=HandClock(), random=Random(1)) as other,
        await Ledger.over(MemoryStore(database), clock=HandClock(), random=Random(2)) as ledger,
    ):
        chat = await other.conversation()
        async with chat.turn("q1") as turn:
            await turn.add(call("a"))
        async with chat.turn(result("a")) as answer:
            answer.emit("a2")
        for number in range(FIRST_PAGE - 1):
            async with chat.turn(f"q{number}") as more:
                more.emit("a")
        await chat.flag(turn.id, 1, to_model=False)
        context = Context.budget(1 + 2 * (FIRST_PAGE - 1) + 1, one)
        async with (await ledger.conversation(chat.id)).turn("q", context=context) as last:
            assert [item.text for item in last.items][:2] == ["a2", "q0"]
            last.emit("a")


async def test_what_is_cached_is_not_read(chat: Chat, store: Reading) -> None:
    async with chat.turn("q") as turn:
        turn.emit("a")
    store.read_turns.clear()
    for context in (Context.last(2), Context.budget(10, one)):
        async with chat.turn("q", context=context) as turn:
            assert len(turn.history) == turn.number - 1
            turn.emit("a")
    assert set(store.read_turns) <= {3}


async def test_an_end_that_is_all_there_is_may_be_cached(chat: Chat, store: Reading) -> None:
    async with chat.turn("q", context=Context.last(LENGTH)) as turn:
        turn.emit("a")
    store.read_turns.clear()
    async with chat.turn("q") as turn:
        assert [each.number for each in turn.history] == list(range(1, LENGTH + 2))
        turn.emit("a")
    assert store.read_turns == []


async def test_an_end_is_not_cached_as_the_whole(chat: Chat) -> None:
    async with chat.turn("q", context=Context.last(2)) as turn:
        turn.emit("a")
    async with chat.turn("q") as turn:
        assert [each.number for each in turn.history] == list(range(1, LENGTH + 2))
        turn.emit("a")


@pytest.mark.parametrize("context", [Context.last(1), Context.budget(10, one)])
async def test_history_with_a_missing_turn_is_damaged(
    chat: Chat, database: Database, context: Context
) -> None:
    [branch] = database.branches.values()
    database.lines[branch.id].pop(LENGTH - 1)
    with pytest.raises(StoreCorrupt):
        async with chat.turn("q", context=context):
            pass


async def test_a_head_that_is_another_is_not_taken_for_it(chat: Chat, database: Database) -> None:
    [branch] = database.branches.values()
    line = database.lines[branch.id]
    line[LENGTH] = replace(line[LENGTH], id=line[1].id)
    with pytest.raises(StoreCorrupt):
        async with chat.turn("q", context=Context.last(1)):
            pass
