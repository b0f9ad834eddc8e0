"""A resent history is taken for what its client means."""

from typing import Any

import pytest

from tests.unit.engine.copies import ALL, LINE, SYSTEM, asked, chat, id, plain, turn
from turnledger.engine.resend import match
from turnledger.engine.resend.match import Continuation, MatchedEdit, Regeneration, decide
from turnledger.errors import NoNewInput
from turnledger.model.item import message

# What a request means


def test_all_of_it_and_a_new_message_continues() -> None:
    assert decide(LINE, [*ALL, asked("q4")]) == Continuation(6)


def test_the_first_request_is_new_altogether() -> None:
    assert decide([], [SYSTEM, *chat("hi", "hello", "q1")]) == Continuation(1, instructions=1)


def test_without_an_assistant_message_all_of_it_is_new() -> None:
    assert decide(LINE, [SYSTEM, asked("q1"), asked("q2")]) == Continuation(1, instructions=1)
    assert decide(LINE, [asked("q1"), {"role": "assistant", "content": " "}]) == Continuation(0)


@pytest.mark.parametrize("kept", range(1, 6))
def test_a_trimmed_beginning_is_not_an_edit(kept: int) -> None:
    assert decide(LINE, [*ALL[-kept:], asked("q4")]) == Continuation(kept)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_what_ends_at_a_question_asks_for_another_answer(depth: int) -> None:
    if depth > 1:
        assert decide(LINE, ALL[: 2 * depth - 1]) == Regeneration(id(depth))
        assert decide(LINE, ALL[2 * depth - 3 : 2 * depth - 1]) == Regeneration(id(depth))
    assert decide(LINE, ALL[: 2 * depth - 1], match.Sent.FULL) == Regeneration(id(depth))


def test_an_edited_question_goes_on_from_the_turn_before_it() -> None:
    assert decide(LINE, chat("q1", "a1", "other")) == MatchedEdit(id(1), 2)
    assert decide(LINE, chat("q1", "a1", "other", "a2", "q3", "a3", "q4")) == MatchedEdit(id(1), 2)
    assert decide(LINE, chat("other", "a1", "q2")) == MatchedEdit(None, 0)


def test_an_edited_answer_goes_on_from_the_turn_before_it() -> None:
    assert decide(LINE, chat("q1", "a1", "q2", "other", "q3")) == MatchedEdit(id(1), 2)
    assert decide(LINE, chat("q1", "other", "q2", "a2", "q3", "a3", "q4")) == MatchedEdit(None, 0)


def test_what_has_nothing_in_common_starts_from_the_very_beginning() -> None:
    assert decide(LINE, chat("a summary", "understood", "q3", "a3", "q4")) == MatchedEdit(None, 0)


def test_a_deleted_exchange_is_an_edit() -> None:
    assert decide(LINE, chat("q1", "a1", "q3", "a3", "q4")) == MatchedEdit(id(1), 2)


def test_an_exchange_that_was_never_stored_is_input() -> None:
    assert decide(LINE, [*ALL, *chat("q4", "Error: try again", "q5")]) == Continuation(6)
    assert decide(LINE, [*ALL[2:], *chat("q4", "Error: try again", "q5")]) == Continuation(4)


@pytest.mark.parametrize(
    "sent",
    [
        [],
        [SYSTEM],
        [asked(" ")],
        ALL,
        ALL[2:],
        ALL[:4],
        [*ALL, asked("\n")],
        [*ALL, SYSTEM],
        [*ALL, {"role": "assistant", "content": "more"}],
        [*ALL[:4], {"role": "assistant", "content": "more"}],
    ],
)
def test_without_anything_new_it_is_refused(sent: list[dict[str, Any]]) -> None:
    with pytest.raises(NoNewInput):
        decide(LINE, sent)


def test_an_image_or_a_part_of_unknown_kind_is_input() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:x"}}
    assert decide(LINE, [*ALL, {"role": "user", "content": [image]}]) == Continuation(6)
    assert decide(LINE, [*ALL, {"role": "user", "content": [{"type": "hologram"}]}]) == Continuation(6)
    with pytest.raises(NoNewInput):
        decide(LINE, [*ALL, {"role": "user", "content": [{"type": "text", "text": " "}]}])


# What the client says of its messages


def test_all_is_new_if_the_client_says_so() -> None:
    assert decide(LINE, [SYSTEM, *ALL[:3]], match.Sent.NEW) == Continuation(1, instructions=1)
    with pytest.raises(NoNewInput):
        decide(LINE, ALL[1:2], match.Sent.NEW)


def test_a_full_history_is_never_guessed_to_be_new() -> None:
    assert decide(LINE, [asked("other")], match.Sent.FULL) == MatchedEdit(None, 0)
    assert decide(LINE, [*ALL, asked("q4")], match.Sent.FULL) == Continuation(6)
    assert decide(LINE, chat("q1", "a1", "other"), match.Sent.FULL) == MatchedEdit(id(1), 2)
    with pytest.raises(NoNewInput):
        decide(LINE, ALL, match.Sent.FULL)


@pytest.mark.parametrize("trimmed", [ALL[1:], ALL[2:], ALL[4:]])
def test_a_full_history_begins_at_the_beginning_and_is_never_a_window(trimmed: list[dict[str, Any]]) -> None:
    assert decide(LINE, [*trimmed, asked("q4")], match.Sent.FULL) == MatchedEdit(None, 0)
    assert decide(LINE, [*trimmed, asked("q4")]) == Continuation(len(trimmed))


def test_a_full_history_is_read_from_the_beginning_where_repeated_messages_leave_a_choice() -> None:
    line = plain("yes", "ok", "yes", "ok")
    assert decide(line, chat("yes", "ok", "yes"), match.Sent.FULL) == Regeneration(id(2))
    assert decide(line, chat("yes", "ok", "yes")) == Continuation(2)


# Instructions


def test_leading_instructions_are_neither_matched_nor_input() -> None:
    dated = [{"role": "developer", "content": "Tuesday"}, SYSTEM]
    assert decide(LINE, [*dated, *ALL, asked("q4")]) == Continuation(8, instructions=2)
    assert decide(LINE, [*dated, *ALL[:3]]) == Regeneration(id(2), instructions=2)
    assert decide(LINE, [*dated, *chat("q1", "a1", "other")]) == MatchedEdit(id(1), 4, instructions=2)


def test_instructions_in_the_middle_are_not_matched_and_are_input_where_they_are_new() -> None:
    assert decide(LINE, [*ALL[:2], SYSTEM, *ALL[2:], SYSTEM, asked("q4")]) == Continuation(7)
    stored = [turn(1, [message("system", "Be kind."), message("user", "q1")], [message("assistant", "a1")])]
    assert decide(stored, chat("q1", "a1", "q2")) == Continuation(2)


# Repeated messages


def test_an_old_question_asked_again_is_no_regeneration() -> None:
    assert decide(LINE, [*ALL, asked("q1")]) == Continuation(6)
    assert decide(LINE, [*ALL, asked("q3")]) == Continuation(6)
    assert decide(LINE, [*ALL[-2:], asked("q3")]) == Continuation(2)


def test_another_answer_to_a_repeated_question_is_a_regeneration() -> None:
    line = plain("x", "y", "yes", "ok", "yes", "ok")
    assert decide(line, chat("x", "y", "yes", "ok", "yes")) == Regeneration(id(3))


def test_an_edit_is_placed_where_most_agrees() -> None:
    line = plain("hi", "hello", "x", "y", "hi", "hello", "z", "w")
    assert decide(line, chat("hi", "hello", "z", "other", "q")) == MatchedEdit(id(3), 2)
    assert decide(line, chat("hi", "hello", "other")) == MatchedEdit(id(1), 2)
