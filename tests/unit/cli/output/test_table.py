"""How a table finds room in a window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnledger.cli.output.table import GAP, Column, widths_of

COLUMNS = (Column("WHEN"), Column("ID"), Column("TITLE", least=10), Column("TEXT", least=10, wraps=True))


@pytest.mark.parametrize(
    ("window", "widths"),
    [
        (200, [10, 12, 30, 50]),
        (108, [10, 12, 30, 50]),
        (100, [10, 12, 30, 42]),
        (78, [10, 12, 25, 25]),
        (48, [10, 12, 10, 10]),
        (47, None),
    ],
)
def test_the_widest_gives_first_and_what_is_copied_never(window: int, widths: list[int] | None) -> None:
    rows = [["w" * 10, "i" * 12, "t" * 30, "x" * 50], ["w", "i", "t", "x"]]
    assert widths_of(COLUMNS, rows, window) == widths


def test_short_texts_need_no_more_room_than_they_have() -> None:
    assert widths_of(COLUMNS, [["w", "i", "t", "x"]], 200) == [4, 2, 5, 4]
    assert widths_of(COLUMNS, [["w", "i", "t", "x"]], 21) == [4, 2, 5, 4]


def test_a_wide_letter_takes_two_places() -> None:
    assert widths_of((Column("T", least=1),), [["漢字"]], 3) == [3]


@given(
    rows=st.lists(st.tuples(*[st.text("ab ", max_size=60)] * 4), min_size=1, max_size=5),
    window=st.integers(1, 300),
)
def test_a_table_never_leaves_its_window(rows: list[tuple[str, ...]], window: int) -> None:
    widths = widths_of(COLUMNS, rows, window)
    if widths is not None:
        assert sum(widths) + GAP * (len(widths) - 1) <= window
        for column, width, cells in zip(COLUMNS, widths, zip(*rows, strict=True), strict=True):
            natural = max(map(len, (column.title, *cells)))
            assert width == natural if column.least is None else width >= min(natural, column.least)
