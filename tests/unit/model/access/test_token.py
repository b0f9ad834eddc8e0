"""Tokens: validity, scopes, comparison with a parent, their text, and what they can see."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.model.shapes import CONVERSATION as ONE
from tests.unit.model.shapes import conversation, repeatable, some_id
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
from turnledger.model.conversation import EVERYWHERE, Within
from turnledger.model.ids import ConversationId, SystemEntropy, TokenId

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
def test_token_is_valid_until_it_expires_or_is_revoked(changes: dict[str, Any], is_valid: bool) -> None:
    assert token(**changes).is_valid(10) == is_valid


def test_token_allows_only_its_scopes_and_models() -> None:
    assert PLAIN.allows(TokenScope.TURNS_RUN)
    assert not PLAIN.allows(TokenScope.ADMIN)
    assert PLAIN.may_use("anything")
    assert token(models=("a", "b")).may_use("b")
    assert not token(models=("a", "b")).may_use("c")


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
def test_token_beyond_lists_the_rights_another_token_lacks(
    mine: dict[str, Any], other: dict[str, Any], beyond: tuple[str, ...]
) -> None:
    assert token(**mine).excess_over(token(**other)) == beyond


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
def test_token_beyond_is_reflexive_and_transitive(one: Token, two: Token, three: Token) -> None:
    assert not one.excess_over(one)
    if not one.excess_over(two) and not two.excess_over(three):
        assert not one.excess_over(three)


def test_token_beyond_reports_a_higher_n_than_the_parent() -> None:
    parent = token(models=("m",))
    child = token(models=("m",), bounds=Bounds(n=100))
    assert child.excess_over(parent) == ("a higher n",)
    assert not token(models=("m",)).excess_over(parent)


TEXT = new_token_text(Random(1).getrandbits)


def test_token_text_has_the_documented_shape() -> None:
    assert re.fullmatch(r"tlt_[0-9A-Za-z]{39}", TEXT)
    assert new_token_text(lambda bits: 0) == "tlt_" + "0" * 33 + "40cRSx"
    assert len(new_token_text(lambda bits: (1 << bits) - 1)) == len(TEXT)
    assert len(set(DIGITS)) == 62


def test_token_text_depends_on_every_random_bit() -> None:
    texts = {new_token_text(lambda bits, bit=bit: 1 << bit) for bit in range(SECRET_BITS)}
    assert len(texts) == SECRET_BITS
    assert new_token_text(SystemEntropy(bulk=0)) != new_token_text(SystemEntropy(bulk=0))


@repeatable
@given(st.integers(0, 2**SECRET_BITS - 1))
def test_token_text_that_was_created_is_recognized(number: int) -> None:
    assert is_token_text(new_token_text(lambda bits: number))


@repeatable
@given(st.integers(0, len(TEXT) - 1), st.characters())
def test_token_text_with_one_changed_letter_is_rejected(place: int, letter: str) -> None:
    changed = TEXT[:place] + letter + TEXT[place + 1 :]
    assert is_token_text(changed) == (changed == TEXT)


@pytest.mark.parametrize(
    "text",
    ["", "tlt_", TEXT[:-1], TEXT + "0", TEXT + "\n", " " + TEXT, TEXT.lower(), "sk-" + TEXT, "tlt_" * 11],
)
def test_token_text_of_a_wrong_shape_is_rejected(text: str) -> None:
    assert not is_token_text(text)


def test_token_digest_is_sha256_and_differs_for_different_texts() -> None:
    assert digest_of("abc").hex().startswith("ba7816bf8f01cfea")
    assert digest_of(TEXT) != digest_of(TEXT[:-1])
    assert len(digest_of(TEXT)) == 32


OTHER = some_id(ConversationId, 2)
SHOP = conversation(scope="shop")


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
def test_within_sees_only_chats_of_its_scope_and_id(within: Within, sees: bool) -> None:
    assert within.sees(SHOP) is sees
    assert within.is_unrestricted is (within == EVERYWHERE)


def test_within_covers_only_equal_or_narrower_views() -> None:
    ranks = [EVERYWHERE, Within("shop"), Within("shop", ONE)]
    for place, each in enumerate(ranks):
        assert [each.covers(other) for other in ranks] == [rank >= place for rank in range(3)]
    for other in (Within(""), Within("desk"), Within(chat=ONE), EVERYWHERE):
        assert not Within("shop").covers(other)
    assert not Within(chat=ONE).covers(Within(chat=OTHER))


def test_within_label_is_unique_and_leads_back_to_it() -> None:
    every = [EVERYWHERE, Within(""), Within("shop"), Within(ONE), Within(chat=ONE), Within(chat=OTHER)]
    assert len({each.label for each in every}) == len(every)
    assert [Within.from_label(each.label) for each in every] == every
