"""Reading changes: pages that fit on to each other, and positions that are known for what they were."""

from __future__ import annotations

import pytest

from tests.unit.engine.stage import drive
from turnledger.engine.feed import ResumeRequest, TailRequest, newest_position, read_tail, resume
from turnledger.model.change import ChangeKind, LiveChange, Position
from turnledger.model.ids import ConversationId
from turnledger.stores.memory import Database, MemoryTables

CHAT = ConversationId("conv_01890000000070008000000000000000")


@pytest.fixture
def tables() -> MemoryTables:
    tables = MemoryTables(Database())
    for number in range(5):
        owner = "bob" if number == 2 else "ann"
        change = LiveChange(kind=ChangeKind.TURN_RUNNING, owner=owner, conversation=CHAT, at=number)
        drive(tables.add_change(change))
    return tables


def test_pages_fit_on_to_each_other(tables: MemoryTables) -> None:
    first = drive(resume(tables, ResumeRequest("ann", Position(), 3)))
    assert ([change.at for change in first.changes], first.has_more) == ([0, 1, 3], True)
    last = drive(resume(tables, ResumeRequest("ann", first.through, 3)))
    assert ([change.at for change in last.changes], last.has_more) == ([4], False)
    assert last.through == drive(newest_position(tables))


def test_who_has_no_position_begins_now(tables: MemoryTables) -> None:
    page = drive(resume(tables, ResumeRequest("ann", None, 3)))
    assert (page.changes, page.is_whole) == ([], True)
    assert page.through == drive(newest_position(tables))


@pytest.mark.parametrize("after", [Position(3, 0), Position(99, 1), Position(0, 1)])
def test_a_number_with_another_mark_is_not_known(tables: MemoryTables, after: Position) -> None:
    for page in (
        drive(resume(tables, ResumeRequest("ann", after, 3))),
        drive(read_tail(tables, TailRequest(after, frozenset({"ann"}), 3))),
    ):
        assert (page.changes, page.is_whole) == ([], False)
        assert page.through == drive(newest_position(tables))


def test_the_tail_goes_on_behind_what_was_looked_at(tables: MemoryTables) -> None:
    owners = frozenset({"bob"})
    first = drive(read_tail(tables, TailRequest(Position(), owners, 2)))
    assert (first.changes, first.through.number, first.has_more) == ([], 2, True)
    second = drive(read_tail(tables, TailRequest(first.through, owners, 99)))
    assert ([change.owner for change in second.changes], second.has_more) == (["bob"], False)
    third = drive(read_tail(tables, TailRequest(second.through, owners, 99)))
    assert (third.changes, third.through) == ([], second.through)
