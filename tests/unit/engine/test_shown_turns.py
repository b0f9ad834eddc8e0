"""Turns are kept as clients see them, within bounds, and never those of another line."""

from tests.unit.model.shapes import assistant, some_id, turn, user
from turnledger.engine.history import History
from turnledger.engine.shown_turns import ShownTurns
from turnledger.model.ids import BranchId
from turnledger.model.turn import Turn

ONE, OTHER = some_id(BranchId, 1), some_id(BranchId, 2)


def turns(count: int, first: int = 1) -> list[Turn]:
    return [
        turn(number, input=(user(f"q{number}"),), output=(assistant("a"),), id=first * 100 + number)
        for number in range(1, count + 1)
    ]


def test_turns_are_the_same_objects_when_the_line_has_grown() -> None:
    kept = ShownTurns(1_000_000)
    before = kept.of(ONE, History(turns(2)))
    after = kept.of(ONE, History(turns(3)))
    assert len(before) == 2
    assert [each is other for each, other in zip(before, after, strict=False)] == [True, True]
    assert [each.id for each in after] == [each.id for each in turns(3)]


def test_a_line_that_was_rewound_or_replaced_is_read_anew() -> None:
    kept = ShownTurns(1_000_000)
    kept.of(ONE, History(turns(3)))
    assert [each.id for each in kept.of(ONE, History(turns(1)))] == [each.id for each in turns(1)]
    assert [each.id for each in kept.of(ONE, History(turns(2, first=5)))] == [
        each.id for each in turns(2, first=5)
    ]


def test_what_was_returned_does_not_grow() -> None:
    kept = ShownTurns(1_000_000)
    before = kept.of(ONE, History(turns(1)))
    kept.of(ONE, History(turns(2)))
    assert len(before) == 1


def test_the_branch_that_was_asked_for_longest_ago_goes_first() -> None:
    size = sum(len(each.body) for each in turns(2))
    kept = ShownTurns(2 * size)
    lines = {some_id(BranchId, number): turns(2, first=number) for number in (1, 2, 3)}
    first = {id: kept.of(id, History(line)) for id, line in lines.items()}
    again = {id: kept.of(id, History(lines[id])) for id in reversed(lines)}
    same = [again[id][0] is first[id][0] for id in lines]
    assert same == [False, True, True]


def test_a_line_that_is_too_long_is_read_all_the_same() -> None:
    kept = ShownTurns(1)
    assert len(kept.of(ONE, History(turns(3)))) == 3
    assert len(kept.of(OTHER, History(turns(2)))) == 2


def test_nothing_is_kept_of_what_was_deleted() -> None:
    size = sum(len(each.body) for each in turns(2))
    kept = ShownTurns(2 * size)
    before = kept.of(ONE, History(turns(2)))
    kept.forget(ONE)
    kept.forget(OTHER)
    assert kept.of(ONE, History(turns(2)))[0] is not before[0]
    first = kept.of(OTHER, History(turns(2)))
    assert kept.of(OTHER, History(turns(2)))[0] is first[0]


def test_another_branch_begins_with_the_turns_that_both_have() -> None:
    kept = ShownTurns(1_000_000)
    line = turns(5)
    before = kept.of(ONE, History(line))
    edited = kept.of(OTHER, History([*line[:3], *turns(5, first=7)[3:]]))
    assert [each is other for each, other in zip(before, edited, strict=True)] == [True] * 3 + [False] * 2
    assert [each.id for each in kept.of(ONE, History(line))] == [each.id for each in line]
