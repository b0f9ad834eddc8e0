"""A board counts by kind and name, and never admits too many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from turnledger.server.ops.counters import Board, OwnBoard, SharedBoard

Make = Callable[[], Board]


@pytest.fixture(params=["own", "shared"])
def board(request: pytest.FixtureRequest) -> Iterator[Board]:
    with ExitStack() as closing:
        if request.param == "own":
            yield OwnBoard()
        else:
            made = SharedBoard.create(parts=2, cells=64)
            closing.callback(made.close)
            worker = SharedBoard(made.descriptor, 0)
            closing.callback(worker.detach)
            yield worker


def test_names_are_counted_apart_and_kinds_summed(board: Board) -> None:
    board.add("turns", "ann")
    board.add("turns", "ann", 2)
    board.add("turns", "bob")
    board.add("streams", "ann")
    assert (board.total("turns", "ann"), board.total("turns", "bob")) == (3, 1)
    assert (board.sum("turns"), board.sum("streams"), board.sum("nothing")) == (4, 1, 0)
    board.add("turns", "ann", -3)
    assert (board.total("turns", "ann"), board.sum("turns")) == (0, 1)


def test_kind_and_name_do_not_run_together(board: Board) -> None:
    board.add("a", "b c")
    assert board.total("a b", "c") == 0
    assert board.total("a", "") == 0


def test_a_name_can_be_any_text(board: Board) -> None:
    board.add("turns", "\udcff\0 é")
    assert board.total("turns", "\udcff\0 é") == 1


def test_so_many_are_admitted_and_no_more(board: Board) -> None:
    assert [board.admit("turns", "ann", 2) for _ in range(4)] == [True, True, False, False]
    assert board.total("turns", "ann") == 2
    assert board.admit("turns", "bob", 2)
    board.add("turns", "ann", -1)
    assert board.admit("turns", "ann", 2)


def test_what_was_not_counted_cannot_be_taken_back(board: Board) -> None:
    board.add("turns", "ann")
    with pytest.raises(ValueError, match="below zero"):
        board.add("turns", "bob", -1)
    with pytest.raises(ValueError, match="below zero"):
        board.add("turns", "ann", -2)
    assert (board.total("turns", "ann"), board.sum("turns")) == (1, 1)
