"""Tokens and share links: which may be created, with which rights, and how long they are valid."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from turnledger.engine.limits import Limits
from turnledger.errors import (
    ConversationDeleted,
    ConversationNotFound,
    InvalidId,
    InvalidInput,
    LinkNotValid,
    TokenEnded,
    TokenTooWide,
    TooManyShares,
    TooManyTokens,
    TooManyVisitors,
)
from turnledger.hosting import Host
from turnledger.model.access.share import READS, ShareKind, is_code, new_code
from turnledger.model.access.token import TokenScope, digest_of, is_token_text
from turnledger.testing.store_contract.rows.kit import LATE
from turnledger.testing.store_contract.stage import LIMITS, Stage, StageProcess, exchange
from turnledger.testing.store_contract.tokens import ALL, DAY, NONCE, OTHER, UNKNOWN


class TestTokens:
    async def test_first_token_created_ends_access_without_a_token(self, stage: Stage) -> None:
        here, there = await stage.processes()
        before = await Host(there.ledger).tokens.find(None)
        assert (before.token, before.version, before.any_tokens) == (None, 0, False)
        await Host(here.ledger).tokens.create(owner="ann", scopes=[TokenScope.CHATS_READ])
        after = await Host(there.ledger).tokens.find(None)
        assert after.any_tokens
        assert after.version != before.version
        await Host(here.ledger).tokens.create(owner="ben", scopes=[TokenScope.CHATS_READ])
        assert await Host(there.ledger).tokens.find(None) == after

    async def test_access_without_a_token_stays_closed_after_all_tokens_are_removed(
        self, stage: Stage
    ) -> None:
        process = await stage.process()
        made, _ = await Host(process.ledger).tokens.create(scopes=[TokenScope.CHATS_READ])
        await Host(process.ledger).tokens.revoke(made.id)
        stage.clock.advance(31 * DAY)
        await process.tend()
        assert await Host(process.ledger).tokens.list() == []
        assert (await Host(process.ledger).tokens.find(None)).any_tokens

    async def test_token_is_invalid_from_its_expiry_on(self, stage: Stage) -> None:
        process = await stage.process()
        now = stage.clock.now_ms()
        short, _ = await Host(process.ledger).tokens.create(scopes=ALL, lifetime=1.5)
        dated, _ = await Host(process.ledger).tokens.create(scopes=ALL, expires_at=now + 2_000)
        assert (short.expires_at, dated.expires_at) == (now + 1_500, now + 2_000)
        assert short.is_valid(now + 1_499)
        assert not short.is_valid(now + 1_500)

    @pytest.mark.parametrize(
        "wish",
        [
            {"scopes": []},
            {"scopes": ["chats:everything"]},
            {"owner": ""},
            {"owner": "x" * 513},
            {"name": "x" * 513},
            {"name": "\ud800"},
            {"chat_scope": "x" * 513},
            {"chat_scope": "shop\x02"},
            {"models": [""]},
            {"models": [str(number) for number in range(101)]},
            {"lifetime": 0},
            {"lifetime": float("nan")},
            {"expires_at": 1},
            {"expires_at": -1},
            {"expires_at": 2**63},
            {"expires_at": LATE, "lifetime": 1},
            {"parent": "conv_1"},
        ],
    )
    async def test_token_with_invalid_fields_is_refused_and_not_created(
        self, stage: Stage, wish: dict[str, Any]
    ) -> None:
        process = await stage.process()
        with pytest.raises((InvalidInput, InvalidId)):
            await Host(process.ledger).tokens.create(**{"scopes": ALL, **wish})
        assert await Host(process.ledger).tokens.list() == []
        assert not (await Host(process.ledger).tokens.find(None)).any_tokens

    async def test_child_token_inherits_the_limits_of_its_parent_unless_narrowed(self, stage: Stage) -> None:
        process = await stage.process()
        tokens = Host(process.ledger).tokens
        parent, _ = await tokens.create(
            owner="ann", scopes=ALL, chat_scope="shop", models=["a", "b"], lifetime=60
        )
        same, _ = await tokens.create(scopes=ALL, parent=parent.id)
        assert same == replace(parent, id=same.id, parent=parent.id, digest=same.digest)
        less, _ = await tokens.create(
            scopes=[TokenScope.TURNS_RUN], chat_scope="shop", models=["b"], lifetime=30, parent=parent.id
        )
        assert not less.excess_over(parent)
        bens, _ = await tokens.create(owner="ben", scopes=[TokenScope.TURNS_RUN], parent=parent.id)
        assert (bens.owner, bens.chat_scope) == ("ben", "shop")
        assert (less.models, less.expires_at) == (("b",), stage.clock.now_ms() + 30_000)

    @pytest.mark.parametrize(
        ("wish", "message"),
        [
            ({"scopes": ["admin", "chats:write"]}, "the scope chats:write"),
            ({"chat_scope": ""}, "other conversations"),
            ({"chat_scope": "shop2"}, "other conversations"),
            ({"models": []}, "other models"),
            ({"models": ["a", "c"]}, "other models"),
            ({"lifetime": 61}, "a later end"),
        ],
    )
    async def test_child_token_wider_than_its_parent_is_refused(
        self, stage: Stage, wish: dict[str, Any], message: str
    ) -> None:
        process = await stage.process()
        tokens = Host(process.ledger).tokens
        narrow: dict[str, Any] = {
            "scopes": ["admin"],
            "chat_scope": "shop",
            "models": ["a", "b"],
            "lifetime": 60,
        }
        parent, _ = await tokens.create(owner="ann", **narrow)
        with pytest.raises(TokenTooWide, match=message):
            await tokens.create(**{"scopes": ["admin"], "parent": parent.id, **wish})
        assert await tokens.list() == [parent]

    async def test_child_token_of_a_revoked_expired_or_non_admin_parent_is_refused(
        self, stage: Stage, here: StageProcess, there: StageProcess
    ) -> None:
        plain, _ = await Host(here.ledger).tokens.create(scopes=ALL - {TokenScope.ADMIN})
        with pytest.raises(TokenTooWide, match="admin"):
            await Host(here.ledger).tokens.create(scopes=[TokenScope.CHATS_READ], parent=plain.id)
        revoked, _ = await Host(here.ledger).tokens.create(scopes=ALL)
        expired, _ = await Host(here.ledger).tokens.create(scopes=ALL, lifetime=1)
        await Host(there.ledger).tokens.revoke(revoked.id)
        stage.clock.advance(1)
        for parent in (revoked.id, expired.id, UNKNOWN):
            with pytest.raises(TokenEnded):
                await Host(here.ledger).tokens.create(scopes=[TokenScope.CHATS_READ], parent=parent)
        assert len(await Host(here.ledger).tokens.list()) == 3

    async def test_tokens_beyond_the_limit_per_owner_are_refused(self, stage: Stage) -> None:
        process = await stage.process(Limits(lease_time=LIMITS.lease_time, tokens=2))
        tokens = Host(process.ledger).tokens
        first, _ = await tokens.create(owner="ann", scopes=ALL)
        await tokens.create(owner="ann", scopes=ALL, lifetime=1)
        with pytest.raises(TooManyTokens):
            await tokens.create(owner="ann", scopes=ALL)
        await tokens.create(owner="ben", scopes=ALL)
        stage.clock.advance(1)
        await tokens.create(owner="ann", scopes=ALL)
        with pytest.raises(TooManyTokens):
            await tokens.create(owner="ann", scopes=ALL)
        await tokens.revoke(first.id)
        await tokens.create(owner="ann", scopes=ALL)

    async def test_revocation_of_a_revoked_token_changes_nothing(self, stage: Stage) -> None:
        process = await stage.process()
        tokens = Host(process.ledger).tokens
        made, _ = await tokens.create(owner="ann", scopes=ALL)
        ended = await tokens.revoke(made.id)
        version = (await tokens.find(made.digest)).version
        stage.clock.advance(1)
        assert await tokens.revoke(made.id) == ended
        assert (await tokens.find(made.digest)).version == version


USER = ALL - {TokenScope.ADMIN}
SECOND = 1_000


class TestShares:
    async def test_ended_share_link_is_removed_after_thirty_days(self, stage: Stage) -> None:
        here = await stage.process()
        shares = Host(here.ledger).shares
        share, code = await shares.create(scope="shop", lifetime=10)
        await shares.exchange(code, NONCE)
        stage.clock.advance(29 * DAY)
        await here.tend()
        assert [each.id for each in await shares.list()] == [share.id]
        stage.clock.advance(2 * DAY)
        await here.tend()
        assert await shares.list() == []
        assert await here.ledger.check() == []

    async def test_visitor_of_a_scope_link_becomes_a_new_owner_in_that_scope(self, stage: Stage) -> None:
        here, there = await stage.processes()
        share, code = await Host(here.ledger).shares.create(scope="shop", name="fair", models=["small"])
        assert (share.kind, share.uses, is_code(code)) == (ShareKind.SCOPE, 0, True)
        one = await Host(there.ledger).shares.exchange(code, NONCE)
        two = await Host(there.ledger).shares.exchange(code, OTHER)
        assert one.token.owner.startswith("guest_")
        assert one.token.owner != two.token.owner
        assert (one.token.scopes, one.token.chat_scope, one.token.models) == (USER, "shop", ("small",))
        assert (one.token.share, one.token.name, one.token.conversation) == (share.id, "fair", None)
        found = await Host(here.ledger).tokens.find(digest_of(one.text))
        assert found.token == one.token
        [listed] = await Host(here.ledger).shares.list()
        assert listed == replace(share, uses=2)

    async def test_visitor_of_a_chat_link_reads_only_that_chat(self, here: StageProcess) -> None:
        chat, other = await here.chat(owner="ann", scope="shop"), await here.chat(owner="ann", scope="shop")
        await exchange(chat, "q", "a")
        _, code = await Host(here.ledger).shares.create(chat=chat.id, owner="ann")
        guest = (await Host(here.ledger).shares.exchange(code, NONCE)).token
        assert (guest.owner, guest.scopes, guest.conversation) == ("ann", READS, chat.id)
        seen = await here.ledger.for_owner(guest.owner, within=guest.within).conversation(chat.id)
        assert len(await seen.turns()) == 1
        with pytest.raises(ConversationNotFound):
            await here.ledger.for_owner(guest.owner, within=guest.within).conversation(other.id)

    async def test_share_link_exchanged_with_the_same_nonce_returns_the_same_token_for_a_minute(
        self, stage: Stage, here: StageProcess, there: StageProcess
    ) -> None:
        _share, code = await Host(here.ledger).shares.create(scope="shop", max_uses=1)
        first = await Host(here.ledger).shares.exchange(code, NONCE)
        stage.clock.advance(60)
        again = await Host(there.ledger).shares.exchange(code, NONCE)
        assert (again.token, again.text) == (first.token, first.text)
        assert is_token_text(first.text)
        with pytest.raises(LinkNotValid):
            await Host(there.ledger).shares.exchange(code, OTHER)
        stage.clock.advance(0.001)
        with pytest.raises(LinkNotValid):
            await Host(here.ledger).shares.exchange(code, NONCE)
        assert [each.uses for each in await Host(here.ledger).shares.list()] == [1]

    async def test_share_link_that_has_ended_gets_the_same_error_as_an_unknown_one(
        self, stage: Stage, here: StageProcess
    ) -> None:
        shares = Host(here.ledger).shares
        chat = await here.chat(owner="ann")
        codes = {"unknown": new_code(lambda bits: 7), "mistyped": "tls_x"}
        wishes: dict[str, dict[str, Any]] = {
            "used up": {"scope": "shop", "max_uses": 1},
            "revoked": {"scope": "shop"},
            "expired": {"scope": "shop", "lifetime": 1},
            "of a deleted chat": {"chat": chat.id, "owner": "ann"},
        }
        for name, wish in wishes.items():
            share, codes[name] = await shares.create(**wish)
            if name == "revoked":
                await shares.revoke(share.id)
        await shares.exchange(codes["used up"], NONCE)
        await chat.delete()
        stage.clock.advance(1)
        for code in codes.values():
            with pytest.raises(LinkNotValid) as refused:
                await shares.exchange(code, OTHER)
            assert str(refused.value) == str(LinkNotValid())

    async def test_visitor_token_expires_no_later_than_its_link_and_the_creators_token(
        self, stage: Stage, here: StageProcess
    ) -> None:
        now = stage.clock.now_ms()
        boss, _ = await Host(here.ledger).tokens.create(owner="ann", scopes=ALL, lifetime=100)
        share, code = await Host(here.ledger).shares.create(scope="shop", parent=boss.id)
        assert share.expires_at == now + 100 * SECOND
        assert (await Host(here.ledger).shares.exchange(code, NONCE)).token.expires_at == now + 100 * SECOND
        with pytest.raises(TokenTooWide, match="later end"):
            await Host(here.ledger).shares.create(scope="shop", parent=boss.id, lifetime=101)
        _, code = await Host(here.ledger).shares.create(scope="shop", lifetime=50, visitor_lifetime=10)
        assert (await Host(here.ledger).shares.exchange(code, NONCE)).token.expires_at == now + 10 * SECOND
        _, code = await Host(here.ledger).shares.create(scope="shop", visitor_lifetime=None)
        assert (await Host(here.ledger).shares.exchange(code, NONCE)).token.expires_at is None

    @pytest.mark.parametrize(
        ("makers", "wish"),
        [
            ({"scopes": USER}, {"scope": "shop"}),
            ({"scopes": {TokenScope.ADMIN}}, {"scope": "shop"}),
            ({"scopes": ALL, "chat_scope": "desk"}, {"scope": "shop"}),
            ({"scopes": ALL, "models": ["small"]}, {"scope": "shop", "models": ["large"]}),
            ({"scopes": {TokenScope.CHATS_READ, TokenScope.TURNS_RUN}}, {"chat": ""}),
            ({"scopes": {TokenScope.CHATS_WRITE}}, {"chat": ""}),
        ],
    )
    async def test_share_link_wider_than_the_creators_token_is_refused(
        self, here: StageProcess, makers: dict[str, Any], wish: dict[str, Any]
    ) -> None:
        chat = await here.chat(owner="ann", scope="shop")
        maker, _ = await Host(here.ledger).tokens.create(owner="ann", **makers)
        given = {"chat": chat.id} if "chat" in wish else wish
        with pytest.raises(TokenTooWide):
            await Host(here.ledger).shares.create(**given, parent=maker.id)
        assert await Host(here.ledger).shares.list() == []

    async def test_chat_link_is_refused_to_other_owners_other_scopes_and_visitors(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann", scope="shop")
        ben, _ = await Host(here.ledger).tokens.create(owner="ben", scopes=ALL)
        desk, _ = await Host(here.ledger).tokens.create(owner="ann", scopes=USER, chat_scope="desk")
        for other in (ben, desk):
            with pytest.raises(ConversationNotFound):
                await Host(here.ledger).shares.create(chat=chat.id, parent=other.id)
        shop, _ = await Host(here.ledger).tokens.create(owner="ann", scopes=USER, chat_scope="shop")
        share, code = await Host(here.ledger).shares.create(chat=chat.id, parent=shop.id)
        assert (share.owner, share.chat_scope, share.conversation) == ("ann", "shop", chat.id)
        guest = await Host(here.ledger).shares.exchange(code, NONCE)
        with pytest.raises(TokenTooWide, match="Visitors cannot"):
            await Host(here.ledger).shares.create(chat=chat.id, parent=guest.token.id)
        await chat.delete()
        with pytest.raises(ConversationDeleted):
            await Host(here.ledger).shares.create(chat=chat.id, parent=shop.id)
        assert await here.ledger.check() == []

    async def test_visitors_beyond_the_limit_per_minute_are_refused(self, stage: Stage) -> None:
        here, there = await stage.processes()
        _, code = await Host(here.ledger).shares.create(scope="shop", per_minute=2)
        first = await Host(here.ledger).shares.exchange(code, NONCE)
        stage.clock.advance(30)
        await Host(there.ledger).shares.exchange(code, OTHER)
        with pytest.raises(TooManyVisitors):
            await Host(there.ledger).shares.exchange(code, "p" * 22)
        assert (await Host(there.ledger).shares.exchange(code, NONCE)).text == first.text
        stage.clock.advance(30)
        await Host(here.ledger).shares.exchange(code, "p" * 22)
        with pytest.raises(TooManyVisitors):
            await Host(here.ledger).shares.exchange(code, "q" * 22)

    async def test_visitors_per_link_and_links_per_owner_beyond_their_limits_are_refused(
        self, stage: Stage
    ) -> None:
        here = await stage.process(limits=replace_limits(visitors=2, shares=2, tokens=1))
        shares, chat = Host(here.ledger).shares, await here.chat(owner="ann")
        _, code = await shares.create(chat=chat.id, owner="ann", visitor_lifetime=10)
        for nonce in (NONCE, OTHER):
            await shares.exchange(code, nonce)
        with pytest.raises(TooManyVisitors):
            await shares.exchange(code, "p" * 22)
        await Host(here.ledger).tokens.create(
            owner="ann", scopes=ALL
        )  # visitors take nothing from their host
        stage.clock.advance(10)
        await shares.exchange(code, "p" * 22)
        gone, _ = await shares.create(scope="shop", owner="ann")
        with pytest.raises(TooManyShares):
            await shares.create(scope="shop", owner="ann")
        await shares.create(scope="shop", owner="ben")
        await shares.revoke(gone.id)
        await shares.create(scope="shop", owner="ann")

    async def test_first_share_link_ends_access_without_a_token(self, stage: Stage) -> None:
        here, there = await stage.processes()
        assert not (await Host(there.ledger).tokens.find(None)).any_tokens
        await Host(here.ledger).shares.create(scope="shop")
        assert (await Host(there.ledger).tokens.find(None)).any_tokens

    @pytest.mark.parametrize(
        "wish",
        [
            {},
            {"scope": ""},
            {"scope": "shop\x02"},
            {"scope": "shop", "chat": "conv_1"},
            {"scope": "shop", "name": "x" * 513},
            {"scope": "shop", "owner": ""},
            {"scope": "shop", "max_uses": 0},
            {"scope": "shop", "per_minute": 0},
            {"scope": "shop", "max_uses": 2**63},
            {"scope": "shop", "lifetime": 0},
            {"scope": "shop", "visitor_lifetime": 1e10},
            {"scope": "shop", "models": [""]},
            {"scope": "shop", "parent": "conv_1"},
            {"chat": "share_1"},
        ],
    )
    async def test_share_link_with_invalid_fields_is_refused_and_not_created(
        self, here: StageProcess, wish: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidInput):
            await Host(here.ledger).shares.create(**wish)
        assert await Host(here.ledger).shares.list() == []

    @pytest.mark.parametrize("nonce", ["", "n" * 21, "n" * 129, "n" * 21 + " ", "\ud800" * 22])
    async def test_share_link_exchange_with_an_invalid_nonce_is_refused(
        self, here: StageProcess, nonce: str
    ) -> None:
        share, code = await Host(here.ledger).shares.create(scope="shop")
        with pytest.raises(InvalidInput, match="nonce"):
            await Host(here.ledger).shares.exchange(code, nonce)
        assert [each.uses for each in await Host(here.ledger).shares.list()] == [share.uses]


def replace_limits(**changes: Any) -> Limits:
    return dataclasses.replace(LIMITS, **changes)
