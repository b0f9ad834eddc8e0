"""Generated client copies: matching never duplicates a message or loses a beginning."""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.unit.engine.copies import (
    ALL,
    ANSWERED,
    COMPLETED,
    INTERRUPTED,
    LINE,
    NEW,
    SETTLED,
    SYSTEM,
    Sent,
    SentLog,
    Tag,
    chat,
    copies,
    decide,
    id,
    lines,
    plain,
    trimmed,
    turn,
    user_message,
)
from tests.unit.engine.stage import generated
from tests.unit.model.shapes import json_values
from turnledger.engine.resend import match
from turnledger.engine.resend.match import Continuation, MatchedEdit, Meaning, Regeneration
from turnledger.errors import MalformedItems, NoNewInput
from turnledger.model.item import message


def implied(logs: Sequence[SentLog], sent: Sequence[Sent], meaning: Meaning) -> list[Tag]:
    """The history that the decision makes: the line up to the common turn, what was kept of the next, and the
    input."""
    places = {each.turn.id: at for at, each in enumerate(logs)}
    kept: list[Tag] = []
    if isinstance(meaning, Regeneration):
        at = places[meaning.turn]
        before, input = logs[:at], logs[at].input
    elif isinstance(meaning, MatchedEdit):
        before = logs[: places[meaning.after] + 1] if meaning.after else []
        kept = [(len(before), item.text) for item in meaning.kept if item.type == "message"]
        input = list(sent[meaning.new :])
    else:
        before, input = logs, list(sent[meaning.new :])
    tags_before = [tag for each in before for tag in each.tags]
    return [*tags_before, *kept, *(tag for each in input for tag in each.tags)]


def assert_neither_doubled_nor_lost(logs: Sequence[SentLog], sent: Sequence[Sent], meaning: Meaning) -> None:
    """The history that follows reads as the client's copy does, up to what was trimmed from its beginning and
    what it need not hold; and it begins as the line does, up to where the copy begins."""
    copy = [tag for each in sent for tag in each.tags]
    history = implied(logs, sent, meaning)
    left = list(copy)
    for tag in reversed(history):
        if not left:
            break
        if tag == left[-1]:
            left.pop()
        else:
            assert tag[0] != NEW, f"{tag} was doubled"
            assert need_not_hold(logs, tag), f"{tag} is not in the copy"
    assert left == []
    if copy[0][0] != NEW:
        line = [tag for each in logs for tag in each.tags]
        before = [tag for tag in line[: line.index(copy[0])] if not need_not_hold(logs, tag)]
        assert [tag for tag in history if not need_not_hold(logs, tag)][: len(before)] == before


def need_not_hold(logs: Sequence[SentLog], tag: Tag) -> bool:
    return tag[0] != NEW and (logs[tag[0]].may_be_absent or tag in logs[tag[0]].hidden)


def new(text: str, role: str = "user") -> Sent:
    return Sent({"role": role, "content": text}, ((NEW, text),))


def decided(logs: Sequence[SentLog], sent: Sequence[Sent]) -> Meaning:
    meaning = decide([each.turn for each in logs], [each.message for each in sent])
    assert_neither_doubled_nor_lost(logs, sent, meaning)
    return meaning


def has_answer(sent: Sequence[Sent]) -> bool:
    return any(each.role == "assistant" and each.tags for each in sent)


@generated
@given(st.data(), lines(), st.booleans())
def test_new_message_after_any_client_copy_is_a_continuation(
    data: st.DataObject, logs: list[SentLog], dated: bool
) -> None:
    copy = data.draw(copies(logs).flatmap(trimmed))
    assume(has_answer(copy))
    front = [Sent(SYSTEM, ())] if dated else []
    sent = [*front, *copy, *(new(f"new {each}") for each in range(data.draw(st.integers(1, 2))))]
    assert decided(logs, sent) == Continuation(len(front) + len(copy), instructions=len(front))
    found = match.decide([log.turn for log in logs], [each.message for each in sent]).trimmed
    if found is not None:  # nothing that the client sent
        left_out = {(at, item.text) for at in range(found.turns) for item in logs[at].turn.items}
        left_out |= {(found.turns, item.text) for item in logs[found.turns].turn.items[: found.items]}
        assert left_out.isdisjoint(tag for each in copy for tag in each.tags)


@generated
@given(st.data(), lines(at_least=2))
def test_regeneration_is_recognized_at_any_depth(data: st.DataObject, logs: list[SentLog]) -> None:
    depth = data.draw(st.integers(1, len(logs) - 1))
    assume(logs[depth].turn.kind is not SETTLED)
    copy = data.draw(copies(logs[:depth]).flatmap(trimmed))
    assume(has_answer(copy))
    sent = [*copy, *logs[depth].input]
    assert decided(logs, sent) == Regeneration(logs[depth].turn.id)


@generated
@given(st.data(), lines(at_least=2), st.booleans(), st.booleans())
def test_edited_question_or_answer_branches_before_it(
    data: st.DataObject, logs: list[SentLog], of_answer: bool, and_all_behind_it: bool
) -> None:
    depth = data.draw(st.integers(0, len(logs) - 1))
    assume(any(not each.may_be_absent and not each.hidden for each in logs[depth:]))
    before = data.draw(copies(logs[:depth]).flatmap(trimmed))
    if of_answer:
        edited = [*logs[depth].input, new("edited", "assistant")]
    else:
        edited = [new("edited"), *(logs[depth].output if and_all_behind_it else [])]
    behind = data.draw(copies(logs[depth + 1 :])) if and_all_behind_it else []
    sent = [*before, *edited, *behind, new("and now?")]
    assume(has_answer(sent) and sent[0].role != "system")
    meaning = decided(logs, sent)
    if before and has_answer(before) and not logs[depth].may_be_absent and not logs[depth].hidden:
        assert isinstance(meaning, MatchedEdit)
        assert meaning.new == len(before)


@generated
@given(st.data(), lines(at_least=2, kinds=["plain", "several", "several", "hidden", "client_tools"]))
def test_edit_within_a_turn_keeps_its_trimmed_part(data: st.DataObject, logs: list[SentLog]) -> None:
    depth = data.draw(st.integers(0, len(logs) - 1))
    end = data.draw(st.integers(0, len(logs[depth].input) - 1))
    part = replace(logs[depth], input=logs[depth].input[:end], output=[])
    before = data.draw(copies([*logs[:depth], part]).flatmap(trimmed))
    assume(has_answer(before))
    decided(logs, [*before, new("edited, which is no number")])


@generated
@given(st.data(), lines(kinds=["plain", "server_tools"]), st.booleans())
def test_question_inserted_between_parts_of_an_answer_duplicates_no_message(
    data: st.DataObject, logs: list[SentLog], and_all_behind_it: bool
) -> None:
    depth = data.draw(st.integers(0, len(logs) - 1))
    [answer] = logs[depth].output
    parts = [Sent({"role": "assistant", "content": text}, ((at, text),)) for at, text in answer.tags]
    assume(len(parts) > 1)
    before = data.draw(copies(logs[:depth]))
    behind = [sent for each in logs[depth + 1 :] for sent in each.copy] if and_all_behind_it else []
    sent = [*before, *logs[depth].input, parts[0], new("inserted"), *parts[1:], *behind, new("and now?")]
    begin = data.draw(st.integers(0, len(before) + len(logs[depth].input)))
    assume(sent[begin].tags)
    decided(logs, sent[begin:])


@generated
@given(st.data(), lines(at_least=2, kinds=["plain", "several"]), st.booleans())
def test_edited_question_at_the_start_of_a_trimmed_copy_is_placed_by_its_answer(
    data: st.DataObject, logs: list[SentLog], and_all_behind_it: bool
) -> None:
    line = [sent for each in logs for sent in each.copy if not each.hidden.intersection(sent.tags)]
    roles = [sent.role for sent in line]
    begins = [at for at in range(len(line) - 1) if roles[at : at + 2] == ["user", "assistant"]]
    assume(begins)
    begin = data.draw(st.sampled_from(begins))
    behind = line[begin + 1 :] if and_all_behind_it else line[begin + 1 : begin + 2]
    history = implied(logs, sent := [new("edited"), *behind, new("and now?")], decided(logs, sent))
    before = [tag for each in line[:begin] for tag in each.tags]
    assert [tag for tag in history if not need_not_hold(logs, tag)][: len(before)] == before


@generated
@given(st.data(), lines(at_least=3))
def test_deleted_exchange_branches_before_it(data: st.DataObject, logs: list[SentLog]) -> None:
    first = data.draw(st.integers(1, len(logs) - 2))
    last = data.draw(st.integers(first + 1, len(logs) - 1))
    before, behind = data.draw(copies(logs[:first])), data.draw(copies(logs[last:]))
    sent = [*before, *behind, new("and now?")]
    assume(has_answer(sent) and sent[0].role != "system")
    decided(logs, sent)


@generated
@given(
    st.lists(st.sampled_from(["yes", "no"]), min_size=2, max_size=12).filter(
        lambda texts: len(texts) % 2 == 0
    ),
    st.lists(st.sampled_from(["yes", "no"]), min_size=2, max_size=11),
    st.booleans(),
)
def test_repeated_messages_are_never_duplicated_or_lost(
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
    after = meaning.after if isinstance(meaning, MatchedEdit) else line[-1].id
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


@generated
@given(
    st.lists(
        st.tuples(st.sampled_from("cccis"), st.sampled_from("xy"), st.sampled_from("xy")),
        min_size=1,
        max_size=6,
    ),
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from("xy")), min_size=2, max_size=9),
)
def test_repeated_messages_with_unfinished_turns_are_never_duplicated_or_lost(
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
    while copy and copy[-1][0]:  # the beginning of the new answer
        copy = copy[:-1]
    if isinstance(meaning, Regeneration):
        at = 2 * [each.id for each in line].index(meaning.turn)
        assert reads_as([*flat[:at], (flat[at][0], False)], copy)
        return
    after = meaning.after if isinstance(meaning, MatchedEdit) else line[-1].id
    common = next((each.number for each in line if each.id == after), 0)
    input = [(what, False) for what in copy[meaning.new :]]
    assert reads_as([*flat[: 2 * common], *input], copy)
    if common and meaning.new and copy[meaning.new][0] == 1:
        # Another answer than the stored one stands in its place, and not behind it.
        kind, question, _ = stored[common - 1]
        assert kind != "i" or copy[meaning.new - 1] != (0, question)
    if isinstance(meaning, MatchedEdit):
        kind, question, answer = stored[common]
        assert kind != "s"
        is_edited = kind == "i" and not {(0, question), (1, answer)}.isdisjoint(copy[meaning.new :])
        assert is_edited or any(kind == "c" for kind, *_ in stored[common:])


FRAME = "Answer the query at the end from the context that comes here, in one word:\n"
QUESTIONS = [
    "x",
    "y",
    "x\ny",
    "<think>t</think>x",
    *(FRAME + each for each in ("x", "y", "x\ny", f"{FRAME}x")),
]
NEWEST = ["new", f"{FRAME}new", f"new\n{FRAME}".strip()]
QUESTIONS += [f"x\n{FRAME}".strip(), f"{FRAME}x\n{FRAME}".strip()]
ANSWERS = ["x", "y", "xy", "x y", "<think>t</think>x", "<think>u</think>x", "x<think>t</think>y", "<think>x"]


def same_question(stored: str, sent: str, newest: str) -> bool:
    """Return whether docs/histories.md calls these questions the same."""
    frame = FRAME.strip()
    is_added_before = stored.startswith(frame) and newest.startswith(frame) and stored.endswith("\n" + sent)
    is_added_behind = stored.endswith(frame) and newest.endswith(frame) and stored.startswith(sent + "\n")
    return stored == sent or (sent != newest and (is_added_before or is_added_behind))


def same_answer(one: str, other: str) -> bool:
    """Return whether docs/histories.md calls these answers the same."""
    bare, other_bare = (re.sub("<think>.*?</think>", "", each) for each in (one, other))
    is_thought_once = (bare == one) != (other_bare == other)
    return one == other or (is_thought_once and "".join(bare.split()) == "".join(other_bare.split()))


def assert_continues_only_if_same(
    stored: Sequence[tuple[str, str]], sent: Sequence[tuple[str, str]], newest: str
) -> None:
    texts, copy = ([text for pair in pairs for text in pair] for pairs in (stored, sent))
    is_same = all(
        same_question(question, other, newest) and same_answer(answer, another)
        for (question, answer), (other, another) in zip(stored, sent, strict=True)
    )
    assert (decide(plain(*texts), chat(*copy, newest)) == Continuation(len(copy))) == is_same


@pytest.mark.parametrize("newest", NEWEST)
def test_exchange_is_the_stored_one_only_if_both_messages_are(newest: str) -> None:
    for one, other in product(QUESTIONS, repeat=2):
        assert_continues_only_if_same([(one, "x")], [(other, "x")], newest)
    for one, other in product(ANSWERS, repeat=2):
        assert_continues_only_if_same([("x", one)], [("x", other)], newest)


@generated
@given(st.data(), st.integers(2, 3), st.sampled_from(NEWEST))
def test_history_continues_only_if_each_of_its_messages_is_the_stored_one(
    data: st.DataObject, count: int, newest: str
) -> None:
    questions, answers = st.sampled_from(QUESTIONS), st.sampled_from(ANSWERS)
    stored = data.draw(st.lists(st.tuples(questions, answers), min_size=count, max_size=count))
    # Mostly alike: two histories drawn apart would hardly ever be the same.
    sent = [
        (
            data.draw(st.sampled_from([question, question.removeprefix(FRAME)]) | questions),
            data.draw(st.just(answer) | answers),
        )
        for question, answer in stored
    ]
    assert_continues_only_if_same(stored, sent, newest)


odd_messages = st.dictionaries(
    st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "refusal", "function_call"]),
    st.sampled_from(["user", "assistant", "tool", "system", "other"]) | json_values,
    max_size=5,
)


@generated
@given(st.lists(odd_messages, max_size=4), st.sampled_from([None, *match.SentMessages]))
def test_malformed_messages_raise_only_no_new_input_or_malformed_items(
    odd: list[dict[str, Any]], sent: match.SentMessages | None
) -> None:
    for request in (odd, [*ALL, *odd], [*odd, *ALL, user_message("q4")]):
        with contextlib.suppress(NoNewInput, MalformedItems):
            decide([*LINE, *ANSWERED], request, sent)
