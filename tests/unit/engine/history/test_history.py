"""Histories are immutable views of shared lists; the cache holds no more bytes than it may."""

from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.engine.stage import CONVERSATION, drive
from tests.unit.model.shapes import assistant, repeatable, some_id, turn
from turnledger.engine.history.history import DEEPEST, History, HistoryCache, TurnsRequest, read_turns
from turnledger.model.conversation import Branch, Stretch
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.turn import Turn
from turnledger.stores.memory import Database, MemoryTables

A, B, C = (some_id(BranchId, number) for number in (1, 2, 3))


def chain(*ids: int, after: Sequence[Turn] = ()) -> list[Turn]:
    """Turns of these ids behind others."""
    turns = list(after)
    for id in ids:
        parent = turns[-1].id if turns else None
        turns.append(replace(turn(len(turns) + 1, id=id, output=[assistant(str(id % 10))]), parent=parent))
    return turns[len(after) :]


TURNS = tuple(chain(*range(1, 7)))
SIZE = len(TURNS[0].body)


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
    assert drive(read_turns(tables, TurnsRequest(line, 1, 5))) == [*TURNS[1:5]]


# The cache.


def keep(cache: HistoryCache, branch: BranchId, turns: Sequence[Turn]) -> None:
    cache.keep(branch, History(list(turns)))


def cached(cache: HistoryCache, branch: BranchId, length: int = 6) -> tuple[Turn, ...]:
    return tuple(cache.prefix(branch, TURNS[length - 1].id if length else None, length))


def test_nothing_is_cached_at_first() -> None:
    assert cached(HistoryCache(10**6), A) == ()


def test_the_whole_history_is_found_if_it_ends_with_the_head() -> None:
    cache = HistoryCache(10**6)
    keep(cache, A, TURNS)
    assert cached(cache, A) == TURNS


def test_a_cached_history_that_ends_with_another_turn_is_not_used() -> None:
    cache = HistoryCache(10**6)
    keep(cache, A, TURNS)
    assert list(cache.prefix(A, some_id(TurnId, 99), 6)) == []


def test_what_is_cached_of_a_longer_history_is_its_beginning() -> None:
    cache = HistoryCache(10**6)
    keep(cache, A, TURNS[:2])
    assert cached(cache, A) == TURNS[:2]


def test_of_a_cached_history_that_has_gone_on_only_the_beginning_is_shown() -> None:
    cache = HistoryCache(10**6)
    keep(cache, A, TURNS)
    assert cached(cache, A, 4) == TURNS[:4]
    assert cached(cache, A, 0) == ()
    assert cached(cache, A) == TURNS


def test_the_history_used_longest_ago_is_forgotten_first() -> None:
    cache = HistoryCache(2 * SIZE)
    keep(cache, A, TURNS[:1])
    keep(cache, B, TURNS[:1])
    assert cached(cache, A, 1) == TURNS[:1]
    keep(cache, C, TURNS[:1])
    assert [bool(cached(cache, branch, 1)) for branch in (A, B, C)] == [True, False, True]


def test_exactly_as_many_bytes_as_allowed_are_kept() -> None:
    cache = HistoryCache(6 * SIZE)
    keep(cache, A, TURNS)
    assert cached(cache, A) == TURNS
    cache.keep(A, History(list(TURNS)).followed_by(chain(7, after=TURNS)))
    assert cached(cache, A) == ()


def test_a_forgotten_history_makes_room() -> None:
    cache = HistoryCache(6 * SIZE)
    keep(cache, A, TURNS)
    cache.forget(A)
    cache.forget(A)
    keep(cache, B, TURNS)
    assert cached(cache, A) == ()
    assert cached(cache, B) == TURNS


def test_a_history_that_went_on_after_it_was_evicted_counts_whole() -> None:
    cache = HistoryCache(6 * SIZE)
    keep(cache, A, TURNS[:5])
    history = cache.prefix(A, TURNS[4].id, 5)
    keep(cache, B, TURNS[:5])
    cache.keep(A, history.followed_by(TURNS[5:]))
    held = [*cached(cache, A), *cached(cache, B, 5)]
    assert sum(len(each.body) for each in held) <= 6 * SIZE


def test_a_history_kept_twice_counts_once() -> None:
    cache = HistoryCache(8 * SIZE)
    keep(cache, A, TURNS[:5])  # two readers missed it at the same time
    keep(cache, A, TURNS[:5])
    keep(cache, B, TURNS[:3])
    assert cached(cache, A, 5) == TURNS[:5]
    assert cached(cache, B, 3) == TURNS[:3]


def test_what_is_cached_of_other_branches_is_shared_with_a_line_that_goes_through_them() -> None:
    cache = HistoryCache(100 * SIZE)
    keep(cache, A, TURNS[:5])
    line = (Stretch(B, 3, 4), Stretch(A, 0, 3))
    assert list(cache.shared(line, 4)) == list(TURNS[:3])
    assert list(cache.shared(line, 2)) == list(TURNS[:2])
    assert list(cache.shared(line[:1], 4)) == []
    keep(cache, B, TURNS[:4])
    assert list(cache.shared(line, 9)) == list(TURNS[:4])
    assert list(cache.shared(line, 3)) == list(TURNS[:3])
    keep(cache, A, TURNS[:2])
    assert list(cache.shared(line[1:], 9)) == list(TURNS[:2])


@repeatable
@given(st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(1, 3), st.booleans()), max_size=20))
def test_a_cache_used_as_the_engine_does_stays_within_its_bytes(
    steps: list[tuple[BranchId, int, bool]],
) -> None:
    limit = 5 * SIZE
    cache = HistoryCache(limit)
    stored: dict[BranchId, list[Turn]] = {A: [], B: [], C: []}
    for branch, length, forgets in steps:
        line = stored[branch]
        added = chain(*range(len(line) + 1, len(line) + 1 + length), after=line)
        line.extend(added)
        found = cache.prefix(branch, line[-1].id, len(line))
        assert list(found) == line[: len(found)]
        missing = line[len(found) :]
        cache.keep(branch, found.followed_by(missing))
        if forgets:
            cache.forget(branch)
        held = [cache.prefix(each, turns[-1].id, len(turns)) for each, turns in stored.items() if turns]
        assert sum(len(each.body) for history in held for each in history) <= limit
