"""What a model is shown is well formed whatever is cut or hidden, and holds all that must be there."""

from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.model.shapes import assistant, call, histories, reasoning, repeatable, result, turn, user
from turnledger.engine.history.context import (
    ALL,
    Around,
    Context,
    assemble,
    check_priming,
    estimate,
    first_shown,
)
from turnledger.errors import InvalidInput, MalformedItems
from turnledger.model.flags import Hidden, without_hidden
from turnledger.model.item import Item, message
from turnledger.model.messages.calls import open_calls
from turnledger.model.turn import Turn

SYSTEM = message("system", "Be brief.")


def one(item: Item) -> int:
    return 1


def talk(length: int) -> list[Turn]:
    return [
        turn(number, input=[user(f"q{number}")], output=[assistant(f"a{number}")])
        for number in range(1, length + 1)
    ]


def texts(items: Sequence[Item]) -> list[str]:
    return [item.text or item.type for item in items]


def shown(
    history: Sequence[Turn], context: Context = ALL, hidden: Hidden | None = None, **around: tuple[Item, ...]
) -> list[str]:
    return texts(assemble(history, Around(**{"input": (user("q"),), **around}), context, hidden or {}))


# Policies.


def test_all_of_it_stands_in_order() -> None:
    seen = shown(
        talk(2),
        instructions=(SYSTEM,),
        priming=(user("p"), assistant("r")),
        steps=(assistant("s"), reasoning()),
    )
    assert seen == ["Be brief.", "p", "r", "q1", "a1", "q2", "a2", "q", "s"]


@pytest.mark.parametrize(("turns", "first"), [(0, 4), (1, 3), (3, 1), (9, 1)])
def test_the_last_turns_are_shown(turns: int, first: int) -> None:
    expected = [text for number in range(first, 4) for text in (f"q{number}", f"a{number}")]
    assert shown(talk(3), Context.last(turns)) == [*expected, "q"]


@pytest.mark.parametrize(
    ("tokens", "turns"), [(0, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2), (7, 3), (99, 3)]
)
def test_a_budget_is_filled_with_whole_turns(tokens: int, turns: int) -> None:
    assert shown(talk(3), Context.budget(tokens, one)) == shown(talk(3), Context.last(turns))


def test_what_is_always_shown_counts_and_is_shown_past_the_budget() -> None:
    around = {"instructions": (SYSTEM,), "priming": (user("p"), assistant("r")), "steps": (assistant("s"),)}
    assert shown(talk(2), Context.budget(6, one), **around) == ["Be brief.", "p", "r", "q", "s"]
    assert shown(talk(2), Context.budget(7, one), **around)[3:5] == ["q2", "a2"]
    assert shown(talk(2), Context.budget(0, one), **around) == ["Be brief.", "p", "r", "q", "s"]


def test_a_turn_that_does_not_fit_ends_the_window() -> None:
    history = talk(3)
    history[1] = turn(2, output=[assistant(), assistant(), assistant()])
    assert shown(history, Context.budget(6, one)) == ["q3", "a3", "q"]


def test_the_estimate_is_a_quarter_of_the_bytes() -> None:
    assert estimate(Item(b'{"type":"n"}')) == 3
    assert estimate(Item(b'{"type":"no"}')) == 4


def test_nonsense_is_refused() -> None:
    with pytest.raises(InvalidInput):
        Context.last(-1)
    with pytest.raises(InvalidInput):
        Context.budget(-1)


# Pairs over two turns.

LOOP = [
    turn(1, input=[user("q1")], output=[reasoning(), call("a")]),
    turn(2, input=[result("a")], output=[reasoning(), call("a")]),
    turn(3, input=[result("a")], output=[assistant("a3")]),
]


def test_a_turn_brings_the_one_whose_calls_it_answers_and_no_more() -> None:
    assert shown(LOOP, Context.last(1)) == ["reasoning", "function_call", "function_call_output", "a3", "q"]
    assert shown(LOOP, Context.last(2))[0] == "q1"


def test_a_budget_is_kept_by_leaving_out_the_pair() -> None:
    assert shown(LOOP, Context.budget(3, one)) == ["a3", "q"]


@pytest.mark.parametrize("context", [Context.last(0), Context.budget(0, one)])
def test_the_turn_that_the_input_answers_is_always_shown(context: Context) -> None:
    seen = shown(LOOP[:2], context, input=(result("a"),))
    assert seen == ["reasoning", "function_call", "function_call_output"]


def test_a_hidden_call_takes_along_the_answer_that_is_just_given() -> None:
    hidden = {LOOP[1].id: {2}}
    seen = shown(LOOP[:2], ALL, hidden, input=(result("a"), user("q")))
    assert seen == ["q1", "reasoning", "function_call", "function_call_output", "q"]
    assert shown(LOOP[:2], Context.last(0), hidden, input=(result("a"), user("q"))) == ["q"]


def test_hidden_items_take_nothing_of_the_budget() -> None:
    history = talk(3)
    assert shown(history, Context.budget(3, one), {history[2].id: {0, 1}}) == ["q2", "a2", "q"]


# Priming.


@pytest.mark.parametrize(
    "items",
    [[call()], [result()], [user(), reasoning()], [reasoning(), user()], [call(), call(), result()]],
    ids=["open", "stray", "thinking", "no answer", "reused"],
)
def test_priming_must_be_well_formed(items: list[Item]) -> None:
    with pytest.raises(MalformedItems):
        check_priming(items)


def test_a_closed_history_may_prime() -> None:
    check_priming([user(), reasoning(), call(), result(), assistant()])


# Any history.


@st.composite
def conversations(draw: st.DrawFn) -> list[Turn]:
    """Turns as the engine makes them: each answers all calls that the one before left open."""
    numbers, pending, made = count(1), (), []
    for _ in range(draw(st.integers(0, 5))):
        output = [item for item in draw(histories) if not item.is_user_message]
        output = list(_from_a_model(output)) or [assistant()]
        answers = [result(each.call_id or "", each.type) for each in pending]
        says = [user("go on")] if not answers or draw(st.booleans()) else []
        made.append(turn(next(numbers), input=[*answers, *says], output=output))
        pending = open_calls(output)
    return made


def _from_a_model(items: list[Item]) -> list[Item]:
    """Without reasoning that the removal of a message has stranded."""
    kept: list[Item] = []
    for item in reversed(items):
        if not item.is_reasoning or (kept and not kept[-1].is_result):
            kept.append(item)
    return kept[::-1]


policies = st.one_of(
    st.just(ALL),
    st.builds(Context.last, st.integers(0, 6)),
    st.builds(Context.budget, st.integers(0, 40), st.just(one)),
    st.builds(Context.budget, st.integers(0, 900)),
)
places = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 20)), max_size=8)


def hidden_in(history: list[Turn], chosen: set[tuple[int, int]]) -> Hidden:
    hidden: dict[object, set[int]] = {}
    for at, place in chosen:
        if at < len(history) and place < len(history[at].items):
            hidden.setdefault(history[at].id, set()).add(place)
    return hidden  # type: ignore[return-value]


def around_of(history: list[Turn], steps: Sequence[Item]) -> Around:
    pending = open_calls([item for each in history for item in each.items])
    answers = [result(each.call_id or "", each.type) for each in pending]
    return Around((SYSTEM,), (user("p"), assistant("r")), (*answers, user("q")), tuple(steps))


@settings(repeatable, max_examples=400)
@given(conversations(), histories, policies, places)
def test_what_is_shown_is_well_formed_and_complete(
    history: list[Turn], draft: list[Item], context: Context, chosen: set[tuple[int, int]]
) -> None:
    steps = _from_a_model([item for item in draft if not item.is_user_message])
    around, hidden = around_of(history, steps), hidden_in(history, chosen)
    seen = assemble(history, around, context, hidden)
    assert open_calls(seen) == open_calls(steps)
    assert seen[:3] == (*around.instructions, *around.priming)
    parts = without_hidden(
        [*(each.items for each in history), (*around.input, *steps)],
        [*(hidden.get(each.id, ()) for each in history), ()],
    )
    whole = tuple(item for part in parts for item in part)
    assert seen[len(seen) - len(parts[-1]) :] == parts[-1]
    past = seen[3 : len(seen) - len(parts[-1])]
    if context is ALL:
        assert seen[3:] == whole
    # Of the turns before the first that is shown there is nothing, and of that one only answers are missing.
    start = first_shown(history, around, context, hidden)
    rest = tuple(item for part in parts[start:-1] for item in part)
    missing = len(rest) - len(past)
    assert past == rest[missing:]
    assert all(item.is_result for item in rest[:missing])
    assert missing == 0 or start > 0
    if context.turns is not None:
        assert len(history) - start <= context.turns + 1
    if context.tokens is not None:
        fixed = context.count_all((*around.instructions, *around.priming, *parts[-1]))
        needed = parts[-2] if parts[-1][:1] and parts[-1][0].is_result else ()
        assert context.count_all(past) <= max(context.tokens - fixed, context.count_all(needed))


@settings(repeatable, max_examples=300)
@given(conversations(), policies, places)
def test_the_end_of_a_history_is_enough_to_show_it(
    history: list[Turn], context: Context, chosen: set[tuple[int, int]]
) -> None:
    around, hidden = around_of(history, ()), hidden_in(history, chosen)
    start = first_shown(history, around, context, hidden)
    whole = assemble(history, around, context, hidden)
    for cut in range(max(0, start - 1)):
        assert assemble(history[cut:], around, context, hidden) == whole


def test_steps_that_come_push_out_the_oldest_turns() -> None:
    context = Context.budget(5, one)
    assert shown(talk(2), context) == ["q1", "a1", "q2", "a2", "q"]
    assert shown(talk(2), context, steps=(assistant("s"),)) == ["q2", "a2", "q", "s"]
