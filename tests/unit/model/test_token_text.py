"""The text of a token is long, checked, and the same for nobody else."""

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import repeatable
from turnledger.model.ids import SystemEntropy
from turnledger.model.token_text import DIGITS, SECRET_BITS, digest_of, is_token_text, new_token_text

TEXT = new_token_text(Random(1).getrandbits)


def test_its_shape_is_known() -> None:
    assert re.fullmatch(r"tlt_[0-9A-Za-z]{39}", TEXT)
    assert new_token_text(lambda bits: 0) == "tlt_" + "0" * 33 + "40cRSx"
    assert len(new_token_text(lambda bits: (1 << bits) - 1)) == len(TEXT)
    assert len(set(DIGITS)) == 62


def test_every_random_bit_is_in_it() -> None:
    texts = {new_token_text(lambda bits, bit=bit: 1 << bit) for bit in range(SECRET_BITS)}
    assert len(texts) == SECRET_BITS
    assert new_token_text(SystemEntropy(bulk=0)) != new_token_text(SystemEntropy(bulk=0))


@repeatable
@given(st.integers(0, 2**SECRET_BITS - 1))
def test_what_is_made_is_known(number: int) -> None:
    assert is_token_text(new_token_text(lambda bits: number))


@repeatable
@given(st.integers(0, len(TEXT) - 1), st.characters())
def test_one_changed_letter_is_seen(place: int, letter: str) -> None:
    changed = TEXT[:place] + letter + TEXT[place + 1 :]
    assert is_token_text(changed) == (changed == TEXT)


@pytest.mark.parametrize(
    "text",
    ["", "tlt_", TEXT[:-1], TEXT + "0", TEXT + "\n", " " + TEXT, TEXT.lower(), "sk-" + TEXT, "tlt_" * 11],
)
def test_garbage_is_seen(text: str) -> None:
    assert not is_token_text(text)


def test_the_digest_tells_texts_apart_and_not_what_they_are() -> None:
    assert digest_of("abc").hex().startswith("ba7816bf8f01cfea")
    assert digest_of(TEXT) != digest_of(TEXT[:-1])
    assert len(digest_of(TEXT)) == 32
