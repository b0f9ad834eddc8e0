"""What a client may not know of: turns that did not end well, and what is hidden from it."""

from typing import Any

import pytest

from tests.unit.engine.copies import INTERRUPTED, SETTLED, asked, chat, id, plain, turn
from tests.unit.model.shapes import call, result
from turnledger.engine import matching
from turnledger.engine.matching import Continuation, Divergence, Regeneration, decide
from turnledger.model.item import message

# Turns that did not end well


STOPPED = [
    *plain("q1", "a1"),
    turn(2, [message("user", "q2")], [message("assistant", "It left the")], INTERRUPTED),
]
FAILED = [
    *plain("q1", "a1"),
    turn(
        2,
        [message("user", "q2")],
        [call("s"), result("s"), message("developer", "It did not finish.")],
        SETTLED,
    ),
]


@pytest.mark.parametrize(
    "seen",
    [
        [],
        [asked("q2")],
        chat("q2", "It left the"),
        chat("q2", "It left"),
        chat("q2", "It left the ware"),
    ],
)
def test_an_interrupted_turn_may_be_absent_in_part_or_as_a_whole(seen: list[dict[str, Any]]) -> None:
    sent = [*chat("q1", "a1"), *seen, asked("q3")]
    assert decide(STOPPED, sent) == Continuation(len(sent) - 1)
    later = [*STOPPED, turn(3, [message("user", "q3")], [message("assistant", "a3")])]
    assert decide(later, [*sent, *chat("-", "a3")[1:], asked("q4")]) == Continuation(len(sent) + 1)


@pytest.mark.parametrize("seen", ["It left", "It left the ware"])
def test_a_trimmed_request_may_begin_with_what_was_seen_of_an_interrupted_answer(seen: str) -> None:
    line = [*STOPPED, *plain("-", "-", "-", "-", "q3", "a3", "q4", "a4")[2:]]
    begin = chat("-", seen)[1:]
    assert decide(line, [*begin, *chat("q3", "a3", "other")]) == Divergence(id(3), 3)
    assert decide(line, [*begin, asked("other")]) == Divergence(id(2), 1)


def test_the_question_of_an_interrupted_turn_asked_again_is_a_regeneration() -> None:
    assert decide(STOPPED, chat("q1", "a1", "q2")) == Regeneration(id(2))
    assert decide(STOPPED, chat("q1", "a1", "q2")[1:]) == Regeneration(id(2))
    twice = [*STOPPED, turn(3, [message("user", "q3")], [], INTERRUPTED)]
    assert decide(twice, chat("q1", "a1", "q2")) == Regeneration(id(2))
    assert decide(twice, chat("q1", "a1", "q3")) == Regeneration(id(3))


def test_an_answer_that_begins_like_a_partial_one_is_still_found() -> None:
    line = [*plain("q1", "It left the house"), STOPPED[1]]
    assert decide(line, chat("q1", "It left the house", "q3")) == Continuation(2)


def test_a_turn_followed_only_by_settled_ones_counts_as_the_head() -> None:
    assert decide(FAILED, chat("q1", "a1", "q3")) == Continuation(2)
    assert decide(FAILED, chat("q1", "a1", "q2")) == Continuation(2)  # a retry is no regeneration
    assert decide(FAILED, [*chat("q1", "a1", "q2"), asked("q3")]) == Continuation(3)
    assert decide(FAILED, [asked("q1")], matching.Sent.FULL) == Regeneration(id(1))


def test_an_edit_never_leaves_out_a_settled_turn() -> None:
    line = [*FAILED, turn(3, [message("user", "q3")], [message("assistant", "a3")])]
    assert decide(line, chat("q1", "a1", "other")) == Divergence(id(2), 2)
    assert decide(line, chat("q1", "a1", "q2")) == Divergence(id(2), 2)
    assert decide(line, chat("q1", "a1", "q3")) == Regeneration(id(3))
    first = [turn(1, [message("user", "q1")], FAILED[1].output, SETTLED), *plain("-", "-", "q2", "a2")[1:]]
    assert decide(first, chat("other", "answer", "q")) == Divergence(id(1), 0)
