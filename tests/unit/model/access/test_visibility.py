"""What somebody may see of an owner's conversations."""

import pytest

from tests.unit.model.shapes import some_id
from turnledger.model.conversation import EVERYWHERE, Conversation, Within
from turnledger.model.ids import BranchId, ConversationId

ONE, OTHER = some_id(ConversationId, 1), some_id(ConversationId, 2)
SHOP = Conversation(
    id=ONE, owner="ann", branch=some_id(BranchId, 1), created_at=1, touched_at=1, scope="shop"
)


@pytest.mark.parametrize(
    ("within", "sees"),
    [
        (EVERYWHERE, True),
        (Within("shop"), True),
        (Within(""), False),
        (Within("desk"), False),
        (Within(chat=ONE), True),
        (Within(chat=OTHER), False),
        (Within("shop", ONE), True),
        (Within("desk", ONE), False),
        (Within("shop", OTHER), False),
    ],
)
def test_what_is_seen(within: Within, sees: bool) -> None:
    assert within.sees(SHOP) is sees
    assert within.is_everything is (within == EVERYWHERE)


def test_who_covers_whom() -> None:
    ranks = [EVERYWHERE, Within("shop"), Within("shop", ONE)]
    for place, each in enumerate(ranks):
        assert [each.covers(other) for other in ranks] == [rank >= place for rank in range(3)]
    for other in (Within(""), Within("desk"), Within(chat=ONE), EVERYWHERE):
        assert not Within("shop").covers(other)
    assert not Within(chat=ONE).covers(Within(chat=OTHER))


def test_a_label_tells_them_apart() -> None:
    every = [EVERYWHERE, Within(""), Within("shop"), Within(ONE), Within(chat=ONE), Within(chat=OTHER)]
    assert len({each.label for each in every}) == len(every)
    assert [Within.labelled(each.label) for each in every] == every
