"""A turn is made to fit behind another, which stays as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import CALL_IDS, CALL_TYPES, assistant, call, looks, reasoning, result, user
from turnledger.model.item import Item, message
from turnledger.model.messages.calls import NOT_ANSWERED, left_open, open_calls
from turnledger.model.messages.repair import fits, fitted

CALL = Item.of({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"})
RESULT = Item.of({"type": "function_call_output", "call_id": "c", "output": "r"})
HELLO, ANSWER = message("user", "Hello"), message("assistant", "Hi")

IDS, TYPES = st.sampled_from(CALL_IDS), st.sampled_from(CALL_TYPES)
ITEMS = st.one_of(
    st.builds(call, IDS, TYPES),
    st.builds(result, IDS, TYPES),
    st.builds(user),
    st.builds(assistant, st.sampled_from(["Hi", ""])),
    st.builds(reasoning),
)


def test_what_fits_is_not_touched() -> None:
    fit = fitted([CALL], [RESULT, HELLO], [ANSWER])
    assert (fit.input, fit.output, fit.changes) == ((RESULT, HELLO), (ANSWER,), ())


def test_a_call_that_is_not_answered_is_closed() -> None:
    fit = fitted([CALL], [HELLO], [ANSWER])
    assert [item.fields.get("output") for item in fit.input] == [NOT_ANSWERED, None]
    assert len(fit.changes) == 1


def test_a_turn_that_goes_on_without_a_word_closes_it_too() -> None:
    fit = fitted([CALL], [], [ANSWER])
    assert fit.input[0].fields["output"] == NOT_ANSWERED
    assert fit.output == (ANSWER,)


def test_a_stray_result_goes() -> None:
    fit = fitted([], [HELLO], [RESULT, ANSWER])
    assert (fit.input, fit.output) == ((HELLO,), (ANSWER,))
    assert fit.changes[0].startswith("Item 1 was dropped")


def test_a_turn_of_strays_is_empty() -> None:
    assert fitted([], [RESULT], []).items == ()


@given(st.lists(ITEMS, max_size=8), st.lists(ITEMS, max_size=8), st.lists(ITEMS, max_size=8))
def test_whatever_comes_fits(before: list[Item], input: list[Item], output: list[Item]) -> None:
    pending = left_open(fitted([], before, []).items)
    fit = fitted(pending, input, output)
    if fit.items:
        assert fits(pending, fit.items)
        open_calls((*pending, *fit.items))
    again = fitted(pending, fit.input, fit.output)
    if fit.items:
        assert (again.items, again.changes) == (fit.items, ())


@pytest.mark.parametrize("many", [100, 400])
def test_many_calls_that_wait_are_looked_at_a_few_times_each(many: int) -> None:
    calls = [call(f"c{number}") for number in range(many)]
    told = [*(result(f"c{number}") for number in reversed(range(many))), user()]
    assert looks(lambda: fitted(calls, [user()], [])) < 40 * many
    assert looks(lambda: fitted([], [user()], calls)) < 40 * many
    assert looks(lambda: fitted(calls, told, [])) < 40 * many
