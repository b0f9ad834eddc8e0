"""The branch cache: bounded, never stale, and never mixed with the turns of another line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.engine.copies import chat as talk
from tests.unit.engine.stage import chain, generated
from tests.unit.model.shapes import assistant, call, result, some_id, turn, user
from turnledger import Ledger
from turnledger.engine.conversations.resolve import Target
from turnledger.engine.history.history import ENTRY_BYTES, LINE_BYTES, BranchCache, History, LatestLine
from turnledger.engine.turn.resent_request import current, guess_line
from turnledger.model.conversation import Branch, Conversation, Stretch, Within
from turnledger.model.flags import Flags
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import Item
from turnledger.model.reset_policy import ResetPolicy
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


def test_cached_history_that_ends_with_another_turn_is_not_used() -> None:
    cache = BranchCache(10**6)
    keep(cache, A, TURNS)
    assert list(cache.prefix(A, some_id(TurnId, 99), 6)) == []


def test_cached_history_longer_than_requested_returns_its_beginning() -> None:
    cache = BranchCache(10**6)
    keep(cache, A, TURNS)
    assert cached(cache, A, 4) == TURNS[:4]
    assert cached(cache, A, 0) == ()
    assert cached(cache, A) == TURNS


def test_cached_history_least_recently_used_is_evicted_first() -> None:
    cache = room(2, 2)
    keep(cache, A, TURNS[:1])
    keep(cache, B, TURNS[:1])
    assert cached(cache, A, 1) == TURNS[:1]
    keep(cache, C, TURNS[:1])
    assert [bool(cached(cache, branch, 1)) for branch in (A, B, C)] == [True, False, True]


def test_cached_branch_beyond_the_bound_stays_until_another_is_used() -> None:
    cache = room(1, 5)
    keep(cache, A, TURNS)
    assert cached(cache, A) == TURNS
    keep(cache, B, TURNS[:1])
    assert cached(cache, A) == ()
    assert cached(cache, B, 1) == TURNS[:1]


def test_cached_forms_of_one_branch_share_the_bound_and_are_evicted_together() -> None:
    conversation = some_id(ConversationId, 1)
    made = Conversation(
        id=conversation, owner="me", branch=A, conversation_key="k", created_at=0, touched_at=0
    )
    names = ("me", "", conversation), ("me", "", "k")
    history = History(list(TURNS))

    def filled(cache: BranchCache) -> BranchCache:
        keep(cache, A, TURNS)
        cache.chat_json_through(history)
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
        assert (cache._chat_json_ends, cache._named, cache._shown) == ({}, {}, {})
    assert forgotten._bytes == 0


def test_cached_key_that_a_conversation_lost_is_forgotten() -> None:
    cache = BranchCache(10**6)
    conversation = some_id(ConversationId, 1)
    made = Conversation(
        id=conversation, owner="me", branch=A, conversation_key="k", created_at=0, touched_at=0
    )
    line = LatestLine(Branch(id=A, conversation=conversation), 0, is_answered=True)
    cache.keep_line(made, line)
    cache.keep_line(replace(made, conversation_key=None), line)
    assert (cache.line(("me", "", "k")), cache.line(("me", "", conversation))) == (None, line)


def test_cached_history_that_is_forgotten_frees_its_bytes() -> None:
    cache = room(1, 6)
    keep(cache, A, TURNS)
    cache.forget(A)
    cache.forget(A)
    keep(cache, B, TURNS)
    assert cached(cache, A) == ()
    assert cached(cache, B) == TURNS


def test_cached_history_extended_after_its_eviction_counts_whole() -> None:
    cache = room(1, 6)
    keep(cache, A, TURNS[:5])
    history = cache.prefix(A, TURNS[4].id, 5)
    keep(cache, B, TURNS[:5])
    cache.keep(A, history.followed_by(TURNS[5:]))
    assert (cached(cache, A), cached(cache, B, 5)) == (TURNS, ())


def test_cached_history_kept_twice_counts_once() -> None:
    cache = room(2, 8)
    keep(cache, A, TURNS[:5])  # two readers missed it at the same time
    keep(cache, A, TURNS[:5])
    keep(cache, B, TURNS[:3])
    assert cached(cache, A, 5) == TURNS[:5]
    assert cached(cache, B, 3) == TURNS[:3]


def test_cached_turns_are_shared_with_a_line_that_runs_through_their_branch() -> None:
    cache = BranchCache(10**6)
    keep(cache, A, TURNS[:5])
    line = (Stretch(B, 3, 4), Stretch(A, 0, 3))
    assert list(cache.shared_prefix(line, 4)) == list(TURNS[:3])
    assert list(cache.shared_prefix(line, 2)) == list(TURNS[:2])
    assert list(cache.shared_prefix(line[:1], 4)) == []
    keep(cache, B, TURNS[:4])
    assert list(cache.shared_prefix(line, 9)) == list(TURNS[:4])
    assert list(cache.shared_prefix(line, 3)) == list(TURNS[:3])
    keep(cache, A, TURNS[:2])
    assert list(cache.shared_prefix(line[1:], 9)) == list(TURNS[:2])


@generated
@given(st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(1, 3), st.booleans()), max_size=20))
def test_cache_used_like_the_engine_does_stays_within_its_bytes(
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


def test_cached_flags_are_found_under_the_same_version() -> None:
    cache = BranchCache(10**6)
    assert cache.flags(A, 1, TURNS) is None
    cache.keep_flags(A, 1, TURNS, FLAGS)
    assert cache.flags(A, 1, TURNS) == FLAGS
    assert cache.flags(B, 1, TURNS) is None


def test_cached_flags_of_another_version_are_not_used() -> None:
    cache = BranchCache(10**6)
    cache.keep_flags(A, 1, TURNS, FLAGS)
    assert cache.flags(A, 2, TURNS) is None
    cache.keep_flags(A, 2, TURNS, {})
    assert cache.flags(A, 2, TURNS) == {}


def test_cached_flags_hold_for_turns_added_later() -> None:
    cache = BranchCache(10**6)
    cache.keep_flags(A, 1, TURNS[:4], FLAGS)
    assert cache.flags(A, 1, TURNS) == FLAGS


def test_cached_flags_do_not_hold_for_turns_before_those_read() -> None:
    cache = BranchCache(10**6)
    cache.keep_flags(A, 1, TURNS[2:], FLAGS)
    assert cache.flags(A, 1, TURNS[1:]) is None
    assert cache.flags(A, 1, TURNS[2:]) == FLAGS
    assert cache.flags(A, 1, TURNS[3:]) == FLAGS


def test_cached_flags_of_no_turns_are_not_kept() -> None:
    cache = BranchCache(10**6)
    cache.keep_flags(A, 1, [], {})
    assert cache.flags(A, 1, TURNS) is None


BRANCH = some_id(BranchId, 9)


async def test_resent_history_of_a_known_conversation_is_matched_without_reading_the_store(
    ledger: Ledger, monkeypatch: Any
) -> None:
    reads: list[Any] = []
    read = ledger._process.store.read

    async def counted(operation: Any, request: Any, owner: str) -> Any:
        reads.append(operation)
        return await read(operation, request, owner)

    monkeypatch.setattr(ledger._process.store, "read", counted)
    history = ["q1"]
    for number in (1, 2, 3):
        async with ledger.resent(talk(*history), conversation_key="k") as turn:
            turn.emit(f"a{number}")
        history += [f"a{number}", f"q{number + 1}"]
    assert reads.count(current) == 1


async def test_resent_history_is_matched_with_flags_changed_since_the_last_turn(ledger: Ledger) -> None:
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


async def test_resent_results_refused_against_the_cached_line_are_matched_against_the_stored_one(
    ledger: Ledger,
) -> None:
    async with ledger.resent(talk("q1"), conversation_key="k") as turn:
        turn.emit("a1")
    chat = await ledger.conversation(conversation_key="k")
    async with chat.turn("q2") as turn:
        await turn.add({"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"})
    result = [{"role": "tool", "tool_call_id": "c", "content": "seen"}]
    async with ledger.resent(result, conversation_key="k", sent="new") as turn:
        assert [item.type for item in turn.input] == ["function_call_output"]
        turn.emit("a3")


async def test_resent_history_under_a_freed_key_creates_a_new_conversation(ledger: Ledger) -> None:
    async with ledger.resent(talk("q1"), conversation_key="k") as turn:
        turn.emit("a1")
    chat = await ledger.conversation(conversation_key="k")
    await chat.delete()
    async with ledger.resent(talk("q1"), conversation_key="k") as turn:
        assert turn.began == "created"
        turn.emit("b1")


def test_cached_lines_least_recently_used_are_evicted_first() -> None:
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


def test_cached_line_is_found_only_within_its_scope() -> None:
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


async def test_resent_history_within_a_scope_is_matched_without_reading_the_store(
    ledger: Ledger, monkeypatch: Any
) -> None:
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


async def test_resent_history_under_a_key_moved_by_a_reset_goes_to_the_new_conversation(
    ledger: Ledger,
) -> None:
    async with ledger.resent(talk("q1"), conversation_key="k") as turn:
        turn.emit("a1")
    before = turn.conversation.id
    fresh = await ledger.reset("k")
    async with ledger.resent(talk("q2"), conversation_key="k") as turn:
        turn.emit("a2")
    assert turn.conversation.id == fresh.id != before
    assert [each.text for each in await (await ledger.conversation(before)).turns()] == ["a1"]


async def test_resent_history_under_a_key_due_by_a_new_policy_goes_to_a_new_conversation() -> None:
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


def test_shown_turns_of_a_longer_line_are_the_same_objects() -> None:
    kept = BranchCache(1_000_000)
    before = kept.shown(ONE, History(turns(2)))
    after = kept.shown(ONE, History(turns(3)))
    assert len(before) == 2
    assert [each is other for each, other in zip(before, after, strict=False)] == [True, True]
    assert [each.id for each in after] == [each.id for each in turns(3)]


def test_shown_turns_of_a_rewound_or_replaced_line_are_its_own() -> None:
    kept = BranchCache(1_000_000)
    assert kept.shown(ONE, History()) == ()
    kept.shown(ONE, History(turns(3)))
    assert [each.id for each in kept.shown(ONE, History(turns(1)))] == [each.id for each in turns(1)]
    assert [each.id for each in kept.shown(ONE, History(turns(2, first=5)))] == [
        each.id for each in turns(2, first=5)
    ]


def test_shown_turns_returned_earlier_do_not_grow() -> None:
    kept = BranchCache(1_000_000)
    before = kept.shown(ONE, History(turns(1)))
    kept.shown(ONE, History(turns(2)))
    assert len(before) == 1


def test_shown_turns_of_a_line_beyond_the_cache_are_complete() -> None:
    kept = BranchCache(1)
    assert len(kept.shown(ONE, History(turns(3)))) == 3
    assert len(kept.shown(OTHER, History(turns(2)))) == 2


def test_shown_turns_of_two_branches_share_the_common_beginning() -> None:
    kept = BranchCache(1_000_000)
    line = turns(5)
    before = kept.shown(ONE, History(line))
    edited = kept.shown(OTHER, History([*line[:3], *turns(5, first=7)[3:]]))
    assert [each is other for each, other in zip(before, edited, strict=True)] == [True] * 3 + [False] * 2
    assert [each.id for each in kept.shown(ONE, History(line))] == [each.id for each in line]


def texts(turns: Sequence[Turn]) -> list[list[str]]:
    return [["".join(entry.pieces) for entry in each.shown.entries] for each in turns]


def test_shown_turns_leave_out_hidden_items_until_they_are_shown_again() -> None:
    kept = BranchCache(1_000_000)
    line = turns(3)
    hidden = kept.shown(ONE, History(line), {line[1].id: (1,)})
    assert texts(hidden) == [["q1", "a"], ["q2"], ["q3", "a"]]
    assert texts(kept.shown(ONE, History(line), {line[1].id: (0,)})) == [["q1", "a"], ["a"], ["q3", "a"]]
    assert texts(kept.shown(ONE, History(line))) == [["q1", "a"], ["q2", "a"], ["q3", "a"]]


def test_shown_turns_with_the_same_hidden_items_are_the_same_objects() -> None:
    kept = BranchCache(1_000_000)
    line = turns(3)
    before = kept.shown(ONE, History(line[:2]), {line[1].id: (1,)})
    after = kept.shown(ONE, History(line), {line[1].id: (1,)})
    assert [each is other for each, other in zip(before, after, strict=False)] == [True, True]
    kept.forget(ONE)
    assert kept.shown(ONE, History(line), {line[1].id: (1,)})[1] is not before[1]


def test_shown_turns_ignore_hidden_items_of_other_lines() -> None:
    kept = BranchCache(1_000_000)
    assert texts(kept.shown(ONE, History(turns(1)), {some_id(TurnId, 9): (0, 1)})) == [["q1", "a"]]


def test_shown_turns_hide_the_other_half_of_a_pair_in_a_later_turn() -> None:
    kept = BranchCache(1_000_000)
    with_call = turn(1, input=(user("q"),), output=(call("a"),), id=1)
    answers = turn(2, input=(result("a"),), output=(assistant("done"),), id=2)
    other = turn(2, input=(result("a", output="other"),), output=(assistant("done"),), id=3)
    hidden = {with_call.id: (1,)}
    assert texts(kept.shown(ONE, History([with_call]), hidden)) == [["q"]]
    assert texts(kept.shown(ONE, History([with_call, answers]), hidden)) == [["q"], ["done"]]
    # On another branch, the call was answered in another way, and its result is not hidden.
    result_only = {answers.id: (0,)}
    assert texts(kept.shown(ONE, History([with_call, answers]), result_only)) == [["q"], ["done"]]
    assert texts(kept.shown(OTHER, History([with_call, other]), result_only)) == [
        ["q", ""],
        ["other", "done"],
    ]
