"""Histories are immutable views of shared lists."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.history.lines import chain
from tests.unit.engine.stage import CONVERSATION, conversation, drive
from tests.unit.model.shapes import repeatable, some_id
from turnledger.engine.history.history import DEEPEST, History, TurnsRequest, read_turns
from turnledger.errors import ConversationDeleted, StoreCorrupt
from turnledger.model.conversation import Branch
from turnledger.model.ids import BranchId
from turnledger.model.turn import Turn
from turnledger.stores.memory import Database, MemoryTables

A = some_id(BranchId, 1)
TURNS = tuple(chain(*range(1, 7)))


@repeatable
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3)), max_size=25))
def test_views_behave_as_lists_whoever_goes_on_from_which(steps: list[tuple[int, int]]) -> None:
    ids = count(1)
    views: list[History] = [History([])]
    plain: list[list[Turn]] = [[]]
    for pick, length in steps:
        at = pick % len(views)
        added = chain(*(next(ids) for _ in range(length)), after=plain[at])
        views.append(views[at].followed_by(added))
        plain.append(plain[at] + added)
    assert [list(view) for view in views] == plain
    assert [len(view) for view in views] == [len(each) for each in plain]
    assert [view.head for view in views] == [each[-1].id if each else None for each in plain]


@repeatable
@given(st.integers(1, 3 * DEEPEST), st.integers(1, 3 * DEEPEST))
def test_however_often_it_went_another_way_it_is_the_same_list(forks: int, length: int) -> None:
    view, plain = History(), list[Turn]()
    for number in range(forks):
        view.followed_by(chain(1_000 + number, after=plain))
        added = chain(number + 1, after=plain)
        view, plain = view.followed_by(added), plain + added
    assert list(view) == plain
    assert list(view.first(min(length, forks))) == plain[:length]
    assert view[min(length, forks) - 1] == plain[:length][-1]


@repeatable
@given(
    st.integers(0, 6),
    st.slices(8) | st.builds(slice, *[st.none() | st.integers(-8, 8)] * 2),
    st.integers(-8, 8),
)
def test_a_view_is_indexed_as_a_list(length: int, piece: slice, at: int) -> None:
    view, plain = History(TURNS).first(length), list(TURNS[:length])
    assert view[piece] == tuple(plain[piece])
    assert list(reversed(view)) == plain[::-1]
    if -length <= at < length:
        assert view[at] == plain[at]
    else:
        with pytest.raises(IndexError):
            view[at]


def test_going_on_does_not_copy() -> None:
    base = History(TURNS[:3])
    longer = base.followed_by(TURNS[3:4])
    assert longer._node is base._node
    assert len(base) == 3


def test_a_second_way_on_shares_the_beginning() -> None:
    base = History(TURNS[:2])
    first, second = base.followed_by(TURNS[2:3]), base.followed_by(other := chain(9, after=TURNS[:2]))
    assert (tuple(first), tuple(second)) == (TURNS[:3], (*TURNS[:2], *other))
    assert second._node.before is first._node
    assert len(second._node.packed) == 1


def test_a_view_being_read_does_not_grow() -> None:
    base = History(TURNS[:2])
    seen = []
    for each in base:
        seen.append(each)
        base.followed_by(TURNS[2:])
    assert tuple(seen) == TURNS[:2]


def test_reading_turns_asks_for_exactly_the_missing_ones() -> None:
    tables = MemoryTables(Database())
    for each in TURNS:
        drive(tables.add_turn(each))
    line = Branch(id=A, conversation=CONVERSATION, head=TURNS[5].id, length=6)
    assert drive(read_turns(tables, TurnsRequest("ann", line, 1, 5))) == [*TURNS[1:5]]


def test_missing_turns_are_deleted_with_their_conversation_or_damage() -> None:
    tables, there = MemoryTables(Database()), conversation(branch=A)
    line = Branch(id=A, conversation=CONVERSATION, head=TURNS[5].id, length=6)
    asked = TurnsRequest(there.owner, line, 1, 5)
    with pytest.raises(ConversationDeleted):
        drive(read_turns(tables, asked))
    drive(tables.add_conversation(there))
    with pytest.raises(StoreCorrupt):
        drive(read_turns(tables, asked))
