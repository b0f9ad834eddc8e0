"""What a model thinks is gathered, whatever it is called, and only so much of it."""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

import pytest

from turnledger.errors import MalformedItems
from turnledger.runners.chat_model import Delta, chunk_of
from turnledger.runners.chat_runner import Thoughts


def gathered(*deltas: Delta, most: int = 1000) -> list[Any]:
    thoughts = Thoughts(most)
    for delta in deltas:
        thoughts.add(delta)
    texts = [item.fields["content"][0]["text"] for item in thoughts.take()]
    assert thoughts.take() == ()
    assert not thoughts
    return texts


def test_pieces_become_one_text() -> None:
    assert gathered(Delta(reasoning="Hm, "), Delta(reasoning="well.")) == ["Hm, well."]


def test_who_says_it_under_both_names_says_it_once() -> None:
    assert gathered(Delta(reasoning="Hm.", reasoning_content="Hm.")) == ["Hm."]
    assert gathered(Delta(reasoning="Hm.", reasoning_content="")) == ["Hm."]


@pytest.mark.parametrize("odd", [{"effort": "low"}, ["Hm."], 1, True, "", None])
def test_what_is_no_text_is_left_alone(odd: object) -> None:
    assert gathered(Delta(reasoning=odd)) == []


def test_halves_of_characters_meet_or_are_replaced() -> None:
    assert gathered(Delta(reasoning="\ud83d"), Delta(reasoning="\ude00 \ud83d")) == ["😀 \ufffd"]


def test_there_is_an_end_to_it() -> None:
    assert gathered(Delta(reasoning="12345"), most=5) == ["12345"]
    with pytest.raises(MalformedItems, match="grown past 5 bytes"):
        gathered(Delta(reasoning="12345"), Delta(reasoning="6"), most=5)


def test_thoughts_in_pieces_of_one_character_take_little_more_memory_than_their_text() -> None:
    thoughts, payload = Thoughts(100_000), b'{"choices": [{"delta": {"reasoning": "h"}}]}'
    tracemalloc.start()
    for _ in range(100_000):
        [choice] = chunk_of(payload).choices or ()
        assert choice.delta is not None
        thoughts.add(choice.delta)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 3 * sys.getsizeof("h" * 100_000)
