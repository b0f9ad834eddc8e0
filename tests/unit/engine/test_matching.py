"""A resent history is taken for what its client means, whatever clients do to it on the way."""

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.unit.engine.copies import (
    COMPLETED,
    INTERRUPTED,
    NEW,
    SETTLED,
    Sent,
    Tag,
    Told,
    asked,
    chat,
    copies,
    lines,
    plain,
    tool_call,
    trimmed,
    turn,
)
from tests.unit.model.shapes import call, json_values, reasoning, repeatable, result, some_id
from turnledger.engine import matching
from turnledger.engine.matching import Continuation, Divergence, Meaning, Regeneration, decide
from turnledger.errors import MalformedItems, NoNewInput
from turnledger.model.ids import TurnId
from turnledger.model.item import Item, message
from turnledger.model.pairing import NOT_ANSWERED
from turnledger.model.turn import Turn

thorough = settings(repeatable, max_examples=150, suppress_health_check=[HealthCheck.too_slow])


def id(number: int) -> TurnId:
    return some_id(TurnId, number)


LINE = plain("q1", "a1", "q2", "a2", "q3", "a3")
ALL = chat("q1", "a1", "q2", "a2", "q3", "a3")
SYSTEM = {"role": "system", "content": "Today is Monday."}


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
    assert decide(LINE, ALL[: 2 * depth - 1], matching.Sent.FULL) == Regeneration(id(depth))


def test_an_edited_question_goes_on_from_the_turn_before_it() -> None:
    assert decide(LINE, chat("q1", "a1", "other")) == Divergence(id(1), 2)
    assert decide(LINE, chat("q1", "a1", "other", "a2", "q3", "a3", "q4")) == Divergence(id(1), 2)
    assert decide(LINE, chat("other", "a1", "q2")) == Divergence(None, 0)


def test_an_edited_answer_goes_on_from_the_turn_before_it() -> None:
    assert decide(LINE, chat("q1", "a1", "q2", "other", "q3")) == Divergence(id(1), 2)
    assert decide(LINE, chat("q1", "other", "q2", "a2", "q3", "a3", "q4")) == Divergence(None, 0)


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


def test_what_has_nothing_in_common_starts_from_the_very_beginning() -> None:
    assert decide(LINE, chat("a summary", "understood", "q3", "a3", "q4")) == Divergence(None, 0)


def test_a_deleted_exchange_is_an_edit() -> None:
    assert decide(LINE, chat("q1", "a1", "q3", "a3", "q4")) == Divergence(id(1), 2)


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
    assert decide(LINE, [SYSTEM, *ALL[:3]], matching.Sent.NEW) == Continuation(1, instructions=1)
    with pytest.raises(NoNewInput):
        decide(LINE, ALL[1:2], matching.Sent.NEW)


def test_a_full_history_is_never_guessed_to_be_new() -> None:
    assert decide(LINE, [asked("other")], matching.Sent.FULL) == Divergence(None, 0)
    assert decide(LINE, [*ALL, asked("q4")], matching.Sent.FULL) == Continuation(6)
    assert decide(LINE, chat("q1", "a1", "other"), matching.Sent.FULL) == Divergence(id(1), 2)
    with pytest.raises(NoNewInput):
        decide(LINE, ALL, matching.Sent.FULL)


@pytest.mark.parametrize("trimmed", [ALL[1:], ALL[2:], ALL[4:]])
def test_a_full_history_begins_at_the_beginning_and_is_never_a_window(trimmed: list[dict[str, Any]]) -> None:
    assert decide(LINE, [*trimmed, asked("q4")], matching.Sent.FULL) == Divergence(None, 0)
    assert decide(LINE, [*trimmed, asked("q4")]) == Continuation(len(trimmed))


def test_a_full_history_is_read_from_the_beginning_where_repeated_messages_leave_a_choice() -> None:
    line = plain("yes", "ok", "yes", "ok")
    assert decide(line, chat("yes", "ok", "yes"), matching.Sent.FULL) == Regeneration(id(2))
    assert decide(line, chat("yes", "ok", "yes")) == Continuation(2)


# Instructions


def test_leading_instructions_are_neither_matched_nor_input() -> None:
    dated = [{"role": "developer", "content": "Tuesday"}, SYSTEM]
    assert decide(LINE, [*dated, *ALL, asked("q4")]) == Continuation(8, instructions=2)
    assert decide(LINE, [*dated, *ALL[:3]]) == Regeneration(id(2), instructions=2)
    assert decide(LINE, [*dated, *chat("q1", "a1", "other")]) == Divergence(id(1), 4, instructions=2)


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
    assert decide(line, chat("hi", "hello", "z", "other", "q")) == Divergence(id(3), 2)
    assert decide(line, chat("hi", "hello", "other")) == Divergence(id(1), 2)


# Tools


PENDING = [
    turn(1, [message("user", "q1")], [reasoning(), call("a"), call("b", arguments='{"x": 1, "y": 2.0}')])
]
CALLS = {"role": "assistant", "tool_calls": [tool_call("a"), tool_call("b", '{"y":2,"x":1}')]}


def found(call_id: str, text: str = "found") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def test_results_of_pending_calls_are_input() -> None:
    assert decide(PENDING, [asked("q1"), CALLS, found("a"), found("b")]) == Continuation(2)
    assert decide(PENDING, [CALLS, found("a"), found("b")]) == Continuation(1)


def test_other_calls_are_an_edit() -> None:
    for other in ('{"y":true,"x":1}', '{"y":2,"x":"1"}', '{"y":2}', "nonsense"):
        calls = {"role": "assistant", "tool_calls": [tool_call("a"), tool_call("b", other)]}
        assert decide(PENDING, [asked("q1"), calls, found("a"), found("b")]) == Divergence(None, 0)
    fewer = {"role": "assistant", "tool_calls": [tool_call("a")]}
    assert decide(PENDING, [asked("q1"), fewer, found("a")]) == Divergence(None, 0)


ANSWERED = [
    *PENDING,
    turn(2, [result("a", output="1"), result("b", output="2")], [message("assistant", "3")]),
]


def test_results_are_matched_in_order_or_by_the_calls_they_answer() -> None:
    three = {"role": "assistant", "content": "3"}
    in_order = [asked("q1"), CALLS, found("x", "1"), found("y", "2"), three, asked("q2")]
    assert decide(ANSWERED, in_order) == Continuation(5)
    by_call = [asked("q1"), CALLS, found("b", "2"), found("a", "1"), three, asked("q2")]
    assert decide(ANSWERED, by_call) == Continuation(5)
    swapped = [asked("q1"), CALLS, found("b", "1"), found("a", "1"), three, asked("q2")]
    assert decide(ANSWERED, swapped) == Divergence(id(1), 2)


def test_a_request_may_begin_among_results() -> None:
    three = {"role": "assistant", "content": "3"}
    assert decide(ANSWERED, [found("b", "2"), three, asked("q2")]) == Continuation(2)


def test_a_result_that_is_left_out_is_an_edit() -> None:
    three = {"role": "assistant", "content": "3"}
    assert decide(ANSWERED, [asked("q1"), CALLS, found("b", "2"), three, asked("q2")]) == Divergence(id(1), 2)
    assert decide(ANSWERED, [asked("q1"), CALLS, found("x", "2"), three, asked("q2")]) == Divergence(id(1), 2)


def test_results_sent_again_ask_for_another_answer() -> None:
    sent = [asked("q1"), CALLS, found("a", "1"), found("b", "2")]
    assert decide(ANSWERED, sent) == Regeneration(id(2))


def test_results_that_were_stated_for_the_client_may_be_absent() -> None:
    moved_on = [result("a", output="1"), result("b", output=NOT_ANSWERED), message("user", "never mind")]
    line = [*PENDING, turn(2, moved_on, [message("assistant", "fine")])]
    after = [asked("never mind"), {"role": "assistant", "content": "fine"}, asked("q3")]
    assert decide(line, [asked("q1"), CALLS, found("a", "1"), *after]) == Continuation(5)
    assert decide(line, [asked("q1"), CALLS, found("b", "1"), *after]) == Continuation(
        5
    )  # ids are the client's
    assert decide(line, [asked("q1"), CALLS, *after]) == Divergence(id(1), 2)


def test_all_results_of_a_turn_may_have_been_stated_for_the_client() -> None:
    moved_on = [result("a", output=NOT_ANSWERED), result("b", output=NOT_ANSWERED), message("user", "no")]
    line = [*PENDING, turn(2, moved_on, [message("assistant", "fine")])]
    sent = [asked("q1"), CALLS, *chat("no", "fine", "q3")]
    assert decide(line, sent) == Continuation(4)


# Images


def test_images_are_compared_only_where_both_sides_have_them() -> None:
    def seen(url: str | None) -> dict[str, Any]:
        image = [{"type": "image_url", "image_url": {"url": url}}] if url else []
        return {"role": "user", "content": [{"type": "text", "text": "look"}, *image]}

    stored = {"type": "input_image", "image_url": "data:x"}
    asked_with_image = Item.of({"role": "user", "content": [{"type": "input_text", "text": "look"}, stored]})
    line = [turn(1, [asked_with_image], [message("assistant", "a1")])]
    after = chat("-", "a1", "q2")[1:]
    assert decide(line, [seen("data:x"), *after]) == Continuation(2)
    assert decide(line, [seen(None), *after]) == Continuation(2)
    assert decide(line, [seen("data:y"), *after]) == Divergence(None, 0)
    assert decide(plain("look", "a1"), [seen("data:x"), *after]) == Continuation(2)


def test_a_message_that_was_only_an_image_may_be_gone() -> None:
    image = Item.of({"role": "user", "content": [{"type": "input_image", "image_url": "data:x"}]})
    line = [*plain("q1", "a1"), turn(2, [image], [message("assistant", "a2")])]
    assert decide(line, [*chat("q1", "a1"), *chat("-", "a2")[1:], asked("q3")]) == Continuation(3)
    gone = [*chat("q1", "a1"), {"role": "user", "content": []}, *chat("-", "a2")[1:], asked("q3")]
    assert decide(line, gone) == Continuation(4)


# Pieces


def test_white_space_within_a_message_counts() -> None:
    line = plain("q 1", "a1")
    assert decide(line, chat("q 1 ", "a1", "q2")) == Continuation(2)
    assert decide(line, chat("q  1", "a1", "q2")) == Divergence(None, 0)


ROWS = [
    *plain("q1", "a1"),
    turn(
        2,
        [message("user", "one"), message("user", "two")],
        [message("assistant", "Let me look."), message("assistant", "Found it.")],
    ),
]


@pytest.mark.parametrize("join", ["", " ", "\n\n"])
def test_messages_in_a_row_may_be_joined_by_the_client(join: str) -> None:
    joined = chat("q1", "a1", join.join(["one", "two"]), join.join(["Let me look.", "Found it."]), "q3")
    assert decide(ROWS, joined) == Continuation(4)
    assert decide(ROWS, joined[3:]) == Continuation(1)


@pytest.mark.parametrize("begin", range(6))
def test_a_request_may_begin_in_the_middle_of_messages_in_a_row(begin: int) -> None:
    said = [{"role": "assistant", "content": text} for text in ("Let me look.", "Found it.")]
    sent = [*chat("q1", "a1"), asked("one"), asked("two"), *said][begin:]
    assert decide(ROWS, [*sent, asked("q3")]) == Continuation(len(sent))


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


# Generated histories


def implied(told: Sequence[Told], sent: Sequence[Sent], meaning: Meaning) -> list[Tag]:
    """The history that the decision makes: the line up to the common turn, then the input."""
    places = {each.turn.id: at for at, each in enumerate(told)}
    if isinstance(meaning, Regeneration):
        at = places[meaning.turn]
        before, input = told[:at], told[at].input
    elif isinstance(meaning, Divergence):
        before = told[: places[meaning.after] + 1] if meaning.after else []
        input = list(sent[meaning.new :])
    else:
        before, input = told, list(sent[meaning.new :])
    return [tag for each in before for tag in each.tags] + [tag for each in input for tag in each.tags]


def assert_neither_doubled_nor_lost(told: Sequence[Told], sent: Sequence[Sent], meaning: Meaning) -> None:
    """The history that follows reads as the client's copy does, up to what was trimmed from its beginning and
    what it need not hold; and it begins where the line begins, unless the client began otherwise."""
    copy = [tag for each in sent for tag in each.tags]
    left = list(copy)
    for tag in reversed(implied(told, sent, meaning)):
        if not left:
            break
        if tag == left[-1]:
            left.pop()
        else:
            assert tag[0] != NEW, f"{tag} was doubled"
            assert told[tag[0]].may_be_absent, f"{tag} is not in the copy"
    assert left == []
    if isinstance(meaning, Divergence) and meaning.after is None:
        assert copy[0][0] == NEW or all(each.may_be_absent for each in told[: copy[0][0]])


def new(text: str, role: str = "user") -> Sent:
    return Sent({"role": role, "content": text}, ((NEW, text),))


def decided(told: Sequence[Told], sent: Sequence[Sent]) -> Meaning:
    meaning = decide([each.turn for each in told], [each.message for each in sent])
    assert_neither_doubled_nor_lost(told, sent, meaning)
    return meaning


def has_answer(sent: Sequence[Sent]) -> bool:
    return any(each.role == "assistant" and each.tags for each in sent)


@thorough
@given(st.data(), lines(), st.booleans())
def test_whatever_a_client_does_to_its_copy_a_new_message_continues(
    data: st.DataObject, told: list[Told], dated: bool
) -> None:
    copy = data.draw(copies(told).flatmap(trimmed))
    assume(has_answer(copy))
    front = [Sent(SYSTEM, ())] if dated else []
    sent = [*front, *copy, *(new(f"new {each}") for each in range(data.draw(st.integers(1, 2))))]
    assert decided(told, sent) == Continuation(len(front) + len(copy), instructions=len(front))


@thorough
@given(st.data(), lines(at_least=2))
def test_a_regeneration_is_seen_at_any_depth(data: st.DataObject, told: list[Told]) -> None:
    depth = data.draw(st.integers(1, len(told) - 1))
    assume(told[depth].turn.kind is not SETTLED)
    copy = data.draw(copies(told[:depth]).flatmap(trimmed))
    assume(has_answer(copy))
    sent = [*copy, *told[depth].input]
    assert decided(told, sent) == Regeneration(told[depth].turn.id)


@thorough
@given(st.data(), lines(at_least=2), st.booleans(), st.booleans())
def test_an_edited_question_or_answer_branches_off_before_it(
    data: st.DataObject, told: list[Told], of_answer: bool, and_all_behind_it: bool
) -> None:
    depth = data.draw(st.integers(0, len(told) - 1))
    assume(any(not each.may_be_absent for each in told[depth:]))
    before = data.draw(copies(told[:depth]).flatmap(trimmed))
    if of_answer:
        edited = [*told[depth].input, new("edited", "assistant")]
    else:
        edited = [new("edited"), *(told[depth].output if and_all_behind_it else [])]
    behind = data.draw(copies(told[depth + 1 :])) if and_all_behind_it else []
    sent = [*before, *edited, *behind, new("and now?")]
    assume(has_answer(sent) and sent[0].role != "system")
    meaning = decided(told, sent)
    if before and has_answer(before) and not told[depth].may_be_absent:
        assert isinstance(meaning, Divergence)
        assert meaning.new == len(before)


@thorough
@given(st.data(), lines(at_least=3))
def test_a_deleted_exchange_branches_off_before_it(data: st.DataObject, told: list[Told]) -> None:
    first = data.draw(st.integers(1, len(told) - 2))
    last = data.draw(st.integers(first + 1, len(told) - 1))
    before, behind = data.draw(copies(told[:first])), data.draw(copies(told[last:]))
    sent = [*before, *behind, new("and now?")]
    assume(has_answer(sent) and sent[0].role != "system")
    decided(told, sent)


@thorough
@given(
    st.lists(st.sampled_from(["yes", "no"]), min_size=2, max_size=12).filter(
        lambda texts: len(texts) % 2 == 0
    ),
    st.lists(st.sampled_from(["yes", "no"]), min_size=2, max_size=11),
    st.booleans(),
)
def test_repeated_messages_never_double_or_lose_anything(
    stored: list[str], sent: list[str], begins_with_answer: bool
) -> None:
    line = plain(*stored)
    request = chat("-", *sent)[1:] if begins_with_answer else chat(*sent)
    flat = [(at % 2, text) for at, text in enumerate(stored)]
    copy = [(int(each["role"] == "assistant"), each["content"]) for each in request]
    answers = max(at for at, (role, _) in enumerate(copy) if role) + 1
    if answers == len(copy):
        return
    meaning = decide(line, request)
    if copy[:answers] == flat[-answers:]:
        assert meaning == Continuation(answers)
        return
    windows = [
        at // 2 + 1 for at in range(0, len(flat), 2) if flat[max(0, at + 1 - len(copy)) : at + 1] == copy
    ]
    if windows:
        assert isinstance(meaning, Regeneration)
        assert meaning.turn in [id(number) for number in windows]
        return
    assert not isinstance(meaning, Regeneration)
    after = meaning.after if isinstance(meaning, Divergence) else line[-1].id
    common = next((each.number for each in line if each.id == after), 0)
    history = flat[: 2 * common] + copy[meaning.new :]
    assert history[-len(copy) :] == copy
    agreed = [
        size
        for begin in range(len(flat))
        for size in range(1, len(copy))
        if (begin + size) % 2 == 0 and flat[begin : begin + size] == copy[:size]
    ]
    assert meaning.new == max(agreed, default=0)


def reads_as(history: Sequence[tuple[tuple[int, str], bool]], copy: Sequence[tuple[int, str]]) -> bool:
    """Whether the copy is the end of the history, up to what may be absent."""
    lefts = {len(copy)}
    for what, may_be_absent in reversed(history):
        if 0 in lefts:
            return True
        matched = {left - 1 for left in lefts if copy[left - 1] == what}
        lefts = matched | lefts if may_be_absent else matched
    return 0 in lefts


@thorough
@given(
    st.lists(
        st.tuples(st.sampled_from("cccis"), st.sampled_from("xy"), st.sampled_from("xy")),
        min_size=1,
        max_size=6,
    ),
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from("xy")), min_size=2, max_size=9),
)
def test_repeated_messages_and_turns_that_did_not_end_well_never_double_or_lose_anything(
    stored: list[tuple[str, str, str]], copy: list[tuple[int, str]]
) -> None:
    kinds = {"c": COMPLETED, "i": INTERRUPTED, "s": SETTLED}
    line = [
        turn(at + 1, [message("user", question)], [message("assistant", answer)], kinds[kind])
        for at, (kind, question, answer) in enumerate(stored)
    ]
    flat = [((role, text), kind != "c") for kind, *texts in stored for role, text in enumerate(texts)]
    assume(any(role for role, _ in copy))
    request = [{"role": ("user", "assistant")[role], "content": text} for role, text in copy]
    try:
        meaning = decide(line, request)
    except NoNewInput:
        assert copy[-1][0] == 1
        return
    if isinstance(meaning, Regeneration):
        at = 2 * [each.id for each in line].index(meaning.turn)
        assert reads_as([*flat[:at], (flat[at][0], False)], copy)
        return
    after = meaning.after if isinstance(meaning, Divergence) else line[-1].id
    common = next((each.number for each in line if each.id == after), 0)
    input = [(what, False) for what in copy[meaning.new :]]
    assert reads_as([*flat[: 2 * common], *input], copy)
    if isinstance(meaning, Divergence):
        behind = stored[common:]
        assert behind[0][0] != "s"
        assert any(kind == "c" for kind, *_ in behind)


odd_messages = st.dictionaries(
    st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "refusal", "function_call"]),
    st.sampled_from(["user", "assistant", "tool", "system", "other"]) | json_values,
    max_size=5,
)


@thorough
@given(st.lists(odd_messages, max_size=4), st.sampled_from([None, *matching.Sent]))
def test_what_is_no_message_is_refused_and_never_breaks(
    odd: list[dict[str, Any]], sent: matching.Sent | None
) -> None:
    for request in (odd, [*ALL, *odd], [*odd, *ALL, asked("q4")]):
        with contextlib.suppress(NoNewInput, MalformedItems):
            decide([*LINE, *ANSWERED], request, sent)
