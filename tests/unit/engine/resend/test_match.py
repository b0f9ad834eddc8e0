"""Matching a resent history: trimmed, edited, split, or partly unknown to its client.

The last tests cover the parts: where a request may begin in a line, and matching along a turn.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.engine.copies import (
    ALL,
    ANSWERED,
    INTERRUPTED,
    LINE,
    PENDING,
    SETTLED,
    SYSTEM,
    answer,
    chat,
    decide,
    id,
    plain,
    tool_call,
    turn,
    user_message,
)
from tests.unit.model.shapes import call, reasoning, result
from turnledger.engine.resend import match
from turnledger.engine.resend.match import Continuation, MatchedEdit, Regeneration, Trimmed
from turnledger.engine.resend.transcript import BACKWARDS, FORWARDS, ClientTranscript
from turnledger.engine.resend.window import (
    MessageLine,
    Spot,
    common_lengths,
    find_spot,
    is_distinctive,
    windows,
    words_of_request,
)
from turnledger.errors import NoNewInput
from turnledger.model.item import NOT_ANSWERED, Item, message
from turnledger.model.messages.projection import ClientForm, ReducedMessage
from turnledger.model.turn import Turn, TurnKind

# What a request means


@pytest.mark.parametrize(("kept", "turns", "items"), [(1, 2, 1), (2, 2, 0), (3, 1, 1), (4, 1, 0), (5, 0, 1)])
def test_trimmed_history_names_the_turns_and_items_before_it(kept: int, turns: int, items: int) -> None:
    sent = [SYSTEM, *ALL[-kept:], user_message("q4")]
    assert match.decide(LINE, sent).trimmed == match.Trimmed(turns, items)


def test_history_that_is_not_trimmed_has_nothing_before_it() -> None:
    for sent in ([*ALL, user_message("q4")], ALL[:3], [user_message("q4")], chat("q1", "a1", "other")):
        assert match.decide(LINE, sent).trimmed is None


def test_turns_that_a_client_may_not_have_are_not_trimmed() -> None:
    line = [turn(1, [message("user", "q0")], [message("assistant", "a0")], SETTLED), *LINE]
    assert match.decide(line, [*ALL, user_message("q4")]).trimmed is None


def test_whole_history_with_a_new_message_is_a_continuation() -> None:
    assert decide(LINE, [*ALL, user_message("q4")]) == Continuation(6)


def test_first_request_of_a_conversation_is_all_new_input() -> None:
    assert decide([], [SYSTEM, *chat("hi", "hello", "q1")]) == Continuation(1, instructions=1)


def test_messages_without_an_assistant_are_all_new_input() -> None:
    assert decide(LINE, [SYSTEM, user_message("q1"), user_message("q2")]) == Continuation(1, instructions=1)
    assert decide(LINE, [user_message("q1"), answer(" ")]) == Continuation(0)


@pytest.mark.parametrize("kind", [TurnKind.COMPLETED, TurnKind.INTERRUPTED])
def test_only_question_sent_again_is_a_regeneration(kind: TurnKind) -> None:
    only = [turn(1, [message("user", "q1")], [message("assistant", "a1")], kind)]
    for sent in ([user_message("q1")], [SYSTEM, user_message(" q1\n")]):
        assert decide(only, sent) == Regeneration(id(1), instructions=len(sent) - 1)
        assert decide(only, sent, match.SentMessages.NEW) == Continuation(len(sent) - 1, len(sent) - 1)


@pytest.mark.parametrize(
    "sent",
    [
        [user_message("q")],
        [user_message("q1"), user_message("q2")],
        [user_message("q1"), SYSTEM],
        [user_message("q1"), answer(" ")],
    ],
)
def test_only_question_sent_again_with_anything_else_is_new_input(sent: list[dict[str, Any]]) -> None:
    assert decide(LINE[:1], sent) == Continuation(0)


def test_first_question_sent_again_after_several_turns_is_new_input() -> None:
    assert decide(LINE, [user_message("q1")]) == Continuation(0)
    assert decide(LINE, [user_message("q3")]) == Continuation(0)
    settled = [turn(1, [message("user", "q1")], [message("developer", "It failed.")], SETTLED)]
    assert decide(settled, [user_message("q1")]) == Continuation(0)


@pytest.mark.parametrize("kept", range(1, 6))
def test_trimmed_history_with_a_new_message_is_a_continuation(kept: int) -> None:
    assert decide(LINE, [*ALL[-kept:], user_message("q4")]) == Continuation(kept)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_history_that_ends_at_a_stored_question_is_a_regeneration(depth: int) -> None:
    if depth > 1:
        assert decide(LINE, ALL[: 2 * depth - 1]) == Regeneration(id(depth))
        assert decide(LINE, ALL[2 * depth - 3 : 2 * depth - 1]) == Regeneration(id(depth))
    assert decide(LINE, ALL[: 2 * depth - 1], match.SentMessages.FULL) == Regeneration(id(depth))


def test_edited_question_is_an_edit_after_the_turn_before_it() -> None:
    assert decide(LINE, chat("q1", "a1", "other")) == MatchedEdit(id(1), 2)
    assert decide(LINE, chat("q1", "a1", "other", "a2", "q3", "a3", "q4")) == MatchedEdit(id(1), 2)
    assert decide(LINE, chat("other", "a1", "q2")) == MatchedEdit(None, 0)


def test_edited_answer_is_an_edit_after_the_turn_before_it() -> None:
    assert decide(LINE, chat("q1", "a1", "q2", "other", "q3")) == MatchedEdit(id(1), 2)
    assert decide(LINE, chat("q1", "other", "q2", "a2", "q3", "a3", "q4")) == MatchedEdit(None, 0)


def test_history_without_common_messages_is_an_edit_at_the_beginning() -> None:
    assert decide(LINE, chat("a summary", "understood", "q3", "a3", "q4")) == MatchedEdit(None, 0)


def test_deleted_exchange_is_an_edit() -> None:
    assert decide(LINE, chat("q1", "a1", "q3", "a3", "q4")) == MatchedEdit(id(1), 2)


def test_exchange_that_was_never_stored_is_input() -> None:
    assert decide(LINE, [*ALL, *chat("q4", "Error: try again", "q5")]) == Continuation(6)
    assert decide(LINE, [*ALL[2:], *chat("q4", "Error: try again", "q5")]) == Continuation(4)


@pytest.mark.parametrize(
    "sent",
    [
        [],
        [SYSTEM],
        [user_message(" ")],
        [*ALL, user_message("\n")],
        [*ALL, SYSTEM],
        [*ALL, answer(" ")],
        [answer("a2")],
        [SYSTEM, answer("other")],
    ],
)
def test_history_without_new_input_is_refused(sent: list[dict[str, Any]]) -> None:
    with pytest.raises(NoNewInput):
        decide(LINE, sent)


def test_history_that_ends_with_an_answer_asks_to_continue_it() -> None:
    for sent in (ALL, ALL[2:], ALL[4:], ALL[5:], [SYSTEM, *ALL]):
        assert decide(LINE, sent) == Regeneration(id(3), instructions=sent[0] is SYSTEM)
    assert decide(LINE, ALL[:4]) == Regeneration(id(2))
    assert decide(LINE[:1], ALL[:2]) == Regeneration(id(1))
    for text in ("a3 and", "a", "other"):
        assert decide(LINE, [*ALL[:5], answer(text)]) == Regeneration(id(3))
    assert decide(LINE, [*ALL, answer("more")]) == Regeneration(id(3))
    assert decide(LINE, [*ALL[:4], answer("more")]) == Regeneration(id(2))


def test_stopped_answer_is_continued_with_as_much_as_its_client_has() -> None:
    line = [
        *LINE,
        turn(4, [message("user", "q4")], [message("assistant", "Hello")], INTERRUPTED),
        turn(5, [message("user", "q5")], [message("developer", "It failed.")], SETTLED),
    ]
    for text in ("Hel", "Hello", "Hello, you"):
        assert decide(line, [*ALL, *chat("q4", text)]) == Regeneration(id(4))
        assert decide(line, chat("q4", text)) == Regeneration(id(4))


def test_answer_after_client_results_is_continued_after_them() -> None:
    results = [found("a", "1"), found("b", "2")]
    for sent in ([user_message("q1"), CALLS, *results], results, []):
        assert decide(ANSWERED, [*sent, answer("3")]) == Regeneration(id(2))


def test_question_with_a_prefill_is_new_input() -> None:
    prefill = answer("Sure:")
    assert decide([], [user_message("q1"), prefill]) == Continuation(0)
    assert decide(LINE, [*ALL, user_message("q4"), prefill]) == Continuation(6)
    assert decide(LINE, [user_message("q4"), prefill]) == Continuation(0)
    assert decide(LINE, [user_message("q3"), prefill]) == Continuation(0)
    assert decide(LINE, [*ALL[:4], user_message("other"), prefill]) == MatchedEdit(id(2), 4)
    assert decide(LINE, [*ALL[:5], prefill], match.SentMessages.NEW) == Continuation(0)


def test_answer_with_calls_is_not_a_prefill() -> None:
    calls = {"role": "assistant", "content": "Let me look.", "tool_calls": [tool_call("c")]}
    with pytest.raises(NoNewInput):
        decide(LINE, [*ALL, calls])


THOUGHT = "<think>\nHm, <b>so</b>.\n</think>\n\n"


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        (THOUGHT + "a1", "a1"),
        ("a1", THOUGHT + "a1"),
        (f"a {THOUGHT} 1", "a\n\n1"),
        (THOUGHT + "a" + THOUGHT + "1", "a1"),
    ],
)
def test_answer_with_or_without_inline_thoughts_continues(stored: str, sent: str) -> None:
    line = plain("q1", stored, "q2", "a2")
    for messages in (chat("q1", sent, "q2", "a2", "q3"), chat("-", sent, "q2", "a2", "q3")[1:]):
        assert decide(line, messages) == Continuation(len(messages) - 1)
    assert decide(line, chat("q1", sent, "q2")) == Regeneration(id(2))
    assert decide(line, chat("q1", sent, "other")) == MatchedEdit(id(1), 2)
    assert decide(line, chat("q1", sent, "q2", "a2", "q3"), match.SentMessages.FULL) == Continuation(4)


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        (THOUGHT + "a1", "<think>Else</think>a1"),
        (THOUGHT + "a1", THOUGHT + "b1"),
        (THOUGHT + "a1", "b1"),
        ("a<think>1", "a1"),
        ("a</think>1", "a1"),
        ("</think>a<think>1", "a1"),
    ],
)
def test_answer_whose_thoughts_or_words_differ_is_edited(stored: str, sent: str) -> None:
    line = plain("q1", stored, "q2", "a2")
    assert decide(line, chat("q1", sent, "q2", "a2", "q3")) == MatchedEdit(None, 0)
    assert decide(plain("q1", sent, "q2", "a2"), chat("q1", stored, "q2", "a2", "q3")) == MatchedEdit(None, 0)


def test_question_with_or_without_inline_thoughts_is_another_question() -> None:
    line = plain("q1", "a1", THOUGHT + "q2", "a2")
    assert decide(line, chat("q1", "a1", "q2", "a2", "q3")) == MatchedEdit(id(1), 2)


@pytest.mark.parametrize("thoughts", [THOUGHT, "<think>Hm", f"{THOUGHT}<think>Hm"])
def test_answer_that_has_only_thoughts_may_be_absent(thoughts: str) -> None:
    line = plain("q1", thoughts, "q2", "a2")
    assert decide(line, chat("q1", "", "q2", "a2", "q3")) == Continuation(4)
    assert decide(line, chat("q1", "other", "q2", "a2", "q3")) == MatchedEdit(id(1), 1)


def test_partial_answer_with_or_without_inline_thoughts_continues() -> None:
    line = [
        *plain("q1", "a1"),
        turn(2, [message("user", "q2")], [message("assistant", THOUGHT + "Hello")], INTERRUPTED),
    ]
    assert decide(line, chat("q1", "a1", "q2", "Hel", "q3")) == Continuation(4)
    assert decide(line, chat("q1", "a1", "q2", "Hello, you", "q3")) == Continuation(4)


RULES = "I have added these files to the chat. Trust this message as their true contents:\n"
OK = message("assistant", "Ok.")


def preceded(by: str) -> Turn:
    """A first turn whose client sent another message, and an answer of its own, before the question."""
    return turn(1, [message("user", by), OK, message("user", "q1")], [message("assistant", "a1")])


@pytest.mark.parametrize(
    ("stored", "sent"), [(f"{RULES}v1", f"{RULES}v2 of it"), ("It is 9:59.", "It is 10:00.")]
)
def test_messages_before_the_first_question_that_only_begin_alike_are_a_preamble(
    stored: str, sent: str
) -> None:
    line = [preceded(stored), *plain("-", "-", "q2", "a2")[1:]]
    shown = Trimmed(0, 2, (message("user", sent), OK))
    assert match.decide(line, chat(sent, "Ok.", "q1", "a1", "q2", "a2", "q3")) == Continuation(6, 0, shown)
    assert match.decide(line, chat(sent, "Ok.", "q1", "a1", "q2")) == Regeneration(id(2), 0, shown)
    assert match.decide(line[:1], chat(sent, "Ok.", "q1", "a1", "q2")) == Continuation(4, 0, shown)
    system = {"role": "system", "content": "Be brief."}
    noted = [
        system,
        user_message(sent),
        {**system, "content": "10:01"},
        *chat("-", "Ok.", "q1", "a1", "q2")[1:],
    ]
    assert match.decide(line[:1], noted) == Continuation(6, 1, shown)


def test_message_of_a_client_before_the_first_question_without_an_answer_may_change() -> None:
    line = [turn(1, [message("user", "It is 9:59."), message("user", "q1")], [message("assistant", "a1")])]
    sent = [user_message("It is 10:00."), *chat("q1", "a1", "q2")]
    shown = Trimmed(0, 1, (message("user", "It is 10:00."),))
    assert match.decide(line, sent) == Continuation(3, 0, shown)


@pytest.mark.parametrize(
    "sent",
    [
        chat("Other words.", "Ok.", "q1", "a1", "q2"),
        chat("It is 10:00.", "Fine.", "q1", "a1", "q2"),
        chat("It is 10:00.", "Ok.", "q1", "other", "q2"),
        chat("It is 10:00.", "Ok.", "other", "a1", "q2"),
        chat("It is 10:00.", "Ok.", "q1"),
        chat("It is 10:00.", "Ok.", "more", "Ok.", "q1", "a1", "q2"),
    ],
)
def test_messages_before_the_first_question_are_an_edit_if_more_differs(sent: list[dict[str, Any]]) -> None:
    assert decide([preceded("It is 9:59.")], sent) == MatchedEdit(None, 0)


TASK = "### Task: answer the query from the context below, and cite your sources as [1], [2].\n"
REMINDER = "\n\nAlways answer in the format that was described above, and never in another one!"


@pytest.mark.parametrize(
    ("stored", "newest"),
    [
        (f"{TASK}<context>one</context>\nq1", f"{TASK}<context>two</context>\nq3"),
        (f"q1{REMINDER}", f"q3{REMINDER}"),
        (f"q1\n<context>one</context>{REMINDER}", f"q3\n<context>two</context>{REMINDER}"),
        ("q1\n\nReply in English.\n", "q3\n\nReply in English.\n"),
        ("q1\n\nReply in English.", f"q3{REMINDER}\n\nReply in English."),
        ("It is 9:59 in Berlin.\n\nq1", "It is 10:00 in Berlin.\n\nq3"),
        ("q1\n\n[2026-11-18 09:59]", "q3\n\n[2026-11-18 10:00]"),
    ],
)
def test_question_without_the_text_that_a_tool_added_to_it_continues(stored: str, newest: str) -> None:
    line = plain(stored, "a1", stored.replace("q1", "q2"), "a2")
    assert decide(line, chat("q1", "a1", "q2", "a2", newest)) == Continuation(4)
    assert decide(line, chat("q2", "a2", newest)) == Continuation(2)
    assert decide(line, chat("q1", "a1", newest)) == MatchedEdit(id(1), 2)


@pytest.mark.parametrize(
    ("stored", "newest"),
    [
        (f"{TASK}q1", "q3"),  # nothing shows that a tool added it
        (f"{TASK}q1", f"{REMINDER}q3"),
        (f"{TASK}q1", f"{TASK[:63]}\nq3"),
        (f"{TASK}q1", f"q3\n{TASK}"),
        (f"q1{REMINDER}", f"{REMINDER}q3"),
        (f"{TASK}Is it q1", f"{TASK}q3"),  # a part of the line
        (f"{TASK}q1?", f"{TASK}q3"),
        ("Hi\nq1", "Hi\nq3"),  # too little to tell
        ("q1\n\nThank you.", "q3\n\nThank you."),
        ("q1\nReply in English.", "q3\nReply in English."),  # not a paragraph
        ("Reply in English.\n\nq1", "Reply in English.\n\nq3"),  # before the question
        ("q1\n\nPlease reply in English.", "q3\n\nReply in English."),
        ("It is 9:59 in Berlin. q1", "It is 10:00 in Berlin. q3"),
        ("It is 9:59 in Berlin.\n\nq1", "It is 9:59 in Paris.\n\nq3"),
    ],
)
def test_question_without_a_part_that_no_tool_added_is_edited(stored: str, newest: str) -> None:
    assert decide(plain("q0", "a0", stored, "a1"), chat("q0", "a0", "q1", "a1", newest)) == MatchedEdit(
        id(1), 2
    )


def test_question_with_text_added_again_asks_for_another_answer_in_its_place() -> None:
    line = plain("q0", "a0", f"{TASK}one\nq1", "a1")
    assert decide(line, chat("q0", "a0", f"{TASK}two\nq1")) == MatchedEdit(id(1), 2)
    assert decide(line, chat("q0", "a0", f"{TASK}one\nq1")) == Regeneration(id(2))


def test_image_or_part_of_unknown_kind_is_new_input() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:x"}}
    assert decide(LINE, [*ALL, {"role": "user", "content": [image]}]) == Continuation(6)
    assert decide(LINE, [*ALL, {"role": "user", "content": [{"type": "hologram"}]}]) == Continuation(6)
    with pytest.raises(NoNewInput):
        decide(LINE, [*ALL, {"role": "user", "content": [{"type": "text", "text": " "}]}])


# History that the client declares as new or full


def test_messages_sent_as_new_are_all_input() -> None:
    assert decide(LINE, [SYSTEM, *ALL[:3]], match.SentMessages.NEW) == Continuation(1, instructions=1)
    with pytest.raises(NoNewInput):
        decide(LINE, ALL[1:2], match.SentMessages.NEW)


def test_messages_sent_as_full_are_matched_from_the_beginning() -> None:
    assert decide(LINE, [user_message("other")], match.SentMessages.FULL) == MatchedEdit(None, 0)
    assert decide(LINE, [*ALL, user_message("q4")], match.SentMessages.FULL) == Continuation(6)
    assert decide(LINE, chat("q1", "a1", "other"), match.SentMessages.FULL) == MatchedEdit(id(1), 2)
    with pytest.raises(NoNewInput):
        decide(LINE, [*ALL, SYSTEM], match.SentMessages.FULL)
    assert decide(LINE, ALL, match.SentMessages.FULL) == Regeneration(id(3))


@pytest.mark.parametrize("trimmed", [ALL[1:], ALL[2:], ALL[4:]])
def test_messages_sent_as_full_are_never_taken_for_a_trimmed_history(trimmed: list[dict[str, Any]]) -> None:
    assert decide(LINE, [*trimmed, user_message("q4")], match.SentMessages.FULL) == MatchedEdit(None, 0)
    assert decide(LINE, [*trimmed, user_message("q4")]) == Continuation(len(trimmed))


def test_messages_sent_as_full_that_repeat_are_matched_from_the_beginning() -> None:
    line = plain("yes", "ok", "yes", "ok")
    assert decide(line, chat("yes", "ok", "yes"), match.SentMessages.FULL) == Regeneration(id(2))
    assert decide(line, chat("yes", "ok", "yes")) == Continuation(2)


# Instructions


def test_leading_instructions_are_neither_matched_nor_input() -> None:
    dated = [{"role": "developer", "content": "Tuesday"}, SYSTEM]
    assert decide(LINE, [*dated, *ALL, user_message("q4")]) == Continuation(8, instructions=2)
    assert decide(LINE, [*dated, *ALL[:3]]) == Regeneration(id(2), instructions=2)
    assert decide(LINE, [*dated, *chat("q1", "a1", "other")]) == MatchedEdit(id(1), 4, instructions=2)


def test_instructions_in_the_middle_are_not_matched_and_are_input_where_new() -> None:
    assert decide(LINE, [*ALL[:2], SYSTEM, *ALL[2:], SYSTEM, user_message("q4")]) == Continuation(7)
    stored = [turn(1, [message("system", "Be kind."), message("user", "q1")], [message("assistant", "a1")])]
    assert decide(stored, chat("q1", "a1", "q2")) == Continuation(2)


# Repeated messages


def test_old_question_after_the_whole_history_is_a_continuation() -> None:
    assert decide(LINE, [*ALL, user_message("q1")]) == Continuation(6)
    assert decide(LINE, [*ALL, user_message("q3")]) == Continuation(6)
    assert decide(LINE, [*ALL[-2:], user_message("q3")]) == Continuation(2)


def test_repeated_question_without_its_answer_is_a_regeneration_of_the_last() -> None:
    line = plain("x", "y", "yes", "ok", "yes", "ok")
    assert decide(line, chat("x", "y", "yes", "ok", "yes")) == Regeneration(id(3))


def test_edit_is_placed_where_most_messages_agree() -> None:
    line = plain("hi", "hello", "x", "y", "hi", "hello", "z", "w")
    assert decide(line, chat("hi", "hello", "z", "other", "q")) == MatchedEdit(id(3), 2)
    assert decide(line, chat("hi", "hello", "other")) == MatchedEdit(id(1), 2)


# Tools


CALLS = {"role": "assistant", "tool_calls": [tool_call("a"), tool_call("b", '{"y":2,"x":1}')]}


def found(call_id: str, text: str = "found") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def test_results_of_pending_calls_are_input() -> None:
    assert decide(PENDING, [user_message("q1"), CALLS, found("a"), found("b")]) == Continuation(2)
    assert decide(PENDING, [CALLS, found("a"), found("b")]) == Continuation(1)


def test_calls_that_differ_from_the_stored_ones_are_an_edit() -> None:
    for other in ('{"y":true,"x":1}', '{"y":2,"x":"1"}', '{"y":2}', "nonsense"):
        calls = {"role": "assistant", "tool_calls": [tool_call("a"), tool_call("b", other)]}
        assert decide(PENDING, [user_message("q1"), calls, found("a"), found("b")]) == MatchedEdit(None, 0)
    fewer = {"role": "assistant", "tool_calls": [tool_call("a")]}
    assert decide(PENDING, [user_message("q1"), fewer, found("a")]) == MatchedEdit(None, 0)


def test_results_are_matched_in_order_or_by_call_id() -> None:
    three = answer("3")
    in_order = [user_message("q1"), CALLS, found("x", "1"), found("y", "2"), three, user_message("q2")]
    assert decide(ANSWERED, in_order) == Continuation(5)
    by_call = [user_message("q1"), CALLS, found("b", "2"), found("a", "1"), three, user_message("q2")]
    assert decide(ANSWERED, by_call) == Continuation(5)
    swapped = [user_message("q1"), CALLS, found("b", "1"), found("a", "1"), three, user_message("q2")]
    assert decide(ANSWERED, swapped) == MatchedEdit(id(1), 2)


def test_trimmed_history_may_begin_among_results() -> None:
    three = answer("3")
    assert decide(ANSWERED, [found("b", "2"), three, user_message("q2")]) == Continuation(2)


def test_omitted_result_is_an_edit() -> None:
    three = answer("3")
    assert decide(
        ANSWERED, [user_message("q1"), CALLS, found("b", "2"), three, user_message("q2")]
    ) == MatchedEdit(id(1), 2)
    assert decide(
        ANSWERED, [user_message("q1"), CALLS, found("x", "2"), three, user_message("q2")]
    ) == MatchedEdit(id(1), 2)


def test_results_sent_again_are_a_regeneration() -> None:
    sent = [user_message("q1"), CALLS, found("a", "1"), found("b", "2")]
    assert decide(ANSWERED, sent) == Regeneration(id(2))


def test_stated_results_may_be_absent_from_the_history() -> None:
    moved_on = [result("a", output="1"), result("b", output=NOT_ANSWERED), message("user", "never mind")]
    line = [*PENDING, turn(2, moved_on, [message("assistant", "fine")])]
    after = [user_message("never mind"), answer("fine"), user_message("q3")]
    assert decide(line, [user_message("q1"), CALLS, found("a", "1"), *after]) == Continuation(5)
    assert decide(line, [user_message("q1"), CALLS, found("b", "1"), *after]) == Continuation(
        5
    )  # ids are the client's
    assert decide(line, [user_message("q1"), CALLS, *after]) == MatchedEdit(id(1), 2)


def test_stated_results_of_a_whole_turn_may_be_absent_from_the_history() -> None:
    moved_on = [result("a", output=NOT_ANSWERED), result("b", output=NOT_ANSWERED), message("user", "no")]
    line = [*PENDING, turn(2, moved_on, [message("assistant", "fine")])]
    sent = [user_message("q1"), CALLS, *chat("no", "fine", "q3")]
    assert decide(line, sent) == Continuation(4)


# Notes


@pytest.mark.parametrize("place", [0, 1])
def test_message_after_a_turn_with_a_note_or_an_empty_message_is_not_taken_for_a_part_of_it(
    place: int,
) -> None:
    unseen = [message("system", "Be brief."), message("user", " ")][place]
    line = [LINE[0], turn(2, [unseen, message("user", "q2")], [message("assistant", "a2")]), LINE[2]]
    assert decide(line, [*ALL, user_message("q4")]) == Continuation(6)
    assert decide(line, chat("q1", "a1", "q2", "a2", "other")) == MatchedEdit(id(2), 4)
    assert decide(line, chat("q1", "a1", "q2", "a2", "other", "a3", "q4")) == MatchedEdit(id(2), 4)
    added = [*ALL[:4], answer("added"), *ALL[4:], user_message("q4")]
    assert decide(line, added) == MatchedEdit(id(2), 4)


def test_question_that_a_client_lacks_behind_its_preamble_is_trimmed() -> None:
    first = turn(1, [message("user", "The files."), message("user", "q1")], [message("assistant", "a1")])
    line = [first, *LINE[1:]]
    found = match.decide(line, [user_message("The files."), *ALL[1:], user_message("q4")])
    assert isinstance(found, Continuation)
    assert found.trimmed == Trimmed(0, 2, (message("user", "The files."),))


def test_question_behind_a_label_in_a_prompt_is_the_same_without_the_prompt() -> None:
    def prompt(passages: str, question: str, label: str = "Question: ") -> str:
        task = "Answer the question from these passages alone, and say where it is:"
        return f"{task}\n{passages}\n\n{label}{question}"

    line = [turn(1, [message("user", prompt("Lions hunt.", "q1"))], [message("assistant", "a1")])]
    assert decide(line, chat("q1", "a1", prompt("Zebras run.", "q2"))) == Continuation(2)
    assert decide(line, chat("1", "a1", prompt("Zebras run.", "q2"))) == MatchedEdit(None, 0)
    assert decide(line, chat("q1", "a1", "q2")) == MatchedEdit(None, 0)
    long = "Of these lions, which I have seen: "
    line = [turn(1, [message("user", prompt("Lions hunt.", "q1", long))], [message("assistant", "a1")])]
    assert decide(line, chat("q1", "a1", prompt("Zebras run.", "q2", long))) == MatchedEdit(None, 0)


def test_changed_question_is_not_held_with_the_turn_that_it_is_compared_with() -> None:
    frame = "The time is 12:30 now.\n\n"
    line = [turn(1, [message("user", f"{frame}q1")], [message("assistant", "a1")])]
    newest = f"{frame}q2"
    assert decide(line, chat("q1", "a1", newest)) == Continuation(2)
    assert decide(line, chat("changed" * 1000, "a1", newest)) == MatchedEdit(None, 0)
    assert "changed" not in str(line[0].shown.__dict__)


# Images


def test_images_are_compared_only_where_both_sides_have_them() -> None:
    def seen(url: str | None) -> dict[str, Any]:
        image = [{"type": "image_url", "image_url": {"url": url}}] if url else []
        return {"role": "user", "content": [{"type": "text", "text": "look"}, *image]}

    stored = {"type": "input_image", "image_url": "data:x"}
    question = Item.of({"role": "user", "content": [{"type": "input_text", "text": "look"}, stored]})
    line = [turn(1, [question], [message("assistant", "a1")])]
    after = chat("-", "a1", "q2")[1:]
    assert decide(line, [seen("data:x"), *after]) == Continuation(2)
    assert decide(line, [seen(None), *after]) == Continuation(2)
    assert decide(line, [seen("data:y"), *after]) == MatchedEdit(None, 0)
    assert decide(plain("look", "a1"), [seen("data:x"), *after]) == Continuation(2)


def test_message_with_only_an_image_may_be_absent_from_the_history() -> None:
    image = Item.of({"role": "user", "content": [{"type": "input_image", "image_url": "data:x"}]})
    line = [*plain("q1", "a1"), turn(2, [image], [message("assistant", "a2")])]
    assert decide(line, [*chat("q1", "a1"), answer("a2"), user_message("q3")]) == Continuation(3)
    gone = [*chat("q1", "a1"), {"role": "user", "content": []}, answer("a2"), user_message("q3")]
    assert decide(line, gone) == Continuation(4)


# Pieces


def test_white_space_within_a_message_is_significant() -> None:
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
def test_consecutive_messages_may_be_joined_by_the_client(join: str) -> None:
    joined = chat("q1", "a1", join.join(["one", "two"]), join.join(["Let me look.", "Found it."]), "q3")
    assert decide(ROWS, joined) == Continuation(4)
    assert decide(ROWS, joined[3:]) == Continuation(1)


@pytest.mark.parametrize("begin", range(6))
def test_trimmed_history_may_begin_between_consecutive_messages(begin: int) -> None:
    answers = [answer(text) for text in ("Let me look.", "Found it.")]
    sent = [*chat("q1", "a1"), user_message("one"), user_message("two"), *answers][begin:]
    assert decide(ROWS, [*sent, user_message("q3")]) == Continuation(len(sent))


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
        [user_message("q2")],
        chat("q2", "It left the"),
        chat("q2", "It left"),
        chat("q2", "It left the ware"),
    ],
)
def test_interrupted_turn_may_be_absent_in_part_or_as_a_whole(seen: list[dict[str, Any]]) -> None:
    sent = [*chat("q1", "a1"), *seen, user_message("q3")]
    assert decide(STOPPED, sent) == Continuation(len(sent) - 1)
    later = [*STOPPED, turn(3, [message("user", "q3")], [message("assistant", "a3")])]
    assert decide(later, [*sent, answer("a3"), user_message("q4")]) == Continuation(len(sent) + 1)


@pytest.mark.parametrize("sent", [None, match.SentMessages.FULL])
def test_answer_that_differs_from_an_interrupted_one_is_an_edit(sent: match.SentMessages | None) -> None:
    copy = chat("q1", "a1", "q2", "Something else", "q3")
    assert decide(STOPPED, copy, sent) == MatchedEdit(id(1), 2)
    later = [*STOPPED, *plain("-", "-", "-", "-", "q3", "a3")[2:]]
    assert decide(later, copy, sent) == MatchedEdit(id(1), 2)
    assert decide(later, [*copy, *chat("-", "a3", "q4")[1:]], sent) == MatchedEdit(id(1), 2)


@pytest.mark.parametrize("trimmed", [1, 2])
def test_answer_that_differs_from_an_interrupted_one_is_an_edit_in_a_trimmed_history(trimmed: int) -> None:
    copy = chat("q1", "a1", "q2", "Something else", "q3")[trimmed:]
    assert decide(STOPPED, copy) == MatchedEdit(id(1), 2 - trimmed)


def test_interrupted_turn_may_be_absent_before_the_second_answer_to_its_question() -> None:
    again = [*STOPPED, turn(3, [message("user", "q2")], [message("assistant", "Something else")])]
    assert decide(again, chat("q1", "a1", "q2", "Something else", "q3")) == Continuation(4)


def test_answer_to_an_interrupted_turn_without_text_is_input() -> None:
    silent = [*plain("q1", "a1"), turn(2, [message("user", "q2")], [], INTERRUPTED)]
    assert decide(silent, chat("q1", "a1", "q2", "(stopped)", "q3")) == Continuation(3)


def test_answer_that_differs_from_the_input_of_an_interrupted_turn_is_an_edit() -> None:
    input = [message("user", "q2"), message("assistant", "rather"), message("user", "q3")]
    line = [*plain("q1", "a1"), turn(2, input, [], INTERRUPTED)]
    assert decide(line, chat("q1", "a1", "q2", "other", "q4")) == MatchedEdit(id(1), 2)
    assert decide(line, chat("q1", "a1", "q2", "rather", "q3", "(stopped)", "q4")) == Continuation(5)


def test_results_that_differ_from_those_of_an_interrupted_turn_are_an_edit() -> None:
    line = [
        turn(1, [message("user", "q1")], [call("a")]),
        turn(2, [result("a", output="one")], [message("assistant", "It left the")], INTERRUPTED),
    ]
    calling = {"role": "assistant", "content": None, "tool_calls": [tool_call("a")]}
    other = {"role": "tool", "tool_call_id": "a", "content": "two"}
    assert decide(line, [user_message("q1"), calling, other]) == MatchedEdit(id(1), 2)


@pytest.mark.parametrize("seen", ["It left", "It left the ware"])
def test_trimmed_history_may_begin_with_part_of_an_interrupted_answer(seen: str) -> None:
    line = [*STOPPED, *plain("-", "-", "-", "-", "q3", "a3", "q4", "a4")[2:]]
    begin = [answer(seen)]
    assert decide(line, [*begin, *chat("q3", "a3", "other")]) == MatchedEdit(id(3), 3)
    assert decide(line, [*begin, user_message("other")]) == MatchedEdit(id(2), 1)


def test_question_of_an_interrupted_turn_sent_again_is_a_regeneration() -> None:
    assert decide(STOPPED, chat("q1", "a1", "q2")) == Regeneration(id(2))
    assert decide(STOPPED, chat("q1", "a1", "q2")[1:]) == Regeneration(id(2))
    twice = [*STOPPED, turn(3, [message("user", "q3")], [], INTERRUPTED)]
    assert decide(twice, chat("q1", "a1", "q2")) == Regeneration(id(2))
    assert decide(twice, chat("q1", "a1", "q3")) == Regeneration(id(3))


def test_answer_that_begins_like_an_interrupted_one_is_matched() -> None:
    line = [*plain("q1", "It left the house"), STOPPED[1]]
    assert decide(line, chat("q1", "It left the house", "q3")) == Continuation(2)


def test_turn_followed_only_by_settled_turns_counts_as_the_head() -> None:
    assert decide(FAILED, chat("q1", "a1", "q3")) == Continuation(2)
    assert decide(FAILED, chat("q1", "a1", "q2")) == Continuation(2)  # a retry is no regeneration
    assert decide(FAILED, [*chat("q1", "a1", "q2"), user_message("q3")]) == Continuation(3)
    assert decide(FAILED, [user_message("q1")], match.SentMessages.FULL) == Regeneration(id(1))


def test_edit_never_leaves_out_a_settled_turn() -> None:
    line = [*FAILED, turn(3, [message("user", "q3")], [message("assistant", "a3")])]
    assert decide(line, chat("q1", "a1", "other")) == MatchedEdit(id(2), 2)
    assert decide(line, chat("q1", "a1", "q2")) == MatchedEdit(id(2), 2)
    assert decide(line, chat("q1", "a1", "q3")) == Regeneration(id(3))
    first = [turn(1, [message("user", "q1")], FAILED[1].output, SETTLED), *plain("-", "-", "q2", "a2")[1:]]
    assert decide(first, chat("other", "answer", "q")) == MatchedEdit(id(1), 0)


# What is hidden


def hiding(line: list[Turn], number: int, *places: int) -> list[Turn]:
    """The line with these items of a turn hidden from its user."""
    return [each.with_hidden(frozenset(places)) if each.number == number else each for each in line]


@pytest.mark.parametrize(("number", "place"), [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)])
def test_hidden_items_may_be_absent_or_present(number: int, place: int) -> None:
    line = hiding(LINE, number, place)
    at = 2 * (number - 1) + place
    without = [*ALL[:at], *ALL[at + 1 :]]
    assert decide(line, [*without, user_message("q4")]) == Continuation(5)
    assert decide(line, [*ALL, user_message("q4")]) == Continuation(6)
    assert decide(line, [*ALL, user_message("q4")], match.SentMessages.FULL) == Continuation(6)
    assert decide(line, [*without, user_message("q4")], match.SentMessages.FULL) == Continuation(5)


def test_exchange_with_only_its_question_hidden_may_not_be_absent() -> None:
    assert decide(hiding(LINE, 2, 0), [*ALL[:2], *ALL[4:], user_message("q4")]) == MatchedEdit(id(1), 2)


@pytest.mark.parametrize("held", [(), (0,), (1,), (0, 1)])
def test_hidden_items_of_a_turn_may_be_present_in_any_combination(held: tuple[int, ...]) -> None:
    line = hiding(LINE, 2, 0, 1)
    sent = [*ALL[:2], *(ALL[2 + place] for place in held), *ALL[4:], user_message("q4")]
    assert decide(line, sent) == Continuation(len(sent) - 1)
    assert decide(line, sent[1:]) == Continuation(len(sent) - 2)


def test_hidden_items_beyond_the_limit_may_be_present_only_all_or_none() -> None:
    many = turn(1, [message("user", f"q{at}") for at in range(6)], [message("assistant", "a")])
    line = hiding([many], 1, *range(6))
    questions = [user_message(f"q{at}") for at in range(6)]
    assert decide(line, [answer("a"), user_message("new")]) == Continuation(1)
    assert decide(line, [*questions, answer("a"), user_message("new")]) == Continuation(7)
    assert isinstance(decide(line, [*questions[:2], answer("a"), user_message("new")]), MatchedEdit)


def test_texts_around_a_hidden_item_are_matched_as_one_answer() -> None:
    parts = [message("assistant", text) for text in ("Let me look.", "Secret.", "Found it.")]
    line = hiding([turn(1, [message("user", "q1")], parts)], 1, 2)
    assert decide(line, chat("q1", "Let me look.Found it.", "q2")) == Continuation(2)
    assert decide(line, chat("q1", "Let me look.Secret.Found it.", "q2")) == Continuation(2)
    assert decide(line, chat("q1", "Let me look.Secret.", "q2")) == MatchedEdit(None, 0)


def test_question_before_a_hidden_answer_sent_again_is_a_regeneration() -> None:
    assert decide(hiding(LINE, 3, 1), ALL[:5]) == Regeneration(id(3))
    assert decide(hiding(LINE, 2, 1), ALL[:3]) == Regeneration(id(2))
    assert decide(hiding(LINE, 2, 0), ALL[:3]) == Regeneration(id(2))
    assert decide(hiding(LINE, 3, 0, 1), ALL[:3]) == Regeneration(id(2))
    assert decide(hiding(LINE, 3, 0, 1), ALL[:3], match.SentMessages.FULL) == Regeneration(id(2))


def test_regeneration_names_the_last_shown_turn_with_that_question() -> None:
    line = plain(*"abcd", *"xy", *"abcd", *"hi")
    assert decide(hiding(line, 6, 0, 1), chat(*"abc")) == Regeneration(id(5))


def test_edit_never_leaves_out_a_hidden_turn_before_its_place() -> None:
    line = hiding(LINE, 2, 0, 1)
    assert decide(line, [*ALL[:2], user_message("other")]) == MatchedEdit(id(2), 2)
    assert decide(line, [*ALL[2:4], user_message("other")]) == MatchedEdit(id(2), 2)
    assert decide(line, [user_message("other"), *ALL[1:2], *ALL[4:], user_message("q4")]) == MatchedEdit(
        None, 0
    )


def test_hidden_turn_at_the_end_is_passed_over_by_a_continuation() -> None:
    line = hiding(LINE, 3, 0, 1)
    assert decide(line, [*ALL[:4], user_message("q4")]) == Continuation(4)
    assert decide(line, [*ALL[:4], user_message("q4")], match.SentMessages.FULL) == Continuation(4)


def test_results_that_differ_from_hidden_ones_replace_them() -> None:
    calls = {"role": "assistant", "content": None, "tool_calls": [tool_call("a")]}
    line = [
        turn(1, [message("user", "q1")], [call("a")]).with_hidden(frozenset({1})),
        turn(2, [result("a", output="1")], [message("assistant", "a1")]).with_hidden(frozenset({0, 1})),
        *plain(*"----", "q3", "a3")[2:],
    ]
    other = {"role": "tool", "tool_call_id": "a", "content": "other"}
    assert decide(line, [user_message("q1"), calls, other, *chat("-", "a1", "q3")[1:]]) == MatchedEdit(
        id(1), 2
    )


def test_hidden_items_are_not_kept_with_the_trimmed_part_of_a_turn() -> None:
    items = [message(each["role"], each["content"]) for each in ALL]
    line = [turn(1, items[:5], items[5:]).with_hidden(frozenset({0}))]
    assert decide(line, [*ALL[2:4], user_message("other")]) == MatchedEdit(None, 0, kept=tuple(items[1:2]))


def test_history_without_the_hidden_answers_is_a_continuation() -> None:
    line = hiding(hiding(LINE[:2], 1, 1), 2, 1)
    assert decide(line, [user_message("q1"), user_message("q2"), user_message("q3")]) == Continuation(2)
    assert decide(line, [user_message("q2"), user_message("q3")]) == Continuation(1)
    assert decide(line, [user_message("new"), user_message("q3")]) == Continuation(0)
    assert decide(line, [user_message("q2")]) == Continuation(0)
    stopped = [turn(1, [message("user", "q1")], [message("assistant", "It left")], INTERRUPTED)]
    assert decide(stopped, [user_message("q1"), user_message("q2")]) == Continuation(1)
    assert decide(hiding(LINE, 1, 1), [user_message("q1"), user_message("q2")]) == Continuation(0)
    assert decide(hiding(LINE, 3, 1), [user_message("q3"), user_message("q4")]) == Continuation(1)
    assert decide(
        hiding(LINE, 3, 1), [user_message("q2"), user_message("q3"), user_message("q4")]
    ) == Continuation(0)


def test_edit_in_a_trimmed_history_keeps_the_trimmed_turns() -> None:
    assert decide(LINE, chat("q2", "a2", "other")) == MatchedEdit(id(2), 2)
    assert decide(LINE, chat("q2", "other", "q3")) == MatchedEdit(id(1), 0)
    assert decide(LINE, [*ALL[3:4], user_message("other")]) == MatchedEdit(id(2), 1)


def test_edited_first_question_of_a_trimmed_history_keeps_the_trimmed_turns() -> None:
    assert decide(LINE, chat("other", "a2", "q3", "a3", "q4")) == MatchedEdit(id(1), 0)


def test_two_edits_in_a_trimmed_history_keep_the_trimmed_turns() -> None:
    line = plain("q1", "a1", "q2", "a2", "q3", "a3", "q4", "a4")
    assert decide(line, chat("other", "a2", "q3", "a3", "edited")) == MatchedEdit(id(1), 0)
    assert decide(line, chat("-", "other", "q3", "a3", "edited")[1:]) == MatchedEdit(
        id(1), 0, kept=line[1].input
    )
    assert decide(line, chat("-", "other", "q3", "a3", "q4", "a4", "q5")[1:]) == MatchedEdit(
        id(1), 0, kept=line[1].input
    )


def test_history_that_shares_one_short_answer_is_an_edit_at_the_beginning() -> None:
    assert decide(LINE, chat("other", "a3", "more", "and", "more")) == MatchedEdit(None, 0)


CUT = plain("q1", "The first answer", "q2", "The second answer", "q3", "a3", "q4", "a4")


@pytest.mark.parametrize("cut", ["cond answer", "The second ans"])
def test_trimmed_history_may_begin_in_the_middle_of_an_answers_text(cut: str) -> None:
    begin = [answer(cut)]
    assert decide(CUT, [*begin, *chat("q3", "a3", "other")]) == MatchedEdit(id(3), 3)
    assert decide(CUT, [*begin, user_message("other")]) == MatchedEdit(id(2), 1)
    assert decide(CUT, [*begin, *chat("q3", "a3", "q4")]) == Regeneration(id(4))
    assert decide(CUT, [*begin, *chat("q3", "a3", "q4", "a4", "q5")]) == Continuation(5)


def test_answer_cut_in_the_middle_is_placed_by_the_messages_after_it() -> None:
    begin = [answer("answer")]
    assert decide(CUT, [*begin, *chat("q2", "The second answer", "other")]) == MatchedEdit(id(2), 3)
    assert decide(CUT, [*begin, *chat("q3", "a3", "other")]) == MatchedEdit(id(3), 3)


# Turns of several exchanges


def several(number: int, *texts: str) -> Turn:
    """A turn whose input holds exchanges that its client has brought along."""
    *input, answer = chat(*texts)
    return turn(
        number,
        [message(each["role"], each["content"]) for each in input],
        [message("assistant", answer["content"])],
    )


LONG = "A rather long answer to it"
BROUGHT = several(1, "q1", "a1", "q2", "a2", "q3", "a3")
LATER = [*plain("x", "y"), several(2, "q1", "a1", "q2", "a2", "q3", "a3"), *plain(*"----", "q4", "a4")[2:]]


@pytest.mark.parametrize("line", [[BROUGHT], LATER])
@pytest.mark.parametrize("begin", range(5))
def test_edit_within_a_turn_of_several_exchanges_keeps_its_trimmed_part(line: list[Turn], begin: int) -> None:
    before, brought = (line[0].id, line[1]) if line is LATER else (None, BROUGHT)
    edited = [*ALL[:4], user_message("other")]
    kept = brought.items[: begin if begin < 4 else 0]
    if begin < 4:
        assert decide(line, edited[begin:]) == MatchedEdit(before, 0, kept=kept)
    assert decide(line, [*edited[begin:], *chat("-", "a3", "q4")[1:]]) == MatchedEdit(
        before, 0, kept=brought.items[:begin]
    )


def test_question_of_a_turn_of_several_exchanges_sent_again_keeps_its_trimmed_part() -> None:
    assert decide([BROUGHT], ALL[1:3]) == MatchedEdit(None, 0, kept=BROUGHT.items[:1])
    assert decide([BROUGHT], ALL[3:5]) == Regeneration(BROUGHT.id)


def test_edited_answer_or_deleted_exchange_keeps_the_part_trimmed_before_it() -> None:
    edited = [answer("other"), *ALL[4:], user_message("q4")]
    assert decide([BROUGHT], edited) == MatchedEdit(None, 0, kept=BROUGHT.items[:3])
    deleted = [*ALL[1:2], *ALL[4:], user_message("q4")]
    assert decide([BROUGHT], deleted) == MatchedEdit(None, 0, kept=BROUGHT.items[:1])


def test_answer_cut_in_a_turn_of_several_exchanges_stays_whole() -> None:
    line = [*plain("x", "y"), several(2, "q1", LONG, "q2", "a2")]
    cut = [answer("rather long answer to it"), user_message("other")]
    assert decide(line, cut) == MatchedEdit(id(1), 1, kept=line[1].items[:2])
    chance = [answer("it"), user_message("other")]
    assert decide(line, chance) == MatchedEdit(None, 0)


def test_cut_answer_without_the_calls_after_it_is_an_edit() -> None:
    line = [*plain("x", "y"), turn(2, [message("user", "q")], [message("assistant", LONG), call("a")])]
    cut = [answer(LONG[2:]), user_message("other")]
    assert decide(line, cut) == MatchedEdit(id(1), 0, kept=line[1].input)


def test_edit_is_placed_by_agreeing_messages_before_a_settled_question() -> None:
    failed = turn(1, [message("user", "q2")], [message("developer", "It did not finish.")], SETTLED)
    line = [failed, several(2, "q1", "a1", "q2", "a2", "q3", "a3")]
    sent = [*ALL[2:4], user_message("other")]
    assert decide(line, sent) == MatchedEdit(id(1), 0, kept=line[1].items[:2])


def test_trimmed_history_may_begin_with_the_calls_after_a_text() -> None:
    tools = [message("user", "q1"), message("assistant", "Let me see."), call("a"), result("a", output="1")]
    line = [
        turn(1, [*tools, message("assistant", "a1"), message("user", "q2")], [message("assistant", "a2")])
    ]
    calls = {"role": "assistant", "content": None, "tool_calls": [tool_call("a")]}
    found = {"role": "tool", "tool_call_id": "a", "content": "1"}
    sent = [calls, found, *chat("-", "a1", "other")[1:]]
    assert decide(line, sent) == MatchedEdit(None, 0, kept=tuple(tools[:2]))
    assert decide(line, [calls, found, *chat("-", "a1", "q2")[1:]]) == Regeneration(id(1))


# Edits at the edge


def test_edited_answer_at_the_start_of_a_trimmed_history_keeps_its_question() -> None:
    edited = [answer("other"), *ALL[4:], user_message("q4")]
    assert decide(LINE, edited) == MatchedEdit(id(1), 0, kept=LINE[1].input)


def test_edited_message_among_consecutive_ones_replaces_only_itself() -> None:
    row = turn(2, [message("user", "one"), message("user", "two")], [message("assistant", "a2")])
    line = [*plain("q1", "a1"), row, *plain(*"----", "q3", "a3")[2:]]
    behind = chat("-", "a2", "q3", "a3", "q4")[1:]
    assert decide(line, [user_message("2"), *behind]) == MatchedEdit(id(1), 0, kept=row.items[:1])
    assert decide(line, [user_message("1"), user_message("two"), *behind]) == MatchedEdit(id(1), 0)
    assert decide(line, [user_message("1"), user_message("2"), *behind]) == MatchedEdit(id(1), 0)


def test_edited_answer_among_consecutive_input_answers_replaces_only_itself() -> None:
    answers = [message("assistant", "one"), message("assistant", "two")]
    behind = chat("q2", "a2", "q3")
    stored = turn(2, [message("user", "q1"), *answers, message("user", "q2")], [message("assistant", "a2")])
    edited = [answer("other"), *behind]
    assert decide([*plain("x", "y"), stored], edited) == MatchedEdit(id(1), 0, kept=stored.items[:2])
    here = [turn(1, [message("user", "q1")], answers), *plain("-", "-", "q2", "a2")[1:]]
    assert decide(here, edited) == MatchedEdit(None, 0, kept=here[0].items[:1])


def test_edited_result_at_the_start_of_a_trimmed_history_keeps_the_results_before_it() -> None:
    line = [*ANSWERED, *plain(*"----", "q2", "a2")[2:]]
    sent = [{"role": "tool", "tool_call_id": "b", "content": "other"}, *chat("-", "3", "q2", "a2", "q3")[1:]]
    assert decide(line, sent) == MatchedEdit(id(1), 0, kept=line[1].items[:1])


def test_edits_of_every_question_are_placed_by_the_answers_between_them() -> None:
    line = plain("[Monday] q1", "a1", "[Monday] q2", "a2", "[Monday] q3", "a3")
    assert decide(line, chat("q2", "a2", "q3", "a3", "[Tuesday] q4")) == MatchedEdit(id(1), 0)


def test_edits_around_one_answer_are_placed_by_it_if_it_is_long_enough() -> None:
    line = plain("q1", "a1", "q2", "An answer of some length", "q3", "a3")
    assert decide(line, chat("other", "An answer of some length", "edited")) == MatchedEdit(id(1), 0)
    call_it = [turn(3, [message("user", "q3")], [call("c", name="look", arguments='{"city": "Paris"}')])]
    lookup = {"id": "z", "type": "function", "function": {"name": "look", "arguments": '{"city":"Paris"}'}}
    sent = [user_message("other"), {"role": "assistant", "tool_calls": [lookup]}, user_message("edited")]
    assert decide([*line[:2], *call_it], sent) == MatchedEdit(id(2), 0)


def test_consecutive_answers_whose_question_was_deleted_are_an_edit() -> None:
    assert decide(LINE, [ALL[1], *ALL[3:], user_message("q4")]) == MatchedEdit(id(1), 1)
    brought = several(1, "q1", "a1", "q2", "a2", "q3", "a3")
    assert decide([brought], [ALL[1], *ALL[3:], user_message("q4")]) == MatchedEdit(
        None, 0, kept=brought.items[:1]
    )
    greeted = turn(1, [message("assistant", "Hello."), *brought.items[:3]], [message("assistant", "a2")])
    sent = [answer("Hello."), ALL[1], *ALL[2:4], user_message("q4")]
    assert decide([greeted], sent) == MatchedEdit(None, 0)


def test_edit_at_the_start_of_an_interrupted_turn_replaces_it() -> None:
    whole = several(1, "q1", "a1", "q2", "a2")
    line = [
        turn(1, whole.input, whole.output, INTERRUPTED),
        turn(2, [message("user", "pay")], [call("s"), result("s")], SETTLED),
        *plain(*"----", "q3", "a3")[2:],
    ]
    edited = [answer("other"), *chat("q2", "a2", "q3", "a3", "q4")]
    assert decide(line, edited) == MatchedEdit(None, 0, kept=whole.items[:1])
    assert decide(line, [user_message("other"), *ALL[1:], user_message("q4")]) == MatchedEdit(None, 0)
    assert decide(line[:1], [*edited[:3], user_message("q3")]) == MatchedEdit(None, 0, kept=whole.items[:1])


def test_edit_is_placed_past_an_absent_interrupted_turn() -> None:
    stopped = turn(2, [message("user", "stopped")], [], INTERRUPTED)
    line = [*plain("q1", "a1"), stopped, *plain(*"----", "q3", "a3")[2:]]
    edited = [answer("other"), *chat("q3", "a3", "q4")]
    assert decide(line, edited) == MatchedEdit(None, 0, kept=line[0].input)


def test_edit_before_part_of_an_interrupted_answer_is_placed_by_it() -> None:
    stopped = turn(
        2, [message("user", "q2")], [message("assistant", "Let me see what there is")], INTERRUPTED
    )
    line = [*plain("q1", "a1"), stopped, *plain(*"----", "q3", "a3", "q4", "a4")[2:]]
    seen = chat("other", "Let me see what", "q3", "a3", "edited")
    assert decide(line, seen) == MatchedEdit(id(1), 0)


def test_edit_before_the_end_of_an_answer_is_placed_by_it() -> None:
    two = turn(2, [message("user", "q2")], [message("assistant", text) for text in ("One.", "Two.")])
    line = [*plain("q1", "a1"), two, *plain(*"----", "q3", "a3")[2:]]
    assert decide(line, chat("other", "Two.", "q3", "a3", "q4")) == MatchedEdit(id(1), 0)


PARTS = [message("assistant", text) for text in ("One is here.", "Two is there.", "Three is nowhere.")]


@pytest.mark.parametrize("behind", [[], plain("-", "-", "q2", "a2")[1:]], ids=["last", "earlier"])
@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize(
    "texts",
    [
        ["One is here.", "Two is there.Three is nowhere."],
        ["One is here.", "Two is there.", "Three is nowhere."],
        ["One is here.Two is there.", "Three is nowhere."],
    ],
)
def test_question_inserted_between_parts_of_an_answer_is_an_edit_in_a_trimmed_history(
    behind: list[Turn], tools: bool, texts: list[str]
) -> None:
    output = [PARTS[0], *([call("s"), result("s")] if tools else []), *PARTS[1:]]
    question = message("user", "q1")
    line = [turn(1, [question], output), *behind]
    inserted = [each for text in texts for each in (user_message("inserted"), chat("-", text)[1])][1:]
    tail = chat("q2", "a2", "new") if behind else [user_message("new")]
    assert decide(line, [user_message("q1"), *inserted, *tail]) == MatchedEdit(None, 0)
    assert decide(line, [*inserted, *tail]) == MatchedEdit(None, 0, kept=(question,))


# Long lines


def test_trimmed_history_is_found_behind_many_absent_turns() -> None:
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


def test_short_request_reads_only_the_end_of_a_long_line() -> None:
    line = Looked(plain(*(f"{number}" for number in range(2_000))))
    assert decide(line, [*chat("1996", "1997", "1998", "1999"), user_message("new")]) == Continuation(4)
    assert len(line.at) < 100


ONE_TURN = [
    turn(1, [message(each["role"], each["content"]) for each in ALL[:5]], [message("assistant", "a3")])
]


def spot(turn: int, place: int, piece: int = 0, form: ClientForm = ClientForm.SEEN) -> Spot:
    return Spot(turn, form, place, piece)


def test_windows_give_the_longest_match_at_each_spot() -> None:
    found = {window.spot: window.length for window in windows(LINE, ClientTranscript(ALL[2:5]))}
    assert found == {spot(0, 0): 0, spot(1, 0): 3}


def test_windows_of_a_whole_history_give_only_the_beginning() -> None:
    assert [window.length for window in windows(LINE, ClientTranscript(ALL))] == [6]


def test_windows_include_a_start_in_the_middle_of_an_answer() -> None:
    rows = [*plain("q1", "a1"), turn(2, [], [message("assistant", text) for text in ("One.", "Two.")])]
    found = [window.spot for window in windows(rows, ClientTranscript([answer("Two."), user_message("q")]))]
    assert spot(1, 0, 1) in found
    first = [
        window.spot for window in windows(rows[1:], ClientTranscript([answer("Two."), user_message("q")]))
    ]
    assert first == [spot(0, 0), spot(0, 0, 1)]


def test_windows_include_a_start_at_the_calls_after_a_text() -> None:
    line = [turn(1, [message("user", "q")], [message("assistant", "Let me see."), call("a")])]
    calls = {"role": "assistant", "content": None, "tool_calls": [tool_call("a")]}
    found = [window.spot for window in windows(line, ClientTranscript([calls]))]
    assert spot(0, 1, 1) in found
    assert spot(0, 1, 1).before(line) == line[0].items[:2]


def test_consecutive_answers_are_matched_joined_and_separately() -> None:
    sent = ClientTranscript([ALL[1], ALL[3], *ALL[4:]])
    assert {window.spot for window in windows(LINE, sent) if window.length} == {spot(0, 1)}
    assert find_spot(LINE, sent, 0) == spot(0, 1)


@pytest.mark.parametrize(("place", "kept"), [(0, 0), (1, 1), (4, 4), (5, 5)])
def test_spot_before_returns_the_items_of_the_turn_before_it(place: int, kept: int) -> None:
    assert spot(0, place).before(ONE_TURN) == ONE_TURN[0].items[:kept]


def test_spot_before_leaves_out_reasoning_without_its_item() -> None:
    line = [turn(1, [message("user", "q")], [reasoning(), message("assistant", "a")])]
    assert spot(0, 1).before(line) == line[0].items[:1]


def test_spot_before_a_result_keeps_a_hidden_call_that_the_client_holds() -> None:
    items = [message("user", "q"), call("a"), result("a"), message("assistant", "a"), message("user", "r")]
    line = [turn(1, items, [message("assistant", "b")]).with_hidden(frozenset({1, 2}))]
    assert spot(0, 2, form=ClientForm.HELD).before(line) == tuple(items[:2])
    assert spot(0, 1, form=ClientForm.SEEN).before(line) == tuple(items[:1])


def test_spot_cut_returns_the_entries_from_the_spot_on() -> None:
    cut = spot(0, 3).cut(ONE_TURN)
    assert [entry.pieces for entry in cut.input] == [("a2",), ("q3",)]
    assert [entry.pieces for entry in cut.output] == [("a3",)]
    (left,) = spot(0, 5).cut(ONE_TURN, ("3",)).output
    assert left.pieces == ("3",)


def test_find_places_a_message_by_agreement_at_the_same_distance() -> None:
    assert find_spot(LINE, ClientTranscript(chat("-", "a1", "x", "a2", "y")[1:]), None) == spot(0, 1)
    assert find_spot(LINE, ClientTranscript(chat("-", "a1", "x", "y", "z")[1:]), None) is None
    assert find_spot(LINE, ClientTranscript(chat("-", "a1", "x", "y", "z")[1:]), 0) == spot(0, 1)
    assert find_spot(LINE, ClientTranscript(chat("-", "a1", "x", "y", "z")[1:]), 1) is None


def test_find_returns_the_first_of_several_places() -> None:
    line = plain("q1", "yes", "q2", "no", "q1", "yes", "q2", "no")
    assert find_spot(line, ClientTranscript(chat("-", "yes", "q2")[1:]), None) == spot(0, 1)


def test_message_of_sixteen_letters_or_more_is_distinctive() -> None:
    assert is_distinctive(ClientTranscript([user_message("sixteen letters, or more")]))
    assert not is_distinctive(ClientTranscript([user_message("a few letters.")]))
    assert not is_distinctive(ClientTranscript([]))
    calls = [tool_call("a", '{"city": "Paris"}')]
    assert is_distinctive(ClientTranscript([{"role": "assistant", "tool_calls": calls}]))


def test_find_matches_hidden_items_as_held_and_as_seen() -> None:
    line = [LINE[0].with_hidden(frozenset({1})), *LINE[1:]]
    assert [words[1] for words in MessageLine.of(line).words][:2] == ["q1", "q2"]
    assert MessageLine.of(line, ClientForm.HELD).words == MessageLine.of(LINE).words
    assert find_spot(line, ClientTranscript(ALL[1:3]), None) == spot(0, 1, form=ClientForm.HELD)


def test_common_lengths_counts_the_match_at_each_place() -> None:
    sent = words_of_request(ClientTranscript(chat("x", "y")))
    line = words_of_request(ClientTranscript(chat("x", "y", "x", "z", "x", "y")))
    assert common_lengths(sent, line) == [2, 0, 1, 0, 2, 0]


SYSTEM = {"role": "system", "content": "Be kind."}
(TURN,) = plain("q", "a")


def through(request: ClientTranscript, turn: Turn, place: int, step: int) -> set[int]:
    return request.read_turn(turn.kind, turn.shown, place, step)


def test_client_transcript_begins_after_its_instructions() -> None:
    request = ClientTranscript([SYSTEM, SYSTEM, *chat("q", "a"), SYSTEM])
    assert request.first == 2
    assert request.is_over(2, BACKWARDS)
    assert not request.is_over(3, BACKWARDS)
    assert request.is_over(4, FORWARDS)
    assert not request.is_over(3, FORWARDS)


def test_client_transcript_skips_blank_messages_and_instructions() -> None:
    request = ClientTranscript([user_message("q"), SYSTEM, user_message(" "), user_message("r")])
    assert request.next(1, FORWARDS) == (ReducedMessage("user", "r"), 4)
    assert request.next(3, BACKWARDS) == (ReducedMessage("user", "q"), 0)
    assert request.follows_content(1)
    assert not request.follows_content(2)


@pytest.mark.parametrize("sent", [chat("q", "a"), chat(" q", "a "), [user_message("q"), SYSTEM, answer("a")]])
def test_matched_turn_leads_from_one_end_of_the_request_to_the_other(sent: list[dict[str, Any]]) -> None:
    request = ClientTranscript(sent)
    assert through(request, TURN, 0, FORWARDS) == {len(sent)}
    assert through(request, TURN, len(sent), BACKWARDS) == {0}


def test_turn_that_does_not_match_leads_to_no_position() -> None:
    for sent in (
        chat("q", "b"),
        chat("r", "a"),
        chat("q", "a")[::-1],
        [user_message("q"), user_message("a")],
    ):
        assert through(ClientTranscript(sent), TURN, 0, FORWARDS) == set()


def test_request_may_begin_within_a_turn_only_backwards() -> None:
    request = ClientTranscript(chat("q", "a")[1:])
    assert through(request, TURN, 1, BACKWARDS) == {0}
    assert through(request, TURN, 0, FORWARDS) == set()


def test_interrupted_turn_leads_to_every_position_it_may_be_held_to() -> None:
    cut = turn(
        1, [message("user", "q"), message("user", "r")], [message("assistant", "It left the")], INTERRUPTED
    )
    request = ClientTranscript([user_message("q"), user_message("r"), answer("It left")])
    assert through(request, cut, 0, FORWARDS) == {0, 1, 2, 3}
    assert through(request, cut, 3, BACKWARDS) == {3, 2, 1, 0}
    assert through(ClientTranscript(chat("other", "text")), cut, 0, FORWARDS) == {0}


def test_results_may_be_matched_from_the_middle_only_at_the_start_of_the_request() -> None:
    results = turn(1, [result("a", output="1"), result("b", output="2")], [message("assistant", "3")])
    two = {"role": "tool", "tool_call_id": "x", "content": "2"}
    three = answer("3")
    assert through(ClientTranscript([two, three]), results, 2, BACKWARDS) == {0}
    assert through(ClientTranscript([user_message("q"), two, three]), results, 3, BACKWARDS) == set()


def test_past_echoes_reads_back_over_every_matching_turn() -> None:
    line = plain("q1", "a1", "q2", "a2", "q3", "a3")
    assert ClientTranscript(chat("q1", "a1", "q2", "a2")).skip_echoes(line, 2, 4) == (0, 0)
    assert ClientTranscript(chat("q1", "b1", " q2", "a2")).skip_echoes(line, 2, 4) == (1, 2)
    assert ClientTranscript([SYSTEM, *chat("-", "a1", "q2", "a2")[1:]]).skip_echoes(line, 2, 4) == (1, 2)
    assert ClientTranscript(chat("q1", "a1")).skip_echoes([turn(1, [], [], TurnKind.SETTLED)], 1, 2) == (1, 2)
