"""However much of its beginning a client has trimmed, and whatever it edits: the beginning stays."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.engine.copies import ALL, INTERRUPTED, LINE, asked, chat, id, plain, turn
from turnledger.engine.matching import Continuation, Divergence, Regeneration, decide
from turnledger.model.item import message
from turnledger.model.turn import Turn


def test_a_trimmed_request_with_an_edit_keeps_the_beginning() -> None:
    assert decide(LINE, chat("q2", "a2", "other")) == Divergence(id(2), 2)
    assert decide(LINE, chat("q2", "other", "q3")) == Divergence(id(1), 0)
    assert decide(LINE, [*ALL[3:4], asked("other")]) == Divergence(id(2), 1)


def test_a_trimmed_request_whose_first_question_was_edited_keeps_the_beginning() -> None:
    assert decide(LINE, chat("other", "a2", "q3", "a3", "q4")) == Divergence(id(1), 0)


def test_a_trimmed_request_with_two_edits_keeps_the_beginning() -> None:
    line = plain("q1", "a1", "q2", "a2", "q3", "a3", "q4", "a4")
    assert decide(line, chat("other", "a2", "q3", "a3", "edited")) == Divergence(id(1), 0)
    assert decide(line, chat("-", "other", "q3", "a3", "edited")[1:]) == Divergence(
        id(1), 0, kept=line[1].input
    )
    assert decide(line, chat("-", "other", "q3", "a3", "q4", "a4", "q5")[1:]) == Divergence(
        id(1), 0, kept=line[1].input
    )


def test_a_request_that_shares_one_answer_by_chance_is_a_history_of_its_own() -> None:
    assert decide(LINE, chat("other", "a3", "more", "and", "more")) == Divergence(None, 0)


CUT = plain("q1", "The first answer", "q2", "The second answer", "q3", "a3", "q4", "a4")


@pytest.mark.parametrize("cut", ["cond answer", "The second ans"])
def test_an_answer_that_was_cut_by_letters_may_begin_a_trimmed_request(cut: str) -> None:
    begin = chat("-", cut)[1:]
    assert decide(CUT, [*begin, *chat("q3", "a3", "other")]) == Divergence(id(3), 3)
    assert decide(CUT, [*begin, asked("other")]) == Divergence(id(2), 1)
    assert decide(CUT, [*begin, *chat("q3", "a3", "q4")]) == Regeneration(id(4))
    assert decide(CUT, [*begin, *chat("q3", "a3", "q4", "a4", "q5")]) == Continuation(5)


def test_what_follows_a_cut_answer_says_which_one_it_is() -> None:
    begin = chat("-", "answer")[1:]
    assert decide(CUT, [*begin, *chat("q2", "The second answer", "other")]) == Divergence(id(2), 3)
    assert decide(CUT, [*begin, *chat("q3", "a3", "other")]) == Divergence(id(3), 3)


# Long lines


def test_more_absent_turns_than_are_looked_at_first_do_not_hide_the_window() -> None:
    stopped = [
        turn(number, [message("user", f"stopped {number}")], [], INTERRUPTED) for number in range(3, 100)
    ]
    line = [*plain("q1", "a1", "q2", "a2"), *stopped]
    assert decide(line, chat("q1", "a1", "q2", "a2", "new")) == Continuation(4)
    assert decide(line, chat("q2", "a2", "new")) == Continuation(2)


class Looked(Sequence[Turn]):
    """Turns that note which of them were looked at."""

    def __init__(self, turns: list[Turn]) -> None:
        self.turns = turns
        self.at: set[int] = set()

    def __len__(self) -> int:
        return len(self.turns)

    def __getitem__(self, at: Any) -> Any:
        places = range(len(self.turns))[at]
        self.at |= set(places) if isinstance(at, slice) else {places}  # type: ignore[call-overload]
        return self.turns[at]


def test_a_short_request_looks_at_the_end_of_a_long_line_only() -> None:
    line = Looked(plain(*(f"{number}" for number in range(2_000))))
    assert decide(line, [*chat("1996", "1997", "1998", "1999"), asked("new")]) == Continuation(4)
    assert len(line.at) < 100
