"""Rows and what they stand for: lines are packed, and what cannot be read says so."""

import pytest

from tests.unit.model.shapes import some_id
from turnledger.errors import StoreCorrupt
from turnledger.model.conversation import Stretch
from turnledger.model.ids import BranchId
from turnledger.stores.sqlite.records import line_of, packed_line

A, B = some_id(BranchId, 1), some_id(BranchId, 2)
LINE = (Stretch(B, 3, 2**40), Stretch(A, 0, 3))


def test_a_line_comes_back_with_the_refs_of_its_branches() -> None:
    assert line_of(packed_line(LINE, [7, 5])) == (LINE, {B: 7, A: 5})


def test_no_line_is_no_value() -> None:
    assert packed_line((), []) is None
    assert line_of(None) == ((), {})


def test_a_line_that_was_cut_off_is_damage() -> None:
    packed = packed_line(LINE, [7, 5])
    assert packed is not None
    with pytest.raises(StoreCorrupt):
        line_of(packed[:-1])
