"""What the machines found, each as a test of its own."""

from collections.abc import Iterator

import pytest

from tests.stateful.names import BRANCHES, CONVERSATIONS, LEASES, TURNS
from tests.stateful.pair import Pair
from tests.unit.engine.stage import drive
from tests.unit.model.shapes import user
from turnledger.engine.conversations.catalogue import ListChats, list_page
from turnledger.engine.conversations.resolve import ResolveRequest, Target, new_conversation, resolve_now
from turnledger.engine.lifecycle.delete import DeleteRequest, delete
from turnledger.engine.ports import Tables
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.request import BeginBounds, BeginRequest, Round, TurnContent
from turnledger.errors import StoreError
from turnledger.model.catalogue import Wanted
from turnledger.model.turn import Attempt, AttemptState


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def make(pair: Pair, place: int, at: int, expires_after: int | None = None) -> None:
    fresh = new_conversation("ann", CONVERSATIONS[place], BRANCHES[place], at, expires_after=expires_after)
    pair.transact(resolve_now, ResolveRequest(Target("ann", None, None, fresh), at))


async def attempt(tables: Tables, _: None) -> Attempt | None:
    return await tables.attempt("ann", TURNS[0])


@pytest.mark.parametrize("purge_at", [None, 2_000])
def test_a_turn_ended_by_a_deletion_is_the_same_row_in_both_stores(pair: Pair, purge_at: int | None) -> None:
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
    pair.transact(begin, request)
    pair.transact(delete, DeleteRequest("ann", CONVERSATIONS[0], 1_000, purge_at))
    assert drive(pair.sqlite.read(attempt, None)) == drive(pair.memory.read(attempt, None))


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


def test_an_id_is_given_to_one_attempt_running_or_ended(pair: Pair) -> None:
    """SQLite's attempt table is keyed by (ended, id), which alone would let it hold an id twice."""
    make(pair, 0, at=1_000)
    pair.transact(add_attempt, AttemptState.FAILED)
    assert pair.transact(add_attempt, AttemptState.RUNNING).error is StoreError


def test_a_page_is_not_empty_while_there_is_more_to_list(pair: Pair) -> None:
    """A lapsed conversation is taken out of the page, not out of what the page is taken from."""
    make(pair, 0, at=1_000)
    make(pair, 1, at=1_500, expires_after=100)
    everything = pair.read(list_page, ListChats(Wanted(owner="ann"), None, 10, 2_000)).value
    assert [each.conversation.id for each in everything.chats] == [CONVERSATIONS[0]]
    assert pair.read(list_page, ListChats(Wanted(owner="ann"), None, 1, 2_000)).value == everything
