"""The branch cache: bounded, without forgotten turns, and never with those of another line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.engine.stage import chain, generated
from tests.unit.model.shapes import assistant, call, result, some_id, turn, user
from turnledger import Ledger
from turnledger.engine.conversations.resolve import Target
from turnledger.engine.history.history import ENTRY_BYTES, LINE_BYTES, BranchCache, History, LatestLine
from turnledger.engine.turn.resend import current, guess_line
from turnledger.model.conversation import Branch, Conversation, Stretch, Within
from turnledger.model.flags import Flags
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import Item
from turnledger.model.retention import ResetPolicy
from turnledger.model.turn import Turn
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.fake_clock import FakeClock

A, B, C = (some_id(BranchId, number) for number in (1, 2, 3))
TURNS = tuple(replace(turn, branch=A) for turn in chain(*range(1, 7)))
SIZE = len(TURNS[0].body)
FLAGS = {TURNS[3].id: {0: Flags(to_model=False)}}


def room(branches: int, turns: int) -> BranchCache:
    """A cache for so many branches with so many turns in all."""
    return BranchCache(branches * ENTRY_BYTES + turns * SIZE)


def keep(cache: BranchCache, branch: BranchId, turns: Sequence[Turn]) -> None:
    cache.keep(branch, History(list(turns)))


def cached(cache: BranchCache, branch: BranchId, length: int = 6) -> tuple[Turn, ...]:
    return tuple(cache.prefix(branch, TURNS[length - 1].id if length else None, length))


def test_a_cached_history_that_ends_with_another_turn_is_not_used() -> None:
    cache = BranchCache(10**6)
    keep(cache, A, TURNS)
    assert list(cache.prefix(A, some_id(TurnId, 99), 6)) == []


def test_of_a_cached_history_that_has_gone_on_only_the_beginning_is_shown() -> None:
    cache = BranchCache(10**6)
    keep(cache, A, TURNS)
    assert cached(cache, A, 4) == TURNS[:4]
    assert cached(cache, A, 0) == ()
    assert cached(cache, A) == TURNS


def test_the_history_used_longest_ago_is_forgotten_first() -> None:
    cache = room(2, 2)
    keep(cache, A, TURNS[:1])
    keep(cache, B, TURNS[:1])
    assert cached(cache, A, 1) == TURNS[:1]
    keep(cache, C, TURNS[:1])
    assert [bool(cached(cache, branch, 1)) for branch in (A, B, C)] == [True, False, True]


def test_branch_in_use_stays_however_large_and_goes_when_another_is_used() -> None:
    cache = room(1, 5)
    keep(cache, A, TURNS)
    assert cached(cache, A) == TURNS
    keep(cache, B, TURNS[:1])
    assert cached(cache, A) == ()
    assert cached(cache, B, 1) == TURNS[:1]


def test_forms_of_one_branch_share_the_bound_and_are_forgotten_together() -> None:
    conversation = some_id(ConversationId, 1)
    made = Conversation(
        id=conversation, owner="me", branch=A, conversation_key="k", created_at=0, touched_at=0
    )
    names = ("me", "", conversation), ("me", "", "k")
    history = History(list(TURNS))

    def filled(cache: BranchCache) -> BranchCache:
        keep(cache, A, TURNS)
        cache.said_through(history)
        cache.shown(A, history)
        cache.keep_flags(A, 1, TURNS, FLAGS)
        cache.keep_line(made, LatestLine(Branch(id=A, conversation=conversation), 0, is_answered=True))
        return cache

    forgotten, evicted = filled(BranchCache(10**6)), filled(BranchCache(10**6))
    size = evicted._bytes
    assert size > ENTRY_BYTES + 3 * len(TURNS) * SIZE // 2
    forgotten.forget(A)
    evicted._max_bytes = size + ENTRY_BYTES
    keep(evicted, B, chain(9))
    for cache in (forgotten, evicted):
        assert cached(cache, A) == ()
        assert cache.flags(A, 1, TURNS) is None
        assert [cache.line(name) for name in names] == [None, None]
        assert (cache._said, cache._named, cache._shown) == ({}, {}, {})
    assert forgotten._bytes == 0


def test_name_that_a_conversation_lost_is_forgotten_with_it() -> None:
    cache = BranchCache(10**6)
    conversation = some_id(ConversationId, 1)
    made = Conversation(
        id=conversation, owner="me", branch=A, conversation_key="k", created_at=0, touched_at=0
    )
    line = LatestLine(Branch(id=A, conversation=conversation), 0, is_answered=True)
    cache.keep_line(made, line)
    cache.keep_line(replace(made, conversation_key=None), line)
    assert (cache.line(("me", "", "k")), cache.line(("me", "", conversation))) == (None, line)


def test_a_forgotten_history_makes_room() -> None:
    cache = room(1, 6)
    keep(cache, A, TURNS)
    cache.forget(A)
    cache.forget(A)
    keep(cache, B, TURNS)
    assert cached(cache, A) == ()
    assert cached(cache, B) == TURNS


def test_a_history_that_went_on_after_it_was_evicted_counts_whole() -> None:
    cache = room(1, 6)
    keep(cache, A, TURNS[:5])
    history = cache.prefix(A, TURNS[4].id, 5)
    keep(cache, B, TURNS[:5])
    cache.keep(A, history.followed_by(TURNS[5:]))
    assert (cached(cache, A), cached(cache, B, 5)) == (TURNS, ())


def test_a_history_kept_twice_counts_once() -> None:
    cache = room(2, 8)
    keep(cache, A, TURNS[:5])  # two readers missed it at the same time
    keep(cache, A, TURNS[:5])
    keep(cache, B, TURNS[:3])
    assert cached(cache, A, 5) == TURNS[:5]
    assert cached(cache, B, 3) == TURNS[:3]


def test_what_is_cached_of_other_branches_is_shared_with_a_line_that_goes_through_them() -> None:
    cache = BranchCache(10**6)
    keep(cache, A, TURNS[:5])
    line = (Stretch(B, 3, 4), Stretch(A, 0, 3))
    assert list(cache.shared(line, 4)) == list(TURNS[:3])
    assert list(cache.shared(line, 2)) == list(TURNS[:2])
    assert list(cache.shared(line[:1], 4)) == []
    keep(cache, B, TURNS[:4])
    assert list(cache.shared(line, 9)) == list(TURNS[:4])
    assert list(cache.shared(line, 3)) == list(TURNS[:3])
    keep(cache, A, TURNS[:2])
    assert list(cache.shared(line[1:], 9)) == list(TURNS[:2])


@generated
@given(st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(1, 3), st.booleans()), max_size=20))
def test_a_cache_used_as_the_engine_does_stays_within_its_bytes(
    steps: list[tuple[BranchId, int, bool]],
) -> None:
    limit = 3 * ENTRY_BYTES + 5 * SIZE
    cache = BranchCache(limit)
    stored: dict[BranchId, list[Turn]] = {A: [], B: [], C: []}
    for branch, length, forgets in steps:
        line = stored[branch]
        added = chain(*range(len(line) + 1, len(line) + 1 + length), after=line)
        line.extend(added)
        found = cache.prefix(branch, line[-1].id, len(line))
        assert list(found) == line[: len(found)]
        missing = line[len(found) :]
        cache.keep(branch, found.followed_by(missing))
        if forgets:
            cache.forget(branch)
        held = [cache.prefix(each, turns[-1].id, len(turns)) for each, turns in stored.items() if turns]
        kept = [history for history in held if history]
        size = sum(ENTRY_BYTES + sum(len(each.body) for each in history) for history in kept)
        assert size <= limit or len(kept) == 1


# Flags.


def test_what_was_read_is_found_under_the_same_number() -> None:
    cache = BranchCache(10**6)
    assert cache.flags(A, 1, TURNS) is None
    cache.keep_flags(A, 1, TURNS, FLAGS)
    assert cache.flags(A, 1, TURNS) == FLAGS
    assert cache.flags(B, 1, TURNS) is None


def test_another_number_means_that_it_must_be_read_again() -> None:
    cache = BranchCache(10**6)
    cache.keep_flags(A, 1, TURNS, FLAGS)
    assert cache.flags(A, 2, TURNS) is None
    cache.keep_flags(A, 2, TURNS, {})
    assert cache.flags(A, 2, TURNS) == {}


def test_turns_that_were_added_behind_are_known_to_have_none() -> None:
    cache = BranchCache(10**6)
    cache.keep_flags(A, 1, TURNS[:4], FLAGS)
    assert cache.flags(A, 1, TURNS) == FLAGS


def test_turns_before_those_that_were_read_are_not_known() -> None:
    cache = BranchCache(10**6)
    cache.keep_flags(A, 1, TURNS[2:], FLAGS)
    assert cache.flags(A, 1, TURNS[1:]) is None
    assert cache.flags(A, 1, TURNS[2:]) == FLAGS
    assert cache.flags(A, 1, TURNS[3:]) == FLAGS


def test_nothing_is_remembered_of_no_turns() -> None:
    cache = BranchCache(10**6)
    cache.keep_flags(A, 1, [], {})
    assert cache.flags(A, 1, TURNS) is None


BRANCH = some_id(BranchId, 9)


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    async with await Ledger.open("memory:") as ledger:
        yield ledger


def talk(*texts: str) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


async def test_the_next_request_is_read_without_asking_the_store(ledger: Ledger, monkeypatch: Any) -> None:
    reads: list[Any] = []
    read = ledger._process.store.read

    async def counted(operation: Any, request: Any) -> Any:
        reads.append(operation)
        return await read(operation, request)

    monkeypatch.setattr(ledger._process.store, "read", counted)
    history = ["q1"]
    for number in (1, 2, 3):
        async with ledger.resent(talk(*history), conversation_key="k") as turn:
            turn.emit(f"a{number}")
        history += [f"a{number}", f"q{number + 1}"]
    assert reads.count(current) == 1


async def test_flags_that_changed_since_count(ledger: Ledger) -> None:
    async with ledger.resent(talk("q1"), conversation_key="k") as turn:
        turn.emit("a1")
    async with ledger.resent(talk("q1", "a1", "q2"), conversation_key="k") as turn:
        turn.emit("a2")
    chat = await ledger.conversation(conversation_key="k")
    first, _ = await chat.turns()
    await chat.flag(first.id, to_user=False)
    async with ledger.resent(talk("q2", "a2", "q3"), conversation_key="k") as turn:
        assert [item.text for item in turn.input] == ["q3"]
        assert turn.began == "continued"
        turn.emit("a3")
    assert len(await chat.turns()) == 3


async def test_an_error_about_an_old_line_is_not_raised(ledger: Ledger) -> None:
    async with ledger.resent(talk("q1"), conversation_key="k") as turn:
        turn.emit("a1")
    chat = await ledger.conversation(conversation_key="k")
    async with chat.turn("q2") as turn:
        await turn.add({"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"})
    result = [{"role": "tool", "tool_call_id": "c", "content": "seen"}]
    async with ledger.resent(result, conversation_key="k", sent="new") as turn:
        assert [item.type for item in turn.input] == ["function_call_output"]
        turn.emit("a3")


async def test_a_key_that_was_freed_names_a_new_conversation(ledger: Ledger) -> None:
    async with ledger.resent(talk("q1"), conversation_key="k") as turn:
        turn.emit("a1")
    chat = await ledger.conversation(conversation_key="k")
    await chat.delete()
    async with ledger.resent(talk("q1"), conversation_key="k") as turn:
        assert turn.began == "created"
        turn.emit("b1")


def test_those_used_last_are_remembered() -> None:
    lines = BranchCache(2 * (ENTRY_BYTES + LINE_BYTES))
    conversations = [
        Conversation(
            id=some_id(ConversationId, number),
            owner="me",
            branch=some_id(BranchId, number),
            created_at=0,
            touched_at=0,
        )
        for number in (1, 2, 3)
    ]
    for place in (0, 1, 0, 2):
        shows = Branch(id=conversations[place].branch, conversation=conversations[place].id)
        lines.keep_line(conversations[place], LatestLine(shows, 0, is_answered=True))
    known = [guess_line(lines, Target("me", each.id)) is not None for each in conversations]
    assert known == [True, False, True]
    assert guess_line(lines, Target("me")) is None
    assert guess_line(lines, Target("you", conversations[0].id)) is None
    call = Item.of({"type": "function_call", "call_id": "c", "name": "f", "arguments": "x" * LINE_BYTES})
    large = Branch(id=conversations[1].branch, conversation=conversations[1].id, pending=(call,))
    lines.keep_line(conversations[1], LatestLine(large, 0, is_answered=True))
    known = [guess_line(lines, Target("me", each.id)) is not None for each in conversations]
    assert known == [False, True, False]


def test_a_scope_remembers_keys_of_its_own_and_shows_none_to_others() -> None:
    lines = BranchCache(1_000_000)
    shop = Conversation(
        id=some_id(ConversationId, 1),
        owner="me",
        branch=BRANCH,
        conversation_key="k",
        scope="shop",
        created_at=0,
        touched_at=0,
    )
    line = LatestLine(Branch(id=BRANCH, conversation=shop.id), 0, is_answered=True, scope="shop")
    lines.keep_line(shop, line)
    assert guess_line(lines, Target("me", None, "k", scope="shop")) == line
    assert guess_line(lines, Target("me", None, "k")) is None
    assert guess_line(lines, Target("me", shop.id)) == line
    assert guess_line(lines, Target("me", shop.id, within=Within("shop"))) == line
    assert guess_line(lines, Target("me", shop.id, within=Within("desk"))) is None


async def test_who_sees_one_scope_is_read_without_asking_the_store(ledger: Ledger, monkeypatch: Any) -> None:
    chat = await ledger.for_owner("local", within=Within("shop")).conversation()
    async with chat.resent(talk("q1")) as turn:
        turn.emit("a1")

    async def never(operation: Any, request: Any) -> Any:
        raise AssertionError("it was known")

    monkeypatch.setattr(ledger._process.store, "read", never)
    async with ledger.for_owner("local", within=Within("shop")).resent(
        talk("q1", "a1", "q2"), conversation=chat.id
    ) as turn:
        assert [item.text for item in turn.input] == ["q2"]
        turn.emit("a2")


async def test_a_key_that_was_given_to_another_since_is_followed(ledger: Ledger) -> None:
    async with ledger.resent(talk("q1"), conversation_key="k") as turn:
        turn.emit("a1")
    before = turn.conversation.id
    fresh = await ledger.reset("k")
    async with ledger.resent(talk("q2"), conversation_key="k") as turn:
        turn.emit("a2")
    assert turn.conversation.id == fresh.id != before
    assert [each.text for each in await (await ledger.conversation(before)).turns()] == ["a1"]


async def test_a_key_that_is_over_by_a_policy_given_since_moves_on() -> None:
    clock = FakeClock()
    async with await Ledger.over(MemoryStore(Database()), clock=clock) as ledger:
        async with ledger.resent(talk("q1"), conversation_key="k") as turn:
            turn.emit("a1")
        before = turn.conversation.id
        clock.advance(60)
        idle = ResetPolicy.idle(30)
        async with ledger.resent(talk("q2"), conversation_key="k", reset=idle) as turn:
            turn.emit("a2")
        between = turn.conversation.id
        clock.advance(60)
        async with ledger.resent(talk("q3"), conversation_key="k") as turn:
            turn.emit("a3")
        assert len({before, between, turn.conversation.id}) == 3


ONE, OTHER = some_id(BranchId, 1), some_id(BranchId, 2)


def turns(count: int, first: int = 1) -> list[Turn]:
    return [
        turn(number, input=(user(f"q{number}"),), output=(assistant("a"),), id=first * 100 + number)
        for number in range(1, count + 1)
    ]


def test_turns_are_the_same_objects_when_the_line_has_grown() -> None:
    kept = BranchCache(1_000_000)
    before = kept.shown(ONE, History(turns(2)))
    after = kept.shown(ONE, History(turns(3)))
    assert len(before) == 2
    assert [each is other for each, other in zip(before, after, strict=False)] == [True, True]
    assert [each.id for each in after] == [each.id for each in turns(3)]


def test_a_line_that_was_rewound_or_replaced_is_read_anew() -> None:
    kept = BranchCache(1_000_000)
    kept.shown(ONE, History(turns(3)))
    assert [each.id for each in kept.shown(ONE, History(turns(1)))] == [each.id for each in turns(1)]
    assert [each.id for each in kept.shown(ONE, History(turns(2, first=5)))] == [
        each.id for each in turns(2, first=5)
    ]


def test_what_was_returned_does_not_grow() -> None:
    kept = BranchCache(1_000_000)
    before = kept.shown(ONE, History(turns(1)))
    kept.shown(ONE, History(turns(2)))
    assert len(before) == 1


def test_a_line_that_is_too_long_is_read_all_the_same() -> None:
    kept = BranchCache(1)
    assert len(kept.shown(ONE, History(turns(3)))) == 3
    assert len(kept.shown(OTHER, History(turns(2)))) == 2


def test_another_branch_begins_with_the_turns_that_both_have() -> None:
    kept = BranchCache(1_000_000)
    line = turns(5)
    before = kept.shown(ONE, History(line))
    edited = kept.shown(OTHER, History([*line[:3], *turns(5, first=7)[3:]]))
    assert [each is other for each, other in zip(before, edited, strict=True)] == [True] * 3 + [False] * 2
    assert [each.id for each in kept.shown(ONE, History(line))] == [each.id for each in line]


def texts(turns: Sequence[Turn]) -> list[list[str]]:
    return [["".join(entry.pieces) for entry in each.shown.entries] for each in turns]


def test_what_is_hidden_is_not_shown_and_is_shown_again_afterwards() -> None:
    kept = BranchCache(1_000_000)
    line = turns(3)
    hidden = kept.shown(ONE, History(line), {line[1].id: (1,)})
    assert texts(hidden) == [["q1", "a"], ["q2"], ["q3", "a"]]
    assert texts(kept.shown(ONE, History(line), {line[1].id: (0,)})) == [["q1", "a"], ["a"], ["q3", "a"]]
    assert texts(kept.shown(ONE, History(line))) == [["q1", "a"], ["q2", "a"], ["q3", "a"]]


def test_turns_that_hide_something_are_the_same_objects_while_that_is_the_same() -> None:
    kept = BranchCache(1_000_000)
    line = turns(3)
    before = kept.shown(ONE, History(line[:2]), {line[1].id: (1,)})
    after = kept.shown(ONE, History(line), {line[1].id: (1,)})
    assert [each is other for each, other in zip(before, after, strict=False)] == [True, True]
    kept.forget(ONE)
    assert kept.shown(ONE, History(line), {line[1].id: (1,)})[1] is not before[1]


def test_what_is_hidden_of_other_lines_is_no_matter() -> None:
    kept = BranchCache(1_000_000)
    assert texts(kept.shown(ONE, History(turns(1)), {some_id(TurnId, 9): (0, 1)})) == [["q1", "a"]]


def test_the_other_half_of_what_is_hidden_may_come_with_a_later_turn() -> None:
    kept = BranchCache(1_000_000)
    asks = turn(1, input=(user("q"),), output=(call("a"),), id=1)
    answers = turn(2, input=(result("a"),), output=(assistant("done"),), id=2)
    other = turn(2, input=(result("a", output="other"),), output=(assistant("done"),), id=3)
    hidden = {asks.id: (1,)}
    assert texts(kept.shown(ONE, History([asks]), hidden)) == [["q"]]
    assert texts(kept.shown(ONE, History([asks, answers]), hidden)) == [["q"], ["done"]]
    # On another branch, the call was answered in another way, and its result is not hidden.
    result_only = {answers.id: (0,)}
    assert texts(kept.shown(ONE, History([asks, answers]), result_only)) == [["q"], ["done"]]
    assert texts(kept.shown(OTHER, History([asks, other]), result_only)) == [["q", ""], ["other", "done"]]
