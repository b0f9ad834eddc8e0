"""Repair makes any sequence of items well formed and reports why; fitting places a turn after another."""

from __future__ import annotations

import os
from itertools import islice, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import (
    CALL_IDS,
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
from turnledger.errors import InvalidInput
from turnledger.model.item import NOT_ANSWERED, Item, calls_left_open, message, open_calls
from turnledger.model.messages.repair import PendingPolicy, RepairAction, RepairChange, fit_turn, fits, repair

BLANK = Item.of({"role": "assistant", "content": [{"type": "output_text", "text": " \n"}]})
HOSTED = Item.of({"type": "web_search_call", "id": "ws", "call_id": "a"})
SYSTEM = Item.of({"role": "system", "content": "Be kind."})


def places(items: list[Item], **options: Any) -> list[int]:
    """The original places of the kept items, in their order."""
    of_object = {id(item): place for place, item in enumerate(items)}
    assert len(of_object) == len(items), "each place needs an object of its own"
    return [of_object[id(item)] for item in repair(items, **options).items]


def fresh(*items: Item) -> list[Item]:
    """The items, each an object of its own."""
    return [Item(item.raw) for item in items]


# Generated histories.

nasty_items = st.one_of(
    st.builds(call, st.sampled_from(CALL_IDS), st.sampled_from(CALL_TYPES)),
    st.builds(result, st.sampled_from(CALL_IDS), st.sampled_from(CALL_TYPES)),
    st.builds(call, st.just("a")),
    st.builds(result, st.just("a")),
    st.builds(reasoning),
    st.sampled_from(
        [
            user(),
            user(" "),
            SYSTEM,
            assistant(),
            assistant(""),
            BLANK,
            HOSTED,
            Item.of({"role": "assistant", "content": []}),
            Item.of({"role": "assistant", "content": [{"type": "output_audio", "audio": {"id": "x"}}]}),
            Item.of({"type": "some.day"}),
            Item.of({"type": "note", "role": "user"}),
            Item.of({"type": "some_new_call"}),
            Item.of({"type": "web_search_call_output", "call_id": "a", "output": ""}),
        ]
    ),
)
nasty = st.lists(nasty_items, max_size=20).map(lambda items: fresh(*items))
pendings = st.sampled_from(PendingPolicy)


def is_from_others(item: Item) -> bool:
    return not item.is_result and item.role not in (None, "assistant")


def is_empty(item: Item) -> bool:
    return item.role == "assistant" and item.is_blank


def pairs(items: list[Item]) -> list[tuple[Item, Item]]:
    """The calls and results of a well-formed history."""
    waiting: dict[str | None, Item] = {}
    found = []
    for item in items:
        if item.is_call:
            waiting[item.call_id] = item
        elif item.is_result:
            found.append((waiting.pop(item.call_id), item))
    return found


def check_repair(items: list[Item], pending: PendingPolicy) -> None:
    """Everything that repair promises of these items."""
    repaired = repair(items, pending=pending)
    kept = list(repaired.items)

    # Well formed: pending calls are at the end.
    still_open = open_calls(kept)
    last = max((place for place, item in enumerate(kept) if is_from_others(item)), default=-1)
    assert all(any(each is item for item in kept[last + 1 :]) for each in still_open)
    assert pending is PendingPolicy.KEEP or not still_open

    # The same objects, each once; each change is reported, and nothing else has changed.
    kept_places = places(items, pending=pending)
    actions = {change.place: change.action for change in repaired.changes}
    dropped = {place for place, action in actions.items() if action is RepairAction.DROPPED}
    moved = {place for place, action in actions.items() if action is RepairAction.MOVED}
    assert [change.place for change in repaired.changes] == sorted(actions)
    assert sorted(kept_places) == [place for place in range(len(items)) if place not in dropped]
    assert [place for place in kept_places if place not in moved] == [
        place for place in range(len(items)) if place not in actions
    ]
    assert all(change.why.endswith(".") for change in repaired.changes)

    # Only what can be broken is touched, and only results move: to where their call is.
    assert all(
        item.is_call or item.is_result or item.is_reasoning or is_empty(item)
        for item in (items[place] for place in dropped)
    )
    assert not any(is_empty(item) for item in kept)
    for place in moved:
        before = kept[kept_places.index(place) - 1]
        assert (before.call_id, f"{before.type}_output") == (items[place].call_id, items[place].type)
    for call_item, answer in pairs(kept):
        assert kept_places[_at(kept, call_item)] < kept_places[_at(kept, answer)]

    check_reasoning(items, kept)

    # Done once, it is done.
    again = repair(kept, pending=pending)
    assert [id(item) for item in again.items] == [id(item) for item in kept]
    assert again.changes == ()


def _at(items: list[Item], wanted: Item) -> int:
    return next(place for place, item in enumerate(items) if item is wanted)


def check_reasoning(items: list[Item], kept: list[Item]) -> None:
    """Reasoning stands before what it led to in the original, or one of the calls made together with that."""
    for place, item in enumerate(kept):
        if item.is_reasoning:
            follower = next(each for each in kept[place:] if not each.is_reasoning)
            after = [each for each in items[_at(items, item) :] if not is_empty(each)]
            while after[0].is_reasoning or after[0].is_result:
                after.pop(0)
            led_to = [after[0]]
            while led_to[-1].is_call and len(after) > len(led_to) and after[len(led_to)].is_call:
                led_to.append(after[len(led_to)])
            assert any(follower is each for each in led_to)


@repeatable
@given(nasty, pendings)
def test_repair_of_any_items_gives_a_well_formed_history(items: list[Item], pending: PendingPolicy) -> None:
    check_repair(items, pending)


EVERY = 1 if "MODEL_EXAMPLES" in os.environ else 7
"""Each history of so many is tried."""


@pytest.mark.parametrize("pending", PendingPolicy)
def test_repair_of_every_short_history_gives_a_well_formed_history(pending: PendingPolicy) -> None:
    alphabet = (call(), result(), call("b"), result("b"), reasoning(), user(), assistant(), assistant(""))
    for length in range(5):
        for items in islice(product(alphabet, repeat=length), 0, None, EVERY if length == 4 else 1):
            check_repair(fresh(*items), pending)


@pytest.mark.parametrize("pending", PendingPolicy)
def test_repair_of_every_mix_of_one_call_id_gives_a_well_formed_history(pending: PendingPolicy) -> None:
    alphabet = (call(), result(), call(type="shell_call"), result(type="shell_call"), reasoning(), user())
    for items in islice(product(alphabet, repeat=5), 0, None, EVERY):
        check_repair(fresh(*items), pending)


@repeatable
@given(histories)
def test_repair_of_a_well_formed_history_drops_only_unanswered_calls(items: list[Item]) -> None:
    unanswered = open_calls(items)
    last_word = max((place for place, item in enumerate(items) if is_from_others(item)), default=-1)
    lost = [
        place
        for place, item in enumerate(items)
        if place <= last_word and any(item is each for each in unanswered)
    ]
    repaired = repair(items)
    calls_lost = [change.place for change in repaired.changes if items[change.place].is_call]
    assert calls_lost == lost
    assert all(items[change.place].is_reasoning for change in repaired.changes if change.place not in lost)
    if not lost:
        assert repaired.items == tuple(items)


@repeatable
@given(nasty)
def test_repair_keeps_a_pair_with_a_unique_call_id(items: list[Item]) -> None:
    items = [*items[:3], call("mine"), *items[3:7], result("mine"), *items[7:]]
    stayed = repair(items).items
    assert call("mine") in stayed
    assert result("mine") in stayed


# One by one.


def role_item(role: str, *parts: dict[str, Any]) -> Item:
    return Item.of({"role": role, "content": list(parts)})


@pytest.mark.parametrize(
    "items",
    [
        [],
        [user(), reasoning(), call("a"), call("b"), result("b"), result("a"), HOSTED, assistant(), user()],
        [call("a"), call("b"), result("b"), user(), assistant(), result("a")],
        [role_item("assistant", {"type": "refusal", "refusal": "No."})],
        [role_item("assistant", {"type": "output_audio", "audio": {"id": "x"}})],
        [role_item("system"), user(" "), assistant()],
        [HOSTED, Item.of({"type": "some.day"}), reasoning(), Item.of({"type": "some_new_call"})],
    ],
    ids=["nothing", "all kinds", "a late result", "refusal", "audio", "blank of others", "unknown types"],
)
def test_repair_leaves_a_sound_history_unchanged(items: list[Item]) -> None:
    repaired = repair(iter(items))
    assert (repaired.items, repaired.changes) == (tuple(items), ())


DROPPED, MOVED = RepairAction.DROPPED, RepairAction.MOVED


@pytest.mark.parametrize(
    ("items", "left", "changes"),
    [
        (
            [user(), reasoning(), call("a"), user("Well?"), assistant()],
            [0, 3, 4],
            [
                (1, DROPPED, "What this reasoning led to is not there."),
                (2, DROPPED, "This function_call of the id a has no result."),
            ],
        ),
        (
            [user(), result("a"), assistant()],
            [0, 2],
            [(1, DROPPED, "No call of the id a stands before this result.")],
        ),
        (
            [call(), result(output="1"), assistant(), result(output="2")],
            [0, 1, 2],
            [(3, DROPPED, "The call a has a result already.")],
        ),
        (
            [call(), result(type="shell_call"), result(), user()],
            [0, 2, 3],
            [(1, DROPPED, "This result for a is a shell_call_output, the call a function_call.")],
        ),
        (
            [reasoning(), call(name="x"), call(name="y"), result(output="1"), result(output="2"), user()],
            [0, 1, 3, 2, 4, 5],
            [(3, MOVED, "Another call uses the id a before this result.")],
        ),
        (
            [call("a"), reasoning(), result("a"), call("b"), result("b")],
            [0, 2, 1, 3, 4],
            [(2, MOVED, "This result stands between reasoning and what that led to.")],
        ),
    ],
    ids=["unanswered", "stray", "second result", "another type", "one id at once", "within reasoning"],
)
def test_repair_reports_what_it_drops_and_moves(
    items: list[Item], left: list[int], changes: list[tuple[int, RepairAction, str]]
) -> None:
    assert places(items) == left
    assert repair(items).changes == tuple(RepairChange(*change) for change in changes)


@pytest.mark.parametrize(
    ("items", "left"),
    [
        ([result(), call(), user()], [2]),
        ([call(), result(type="shell_call"), user()], [2]),
        # Reasoning stays with those of the parallel calls that have results.
        ([reasoning(), call("a"), call("b"), result("b"), user()], [0, 2, 3, 4]),
        ([reasoning(), call("b"), call("a"), result("b"), user()], [0, 1, 3, 4]),
        # Models refuse reasoning before another item than its own as they refuse it before none.
        ([reasoning(), call("a"), assistant("Something else."), user()], [2, 3]),
        ([reasoning("1"), call("a"), reasoning("2"), call("b"), result("b"), user()], [2, 3, 4, 5]),
        ([reasoning(), call("a"), result("a", "shell_call"), call("b"), result("b"), user()], [3, 4, 5]),
        ([reasoning(), assistant(""), call(), result()], [0, 2, 3]),
        ([call("a"), reasoning(), result("a"), user()], [0, 2, 3]),
        # The first call was cut off; the results are the second one's, the last of them sent twice.
        ([call(id="1"), user(), call(id="2"), result(output="1"), result(output="2"), user()], [1, 2, 3, 5]),
        ([call(), call(type="shell_call"), result(type="shell_call"), result(), user()], [0, 3, 1, 2, 4]),
        # Pending calls stay at the end only, and of those with one id the last.
        ([call("a"), user()], [1]),
        ([call("a"), user(" ")], [1]),
        ([call("a"), SYSTEM], [1]),
        ([call(name="x"), call(name="y")], [1]),
        ([call(name="x"), result(), call(name="y")], [0, 1, 2]),
        ([call(name="x"), call(name="y"), result()], [0, 2, 1]),
    ],
)
def test_repair_keeps_these_items(items: list[Item], left: list[int]) -> None:
    assert places(fresh(*items)) == left


@pytest.mark.parametrize("after", [[], [user()], [SYSTEM], [assistant(""), user()]])
def test_repair_drops_reasoning_without_a_following_item(after: list[Item]) -> None:
    items = fresh(assistant(), reasoning("1"), reasoning("2"), *after)
    assert [change.place for change in repair(items).changes][:2] == [1, 2]


def test_repair_keeps_pending_calls_at_the_end_unless_set_to_drop_them() -> None:
    items = [user(), reasoning(), call("a"), call("b"), result("a"), assistant("One moment.")]
    assert repair(items).changes == ()
    assert places(items, pending="drop") == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("content", ["", " \n", [], [{"type": "output_text", "text": ""}]])
def test_repair_drops_an_empty_assistant_message(content: Any) -> None:
    empty = Item.of({"role": "assistant", "content": content, "status": "incomplete"})
    items = [user(), empty, user("Still there?")]
    assert places(items) == [0, 2]
    assert repair(items).changes == (RepairChange(1, DROPPED, "This assistant message says nothing."),)


def test_repair_of_a_long_history_takes_linear_time() -> None:
    # Quadratic work would not end within the time limit of a test.
    parallel = [*[call()] * 60_000, *[result()] * 60_000]
    repaired = repair(parallel)
    assert len(repaired.items) == 120_000
    assert open_calls(repaired.items) == ()


def test_repair_refuses_an_unknown_pending_option() -> None:
    with pytest.raises(InvalidInput, match="answer"):
        repair([], pending="answer")


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


def test_fitted_turn_that_already_fits_is_unchanged() -> None:
    fit = fit_turn([CALL], [RESULT, HELLO], [ANSWER])
    assert (fit.input, fit.output, fit.changes) == ((RESULT, HELLO), (ANSWER,), ())


def test_fitted_turn_closes_an_unanswered_call() -> None:
    fit = fit_turn([CALL], [HELLO], [ANSWER])
    assert [item.fields.get("output") for item in fit.input] == [NOT_ANSWERED, None]
    assert len(fit.changes) == 1


def test_fitted_turn_without_input_closes_an_unanswered_call() -> None:
    fit = fit_turn([CALL], [], [ANSWER])
    assert fit.input[0].fields["output"] == NOT_ANSWERED
    assert fit.output == (ANSWER,)


def test_fitted_turn_drops_a_stray_result() -> None:
    fit = fit_turn([], [HELLO], [RESULT, ANSWER])
    assert (fit.input, fit.output) == ((HELLO,), (ANSWER,))
    assert fit.changes[0].startswith("Item 1 was dropped")


def test_fitted_turn_of_stray_results_is_empty() -> None:
    assert fit_turn([], [RESULT], []).items == ()


@repeatable
@given(st.lists(ITEMS, max_size=8), st.lists(ITEMS, max_size=8), st.lists(ITEMS, max_size=8))
def test_fitted_turn_of_any_items_is_well_formed_and_stable(
    before: list[Item], input: list[Item], output: list[Item]
) -> None:
    pending = calls_left_open(fit_turn([], before, []).items)
    fit = fit_turn(pending, input, output)
    if fit.items:
        assert fits(pending, fit.items)
        open_calls((*pending, *fit.items))
    again = fit_turn(pending, fit.input, fit.output)
    if fit.items:
        assert (again.items, again.changes) == (fit.items, ())


@pytest.mark.parametrize("many", [100, 400])
def test_fitting_many_pending_calls_takes_linear_time(many: int) -> None:
    calls = [call(f"c{number}") for number in range(many)]
    results = [*(result(f"c{number}") for number in reversed(range(many))), user()]
    assert looks(lambda: fit_turn(calls, [user()], [])) < 40 * many
    assert looks(lambda: fit_turn([], [user()], calls)) < 40 * many
    assert looks(lambda: fit_turn(calls, results, [])) < 40 * many
