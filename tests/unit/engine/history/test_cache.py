"""The branch cache holds no more bytes than it may, and nothing of what was forgotten."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.engine.history.lines import chain
from tests.unit.model.shapes import repeatable, some_id
from turnledger.engine.history.history import ENTRY_BYTES, BranchCache, History, LatestLine
from turnledger.model.conversation import Branch, Conversation, Stretch
from turnledger.model.flags import Flags
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.turn import Turn

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


def test_nothing_is_cached_at_first() -> None:
    assert cached(BranchCache(10**6), A) == ()


def test_the_whole_history_is_found_if_it_ends_with_the_head() -> None:
    cache = BranchCache(10**6)
    keep(cache, A, TURNS)
    assert cached(cache, A) == TURNS


def test_a_cached_history_that_ends_with_another_turn_is_not_used() -> None:
    cache = BranchCache(10**6)
    keep(cache, A, TURNS)
    assert list(cache.prefix(A, some_id(TurnId, 99), 6)) == []


def test_what_is_cached_of_a_longer_history_is_its_beginning() -> None:
    cache = BranchCache(10**6)
    keep(cache, A, TURNS[:2])
    assert cached(cache, A) == TURNS[:2]


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


@repeatable
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


def test_flags_of_the_branch_used_longest_ago_are_forgotten_first() -> None:
    cache = BranchCache(2 * ENTRY_BYTES + 500)
    cache.keep_flags(A, 1, TURNS, FLAGS)
    cache.keep_flags(B, 1, TURNS, FLAGS)
    assert cache.flags(A, 1, TURNS) == FLAGS
    cache.keep_flags(C, 1, TURNS, FLAGS)
    assert [cache.flags(branch, 1, TURNS) is None for branch in (A, B, C)] == [False, True, False]
