"""Limits: counting the JSON values of a text before any is built."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import repeatable
from turnledger.engine import limits
from turnledger.engine.limits import has_more_values

TEXTS = st.text(alphabet='\\",[]{}x\u00e9') | st.sampled_from(["\\" * 9, '\\"' * 5, ",[" * 9])


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(TEXTS, inner, max_size=8),
    max_leaves=40,
)


def counted(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(counted, inner))


def bound_of(value: Any) -> int:
    """An empty list or object is counted with the place for a first value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    is_empty = isinstance(value, dict | list) and not value
    return 1 + is_empty + sum(map(bound_of, inner))


@repeatable
@given(DOCUMENTS)
def test_json_values_are_counted_exactly_for_any_strings(value: Any) -> None:
    raw = msgspec.json.encode(value)
    most = bound_of(value)
    assert counted(value) <= most
    for window in (2, 3, 7, 256 * 1024):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(limits, "_WINDOW", window)
            assert not has_more_values(raw, most), window
            if len(raw) > 2 * (most - 1):  # else there can be no more
                assert has_more_values(raw, most - 1), window


def test_long_text_full_of_commas_counts_as_one_json_value() -> None:
    assert not has_more_values(msgspec.json.encode([',[{"\\' * 1_000_000]), 10)


def test_backslashes_across_windows_do_not_hide_the_end_of_a_string() -> None:
    raw = msgspec.json.encode(["\\" * 300_000, *[0] * 1_000])
    assert has_more_values(raw, 1_000)
    assert not has_more_values(raw, 1_001 + 1)
