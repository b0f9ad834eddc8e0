"""What a process remembers of flags holds as long as its owner's number does."""

from tests.unit.model.shapes import some_id, turn
from turnledger.engine.conversations.flags import FlagCache
from turnledger.model.flags import Flags
from turnledger.model.ids import BranchId

A, B, C = (some_id(BranchId, number) for number in (1, 2, 3))
TURNS = [turn(number) for number in range(1, 6)]
FLAGS = {TURNS[3].id: {0: Flags(to_model=False)}}


def test_what_was_read_is_found_under_the_same_number() -> None:
    cache = FlagCache()
    assert cache.find(A, 1, TURNS) is None
    cache.keep(A, 1, TURNS, FLAGS)
    assert cache.find(A, 1, TURNS) == FLAGS
    assert cache.find(B, 1, TURNS) is None


def test_another_number_means_that_it_must_be_read_again() -> None:
    cache = FlagCache()
    cache.keep(A, 1, TURNS, FLAGS)
    assert cache.find(A, 2, TURNS) is None
    cache.keep(A, 2, TURNS, {})
    assert cache.find(A, 2, TURNS) == {}


def test_turns_that_were_added_behind_are_known_to_have_none() -> None:
    cache = FlagCache()
    cache.keep(A, 1, TURNS[:4], FLAGS)
    assert cache.find(A, 1, TURNS) == FLAGS


def test_turns_before_those_that_were_read_are_not_known() -> None:
    cache = FlagCache()
    cache.keep(A, 1, TURNS[2:], FLAGS)
    assert cache.find(A, 1, TURNS[1:]) is None
    assert cache.find(A, 1, TURNS[2:]) == FLAGS
    assert cache.find(A, 1, TURNS[3:]) == FLAGS


def test_nothing_is_remembered_of_no_turns() -> None:
    cache = FlagCache()
    cache.keep(A, 1, [], {})
    assert cache.find(A, 1, TURNS) is None


def test_the_branch_used_longest_ago_is_forgotten_first() -> None:
    cache = FlagCache(max_branches=2)
    cache.keep(A, 1, TURNS, FLAGS)
    cache.keep(B, 1, TURNS, FLAGS)
    assert cache.find(A, 1, TURNS) == FLAGS
    cache.keep(C, 1, TURNS, FLAGS)
    assert [cache.find(branch, 1, TURNS) is None for branch in (A, B, C)] == [False, True, False]
