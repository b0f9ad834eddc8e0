"""What stands behind the question mark: digits and known words, and nothing else."""

from __future__ import annotations

import pytest

from turnledger.errors import InvalidInput
from turnledger.server.query import HIGHEST, choice_of, number_of, yes_or_no


def test_what_is_left_out_is_as_it_is_otherwise() -> None:
    assert number_of(None, "limit", 50) == 50
    assert number_of(None, "before", None) is None


def test_nothing_else_counts_as_left_out() -> None:
    assert number_of("0", "limit", 50) == 0
    assert number_of(str(HIGHEST), "limit", 50) == HIGHEST


@pytest.mark.parametrize("given", ["", "-1", "1.0", "٣", " 1", "1000000000"])
def test_anything_else_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match="limit is a number"):
        number_of(given, "limit", 50)


def test_yes_or_no_is_true_or_false() -> None:
    assert [yes_or_no(given, "purge", otherwise=False) for given in ("true", "false", None)] == [
        True,
        False,
        False,
    ]
    assert yes_or_no(None, "purge", otherwise=True)
    with pytest.raises(InvalidInput, match="purge is true or false"):
        yes_or_no("1", "purge", otherwise=False)


def test_a_word_stands_for_what_is_known_by_it() -> None:
    known = {"true": 1, "false": 0}
    assert [choice_of(given, "pinned", known, 7) for given in ("true", "false", None)] == [1, 0, 7]


@pytest.mark.parametrize("given", ["", "True", "1", "any"])
def test_another_word_is_refused_with_those_that_are_known(given: str) -> None:
    with pytest.raises(InvalidInput, match="pinned is one of true, false"):
        choice_of(given, "pinned", {"true": 1, "false": 0}, 7)
