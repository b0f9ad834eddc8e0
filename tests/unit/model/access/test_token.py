"""Tokens: how long they last, what they allow and grant, their text, and what they make visible."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.model.shapes import repeatable, some_id
from turnledger.model.access.token import (
    DIGITS,
    SECRET_BITS,
    Bounds,
    Token,
    TokenScope,
    digest_of,
    is_token_text,
    new_token_text,
)
from turnledger.model.conversation import EVERYWHERE, Conversation, Within
from turnledger.model.ids import BranchId, ConversationId, SystemEntropy, TokenId

PLAIN = Token(
    id=some_id(TokenId, 1), owner="ann", scopes=frozenset({TokenScope.TURNS_RUN}), created_at=1, digest=b""
)


def token(**changes: Any) -> Token:
    return replace(PLAIN, **changes)


@pytest.mark.parametrize(
    ("changes", "is_valid"),
    [
        ({}, True),
        ({"expires_at": 11}, True),
        ({"expires_at": 10}, False),
        ({"revoked_at": 99}, False),
        ({"revoked_at": 1, "expires_at": 99}, False),
    ],
)
def test_it_lasts_until_it_is_revoked_or_expires(changes: dict[str, Any], is_valid: bool) -> None:
    assert token(**changes).is_valid(10) == is_valid


def test_it_allows_what_it_names() -> None:
    assert PLAIN.allows(TokenScope.TURNS_RUN)
    assert not PLAIN.allows(TokenScope.ADMIN)
    assert PLAIN.may_ask("anything")
    assert token(models=("a", "b")).may_ask("b")
    assert not token(models=("a", "b")).may_ask("c")


@pytest.mark.parametrize(
    ("mine", "other", "beyond"),
    [
        ({}, {}, ()),
        ({"owner": "ben"}, {}, ()),
        ({"scopes": frozenset(TokenScope)}, {}, ("the scopes admin, chats:read, chats:write",)),
        ({"scopes": frozenset()}, {}, ()),
        ({"chat_scope": "shop"}, {}, ()),
        ({}, {"chat_scope": "shop"}, ("other conversations",)),
        ({"chat_scope": "Shop"}, {"chat_scope": "shop"}, ("other conversations",)),
        ({"models": ("a",)}, {}, ()),
        ({"models": ("b", "a")}, {"models": ("a", "b", "c")}, ()),
        ({"models": ()}, {"models": ("a",)}, ("other models",)),
        ({"models": ("a", "b")}, {"models": ("a",)}, ("other models",)),
        ({"expires_at": 5}, {}, ()),
        ({"expires_at": 5}, {"expires_at": 5}, ()),
        ({"expires_at": 6}, {"expires_at": 5}, ("a later end",)),
        ({}, {"expires_at": 5}, ("a later end",)),
        (
            {"owner": "ben"},
            {"chat_scope": "x", "expires_at": 5},
            ("other conversations", "a later end"),
        ),
    ],
)
def test_it_knows_what_it_gives_beyond_another(
    mine: dict[str, Any], other: dict[str, Any], beyond: tuple[str, ...]
) -> None:
    assert token(**mine).beyond(token(**other)) == beyond


tokens = st.builds(
    token,
    owner=st.sampled_from(["ann", "ben"]),
    scopes=st.frozensets(st.sampled_from(TokenScope)),
    chat_scope=st.sampled_from(["", "a", "b"]),
    models=st.lists(st.sampled_from(["x", "y"]), unique=True).map(tuple),
    expires_at=st.none() | st.integers(1, 3),
)


@repeatable
@given(tokens, tokens, tokens)
def test_beyond_is_transitive(one: Token, two: Token, three: Token) -> None:
    assert not one.beyond(one)
    if not one.beyond(two) and not two.beyond(three):
        assert not one.beyond(three)


def test_child_of_a_narrowed_token_cannot_ask_for_more_answers_than_it() -> None:
    parent = token(models=("m",))
    child = token(models=("m",), bounds=Bounds(n=100))
    assert child.beyond(parent) == ("a higher n",)
    assert not token(models=("m",)).beyond(parent)


TEXT = new_token_text(Random(1).getrandbits)


def test_its_shape_is_known() -> None:
    assert re.fullmatch(r"tlt_[0-9A-Za-z]{39}", TEXT)
    assert new_token_text(lambda bits: 0) == "tlt_" + "0" * 33 + "40cRSx"
    assert len(new_token_text(lambda bits: (1 << bits) - 1)) == len(TEXT)
    assert len(set(DIGITS)) == 62


def test_every_random_bit_is_in_it() -> None:
    texts = {new_token_text(lambda bits, bit=bit: 1 << bit) for bit in range(SECRET_BITS)}
    assert len(texts) == SECRET_BITS
    assert new_token_text(SystemEntropy(bulk=0)) != new_token_text(SystemEntropy(bulk=0))


@repeatable
@given(st.integers(0, 2**SECRET_BITS - 1))
def test_what_is_made_is_known(number: int) -> None:
    assert is_token_text(new_token_text(lambda bits: number))


@repeatable
@given(st.integers(0, len(TEXT) - 1), st.characters())
def test_one_changed_letter_is_seen(place: int, letter: str) -> None:
    changed = TEXT[:place] + letter + TEXT[place + 1 :]
    assert is_token_text(changed) == (changed == TEXT)


@pytest.mark.parametrize(
    "text",
    ["", "tlt_", TEXT[:-1], TEXT + "0", TEXT + "\n", " " + TEXT, TEXT.lower(), "sk-" + TEXT, "tlt_" * 11],
)
def test_garbage_is_seen(text: str) -> None:
    assert not is_token_text(text)


def test_the_digest_tells_texts_apart_and_not_what_they_are() -> None:
    assert digest_of("abc").hex().startswith("ba7816bf8f01cfea")
    assert digest_of(TEXT) != digest_of(TEXT[:-1])
    assert len(digest_of(TEXT)) == 32


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
