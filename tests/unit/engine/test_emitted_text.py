"""Emitted text is one text, however it came and however it is asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import repeatable
from turnledger.engine.emitted_text import LOOSE, PIECE, EmittedText


@repeatable
@given(
    st.lists(
        st.tuples(
            st.text(min_size=1, max_size=50) | st.sampled_from(["x" * PIECE, "yz" * PIECE]),
            st.none() | st.tuples(st.floats(0, 1), st.floats(0, 1)),
        ),
        max_size=40,
    )
)
def test_any_stretch_is_what_was_appended(steps: list[tuple[str, tuple[float, float] | None]]) -> None:
    text, plain = EmittedText(), ""
    for piece, asked in steps:
        text.append(piece)
        plain += piece
        assert text.length == len(plain)
        if asked is not None:
            start, stop = sorted(round(part * len(plain)) for part in asked)
            assert text.between(start, stop) == plain[start:stop]
            assert text.between(start, len(plain)) == plain[start:]
    assert text.between(0, text.length) == plain


def test_many_small_pieces_are_held_as_few() -> None:
    text = EmittedText()
    for _ in range(100_000):
        text.append("ab")
        if text.length % 1_000 == 0:
            text.between(text.length - 2, text.length)
    assert len(text._loose) <= LOOSE
    assert len(text._pieces) <= text.length // PIECE + 1
