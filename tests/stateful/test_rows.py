"""SQLite and the memory reference hold the same rows after any transactions, rolled back or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.stateful import steps
from tests.stateful.names import (
    BRANCHES,
    CONVERSATION_KEYS,
    CONVERSATIONS,
    IDEMPOTENCY_KEYS,
    LEASES,
    OWNERS,
    SCOPES,
    TAGS,
    TIMES,
    TOKENS,
    TURNS,
)
from tests.stateful.pair import Pair, Undone, chats_listed, repeatable
from tests.unit.model.shapes import assistant, call, user
from turnledger.engine.conversations.catalogue import ListChats
from turnledger.engine.conversations.resolve import ResolveRequest, Target, new_conversation, resolve_now
from turnledger.engine.lifecycle.delete import DeleteRequest, delete
from turnledger.engine.ports import Tables, WholeStore
from turnledger.engine.turn.begin import BeginBounds, BeginRequest, Round, TurnContent, begin
from turnledger.errors import StoreError
from turnledger.model.catalogue import ChatFilter
from turnledger.model.conversation import ConversationState
from turnledger.model.flags import Flags
from turnledger.model.reset_policy import ResetPolicy
from turnledger.model.turn import Attempt, AttemptState, Failure, Instructions, OnStop, TurnKind

pytestmark = pytest.mark.timeout(600)  # a failure is made small before it is shown, which takes a while

places = st.integers(0, 3)
branches = st.integers(0, 8)
turns = st.sampled_from(steps.ANY_TURN)
leases = st.integers(0, len(LEASES) - 1)
owners = st.sampled_from([OWNERS[0]] * 3 + [OWNERS[1]])
times = st.sampled_from(TIMES)
tokens = st.sampled_from(TOKENS)
chunks = st.sampled_from([b"", b"one", b"two"])
texts = st.sampled_from(["", "x", "né\x00 \U0001f600 'q\" \n", "long " * 300])
some_items = [user(), assistant(), call("a"), user("long " * 300)]
items = st.lists(st.sampled_from(some_items), max_size=3).map(tuple)
idempotency_keys = st.sampled_from(IDEMPOTENCY_KEYS)
limits = st.integers(1, 3) | st.just(500)
flags = st.builds(Flags, st.booleans(), st.booleans())
failures = st.none() | st.builds(Failure, texts, texts)
ended = st.sampled_from([state for state in AttemptState if state is not AttemptState.RUNNING])


def do(
    method: str, *arguments: st.SearchStrategy[Any], of: type[steps.Do] = steps.Do
) -> st.SearchStrategy[steps.Do]:
    return st.builds(of, st.just(method), st.tuples(*arguments))


def purge(method: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[steps.Purge]:
    return st.builds(steps.Purge, st.just(method), st.tuples(*arguments), limits)


add_conversation = st.builds(
    steps.AddConversation,
    places,
    st.none() | st.sampled_from(CONVERSATION_KEYS),
    st.booleans(),
    times,
    st.none() | st.sampled_from([0, 1_500]),
    st.sampled_from([ResetPolicy.never(), ResetPolicy.idle(1.5), ResetPolicy.daily(4, "Europe/Berlin")]),
    st.sampled_from(SCOPES),
)
any_step: st.SearchStrategy[steps.Step] = st.one_of(
    add_conversation,
    st.builds(
        steps.SaveConversation,
        places,
        st.none() | texts,
        st.lists(texts).map(tuple),
        times,
        st.sampled_from([(), TAGS[:1], TAGS]),
        st.tuples(st.booleans(), st.booleans(), st.booleans()),
    ),
    st.builds(steps.ReleaseKey, places),
    do("touch_conversation", st.sampled_from(CONVERSATIONS[:4]), times),
    st.builds(
        steps.EndConversation,
        places,
        st.sampled_from([ConversationState.DELETED, ConversationState.PURGED, ConversationState.EXPIRED]),
    ),
    st.builds(steps.AddBranch, st.integers(5, 8), places, branches, st.integers(0, 3)),
    st.builds(steps.MoveConversation, places, branches, branches),
    st.builds(steps.MoveTickets, branches, branches),
    st.builds(
        steps.SaveBranch,
        branches,
        st.integers(0, 9),
        st.none() | turns,
        st.none() | turns,
        st.none() | turns,
        items,
        st.integers(0, 3),
    ),
    st.builds(
        steps.AddTurn,
        branches,
        turns,
        st.none() | turns,
        st.sampled_from(TurnKind),
        items,
        st.booleans(),
        st.sampled_from([b"", b"log"]),
    ),
    st.builds(
        steps.AddAttempt,
        places,
        turns,
        leases,
        st.none() | turns,
        items,
        st.none() | st.builds(Instructions, items, st.booleans()),
        st.none() | idempotency_keys,
        st.booleans(),
    ),
    st.builds(steps.SaveFlags, turns, st.dictionaries(st.integers(0, 3), flags)),
    st.builds(
        steps.SaveAttempt,
        turns,
        st.none() | ended,
        st.none() | st.sampled_from(OnStop),
        failures,
        texts,
        leases,
        times,
    ),
    st.builds(steps.Progress, turns, st.integers(0, 9)),
    st.builds(steps.DropAttempt, turns),
    do("add_records", turns, st.integers(0, 2), st.lists(chunks, max_size=3), of=steps.AddToAttempt),
    do("drop_journal", turns),
    do("add_log_chunk", turns, st.integers(0, 2), chunks, of=steps.AddToAttempt),
    do("drop_log", turns),
    st.builds(
        steps.AddTicket,
        turns,
        branches,
        leases,
        st.booleans(),
        st.none() | idempotency_keys,
        st.none() | turns,
    ),
    do("drop_ticket", turns),
    st.builds(
        steps.SaveClaim,
        idempotency_keys,
        places,
        turns,
        st.none() | times,
        st.none() | st.integers(0, 2),
        st.booleans(),
    ),
    do("drop_claim", idempotency_keys),
    do("beat", st.sampled_from(LEASES)),
    purge("purge_ended"),
)
any_whole_step: st.SearchStrategy[steps.Step] = st.one_of(
    st.builds(
        steps.AddToken,
        tokens,
        owners,
        st.none() | tokens,
        st.sampled_from(["", "a", "né\x00 \U0001f600", "long " * 300]),
        st.none() | times,
    ),
    do("revoke_token", tokens, times),
    do("record_use", tokens, times),
    do("raise_admission", owners),
    do("beat", st.sampled_from(LEASES)),
    do("drop_lease", st.sampled_from(LEASES)),
    do("bury_lease", st.sampled_from(LEASES)),
    purge("purge_ended"),
    purge("purge_attempts", times),
    purge("purge_claims", times),
    purge("purge_tokens", times),
)
Transaction: TypeAlias = tuple[tuple[list[steps.Step], bool], str | None]
"""Steps, whether they are undone, and the owner; None for all."""


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    owner = draw(st.none() | owners | owners | owners)
    taken = st.lists(any_whole_step if owner is None else any_step, min_size=1, max_size=6)
    return (draw(taken), draw(st.booleans())), owner


async def take_all(rows: Tables | WholeStore, transaction: tuple[list[steps.Step], bool]) -> list[Any]:
    """Take these steps in one transaction, and maybe break it off."""
    taken, breaks_off = transaction
    results = [await step.take(rows) for step in taken]
    if breaks_off:
        raise Undone
    return results


class Rows(RuleBasedStateMachine):
    kind = Pair

    def __init__(self) -> None:
        super().__init__()
        self.pair = self.kind()

    @initialize(conversations=st.lists(st.tuples(add_conversation, owners), min_size=2, max_size=4))
    def begin(self, conversations: list[tuple[steps.AddConversation, str]]) -> None:
        for conversation, owner in conversations:
            self.pair.transact(take_all, ([conversation], False), owner)

    @rule(step=any_step, owner=owners)
    def one_step(self, step: steps.Step, owner: str) -> None:
        self.pair.transact(take_all, ([step], False), owner)

    @rule(transaction=transactions())
    def transact(self, transaction: Transaction) -> None:
        self.pair.transact(take_all, *transaction)

    @rule(batch=st.lists(transactions(), min_size=2, max_size=4))
    def commit_as_a_group(self, batch: list[Transaction]) -> None:
        self.pair.batch(take_all, batch)

    def teardown(self) -> None:
        self.pair.close()


TestRows = Rows.TestCase
TestRows.settings = repeatable(examples=9, steps=20)


# What the machines found, each as a test of its own.


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def make(pair: Pair, place: int, at: int, expires_after: int | None = None) -> None:
    fresh = new_conversation("ann", CONVERSATIONS[place], BRANCHES[place], at, expires_after=expires_after)
    pair.transact(resolve_now, ResolveRequest(Target("ann", None, None, fresh), at), "ann")


async def attempt(tables: Tables, _: None) -> Attempt | None:
    return await tables.attempt(TURNS[0])


@pytest.mark.parametrize("purge_at", [None, 2_000])
def test_turn_ended_by_a_deletion_is_the_same_row_in_both_stores(pair: Pair, purge_at: int | None) -> None:
    """So it is ended with the policies it has: `save_attempt` is not there to change those."""
    make(pair, 0, at=1_000)
    request = BeginRequest(
        target=Target("ann", CONVERSATIONS[0]),
        attempt=TURNS[0],
        lease=LEASES[0],
        content=TurnContent((user(),)),
        bounds=BeginBounds(wait_until=2_000, queue_limit=1),
        round=Round(1_000, 1_000),
    )
    pair.transact(begin, request, "ann")
    pair.transact(delete, DeleteRequest(CONVERSATIONS[0], 1_000, purge_at), "ann")
    assert pair.read(attempt, None, "ann").value is not None


async def add_attempt(tables: Tables, state: AttemptState) -> None:
    ended_at = None if state is AttemptState.RUNNING else 1
    made = Attempt(
        id=TURNS[0],
        owner="ann",
        conversation=CONVERSATIONS[0],
        branch=BRANCHES[0],
        lease=LEASES[0],
        fence=1,
        state=state,
        base=None,
        input=(),
        created_at=1,
        ended_at=ended_at,
    )
    await tables.add_attempt(made)


def test_attempt_id_already_used_by_an_ended_attempt_is_refused(pair: Pair) -> None:
    """SQLite's attempt table is keyed by (ended, id), which alone would let it hold an id twice."""
    make(pair, 0, at=1_000)
    pair.transact(add_attempt, AttemptState.FAILED, "ann")
    assert pair.transact(add_attempt, AttemptState.RUNNING, "ann").error is StoreError


def test_list_page_skips_lapsed_conversations_and_is_not_empty_while_more_follow(pair: Pair) -> None:
    """A lapsed conversation is taken out of the page, not out of what the page is taken from."""
    make(pair, 0, at=1_000)
    make(pair, 1, at=1_500, expires_after=100)
    everything = pair.read(chats_listed, ListChats(ChatFilter(), None, 10, 2_000), "ann").value
    assert [each.conversation.id for each in everything.chats] == [CONVERSATIONS[0]]
    assert pair.read(chats_listed, ListChats(ChatFilter(), None, 1, 2_000), "ann").value == everything
