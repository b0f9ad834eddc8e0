"""A conversation expires by the time since its last interaction, and only then."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.model.shapes import repeatable, some_id
from turnledger.model.conversation import Conversation, ConversationState
from turnledger.model.ids import BranchId, ConversationId

PLAIN = Conversation(
    id=some_id(ConversationId, 1), owner="ann", branch=some_id(BranchId, 1), created_at=100, touched_at=200
)


@repeatable
@given(st.integers(0, 10**13))
def test_without_a_time_to_live_it_never_expires(now: int) -> None:
    assert not PLAIN.is_expired(now)


@pytest.mark.parametrize(("now", "expired"), [(0, False), (249, False), (250, True), (10**13, True)])
def test_the_time_counts_from_the_last_interaction(now: int, expired: bool) -> None:
    assert replace(PLAIN, expires_after=50).is_expired(now) is expired


def test_once_expired_it_stays_so() -> None:
    assert replace(PLAIN, state=ConversationState.EXPIRED).is_expired(0)
    assert replace(PLAIN, state=ConversationState.EXPIRED, expires_after=10**12).is_expired(0)


def test_conversations_do_not_share_their_metadata() -> None:
    other = Conversation(
        id=some_id(ConversationId, 2), owner="ann", branch=some_id(BranchId, 2), created_at=1, touched_at=1
    )
    assert PLAIN.metadata is not other.metadata


def test_a_conversation_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        PLAIN.title = "Other"  # type: ignore[misc]
