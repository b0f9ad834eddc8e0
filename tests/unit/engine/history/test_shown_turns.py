"""Turns are kept as clients see them, within bounds, and never those of another line."""

from collections.abc import Sequence

from tests.unit.model.shapes import assistant, call, result, some_id, turn, user
from turnledger.engine.history.history import ENTRY_BYTES, BranchCache, History
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.turn import Turn

ONE, OTHER = some_id(BranchId, 1), some_id(BranchId, 2)


def turns(count: int, first: int = 1) -> list[Turn]:
    return [
        turn(number, input=(user(f"q{number}"),), output=(assistant("a"),), id=first * 100 + number)
        for number in range(1, count + 1)
    ]


def test_turns_are_the_same_objects_when_the_line_has_grown() -> None:
    kept = BranchCache(1_000_000)
    before = kept.shown(ONE, History(turns(2)))
    after = kept.shown(ONE, History(turns(3)))
    assert len(before) == 2
    assert [each is other for each, other in zip(before, after, strict=False)] == [True, True]
    assert [each.id for each in after] == [each.id for each in turns(3)]


def test_a_line_that_was_rewound_or_replaced_is_read_anew() -> None:
    kept = BranchCache(1_000_000)
    kept.shown(ONE, History(turns(3)))
    assert [each.id for each in kept.shown(ONE, History(turns(1)))] == [each.id for each in turns(1)]
    assert [each.id for each in kept.shown(ONE, History(turns(2, first=5)))] == [
        each.id for each in turns(2, first=5)
    ]


def test_what_was_returned_does_not_grow() -> None:
    kept = BranchCache(1_000_000)
    before = kept.shown(ONE, History(turns(1)))
    kept.shown(ONE, History(turns(2)))
    assert len(before) == 1


def test_the_branch_that_was_asked_for_longest_ago_goes_first() -> None:
    size = ENTRY_BYTES + sum(len(each.body) for each in turns(2))
    kept = BranchCache(2 * size)
    lines = {some_id(BranchId, number): turns(2, first=number) for number in (1, 2, 3)}
    first = {id: kept.shown(id, History(line)) for id, line in lines.items()}
    again = {id: kept.shown(id, History(lines[id])) for id in reversed(lines)}
    same = [again[id][0] is first[id][0] for id in lines]
    assert same == [False, True, True]


def test_a_line_that_is_too_long_is_read_all_the_same() -> None:
    kept = BranchCache(1)
    assert len(kept.shown(ONE, History(turns(3)))) == 3
    assert len(kept.shown(OTHER, History(turns(2)))) == 2


def test_nothing_is_kept_of_what_was_deleted() -> None:
    size = ENTRY_BYTES + sum(len(each.body) for each in turns(2))
    kept = BranchCache(2 * size)
    before = kept.shown(ONE, History(turns(2)))
    kept.forget(ONE)
    kept.forget(OTHER)
    assert kept.shown(ONE, History(turns(2)))[0] is not before[0]
    first = kept.shown(OTHER, History(turns(2)))
    assert kept.shown(OTHER, History(turns(2)))[0] is first[0]


def test_another_branch_begins_with_the_turns_that_both_have() -> None:
    kept = BranchCache(1_000_000)
    line = turns(5)
    before = kept.shown(ONE, History(line))
    edited = kept.shown(OTHER, History([*line[:3], *turns(5, first=7)[3:]]))
    assert [each is other for each, other in zip(before, edited, strict=True)] == [True] * 3 + [False] * 2
    assert [each.id for each in kept.shown(ONE, History(line))] == [each.id for each in line]


def texts(turns: Sequence[Turn]) -> list[list[str]]:
    return [["".join(entry.pieces) for entry in each.shown.entries] for each in turns]


def test_what_is_hidden_is_not_shown_and_is_shown_again_afterwards() -> None:
    kept = BranchCache(1_000_000)
    line = turns(3)
    hidden = kept.shown(ONE, History(line), {line[1].id: (1,)})
    assert texts(hidden) == [["q1", "a"], ["q2"], ["q3", "a"]]
    assert texts(kept.shown(ONE, History(line), {line[1].id: (0,)})) == [["q1", "a"], ["a"], ["q3", "a"]]
    assert texts(kept.shown(ONE, History(line))) == [["q1", "a"], ["q2", "a"], ["q3", "a"]]


def test_turns_that_hide_something_are_the_same_objects_while_that_is_the_same() -> None:
    kept = BranchCache(1_000_000)
    line = turns(3)
    before = kept.shown(ONE, History(line[:2]), {line[1].id: (1,)})
    after = kept.shown(ONE, History(line), {line[1].id: (1,)})
    assert [each is other for each, other in zip(before, after, strict=False)] == [True, True]
    kept.forget(ONE)
    assert kept.shown(ONE, History(line), {line[1].id: (1,)})[1] is not before[1]


def test_of_a_line_that_was_dropped_nothing_is_kept() -> None:
    line = turns(2)
    kept = BranchCache(ENTRY_BYTES + sum(len(each.body) for each in line))
    before = kept.shown(ONE, History(line), {line[1].id: (1,)})
    kept.shown(OTHER, History(turns(2, first=5)))
    assert kept.shown(ONE, History(line), {line[1].id: (1,)})[1] is not before[1]


def test_what_is_hidden_of_other_lines_is_no_matter() -> None:
    kept = BranchCache(1_000_000)
    assert texts(kept.shown(ONE, History(turns(1)), {some_id(TurnId, 9): (0, 1)})) == [["q1", "a"]]


def test_the_other_half_of_what_is_hidden_may_come_with_a_later_turn() -> None:
    kept = BranchCache(1_000_000)
    asks = turn(1, input=(user("q"),), output=(call("a"),), id=1)
    answers = turn(2, input=(result("a"),), output=(assistant("done"),), id=2)
    other = turn(2, input=(result("a", output="other"),), output=(assistant("done"),), id=3)
    hidden = {asks.id: (1,)}
    assert texts(kept.shown(ONE, History([asks]), hidden)) == [["q"]]
    assert texts(kept.shown(ONE, History([asks, answers]), hidden)) == [["q"], ["done"]]
    # On another branch, the call was answered in another way, and its result is not hidden.
    result_only = {answers.id: (0,)}
    assert texts(kept.shown(ONE, History([asks, answers]), result_only)) == [["q"], ["done"]]
    assert texts(kept.shown(OTHER, History([asks, other]), result_only)) == [["q", ""], ["other", "done"]]
