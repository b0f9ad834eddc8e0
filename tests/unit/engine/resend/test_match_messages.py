"""Which messages count as the same: calls, results, images, and what was split or joined."""

from typing import Any

import pytest

from tests.unit.engine.copies import ANSWERED, PENDING, asked, chat, id, plain, tool_call, turn
from tests.unit.model.shapes import result
from turnledger.engine.resend.match import Continuation, MatchedEdit, Regeneration, decide
from turnledger.model.item import Item, message
from turnledger.model.messages.calls import NOT_ANSWERED

# Tools


CALLS = {"role": "assistant", "tool_calls": [tool_call("a"), tool_call("b", '{"y":2,"x":1}')]}


def found(call_id: str, text: str = "found") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def test_results_of_pending_calls_are_input() -> None:
    assert decide(PENDING, [asked("q1"), CALLS, found("a"), found("b")]) == Continuation(2)
    assert decide(PENDING, [CALLS, found("a"), found("b")]) == Continuation(1)


def test_other_calls_are_an_edit() -> None:
    for other in ('{"y":true,"x":1}', '{"y":2,"x":"1"}', '{"y":2}', "nonsense"):
        calls = {"role": "assistant", "tool_calls": [tool_call("a"), tool_call("b", other)]}
        assert decide(PENDING, [asked("q1"), calls, found("a"), found("b")]) == MatchedEdit(None, 0)
    fewer = {"role": "assistant", "tool_calls": [tool_call("a")]}
    assert decide(PENDING, [asked("q1"), fewer, found("a")]) == MatchedEdit(None, 0)


def test_results_are_matched_in_order_or_by_the_calls_they_answer() -> None:
    three = {"role": "assistant", "content": "3"}
    in_order = [asked("q1"), CALLS, found("x", "1"), found("y", "2"), three, asked("q2")]
    assert decide(ANSWERED, in_order) == Continuation(5)
    by_call = [asked("q1"), CALLS, found("b", "2"), found("a", "1"), three, asked("q2")]
    assert decide(ANSWERED, by_call) == Continuation(5)
    swapped = [asked("q1"), CALLS, found("b", "1"), found("a", "1"), three, asked("q2")]
    assert decide(ANSWERED, swapped) == MatchedEdit(id(1), 2)


def test_a_request_may_begin_among_results() -> None:
    three = {"role": "assistant", "content": "3"}
    assert decide(ANSWERED, [found("b", "2"), three, asked("q2")]) == Continuation(2)


def test_a_result_that_is_left_out_is_an_edit() -> None:
    three = {"role": "assistant", "content": "3"}
    assert decide(ANSWERED, [asked("q1"), CALLS, found("b", "2"), three, asked("q2")]) == MatchedEdit(
        id(1), 2
    )
    assert decide(ANSWERED, [asked("q1"), CALLS, found("x", "2"), three, asked("q2")]) == MatchedEdit(
        id(1), 2
    )


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
    assert decide(line, [asked("q1"), CALLS, *after]) == MatchedEdit(id(1), 2)


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
    assert decide(line, [seen("data:y"), *after]) == MatchedEdit(None, 0)
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
    assert decide(line, chat("q  1", "a1", "q2")) == MatchedEdit(None, 0)


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
