"""The context of a turn is well formed under every limit and flag, and reads no more than it shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import count
from random import Random
from typing import Any
from unittest.mock import AsyncMock, patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.engine.stage import generated
from tests.unit.model.shapes import assistant, call, histories, reasoning, result, some_id, turn, user
from turnledger import Chat, Ledger
from turnledger.engine.history import context as contexts
from turnledger.engine.history import history
from turnledger.engine.history.context import (
    ALL,
    MEDIA_TOKENS,
    Context,
    ContextParts,
    assemble,
    check_primer,
    estimate,
    first_needed,
    first_shown,
)
from turnledger.engine.history.history import ENTRY_BYTES, BranchCache, History, TurnsRequest, encode_messages
from turnledger.engine.ports import Operation, Request, Result
from turnledger.engine.turn import snapshot
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.engine.turn.snapshot import FIRST_PAGE
from turnledger.errors import InvalidInput, MalformedItems, StoreCorrupt
from turnledger.model.flags import HiddenPlaces, without_hidden
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.item import Item, message, open_calls
from turnledger.model.messages.messages import messages_of
from turnledger.model.turn import Turn, TurnKind
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.gates import GatedStore

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
    history: Sequence[Turn],
    context: Context = ALL,
    hidden: HiddenPlaces | None = None,
    **around: tuple[Item, ...],
) -> list[str]:
    return texts(assemble(history, ContextParts(**{"input": (user("q"),), **around}), context, hidden or {}))


# Policies.


def test_context_orders_instructions_primer_history_input_and_steps() -> None:
    seen = shown(
        talk(2),
        instructions=(SYSTEM,),
        primer=(user("p"), assistant("r")),
        steps=(assistant("s"), reasoning()),
    )
    assert seen == ["Be brief.", "p", "r", "q1", "a1", "q2", "a2", "q", "s"]


@pytest.mark.parametrize(("turns", "first"), [(0, 4), (1, 3), (3, 1), (9, 1)])
def test_context_last_shows_that_many_turns(turns: int, first: int) -> None:
    expected = [text for number in range(first, 4) for text in (f"q{number}", f"a{number}")]
    assert shown(talk(3), Context.last(turns)) == [*expected, "q"]


@pytest.mark.parametrize(
    ("tokens", "turns"), [(0, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2), (7, 3), (99, 3)]
)
def test_context_budget_is_filled_with_whole_turns(tokens: int, turns: int) -> None:
    assert shown(talk(3), Context.budget(tokens, one)) == shown(talk(3), Context.last(turns))


def test_context_budget_counts_fixed_items_and_shows_them_even_beyond_it() -> None:
    around = {"instructions": (SYSTEM,), "primer": (user("p"), assistant("r")), "steps": (assistant("s"),)}
    assert shown(talk(2), Context.budget(6, one), **around) == ["Be brief.", "p", "r", "q", "s"]
    assert shown(talk(2), Context.budget(7, one), **around)[3:5] == ["q2", "a2"]
    assert shown(talk(2), Context.budget(0, one), **around) == ["Be brief.", "p", "r", "q", "s"]


def test_context_budget_ends_at_the_first_turn_that_does_not_fit() -> None:
    history = talk(3)
    history[1] = turn(2, output=[assistant(), assistant(), assistant()])
    assert shown(history, Context.budget(6, one)) == ["q3", "a3", "q"]


def test_token_estimate_is_a_quarter_of_the_bytes_rounded_up() -> None:
    assert estimate(Item(b'{"type":"n"}')) == 3
    assert estimate(Item(b'{"type":"no"}')) == 4


@pytest.mark.parametrize(
    "part",
    [
        b'{"type":"input_image","image_url":"data:image/png;base64,%b"}',
        b'{"type":"image_url","image_url":{"url": "data:image/png;base64,%b"}}',
        b'{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,%b"}',
        b'{"type":"input_audio","input_audio":{"data":"%b","format":"wav"}}',
    ],
)
def test_token_estimate_of_media_does_not_depend_on_their_bytes(part: bytes) -> None:
    def tokens(size: int, parts: int = 1) -> int:
        content = b",".join([part % (b"iVBORw0KGgo" * size)] * parts)
        return estimate(Item(b'{"type":"message","role":"user","content":[%b]}' % content))

    assert tokens(1_000_000) == tokens(10_000)
    assert MEDIA_TOKENS < tokens(10_000) < MEDIA_TOKENS + 100
    assert tokens(10_000, parts=3) > 3 * MEDIA_TOKENS
    assert tokens(10) < 100


def test_token_estimate_of_a_long_text_counts_all_of_it() -> None:
    text = b'{"type":"message","role":"user","content":[{"type":"input_text","text":"%b"}]}' % (
        b"ab" * 50_000
    )
    assert estimate(Item(text)) > 25_000


def test_context_with_a_negative_number_is_refused() -> None:
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


def test_context_last_includes_the_turn_whose_calls_are_answered() -> None:
    assert shown(LOOP, Context.last(1)) == ["reasoning", "function_call", "function_call_output", "a3", "q"]
    assert shown(LOOP, Context.last(2))[0] == "q1"


def test_context_budget_leaves_out_a_call_and_its_result_together() -> None:
    assert shown(LOOP, Context.budget(3, one)) == ["a3", "q"]


def test_context_always_shows_the_calls_that_the_input_answers() -> None:
    seen = shown(LOOP[:2], Context.last(0), input=(result("a"),))
    assert seen == ["reasoning", "function_call", "function_call_output"]


STEPS = [
    turn(1, input=[user("earlier")], output=[assistant("a1")]),
    turn(2, input=[user("task")], output=[call("a")]),
    turn(3, input=[result("a")], output=[call("b")]),
    turn(4, input=[result("b")], output=[call("c")]),
]


@pytest.mark.parametrize(
    ("tokens", "first", "expected"),
    [
        (0, 1, ["task", "function_call", "function_call_output"]),
        (5, 1, ["task", "function_call", "function_call_output"]),
        (6, 1, ["task", "function_call", "function_call_output", "function_call", "function_call_output"]),
        (7, 1, [*["task"], *["function_call", "function_call_output"] * 3]),
        (9, 0, ["earlier", "a1", "task", *["function_call", "function_call_output"] * 3]),
    ],
)
def test_context_budget_shows_the_question_that_led_to_the_results(
    tokens: int, first: int, expected: list[str]
) -> None:
    context, input = Context.budget(tokens, one), (result("c"),)
    assert shown(STEPS, context, input=input) == expected
    assert first_needed(STEPS, ContextParts(input=input), context, {}) == first


def test_context_budget_shows_no_question_that_is_too_many_steps_away() -> None:
    with patch.object(contexts, "MOST_STEPS", 3):
        assert shown(STEPS, Context.budget(0, one), input=(result("c"),))[0] == "task"
    with patch.object(contexts, "MOST_STEPS", 2):
        assert shown(STEPS, Context.budget(0, one), input=(result("c"),))[0] == "function_call"


def test_context_shows_no_question_that_the_policy_excludes_or_the_input_replaces() -> None:
    loop = ["function_call", "function_call_output"]
    assert shown(STEPS, Context(turns=1, tokens=9, count=one), input=(result("c"),)) == loop * 2
    assert shown(STEPS, Context.budget(0, one), input=(result("c"), user("q"))) == [*loop, "q"]
    assert shown(STEPS, Context.budget(0, one), {STEPS[1].id: {0}}, input=(result("c"),)) == loop


def test_context_without_a_hidden_call_leaves_out_its_new_result() -> None:
    hidden = {LOOP[1].id: {2}}
    seen = shown(LOOP[:2], ALL, hidden, input=(result("a"), user("q")))
    assert seen == ["q1", "reasoning", "function_call", "function_call_output", "q"]
    assert shown(LOOP[:2], Context.last(0), hidden, input=(result("a"), user("q"))) == ["q"]


def test_context_budget_does_not_count_hidden_items() -> None:
    history = talk(3)
    assert shown(history, Context.budget(3, one), {history[2].id: {0, 1}}) == ["q2", "a2", "q"]


# Primer.


@pytest.mark.parametrize(
    "items",
    [[call()], [result()], [user(), reasoning()], [reasoning(), user()], [call(), call(), result()]],
    ids=["open", "stray", "thinking", "no answer", "reused"],
)
def test_primer_that_is_not_well_formed_is_refused(items: list[Item]) -> None:
    with pytest.raises(MalformedItems):
        check_primer(items)


def test_primer_with_every_call_answered_is_accepted() -> None:
    check_primer([user(), reasoning(), call(), result(), assistant()])


# Any history.


@st.composite
def conversations(draw: st.DrawFn) -> list[Turn]:
    """Turns as the engine makes them: each answers all calls that the one before left open."""
    numbers, pending, made = count(1), (), []
    for _ in range(draw(st.integers(0, 5))):
        output = [item for item in draw(histories) if not item.is_user_message]
        output = list(_from_a_model(output)) or [assistant()]
        answers = [result(each.call_id or "", each.type) for each in pending]
        questions = [user("go on")] if not answers or draw(st.booleans()) else []
        made.append(turn(next(numbers), input=[*answers, *questions], output=output))
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


def hidden_in(history: list[Turn], chosen: set[tuple[int, int]]) -> HiddenPlaces:
    hidden: dict[object, set[int]] = {}
    for at, place in chosen:
        if at < len(history) and place < len(history[at].items):
            hidden.setdefault(history[at].id, set()).add(place)
    return hidden  # type: ignore[return-value]


def around_of(history: list[Turn], steps: Sequence[Item], *, asks: bool = True) -> ContextParts:
    pending = open_calls([item for each in history for item in each.items])
    input = [result(each.call_id or "", each.type) for each in pending]
    if asks or not input:
        input.append(user("q"))
    return ContextParts((SYSTEM,), (user("p"), assistant("r")), tuple(input), tuple(steps))


def question_before(parts: Sequence[Sequence[Item]], start: int, context: Context) -> tuple[Item, ...]:
    """Return the question that a budget shows of the turns before `start`, for the input at the end."""
    for place in range(len(parts) - 1, -1, -1):
        asked = tuple(item for item in parts[place] if item.is_user_message)
        if asked or not (parts[place][:1] and parts[place][0].is_result):
            return asked if place < start and context.turns is None else ()
    return ()


class Unread(list[Turn]):
    """A history that must not be read from its beginning."""

    def __iter__(self) -> Iterator[Turn]:
        raise AssertionError


def test_context_reduced_to_a_number_reads_only_the_last_turns_of_a_long_history() -> None:
    found = snapshot.Snapshot(Unread(talk(1000))).reduced((user("q"),), (), 200)
    assert found is not None
    less, reduced = found
    assert 1 < reduced.turns < 10
    assert len(less.shown((user("q"),), ())) == 2 * reduced.turns + 1


@given(conversations(), policies, places, st.integers(0, 900))
@settings(generated)
def test_reduced_context_is_the_budget_within_the_policy(
    history: list[Turn], context: Context, chosen: set[tuple[int, int]], budget: int
) -> None:
    around, hidden = around_of(history, []), hidden_in(history, chosen)
    fixed = around.instructions, around.primer
    with patch.object(snapshot, "FIRST_PAGE", 1):  # as in a history that is longer than a page
        found = snapshot.Snapshot(history, *fixed, context, hidden).reduced(around.input, (), budget)
    left = budget if context.tokens is None else min(budget, context.tokens)
    expected = replace(context, tokens=left)
    start = first_shown(history, around, expected, hidden)
    assert (found is None) is (start == first_shown(history, around, context, hidden))
    if found is not None:
        less, reduced = found
        assert less.shown(around.input, ()) == assemble(history, around, expected, hidden)
        assert reduced.turns == len(history) - start


@settings(generated, max_examples=2 * generated.max_examples)
@given(conversations(), histories, policies, places, st.booleans())
def test_context_is_well_formed_and_complete_for_any_history(
    history: list[Turn], draft: list[Item], context: Context, chosen: set[tuple[int, int]], asks: bool
) -> None:
    steps = _from_a_model([item for item in draft if not item.is_user_message])
    around, hidden = around_of(history, steps, asks=asks), hidden_in(history, chosen)
    seen = assemble(history, around, context, hidden)
    assert open_calls(seen) == open_calls(steps)
    assert seen[:3] == (*around.instructions, *around.primer)
    parts = without_hidden(
        [*(each.items for each in history), (*around.input, *steps)],
        [*(hidden.get(each.id, ()) for each in history), ()],
    )
    whole = tuple(item for part in parts for item in part)
    assert seen[len(seen) - len(parts[-1]) :] == parts[-1]
    past = seen[3 : len(seen) - len(parts[-1])]
    if context is ALL:
        assert seen[3:] == whole
    # Of the turns before the first that is shown there is at most the question that led to the results in the
    # input, and of that one only answers are missing.
    start = first_shown(history, around, context, hidden)
    question = question_before(parts, start, context)
    assert past[: len(question)] == question
    past = past[len(question) :]
    rest = tuple(item for part in parts[start:-1] for item in part)
    missing = len(rest) - len(past)
    assert past == rest[missing:]
    assert all(item.is_result for item in rest[:missing])
    assert missing == 0 or start > 0
    if context.turns is not None:
        assert len(history) - start <= context.turns + 1
    if context.tokens is not None:
        fixed = context.count_all((*around.instructions, *around.primer, *parts[-1]))
        needed = parts[-2] if parts[-1][:1] and parts[-1][0].is_result else ()
        left = context.tokens - fixed - context.count_all(question)
        assert context.count_all(past) <= max(left, context.count_all(needed))


@settings(generated, max_examples=2 * generated.max_examples)
@given(conversations(), policies, places, st.booleans())
def test_context_assembled_from_the_end_of_a_history_equals_that_of_the_whole(
    history: list[Turn], context: Context, chosen: set[tuple[int, int]], asks: bool
) -> None:
    around, hidden = around_of(history, (), asks=asks), hidden_in(history, chosen)
    start = first_needed(history, around, context, hidden)
    whole = assemble(history, around, context, hidden)
    for cut in range(max(0, start - 1)):
        assert assemble(history[cut:], around, context, hidden) == whole


@settings(generated, max_examples=2 * generated.max_examples)
@given(
    conversations(),
    policies,
    places,
    st.lists(st.sampled_from([assistant("s"), assistant()]), max_size=2),
    st.booleans(),
)
def test_json_of_a_limited_context_equals_its_messages(
    turns: list[Turn], context: Context, chosen: set[tuple[int, int]], steps: list[Item], asks: bool
) -> None:
    around = around_of(turns, steps, asks=asks)
    made = snapshot.Snapshot(
        History(turns), around.instructions, around.primer, context, hidden_in(turns, chosen)
    )
    expected = messages_of(assemble(turns, around, context, made.hidden))
    for _ in range(2):
        assert msgspec.json.decode(made.limited_json(around.input, around.steps)) == expected


async def test_limited_context_decodes_each_turn_once(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    unpack = history._unpack
    monkeypatch.setattr(history, "_unpack", lambda *given: counted.append(1) or unpack(*given))
    for number in range(8):
        async with chat.turn(f"q{number}", context=Context.budget(90)) as turn:
            turn.messages_json  # noqa: B018
            turn.emit("a")
    assert len(counted) <= 8


def test_context_budget_drops_the_oldest_turns_as_steps_are_added() -> None:
    context = Context.budget(5, one)
    assert shown(talk(2), context) == ["q1", "a1", "q2", "a2", "q"]
    assert shown(talk(2), context, steps=(assistant("s"),)) == ["q2", "a2", "q", "s"]


CALLS = (
    {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
    {"type": "message", "role": "assistant", "content": "Wait."},
    {"type": "function_call", "call_id": "b", "name": "look", "arguments": "{}"},
)


async def run_turn(chat: Chat, text: str) -> None:
    async with chat.turn(text) as turn:
        turn.emit(f"{text}, indeed")


def as_json(turn: RunningTurn) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = msgspec.json.decode(turn.messages_json)
    return made


async def test_messages_json_equals_messages(chat: Chat) -> None:
    for number in range(6):
        async with chat.turn(f"q{number}", instructions="Be brief." if number == 2 else None) as turn:
            assert as_json(turn) == turn.messages
            turn.emit(f"a{number}")


async def test_messages_json_places_results_after_their_call_in_the_turn_before(
    chat: Chat,
) -> None:
    await run_turn(chat, "q1")
    async with chat.turn("q2") as turn:
        assert as_json(turn) == turn.messages
        await turn.add(*CALLS)
    results = [{"type": "function_call_output", "call_id": id, "output": id} for id in "ba"]
    async with chat.turn(results) as turn:
        assert as_json(turn) == turn.messages
        turn.emit("done")
    async with chat.turn("q4") as turn:
        assert as_json(turn) == turn.messages
        turn.emit("a4")


@pytest.mark.parametrize("context", [ALL, Context.budget(10_000), Context(turns=9, tokens=10_000)])
async def test_messages_json_of_a_whole_history_encodes_each_turn_once(
    chat: Chat, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    made = history.encode_messages
    monkeypatch.setattr(history, "encode_messages", lambda items: counted.append(1) or made(items))
    for number in range(5):
        async with chat.turn(f"q{number}", context=context) as turn:
            assert as_json(turn) == turn.messages
            assert len(turn.messages) == 2 * number + 1
            turn.emit("a")
    assert len(counted) == 4


@pytest.mark.parametrize("tokens", range(40, 200, 7))
async def test_messages_json_within_any_budget_equals_messages(chat: Chat, tokens: int) -> None:
    for number in range(5):
        async with chat.turn(f"q{number}", context=Context.budget(tokens)) as turn:
            for _ in range(3):
                expected = assemble(
                    list(turn.history),
                    ContextParts((), (), turn.input, turn.steps),
                    Context.budget(tokens),
                    {},
                )
                assert list(turn.items) == list(expected)
                assert as_json(turn) == turn.messages
                await turn.add({"type": "message", "role": "assistant", "content": "a step"})


async def test_messages_json_of_a_limited_context_with_steps_equals_messages(chat: Chat) -> None:
    await run_turn(chat, "q1")
    await run_turn(chat, "q2")
    async with chat.turn("q3", context=Context.last(1)) as turn:
        assert as_json(turn) == turn.messages
        assert len(turn.messages) == 3
        await turn.add({"type": "message", "role": "assistant", "content": "first"})
        assert as_json(turn) == turn.messages


async def test_messages_json_leaves_out_items_hidden_from_the_model(chat: Chat) -> None:
    await run_turn(chat, "q1")
    async with chat.turn("q2") as turn:
        turn.messages_json  # noqa: B018
        turn.emit("a2")
    (first, _) = await chat.turns()
    await chat.flag(first.id, 0, to_model=False)
    async with chat.turn("q3") as turn:
        assert as_json(turn) == turn.messages
        assert turn.messages[0]["role"] == "assistant"
        turn.emit("a3")


LIMITS = (ALL, Context.last(2), Context.budget(60), Context.budget(150), Context(turns=3, tokens=400))


@pytest.mark.parametrize("seed", range(10))
async def test_messages_json_of_a_chat_that_changes_equals_messages(chat: Chat, seed: int) -> None:
    chance = Random(seed)
    for number in range(40):
        turns, action, context = await chat.turns(), chance.randrange(9), chance.choice(LIMITS)
        if turns and action == 0:
            await chat.undo()
        elif turns and action == 1 and seed % 2:
            await chat.flag(chance.choice(turns).id, chance.randrange(2), to_model=chance.random() < 0.7)
        text = f"q{number}" * chance.randrange(1, 20)
        changes = turns and action == 2
        async with (
            chat.edit(chance.choice(turns).id, text, context=context)
            if changes
            else chat.turn(text, context=context)
        ) as turn:
            assert as_json(turn) == turn.messages
            if action == 3:
                await turn.add({"type": "message", "role": "assistant", "content": "a step"})
                assert as_json(turn) == turn.messages
            turn.emit(f"a{number}" * chance.randrange(1, 20))


@pytest.mark.parametrize("context", [None, Context.last(3), Context.budget(200), Context.budget(10_000)])
@pytest.mark.parametrize("flagged", [None, 0, 2])
async def test_messages_json_behind_a_changed_preamble_equals_messages(
    chat: Chat, context: Context | None, flagged: int | None
) -> None:
    sent: list[dict[str, Any]] = []
    options: dict[str, Any] = {} if context is None else {"context": context}
    for number in range(6):
        preamble = [
            {"role": "user", "content": f"The time is {number}."},
            {"role": "assistant", "content": "OK"},
        ]
        sent.append({"role": "user", "content": f"q{number}"})
        async with chat.resent([*preamble, *sent], **options) as turn:
            assert as_json(turn) == turn.messages
            contents = [each["content"] for each in turn.messages]
            assert [each for each in contents if "time" in each] == [f"The time is {number}."]
            turn.emit(f"a{number}")
        sent.append({"role": "assistant", "content": f"a{number}"})
        if number == 3 and flagged is not None:
            await chat.flag((await chat.turns())[flagged].id, 1 if flagged else 3, to_model=False)
    assert len(await chat.branches()) == 1


def test_pieces_that_a_growing_chat_no_longer_shows_are_dropped() -> None:
    grown = History()
    for each in talk(50):
        grown = grown.followed_by([each])
        shown = grown.last_pieces(0, 60)
        assert shown is not None
        assert shown == [encode_messages(one.items) for one in grown[len(grown) - len(shown) :]]
        pieces = grown._node.pieces
        assert pieces is not None
        assert len(pieces.chat_json) <= 2 * len(shown) + 1
        assert grown.memory == sum(len(one.body) for one in grown) + pieces.size
    everything = grown.last_pieces(0, 10**6)
    assert everything == [encode_messages(one.items) for one in grown]


def test_pieces_of_a_chat_that_all_fits_are_not_copied_with_each_turn() -> None:
    *first, last = talk(20)
    grown = History(first)
    assert grown.last_pieces(0, 10**6) is not None
    before = grown._node.pieces
    grown = grown.followed_by([last])
    after = grown._node.pieces
    assert before is not None
    assert after is not None
    assert after.chat_json is before.chat_json
    assert (before.end, after.end) == (19, 20)
    assert grown.last_pieces(18, 10**6) == [encode_messages(one.items) for one in grown[18:]]


@pytest.mark.parametrize("seed", range(20))
def test_pieces_of_lines_that_share_turns_equal_those_of_each_line_alone(seed: int) -> None:
    chance = Random(seed)
    lines = [History(talk(6))]
    for _ in range(40):
        line = chance.choice(lines)
        kept = line.first(chance.randrange(1, len(line) + 1))
        lines.append(kept.followed_by(chance.sample(talk(60), chance.randrange(4))))
        read = chance.choice(lines)
        oldest, tokens = chance.randrange(len(read)), chance.choice([0, 20, 60, 10**6])
        shown = read.last_pieces(oldest, tokens)
        assert shown == History(read).last_pieces(oldest, tokens)
        assert shown == [encode_messages(one.items) for one in read[len(read) - len(shown or ()) :]]


def test_history_is_encoded_in_a_thread_whenever_many_turns_are_not_known() -> None:
    grown, question = History(talk(2 * history.LONG)), (user("q"),)
    few, many = Context.budget(200), Context.budget(10**6)

    def is_quick(line: History, context: Context) -> bool:
        return snapshot.Snapshot(line, context=context).quick_json(question, ()) is not None

    for context, expected in [(few, False), (many, False), (few, True), (many, False), (many, True)]:
        assert is_quick(grown, context) is expected
        shown = snapshot.Snapshot(grown, context=context)
        assert shown.limited_json(question, ()) == shown.quick_json(question, ())
        assert is_quick(grown.first(len(grown) - 1).followed_by(talk(1)), context)
    assert is_quick(grown, Context.last(history.LONG))
    assert not is_quick(History(grown), Context.last(2 * history.LONG))


@pytest.mark.parametrize("reason", ["flag", "trimmed", "counter", "results", "input"])
def test_many_turns_that_are_not_shown_each_by_itself_are_decoded_in_a_thread(reason: str) -> None:
    turns, context, input = talk(2 * history.LONG), Context.budget(10**6), (user("q"),)
    turns[0] = turn(1, input=[user("The time is 1."), user("q1")], output=[assistant("a1")])
    if reason == "results":
        turns[1] = turn(2, input=[user("q2")], output=[call("c")])
        turns[2] = turn(3, input=[result("c")], output=[assistant("a3")])
    if reason == "input":
        turns[-1] = turn(len(turns), input=[user("q")], output=[call("c")])
        input = (result("c"),)
    grown = History(turns)
    snapshot.Snapshot(grown, context=context).limited_json(input, ())
    shown = snapshot.Snapshot(
        grown,
        context=replace(context, count=one) if reason == "counter" else context,
        hidden={turns[0].id: [0]} if reason in ("flag", "trimmed") else {},
        cut=turns[0] if reason == "trimmed" else None,
    )
    assert shown.quick_json(input, ()) is None
    assert len(msgspec.json.decode(shown.limited_json(input, ()))) > 2 * history.LONG
    assert replace(shown, context=replace(shown.context, turns=9)).quick_json(input, ()) is not None


async def test_messages_json_of_a_long_chat_with_a_hidden_item_is_read_in_a_thread(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "LONG", 3)
    to_thread = AsyncMock(wraps=asyncio.to_thread)
    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    for number in range(4):
        await run_turn(chat, f"q{number}")
    context = Context(turns=3, tokens=10**6)
    for is_flagged in (False, False, True):
        if is_flagged:
            await chat.flag((await chat.turns())[-1].id, 0, to_model=False)
        to_thread.reset_mock()
        async with chat.turn("q", context=context) as turn:
            assert msgspec.json.decode(await turn.read_messages_json()) == turn.messages
            assert len(turn.messages) == 7 - is_flagged
            turn.emit("a")
        assert to_thread.await_count == is_flagged


EMPTY = {"type": "message", "role": "assistant", "content": " "}
THOUGHT = {"type": "reasoning", "summary": []}
LOOK = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}


@pytest.mark.parametrize(
    ("output", "left"),
    [
        ([EMPTY], []),
        ([THOUGHT, EMPTY], []),
        ([THOUGHT, THOUGHT, EMPTY, EMPTY], []),
        ([{"type": "message", "role": "assistant", "content": "a1"}, THOUGHT, EMPTY], ["a1"]),
        ([THOUGHT, EMPTY, LOOK, result("c")], ["reasoning", LOOK["type"], result("c").type]),
    ],
)
@pytest.mark.parametrize("context", [ALL, Context.last(9), Context.budget(900)])
async def test_context_leaves_out_empty_answers_and_reasoning_that_led_to_them(
    chat: Chat, context: Context, output: list[dict[str, Any]], left: list[str]
) -> None:
    async with chat.turn("q1") as turn:
        await turn.add(*output)
    async with chat.turn("q2", context=context) as turn:
        assert texts(turn.items) == ["q1", *left, "q2"]
        assert as_json(turn) == turn.messages
        assert all(each.get("content") != " " for each in turn.messages)
        turn.emit("a2")
    assert list((await chat.turns())[0].output) == [Item.of(each) for each in output]


async def test_messages_json_of_an_edit_leaves_out_the_replaced_turns(chat: Chat) -> None:
    for number in range(4):
        async with chat.turn(f"q{number}") as turn:
            turn.messages_json  # noqa: B018
            turn.emit(f"a{number}")
    turns = await chat.turns()
    async with chat.edit(turns[2].id, "other") as turn:
        assert as_json(turn) == turn.messages
        assert "q2" not in str(turn.messages)
        turn.emit("b2")


async def test_messages_json_cache_is_bounded_and_evicts_the_least_recently_used(chat: Chat) -> None:
    for number in range(3):
        await run_turn(chat, f"q{number}")
    turns = await chat.turns()
    cache = BranchCache(ENTRY_BYTES + 400)
    encoded, rest = cache.chat_json_through(History(turns))
    assert (msgspec.json.decode(b"[" + encoded + b"]")[0]["content"], list(rest)) == ("q0", [])
    assert cache._bytes == ENTRY_BYTES + len(encoded)
    other = some_id(BranchId, 2)
    for number in range(2):
        cache.keep(other, History(turns[:number]))
    assert (cache._chat_json_ends, len(cache._entries)) == ({}, 1)


@pytest.mark.parametrize(
    "item",
    [
        {"type": "message", "role": "user", "content": "text"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "text"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "message", "role": "user", "content": "text", "name": "Ada"},
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "u"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"type": "message", "role": "user", "content": []},
    ],
)
def test_messages_json_of_an_item_equals_its_message(item: dict[str, Any]) -> None:
    items = (Item.of(item), message("assistant", "answer"))
    assert msgspec.json.decode(b"[" + encode_messages(items) + b"]") == messages_of(items)


def test_messages_json_joins_a_settled_turn_without_input_to_the_last_message() -> None:
    """The settled turn of an edit may have no input: then a call directly follows an answer."""
    turns = [
        Turn.of(
            id=some_id(TurnId, number),
            branch=some_id(BranchId, 1),
            number=number,
            parent=some_id(TurnId, number - 1) if number > 1 else None,
            kind=TurnKind.COMPLETED if question else TurnKind.SETTLED,
            created_at=1,
            committed_at=2,
            input=question,
            output=answer,
        )
        for number, question, answer in (
            (1, (user("q1"),), (assistant("a1"),)),
            (2, (), (call("a"), result("a"))),
            (3, (user("q3"),), (assistant("a3"),)),
        )
    ]
    whole = messages_of(item for turn in turns for item in turn.items)
    for known in ([], turns[:1], turns[:2]):
        histories = BranchCache(10_000)
        histories.chat_json_through(History(known))
        for later in turns[len(known) :]:
            histories.follow(later)
        encoded, rest = histories.chat_json_through(History(turns))
        assert (msgspec.json.decode(b"[" + encoded + b"]"), list(rest)) == (whole, [])


@pytest.fixture
async def counted(store: GatedStore) -> AsyncIterator[Chat]:
    async with await Ledger.over(store, clock=FakeClock(), random=Random(1)) as ledger:
        yield await ledger.conversation()


async def shown_to(counted: Chat, text: str, **options: object) -> list[str]:
    async with counted.turn(text, **options) as turn:  # type: ignore[arg-type]
        seen = [item.text for item in turn.items]
        turn.emit("a")
    return seen


async def test_turn_on_a_cached_history_reads_nothing_from_the_store(
    counted: Chat, store: GatedStore
) -> None:
    await shown_to(counted, "q")
    store.operations.clear()
    await shown_to(counted, "q")
    assert store.operations == ["begin", "commit"]


@pytest.mark.parametrize("context", [ALL, Context.last(0), Context.budget(10_000)])
async def test_instructions_in_force_are_not_read_again_on_a_cached_history(
    counted: Chat, store: GatedStore, context: Context
) -> None:
    await shown_to(counted, "q", instructions="Be brief.")
    store.operations.clear()
    assert (await shown_to(counted, "q", context=context))[0] == "Be brief."
    assert store.operations == ["begin", "commit"]


async def test_flags_are_read_once_after_each_change(counted: Chat, store: GatedStore) -> None:
    await shown_to(counted, "q1")
    turn = (await counted.turns())[0]
    await counted.flag(turn.id, 0, to_model=False)
    store.operations.clear()
    assert await shown_to(counted, "q2") == ["a", "q2"]
    assert await shown_to(counted, "q3") == ["a", "q2", "a", "q3"]
    assert await shown_to(counted, "q4", context=Context.last(2)) == ["q2", "a", "q3", "a", "q4"]
    assert store.operations.count("read_flags") == 1
    await counted.flag(turn.id, 1, to_model=False)
    assert await shown_to(counted, "q5", context=Context.last(9)) == ["q2", "a", "q3", "a", "q4", "a", "q5"]
    assert store.operations.count("read_flags") == 2


async def test_flag_set_to_its_current_value_causes_no_new_read(counted: Chat, store: GatedStore) -> None:
    await shown_to(counted, "q1")
    turn = (await counted.turns())[0]
    await counted.flag(turn.id, 0, to_model=False)
    await shown_to(counted, "q2")
    store.operations.clear()
    await counted.flag(turn.id, 0, to_model=False)
    assert await shown_to(counted, "q3") == ["a", "q2", "a", "q3"]
    assert "read_flags" not in store.operations


async def test_flags_of_another_owner_cause_no_new_read(counted: Chat, store: GatedStore) -> None:
    await shown_to(counted, "q")
    other = await Ledger(counted._process).for_owner("eve").conversation()
    await shown_to(other, "q")
    await other.flag((await other.turns())[0].id, to_model=False)
    store.operations.clear()
    assert await shown_to(counted, "q2") == ["q", "a", "q2"]
    assert store.operations == ["begin", "commit"]


LENGTH = 70


class Reading(MemoryStore):
    """Notes which turns are read."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.read_turns: list[int] = []

    async def read(self, operation: Operation[Request, Result], request: Request, owner: str) -> Result:
        result = await super().read(operation, request, owner)
        if isinstance(request, TurnsRequest):
            self.read_turns += [turn.number for turn in result]  # type: ignore[attr-defined]
        return result


@pytest.fixture
def reading(database: Database) -> Reading:
    return Reading(database)


@pytest.fixture
async def long_chat(database: Database, reading: Reading) -> AsyncIterator[Chat]:
    """A long conversation that was held in another process."""
    async with (
        await Ledger.over(MemoryStore(database), clock=FakeClock(), random=Random(1)) as other,
        await Ledger.over(reading, clock=FakeClock(), random=Random(2)) as ledger,
    ):
        made = await other.conversation()
        for number in range(1, LENGTH + 1):
            async with made.turn(f"q{number}", instructions="Be brief." if number == 3 else None) as turn:
                turn.emit(f"a{number}")
        yield await ledger.conversation(made.id)


@pytest.mark.parametrize("turns", [0, 1, 5, LENGTH - 1, LENGTH, LENGTH + 5])
async def test_context_last_reads_that_many_turns_and_one_more(
    long_chat: Chat, reading: Reading, turns: int
) -> None:
    async with long_chat.turn("q", context=Context.last(turns), instructions_once="") as turn:
        first = max(1, LENGTH - turns)
        assert reading.read_turns == list(range(first, LENGTH + 1))
        assert [each.number for each in turn.history] == reading.read_turns
        assert turn.number == LENGTH + 1
        turn.emit("a")


async def test_context_last_reads_the_turn_with_the_instructions_separately(
    long_chat: Chat, reading: Reading
) -> None:
    async with long_chat.turn("q", context=Context.last(1)) as turn:
        assert [item.text for item in turn.items] == ["Be brief.", f"q{LENGTH}", f"a{LENGTH}", "q"]
        assert sorted(reading.read_turns) == [3, LENGTH - 1, LENGTH]
        turn.emit("a")


@pytest.mark.parametrize(
    ("tokens", "pages"),
    [(0, 1), (10, 1), (2 * FIRST_PAGE - 3, 1), (2 * FIRST_PAGE + 1, 2), (90, 2), (100, 3), (999, 3)],
)
async def test_context_budget_is_read_page_by_page(
    long_chat: Chat, reading: Reading, tokens: int, pages: int
) -> None:
    async with long_chat.turn("q", context=Context.budget(tokens, one), instructions_once="") as turn:
        count = min(LENGTH, FIRST_PAGE * (2**pages - 1))
        assert len(reading.read_turns) == count
        assert [each.number for each in turn.history] == list(range(LENGTH - count + 1, LENGTH + 1))
        fitting = min(LENGTH, max(0, tokens - 1) // 2)
        assert len(turn.items) == 2 * fitting + 1
        turn.emit("a")


async def test_context_budget_does_not_count_a_result_hidden_by_a_call_on_an_earlier_page(
    database: Database,
) -> None:
    async with (
        await Ledger.over(MemoryStore(database), clock=FakeClock(), random=Random(1)) as other,
        await Ledger.over(MemoryStore(database), clock=FakeClock(), random=Random(2)) as ledger,
    ):
        long_chat = await other.conversation()
        async with long_chat.turn("q1") as turn:
            await turn.add(call("a"))
        async with long_chat.turn(result("a")) as answer:
            answer.emit("a2")
        for number in range(FIRST_PAGE - 1):
            async with long_chat.turn(f"q{number}") as more:
                more.emit("a")
        await long_chat.flag(turn.id, 1, to_model=False)
        context = Context.budget(1 + 2 * (FIRST_PAGE - 1) + 1, one)
        async with (await ledger.conversation(long_chat.id)).turn("q", context=context) as last:
            assert [item.text for item in last.items][:2] == ["a2", "q0"]
            last.emit("a")


async def test_context_budget_reads_back_to_the_question_on_an_earlier_page(database: Database) -> None:
    async with (
        await Ledger.over(MemoryStore(database), clock=FakeClock(), random=Random(1)) as other,
        await Ledger.over(MemoryStore(database), clock=FakeClock(), random=Random(2)) as ledger,
    ):
        loop = await other.conversation()
        async with loop.turn("the task") as turn:
            await turn.add(call("c0"))
        for number in range(FIRST_PAGE + 2):
            async with loop.turn(result(f"c{number}")) as step:
                await step.add(call(f"c{number + 1}"))
        for each in (other, ledger):  # one has the history in its cache
            chat = await each.conversation(loop.id)
            with pytest.raises(RuntimeError):
                async with chat.turn(result(f"c{FIRST_PAGE + 2}"), context=Context.budget(0, one)) as last:
                    assert texts(last.items) == ["the task", "function_call", "function_call_output"]
                    raise RuntimeError


async def test_limited_context_of_a_cached_history_reads_no_turns(long_chat: Chat, reading: Reading) -> None:
    async with long_chat.turn("q") as turn:
        turn.emit("a")
    reading.read_turns.clear()
    for context in (Context.last(2), Context.budget(10, one)):
        async with long_chat.turn("q", context=context) as turn:
            assert len(turn.history) == turn.number - 1
            turn.emit("a")
    assert set(reading.read_turns) <= {3}


async def test_limited_context_that_read_the_whole_history_is_cached(
    long_chat: Chat, reading: Reading
) -> None:
    async with long_chat.turn("q", context=Context.last(LENGTH)) as turn:
        turn.emit("a")
    reading.read_turns.clear()
    async with long_chat.turn("q") as turn:
        assert [each.number for each in turn.history] == list(range(1, LENGTH + 2))
        turn.emit("a")
    assert reading.read_turns == []


async def test_limited_context_that_read_a_part_is_not_cached_as_the_whole(long_chat: Chat) -> None:
    async with long_chat.turn("q", context=Context.last(2)) as turn:
        turn.emit("a")
    async with long_chat.turn("q") as turn:
        assert [each.number for each in turn.history] == list(range(1, LENGTH + 2))
        turn.emit("a")


@pytest.mark.parametrize("context", [Context.last(1), Context.budget(10, one)])
async def test_context_with_a_missing_turn_raises_store_corrupt(
    long_chat: Chat, database: Database, context: Context
) -> None:
    [branch] = database.branches.values()
    database.lines[branch.id].pop(LENGTH - 1)
    with pytest.raises(StoreCorrupt):
        async with long_chat.turn("q", context=context):
            pass


async def test_context_whose_last_turn_has_another_id_raises_store_corrupt(
    long_chat: Chat, database: Database
) -> None:
    [branch] = database.branches.values()
    line = database.lines[branch.id]
    line[LENGTH] = replace(line[LENGTH], id=line[1].id)
    with pytest.raises(StoreCorrupt):
        async with long_chat.turn("q", context=Context.last(1)):
            pass
