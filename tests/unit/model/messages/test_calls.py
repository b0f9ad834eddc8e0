"""Well-formed histories: each call answered per occurrence and in order, reasoning before its item."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import (
    CALL_TYPES,
    assistant,
    call,
    histories,
    looks,
    reasoning,
    repeatable,
    result,
    user,
)
from turnledger.errors import MalformedItems, MissingToolResults, NoNewInput
from turnledger.model.item import Item
from turnledger.model.messages import calls as calls_module
from turnledger.model.messages.calls import NOT_ANSWERED, check_input, check_resent, check_turn, open_calls


def admit(pending: Sequence[Item], new: Sequence[Item]) -> tuple[Item, ...]:
    """As the ledger does: what needs no head is checked first."""
    check_input(new)
    return calls_module.admit(pending, new)


def counted_open(items: list[Item]) -> list[Item]:
    """The oracle: an id that was called once more than answered is open, at its last call."""
    last_calls = {item.call_id: place for place, item in enumerate(items) if item.is_call}
    balance = dict.fromkeys(last_calls, 0)
    for item in items:
        if item.is_call or item.is_result:
            balance[item.call_id] += 1 if item.is_call else -1
    return [items[place] for place in sorted(last_calls[each] for each in balance if balance[each])]


@repeatable
@given(histories)
def test_open_calls_of_a_well_formed_history_are_its_unanswered_calls(items: list[Item]) -> None:
    assert list(open_calls(items)) == counted_open(items)


@repeatable
@given(histories, st.data())
def test_check_turn_accepts_a_well_formed_history_in_pieces(items: list[Item], data: st.DataObject) -> None:
    cuts = [at for at in range(len(items) + 1) if at == 0 or not items[at - 1].is_reasoning]
    at = data.draw(st.sampled_from(cuts))
    assert set(check_turn(open_calls(items[:at]), items[at:])) == set(open_calls(items))


@repeatable
@given(histories, st.data())
def test_result_without_a_call_is_refused_at_any_place(items: list[Item], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(items)))
    with pytest.raises(MalformedItems):
        open_calls([*items[:at], result("never called"), *items[at:]])


@repeatable
@given(histories)
def test_result_whose_call_was_removed_is_refused(items: list[Item]) -> None:
    answered = [item for item in items if item.is_call and item not in open_calls(items)]
    for lost in answered:
        with pytest.raises(MalformedItems):
            open_calls([item for item in items if item is not lost])


def test_open_calls_of_an_empty_history_is_empty() -> None:
    assert open_calls([]) == ()


def test_call_id_may_repeat_once_it_is_answered() -> None:
    assert open_calls([call(), result(), call(), result()]) == ()
    assert open_calls([call(), result(), call()]) == (call(),)


def test_call_id_that_repeats_while_open_is_refused() -> None:
    with pytest.raises(MalformedItems, match="a is reused"):
        open_calls([call(), call()])
    with pytest.raises(MalformedItems):
        open_calls([call(), call(type="shell_call"), result(), result(type="shell_call")])


def test_result_before_its_call_is_refused() -> None:
    with pytest.raises(MalformedItems, match="no such call"):
        open_calls([result(), call()])


def test_second_result_of_a_call_is_refused() -> None:
    with pytest.raises(MalformedItems, match="no such call"):
        open_calls([call(), result(), result()])


@pytest.mark.parametrize("kind", CALL_TYPES)
@pytest.mark.parametrize("other", CALL_TYPES)
def test_result_of_another_type_than_its_call_is_refused(kind: str, other: str) -> None:
    items = [call(type=kind), result(type=other)]
    if kind == other:
        assert open_calls(items) == ()
    else:
        with pytest.raises(MalformedItems, match=f"{other}_output, the call a {kind}"):
            open_calls(items)


def test_parallel_calls_may_be_answered_in_any_order() -> None:
    assert open_calls([call("a"), call("b"), result("b"), result("a")]) == ()


def test_hosted_calls_need_no_result() -> None:
    assert open_calls([Item.of({"type": "web_search_call", "id": "ws", "call_id": "a"})]) == ()


@pytest.mark.parametrize(
    "after",
    [
        assistant(),
        call(),
        Item.of({"type": "web_search_call", "id": "ws"}),
        Item.of({"type": "some.day"}),
    ],
)
def test_reasoning_before_any_item_of_the_model_is_accepted(after: Item) -> None:
    open_calls([reasoning(), after])
    open_calls([reasoning(), reasoning(), after])


@pytest.mark.parametrize(
    "after",
    [user(), Item.of({"role": "system", "content": "x"}), Item.of({"role": "developer", "content": "x"})],
)
def test_reasoning_before_a_user_or_system_message_is_refused(after: Item) -> None:
    with pytest.raises(MalformedItems, match="followed by a message"):
        open_calls([reasoning(), after])


def test_reasoning_before_a_result_is_refused() -> None:
    with pytest.raises(MalformedItems, match="followed by a function_call_output"):
        open_calls([call(), reasoning(), result()])


def test_reasoning_at_the_end_is_refused() -> None:
    with pytest.raises(MalformedItems, match="at the end"):
        open_calls([assistant(), reasoning()])


def test_check_turn_returns_the_calls_left_open_for_the_client() -> None:
    assert check_turn((call("a"),), [result("a"), call("b"), call("c")]) == (call("b"), call("c"))


# What a request may bring.

BLANK = Item.of({"role": "user", "content": [{"type": "input_text", "text": " \n"}]})
PICTURE = Item.of({"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]})
SYSTEM = Item.of({"role": "system", "content": "Be kind."})
PENDING = (call("a"), call("b", "custom_tool_call"))
ANSWERS = (result("a"), result("b", "custom_tool_call"))
STATED = Item.of({"type": "custom_tool_call_output", "call_id": "b", "output": NOT_ANSWERED})


@pytest.mark.parametrize("new", [[], [BLANK], [SYSTEM], [assistant()], [BLANK, SYSTEM, assistant()]])
@pytest.mark.parametrize("pending", [(), PENDING])
def test_input_without_new_content_is_refused(pending: tuple[Item, ...], new: list[Item]) -> None:
    with pytest.raises(NoNewInput):
        admit(pending, new)


@pytest.mark.parametrize(
    "new", [[user()], [PICTURE], [SYSTEM, user()], [user(), BLANK], [user(), assistant()]]
)
def test_input_with_a_user_message_is_accepted_unchanged(new: list[Item]) -> None:
    assert admit((), new) == tuple(new)


def test_input_with_all_pending_results_is_accepted() -> None:
    assert admit(PENDING, ANSWERS) == ANSWERS
    assert admit(PENDING, ANSWERS[::-1]) == ANSWERS[::-1]


def test_input_with_some_pending_results_is_refused_and_names_the_missing() -> None:
    with pytest.raises(MissingToolResults, match="tool call b") as caught:
        admit(PENDING, [result("a")])
    assert caught.value.missing == ("b",)


def test_input_with_a_blank_message_does_not_replace_missing_results() -> None:
    with pytest.raises(MissingToolResults):
        admit(PENDING, [result("a"), BLANK])


def test_user_message_closes_the_unanswered_calls() -> None:
    assert admit(PENDING, [user(), result("a")]) == (result("a"), STATED, user())


def test_user_message_alone_closes_all_pending_calls() -> None:
    admitted = admit(PENDING, [user()])
    assert [item.call_id for item in admitted] == ["a", "b", None]
    assert [item.fields["output"] for item in admitted[:2]] == [NOT_ANSWERED, NOT_ANSWERED]
    assert open_calls((*PENDING, *admitted)) == ()


def test_results_are_moved_before_the_messages_sent_with_them() -> None:
    assert admit(PENDING, [SYSTEM, *ANSWERS, user()]) == (*ANSWERS, SYSTEM, user())


@pytest.mark.parametrize(
    "new",
    [
        [result("c")],
        [*ANSWERS, result("a")],
        [*ANSWERS, result("c"), user()],
        [result("a", "shell_call"), user()],
    ],
)
def test_results_that_answer_no_pending_call_are_refused(new: list[Item]) -> None:
    with pytest.raises((MalformedItems, MissingToolResults)):
        admit(PENDING, new)
    with pytest.raises(MalformedItems):
        admit(PENDING, [user(), *new])


def test_result_without_pending_calls_is_refused() -> None:
    with pytest.raises(MalformedItems, match="no such call"):
        admit((), [result(), user()])


@pytest.mark.parametrize("made", [call("z"), reasoning()])
def test_input_with_calls_or_reasoning_is_refused(made: Item) -> None:
    with pytest.raises(MalformedItems, match="only models"):
        admit((), [user(), made])


@repeatable
@given(histories, st.booleans(), st.data())
def test_admitted_input_leaves_no_call_open_and_keeps_every_new_item(
    items: list[Item], speaks: bool, data: st.DataObject
) -> None:
    pending = open_calls(items)
    answered = data.draw(st.lists(st.sampled_from(pending), unique=True)) if pending else []
    new = [result(each.call_id or "", each.type) for each in answered] + ([user()] if speaks else [])
    new = data.draw(st.permutations(new))
    missing = [each.call_id for each in pending if each not in answered]
    if not new:
        with pytest.raises(NoNewInput):
            admit(pending, new)
    elif missing and not speaks:
        with pytest.raises(MissingToolResults) as caught:
            admit(pending, new)
        assert list(caught.value.missing) == missing
    else:
        admitted = admit(pending, new)
        assert open_calls((*pending, *admitted)) == ()
        assert [each for each in admitted if each in new] == sorted(new, key=lambda each: not each.is_result)
        assert [each.call_id for each in admitted if each not in new] == missing
        assert all(each.fields["output"] == NOT_ANSWERED for each in admitted if each not in new)


# What a client sends as its history


def test_resent_input_without_new_content_is_refused() -> None:
    for new in ([], [assistant()], [user(" ")], [call("a")]):
        with pytest.raises(NoNewInput):
            check_resent(new)
    check_resent([call("a"), result("a")])
    check_resent([assistant(), user()])


def test_resent_calls_left_unanswered_are_closed_before_the_next_message() -> None:
    admitted = calls_module.admit((), [user("1"), call("a"), call("b"), result("b"), user("2")])
    assert admitted == (
        *(user("1"), call("a"), call("b"), result("b")),
        *(result("a", output=NOT_ANSWERED), user("2")),
    )


def test_resent_result_after_a_message_is_accepted_unchanged() -> None:
    new = (call("a"), user("1"), result("a"))
    assert calls_module.admit((), new) == new


def test_resent_call_at_the_end_raises_missing_tool_results() -> None:
    with pytest.raises(MissingToolResults) as caught:
        calls_module.admit((), [user(), call("a")])
    assert caught.value.missing == ("a",)


@repeatable
@given(histories, histories)
def test_resent_history_is_admitted_whole_and_well_formed_or_refused(
    before: list[Item], new: list[Item]
) -> None:
    pending = open_calls(before)
    try:
        admitted = calls_module.admit(pending, new)
    except (MissingToolResults, MalformedItems):
        return
    assert open_calls((*pending, *admitted)) == ()
    stated = list(admitted)
    for item in new:
        stated.remove(item)
    assert all(item.is_result and item.fields["output"] == NOT_ANSWERED for item in stated)
    calls = [item for item in new if not item.is_result]
    assert [item for item in admitted if not item.is_result] == calls


@repeatable
@given(histories)
def test_without_answers_removes_only_results_of_earlier_calls(new: list[Item]) -> None:
    kept = calls_module.without_answers([result("of before"), *new])
    assert kept == tuple(new)


def test_resent_results_already_recorded_are_removed_from_the_input() -> None:
    new = (result("a"), result("b"), call("a"), result("a", output="other"), user())
    assert calls_module.without_repeated_answers([result("a"), user()], new) == new[1:]
    assert calls_module.without_repeated_answers([user()], new) == new


@pytest.mark.parametrize("many", [100, 400])
def test_admission_of_a_long_history_with_calls_takes_linear_time(many: int) -> None:
    calls = [call(f"c{number}") for number in range(many)]
    results = [result(f"c{number}") for number in range(many)]
    apart = [item for each in calls for item in (each, user())]
    assert looks(lambda: calls_module.admit((), apart)) < 60 * many
    assert looks(lambda: calls_module.admit((), [*calls, *[user()] * many, *results])) < 60 * many
    assert looks(lambda: calls_module.admit(calls, [*results, user()])) < 60 * many
    assert looks(lambda: calls_module.without_repeated_answers(results, results)) < 60 * many
