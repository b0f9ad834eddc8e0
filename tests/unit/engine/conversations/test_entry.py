"""Entries: when a commit has nothing to add to what the list says of its chat."""

from __future__ import annotations

import pytest

from tests.unit.model.shapes import some_id
from turnledger.engine.conversations.resolve import is_entered, named_by_words, new_conversation
from turnledger.model.conversation import Conversation, NamedBy
from turnledger.model.ids import BranchId, ConversationId


def conversation(**details: object) -> Conversation:
    return new_conversation("ann", some_id(ConversationId, 1), some_id(BranchId, 1), 1, **details)


@pytest.mark.parametrize(
    ("details", "entered"),
    [
        ({"title": "T"}, True),
        ({"title": "T", "is_listed": False}, False),
        ({}, False),
        ({"internal": True, "is_listed": False}, True),
    ],
)
def test_a_chat_that_is_listed_and_has_a_title_needs_no_more(
    details: dict[str, object], entered: bool
) -> None:
    assert is_entered(conversation(**details)) is entered


def test_what_has_no_words_is_named_by_nobody() -> None:
    named = named_by_words(conversation(), "Words")
    assert (named.title, named.named_by) == ("Words", NamedBy.WORDS)
    unnamed = named_by_words(named, None)
    assert (unnamed.title, unnamed.named_by) == (None, None)
