"""Tokens that give more than they may, or cannot be found, are seen."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.engine.lived_in import Lived
from turnledger import Rule, TokenScope
from turnledger.model.access.share import Share
from turnledger.model.access.token import Token
from turnledger.model.ids import TokenId
from turnledger.stores.memory import Database

ALL = tuple(TokenScope)


async def family(lived: Lived) -> tuple[Token, Token]:
    """A token, and one that it made."""
    tokens = lived.ledger.tokens
    parent, _ = await tokens.create(owner="ann", scopes=ALL, chat_scope="shop", models=["a"])
    child, _ = await tokens.create(scopes=ALL, parent=parent.id)
    return parent, child


def change(database: Database, id: TokenId, **changes: Any) -> None:
    database.tokens[id] = replace(database.tokens[id], **changes)


async def test_tokens_in_every_state_are_sound(lived: Lived) -> None:
    parent, child = await family(lived)
    assert await lived.ledger.check() == []
    await lived.ledger.tokens.revoke(child.id)
    assert await lived.ledger.check() == []
    await lived.ledger.tokens.revoke(parent.id)
    await lived.ledger.tokens.create(scopes=ALL, lifetime=1)
    assert await lived.ledger.check() == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"models": ()}, "other models"),
        ({"chat_scope": ""}, "other conversations"),
    ],
)
async def test_a_token_beyond_its_maker_is_seen(
    lived: Lived, database: Database, changes: dict[str, Any], said: str
) -> None:
    parent, child = await family(lived)
    change(database, child.id, **changes)
    [finding] = await lived.ledger.check()
    assert (finding.rule, finding.owner) == (Rule.TOKEN, "ann")
    assert finding.message == f"{child.id} gives what {parent.id}, which made it, does not: {said}."


async def test_a_token_that_outlives_its_maker_is_seen(lived: Lived, database: Database) -> None:
    parent, child = await family(lived)
    await lived.ledger.tokens.revoke(parent.id)
    change(database, child.id, revoked_at=None)
    [finding] = await lived.ledger.check()
    assert finding.message == f"{child.id} was made by {parent.id}, which is revoked: it still lets in."
    del database.tokens[parent.id], database.by_digest[parent.digest]
    [finding] = await lived.ledger.check()
    assert (finding.rule, finding.owner) == (Rule.TOKEN, "ann")
    assert f"{parent.id}, which is not there" in finding.message


async def test_a_token_may_outlast_the_row_of_its_maker_when_both_have_expired(
    lived: Lived, database: Database
) -> None:
    parent, child = await family(lived)
    change(database, child.id, expires_at=1)
    del database.tokens[parent.id], database.by_digest[parent.digest]
    assert await lived.ledger.check() == []


async def test_a_token_that_its_text_does_not_lead_to_is_seen(lived: Lived, database: Database) -> None:
    _, child = await family(lived)
    del database.by_digest[child.digest]
    [finding] = await lived.ledger.check()
    assert finding.rule is Rule.TOKEN
    assert finding.message == f"{child.id} is not found by its text: it lets nobody in."


async def test_a_revocation_that_nobody_was_told_of_is_seen(lived: Lived, database: Database) -> None:
    _, child = await family(lived)
    change(database, child.id, revoked_at=1)
    [finding] = await lived.ledger.check()
    assert finding.message == f"{child.id} is revoked, but its owner's admission is as ever: it may let in."


async def visitor(lived: Lived) -> tuple[Share, Token]:
    share, code = await lived.ledger.shares.create(scope="shop", owner="ann", visitor_lifetime=None)
    return share, (await lived.ledger.shares.exchange(code, "n" * 22)).token


async def test_a_visitor_who_outlives_his_link_is_seen(lived: Lived, database: Database) -> None:
    share, token = await visitor(lived)
    assert await lived.ledger.check() == []
    await lived.ledger.shares.revoke(share.id)
    assert await lived.ledger.check() == []
    change(database, token.id, revoked_at=None)
    [finding] = await lived.ledger.check()
    assert finding.message == f"{token.id} was got by {share.id}, which is revoked: it still lets in."


async def test_a_visitor_whose_link_is_gone_is_seen(lived: Lived, database: Database) -> None:
    share, token = await visitor(lived)
    del database.shares[share.id]
    [finding] = await lived.ledger.check()
    assert finding.message.startswith(f"{token.id} was got by {share.id}, which is not there")


async def test_a_visitor_beyond_his_link_is_seen(lived: Lived, database: Database) -> None:
    share, token = await visitor(lived)
    change(database, token.id, chat_scope="desk")
    [finding] = await lived.ledger.check()
    assert (
        finding.message == f"{token.id} was got by {share.id}, and gives other conversations than that does."
    )
