"""Numbers behind the question mark: digits and nothing else."""

from __future__ import annotations

import pytest

from turnledger.errors import InvalidInput
from turnledger.server.query import HIGHEST, number_of, yes_or_no


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
