"""The rows of the memory store: search and changes are undone whole, and every disagreement is reported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from msgspec.structs import replace

from tests.unit.engine.check.test_check import raw_id
from tests.unit.engine.lived_in import Lived, live_in
from tests.unit.engine.stage import drive
from turnledger import Ledger, Rule
from turnledger.engine.ports import Tables
from turnledger.errors import InvalidInput
from turnledger.model.change import ChangeKind, LiveChange
from turnledger.model.conversation import Usage
from turnledger.model.ids import BranchId, ConversationId, TokenId, TurnId
from turnledger.model.text.search import TITLES, sought_in
from turnledger.model.turn import Turn
from turnledger.stores.memory import Database, MemoryStore, MemoryTables

NOWHERE = BranchId("branch_" + raw_id(9))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
async def lived(database: Database) -> AsyncIterator[Lived]:
    lived = await live_in(MemoryStore(database))
    yield lived
    await lived.ledger.close()


def last_turn(database: Database) -> Turn:
    return list(database.turns.values())[-1]


def strand_a_turn(database: Database) -> None:
    turn = replace(last_turn(database), id=TurnId("turn_" + raw_id(9)), branch=NOWHERE)
    database.turns[turn.id] = turn
    database.lines[NOWHERE] = {turn.number: turn}


def place_a_turn_too_early(database: Database) -> None:
    branch = next(each for each in database.branches.values() if each.length == each.start > 0)
    turn = replace(last_turn(database), id=TurnId("turn_" + raw_id(9)), branch=branch.id, number=1)
    database.turns[turn.id] = turn
    database.lines.setdefault(branch.id, {})[1] = turn


def keep_a_turn_out_of_its_line(database: Database) -> None:
    turn = replace(last_turn(database), id=TurnId("turn_" + raw_id(9)), number=99)
    database.turns[turn.id] = turn


def keep_an_origin_for_nobody(database: Database) -> None:
    origin = next(iter(database.origins.values()))
    database.origins[NOWHERE] = replace(origin, branch=NOWHERE)


def keep_a_journal_for_nobody(database: Database) -> None:
    database.journals[TurnId("turn_" + raw_id(9))] = {0: b"{}"}


def keep_a_log_for_nobody(database: Database) -> None:
    database.logs[TurnId("turn_" + raw_id(9))] = {}


def keep_flags_for_nobody(database: Database) -> None:
    database.flags["ann", TurnId("turn_" + raw_id(9))] = {}


def name_a_conversation_that_is_gone(database: Database) -> None:
    database.by_key["ann", "", "lost"] = ConversationId("conv_" + raw_id(9))


def lead_a_text_to_no_token(database: Database) -> None:
    database.by_digest[b"digest"] = TokenId("tok_" + raw_id(9))


def count_a_live_one_as_ended(database: Database) -> None:
    live = next(id for id in database.conversations if id not in database.ended)
    database.ended[live] = None


def count_too_little_of_a_branch(database: Database) -> None:
    branch = next(each for each in database.branches.values() if each.bytes)
    database.branches[branch.id] = replace(branch, bytes=branch.bytes - 1)


def count_too_much_of_an_owner(database: Database) -> None:
    stored = database.stored["ann"]
    database.stored["ann"] = Usage(bytes=stored.bytes + 1, chats=stored.chats)


def count_for_nobody(database: Database) -> None:
    database.stored["nobody"] = Usage(bytes=16_384)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (count_too_little_of_a_branch, "counts other bytes than its turns take"),
        (count_too_much_of_an_owner, "The usage of 'ann' is kept as "),
        (count_for_nobody, "The usage of 'nobody' is kept as 16384 bytes in 0 chats, but comes to 0 in 0"),
        (strand_a_turn, "which is not there: nobody can read it"),
        (place_a_turn_too_early, "stands before the start of its branch"),
        (keep_a_turn_out_of_its_line, "its line was not kept with it"),
        (keep_an_origin_for_nobody, "it keeps turns for nobody"),
        (keep_a_journal_for_nobody, "what it says is lost"),
        (keep_a_log_for_nobody, "There is a log of turn_"),
        (keep_flags_for_nobody, "There are flags or a log of turn_"),
        (name_a_conversation_that_is_gone, "The conversation_key 'lost' of 'ann' names conv_"),
        (lead_a_text_to_no_token, "The text of a token leads to tok_"),
        (count_a_live_one_as_ended, "but was not counted so"),
    ],
)
async def test_what_does_not_agree_is_told(
    lived: Lived, database: Database, damage: Callable[[Database], None], said: str
) -> None:
    assert await lived.ledger.check() == []
    damage(database)
    [finding] = await lived.ledger.check()
    assert finding.rule is Rule.STORE
    assert said in finding.message


async def test_a_line_that_names_a_turn_that_is_gone_is_told(lived: Lived, database: Database) -> None:
    turn = last_turn(database)
    del database.turns[turn.id]
    [told] = await MemoryTables(database).oddities(9)
    assert f"is {turn.id}, which is not there" in told


async def test_only_so_many_oddities_are_told(lived: Lived, database: Database) -> None:
    for number in range(5):
        database.journals[TurnId("turn_" + raw_id(number))] = {}
    assert len(await MemoryTables(database).oddities(3)) == 3


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


CHAT = ConversationId("conv_01890000000070008000000000000000")


def told(database: Database, count: int) -> None:
    tables = MemoryTables(database)
    for _ in range(count):
        drive(
            tables.add_change(LiveChange(kind=ChangeKind.TURN_RUNNING, owner="ann", conversation=CHAT, at=1))
        )


def test_numbers_go_on_after_a_purge_that_was_undone() -> None:
    database = Database()
    told(database, 3)
    tables = MemoryTables(database)
    assert drive(tables.purge_changes(9, 9, 9)) == 2
    tables.undo()
    told(database, 1)
    found = drive(MemoryTables(database).changes_of("ann", 0, 9))
    assert [each.position.number for each in found] == [1, 2, 3, 4]
