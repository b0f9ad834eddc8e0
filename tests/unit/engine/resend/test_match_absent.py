"""What a client may not know of: turns that did not end well, and what is hidden from it."""

from typing import Any

import pytest

from tests.unit.engine.copies import ALL, INTERRUPTED, LINE, SETTLED, asked, chat, id, plain, tool_call, turn
from tests.unit.model.shapes import call, result
from turnledger.engine.resend import match
from turnledger.engine.resend.match import Continuation, MatchedEdit, Regeneration, decide
from turnledger.model.item import message
from turnledger.model.turn import Turn

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


@pytest.mark.parametrize("sent", [None, match.Sent.FULL])
def test_another_answer_than_the_one_of_an_interrupted_turn_is_an_edit(sent: match.Sent | None) -> None:
    copy = chat("q1", "a1", "q2", "Something else", "q3")
    assert decide(STOPPED, copy, sent) == MatchedEdit(id(1), 2)
    later = [*STOPPED, *plain("-", "-", "-", "-", "q3", "a3")[2:]]
    assert decide(later, copy, sent) == MatchedEdit(id(1), 2)
    assert decide(later, [*copy, *chat("-", "a3", "q4")[1:]], sent) == MatchedEdit(id(1), 2)


@pytest.mark.parametrize("trimmed", [1, 2])
def test_another_answer_than_the_one_of_an_interrupted_turn_is_an_edit_though_trimmed(trimmed: int) -> None:
    copy = chat("q1", "a1", "q2", "Something else", "q3")[trimmed:]
    assert decide(STOPPED, copy) == MatchedEdit(id(1), 2 - trimmed)


def test_an_interrupted_turn_that_was_asked_again_may_be_absent_before_its_other_answer() -> None:
    again = [*STOPPED, turn(3, [message("user", "q2")], [message("assistant", "Something else")])]
    assert decide(again, chat("q1", "a1", "q2", "Something else", "q3")) == Continuation(4)


def test_an_answer_to_an_interrupted_turn_without_text_is_input() -> None:
    silent = [*plain("q1", "a1"), turn(2, [message("user", "q2")], [], INTERRUPTED)]
    assert decide(silent, chat("q1", "a1", "q2", "(stopped)", "q3")) == Continuation(3)


def test_another_answer_than_the_one_that_an_interrupted_turn_was_asked_with_is_an_edit() -> None:
    input = [message("user", "q2"), message("assistant", "rather"), message("user", "q3")]
    line = [*plain("q1", "a1"), turn(2, input, [], INTERRUPTED)]
    assert decide(line, chat("q1", "a1", "q2", "other", "q4")) == MatchedEdit(id(1), 2)
    assert decide(line, chat("q1", "a1", "q2", "rather", "q3", "(stopped)", "q4")) == Continuation(5)


def test_other_results_than_those_of_an_interrupted_turn_are_an_edit() -> None:
    line = [
        turn(1, [message("user", "q1")], [call("a")]),
        turn(2, [result("a", output="one")], [message("assistant", "It left the")], INTERRUPTED),
    ]
    calling = {"role": "assistant", "content": None, "tool_calls": [tool_call("a")]}
    other = {"role": "tool", "tool_call_id": "a", "content": "two"}
    assert decide(line, [asked("q1"), calling, other]) == MatchedEdit(id(1), 2)


@pytest.mark.parametrize("seen", ["It left", "It left the ware"])
def test_a_trimmed_request_may_begin_with_what_was_seen_of_an_interrupted_answer(seen: str) -> None:
    line = [*STOPPED, *plain("-", "-", "-", "-", "q3", "a3", "q4", "a4")[2:]]
    begin = chat("-", seen)[1:]
    assert decide(line, [*begin, *chat("q3", "a3", "other")]) == MatchedEdit(id(3), 3)
    assert decide(line, [*begin, asked("other")]) == MatchedEdit(id(2), 1)


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
    assert decide(FAILED, [asked("q1")], match.Sent.FULL) == Regeneration(id(1))


def test_an_edit_never_leaves_out_a_settled_turn() -> None:
    line = [*FAILED, turn(3, [message("user", "q3")], [message("assistant", "a3")])]
    assert decide(line, chat("q1", "a1", "other")) == MatchedEdit(id(2), 2)
    assert decide(line, chat("q1", "a1", "q2")) == MatchedEdit(id(2), 2)
    assert decide(line, chat("q1", "a1", "q3")) == Regeneration(id(3))
    first = [turn(1, [message("user", "q1")], FAILED[1].output, SETTLED), *plain("-", "-", "q2", "a2")[1:]]
    assert decide(first, chat("other", "answer", "q")) == MatchedEdit(id(1), 0)


# What is hidden


def hiding(line: list[Turn], number: int, *places: int) -> list[Turn]:
    """The line with these items of a turn hidden from its user."""
    return [each.hiding(frozenset(places)) if each.number == number else each for each in line]


@pytest.mark.parametrize(("number", "place"), [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)])
def test_what_is_hidden_may_be_absent_and_may_be_held(number: int, place: int) -> None:
    line = hiding(LINE, number, place)
    at = 2 * (number - 1) + place
    without = [*ALL[:at], *ALL[at + 1 :]]
    assert decide(line, [*without, asked("q4")]) == Continuation(5)
    assert decide(line, [*ALL, asked("q4")]) == Continuation(6)
    assert decide(line, [*ALL, asked("q4")], match.Sent.FULL) == Continuation(6)
    assert decide(line, [*without, asked("q4")], match.Sent.FULL) == Continuation(5)


def test_what_is_not_hidden_may_not_be_absent() -> None:
    assert decide(hiding(LINE, 2, 0), [*ALL[:2], *ALL[4:], asked("q4")]) == MatchedEdit(id(1), 2)


@pytest.mark.parametrize("held", [(), (0,), (1,), (0, 1)])
def test_of_several_hidden_items_a_client_may_hold_any(held: tuple[int, ...]) -> None:
    line = hiding(LINE, 2, 0, 1)
    sent = [*ALL[:2], *(ALL[2 + place] for place in held), *ALL[4:], asked("q4")]
    assert decide(line, sent) == Continuation(len(sent) - 1)
    assert decide(line, sent[1:]) == Continuation(len(sent) - 2)


def test_of_too_many_hidden_items_a_client_may_hold_all_or_none() -> None:
    many = turn(1, [message("user", f"q{at}") for at in range(6)], [message("assistant", "a")])
    line = hiding([many], 1, *range(6))
    answer = {"role": "assistant", "content": "a"}
    asks = [asked(f"q{at}") for at in range(6)]
    assert decide(line, [answer, asked("new")]) == Continuation(1)
    assert decide(line, [*asks, answer, asked("new")]) == Continuation(7)
    assert isinstance(decide(line, [*asks[:2], answer, asked("new")]), MatchedEdit)


def test_the_text_around_what_is_hidden_is_one_answer() -> None:
    parts = [message("assistant", text) for text in ("Let me look.", "Secret.", "Found it.")]
    line = hiding([turn(1, [message("user", "q1")], parts)], 1, 2)
    assert decide(line, chat("q1", "Let me look.Found it.", "q2")) == Continuation(2)
    assert decide(line, chat("q1", "Let me look.Secret.Found it.", "q2")) == Continuation(2)
    assert decide(line, chat("q1", "Let me look.Secret.", "q2")) == MatchedEdit(None, 0)


def test_the_question_before_what_is_hidden_can_be_asked_again() -> None:
    assert decide(hiding(LINE, 3, 1), ALL[:5]) == Regeneration(id(3))
    assert decide(hiding(LINE, 2, 1), ALL[:3]) == Regeneration(id(2))
    assert decide(hiding(LINE, 2, 0), ALL[:3]) == Regeneration(id(2))
    assert decide(hiding(LINE, 3, 0, 1), ALL[:3]) == Regeneration(id(2))
    assert decide(hiding(LINE, 3, 0, 1), ALL[:3], match.Sent.FULL) == Regeneration(id(2))


def test_the_last_question_that_is_shown_is_the_one_asked_again() -> None:
    line = plain(*"abcd", *"xy", *"abcd", *"hi")
    assert decide(hiding(line, 6, 0, 1), chat(*"abc")) == Regeneration(id(5))


def test_a_branch_never_leaves_out_a_hidden_turn_before_the_edit() -> None:
    line = hiding(LINE, 2, 0, 1)
    assert decide(line, [*ALL[:2], asked("other")]) == MatchedEdit(id(2), 2)
    assert decide(line, [*ALL[2:4], asked("other")]) == MatchedEdit(id(2), 2)
    assert decide(line, [asked("other"), *ALL[1:2], *ALL[4:], asked("q4")]) == MatchedEdit(None, 0)


def test_a_turn_that_is_hidden_altogether_counts_as_nothing_behind_the_head() -> None:
    line = hiding(LINE, 3, 0, 1)
    assert decide(line, [*ALL[:4], asked("q4")]) == Continuation(4)
    assert decide(line, [*ALL[:4], asked("q4")], match.Sent.FULL) == Continuation(4)


def test_results_told_anew_take_the_place_of_hidden_ones() -> None:
    asks = {"role": "assistant", "content": None, "tool_calls": [tool_call("a")]}
    line = [
        turn(1, [message("user", "q1")], [call("a")]).hiding(frozenset({1})),
        turn(2, [result("a", output="1")], [message("assistant", "a1")]).hiding(frozenset({0, 1})),
        *plain(*"----", "q3", "a3")[2:],
    ]
    other = {"role": "tool", "tool_call_id": "a", "content": "other"}
    assert decide(line, [asked("q1"), asks, other, *chat("-", "a1", "q3")[1:]]) == MatchedEdit(id(1), 2)


def test_what_is_hidden_does_not_come_back_with_what_was_trimmed() -> None:
    items = [message(each["role"], each["content"]) for each in ALL]
    line = [turn(1, items[:5], items[5:]).hiding(frozenset({0}))]
    assert decide(line, [*ALL[2:4], asked("other")]) == MatchedEdit(None, 0, kept=tuple(items[1:2]))


def test_a_client_that_was_never_shown_an_answer_sends_none() -> None:
    line = hiding(hiding(LINE[:2], 1, 1), 2, 1)
    assert decide(line, [asked("q1"), asked("q2"), asked("q3")]) == Continuation(2)
    assert decide(line, [asked("q2"), asked("q3")]) == Continuation(1)
    assert decide(line, [asked("new"), asked("q3")]) == Continuation(0)
    assert decide(line, [asked("q2")]) == Continuation(0)
    stopped = [turn(1, [message("user", "q1")], [message("assistant", "It left")], INTERRUPTED)]
    assert decide(stopped, [asked("q1"), asked("q2")]) == Continuation(1)
    assert decide(hiding(LINE, 1, 1), [asked("q1"), asked("q2")]) == Continuation(0)
    assert decide(hiding(LINE, 3, 1), [asked("q3"), asked("q4")]) == Continuation(1)
    assert decide(hiding(LINE, 3, 1), [asked("q2"), asked("q3"), asked("q4")]) == Continuation(0)
