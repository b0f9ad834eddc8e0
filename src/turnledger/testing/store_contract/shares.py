"""Share links: who comes with the code is let in once for each use, sees what the link shows and nothing
else, and is out from the moment that it is revoked."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from turnledger.engine.limits import Limits
from turnledger.engine.ports import Store
from turnledger.errors import (
    AdmissionMoved,
    ConversationDeleted,
    ConversationNotFound,
    InvalidInput,
    LinkNotValid,
    ShareNotFound,
    StoreError,
    TokenEnded,
    TokenTooWide,
    TooManyShares,
    TooManyVisitors,
)
from turnledger.model.access.share import READS, Share, ShareKind, is_code, new_code
from turnledger.model.access.token import TokenScope, digest_of, is_token_text
from turnledger.model.conversation import Within
from turnledger.model.ids import ShareId, TokenId
from turnledger.testing.store_contract.rows import IDS, do, read, write
from turnledger.testing.store_contract.stage import LIMITS, Contract, Stage, exchange, tell
from turnledger.testing.store_contract.tokens import token

ALL = frozenset(TokenScope)
USER = ALL - {TokenScope.ADMIN}
NONCE, OTHER = "n" * 22, "o" * 22
SECOND, DAY = 1_000, 24 * 3600.0


def link(**changes: Any) -> Share:
    id = IDS.new(ShareId)
    return replace(
        Share(id=id, owner="ann", chat_scope="shop", created_at=1, digest=digest_of(id)), **changes
    )


class SharesKept(Contract):
    # What a ledger does.

    async def test_a_token_revokes_links_that_it_made_or_to_its_chats_only(self, stage: Stage) -> None:
        here, there = await stage.processes()
        tokens, shares = here.ledger.tokens, here.ledger.shares
        chat = await here.chat(owner="ann")
        root, _ = await tokens.create(owner="ann", scopes=ALL)
        child, _ = await tokens.create(owner="ann", scopes=ALL, parent=root.id)
        beside, _ = await tokens.create(owner="ben", scopes=ALL, parent=root.id)
        of_root, _ = await shares.create(scope="shop", parent=root.id)
        of_child, _ = await shares.create(scope="shop", parent=child.id)
        to_chat, _ = await shares.create(chat=chat.id, parent=root.id)
        for share, by in ((of_root, child), (of_root, beside), (of_child, beside), (to_chat, beside)):
            with pytest.raises(ShareNotFound):
                await there.ledger.shares.revoke(share.id, by=by)
        for share, by in ((to_chat, child), (of_child, child), (of_root, root)):
            assert (await there.ledger.shares.revoke(share.id, by=by)).revoked_at is not None

    async def test_a_visitor_of_a_scope_is_a_fresh_owner_there(self, stage: Stage) -> None:
        here, there = await stage.processes()
        share, code = await here.ledger.shares.create(scope="shop", name="fair", models=["small"])
        assert (share.kind, share.uses, is_code(code)) == (ShareKind.SCOPE, 0, True)
        one = await there.ledger.shares.exchange(code, NONCE)
        two = await there.ledger.shares.exchange(code, OTHER)
        assert one.token.owner.startswith("guest_")
        assert one.token.owner != two.token.owner
        assert (one.token.scopes, one.token.chat_scope, one.token.models) == (USER, "shop", ("small",))
        assert (one.token.share, one.token.name, one.token.conversation) == (share.id, "fair", None)
        found = await here.ledger.tokens.find(digest_of(one.text))
        assert found.token == one.token
        [listed] = await here.ledger.shares.list()
        assert listed == replace(share, uses=2)

    async def test_a_visitor_of_a_chat_reads_it_and_nothing_else(self, stage: Stage) -> None:
        here = await stage.process()
        chat, other = await here.chat(owner="ann", scope="shop"), await here.chat(owner="ann", scope="shop")
        await exchange(chat, "q", "a")
        _, code = await here.ledger.shares.create(chat=chat.id, owner="ann")
        guest = (await here.ledger.shares.exchange(code, NONCE)).token
        assert (guest.owner, guest.scopes, guest.conversation) == ("ann", READS, chat.id)
        seen = await here.ledger.conversation(chat.id, owner=guest.owner, within=guest.within)
        assert len(await seen.turns()) == 1
        with pytest.raises(ConversationNotFound):
            await here.ledger.conversation(other.id, owner=guest.owner, within=guest.within)

    async def test_the_same_page_gets_the_same_token_for_a_minute(self, stage: Stage) -> None:
        here, there = await stage.processes()
        _share, code = await here.ledger.shares.create(scope="shop", max_uses=1)
        first = await here.ledger.shares.exchange(code, NONCE)
        stage.clock.advance(60)
        again = await there.ledger.shares.exchange(code, NONCE)
        assert (again.token, again.text) == (first.token, first.text)
        assert is_token_text(first.text)
        with pytest.raises(LinkNotValid):
            await there.ledger.shares.exchange(code, OTHER)
        stage.clock.advance(0.001)
        with pytest.raises(LinkNotValid):
            await here.ledger.shares.exchange(code, NONCE)
        assert [each.uses for each in await here.ledger.shares.list()] == [1]

    async def test_pages_that_come_at_once_are_counted_one_by_one(self, stage: Stage) -> None:
        here, there = await stage.processes()
        _, code = await here.ledger.shares.create(scope="shop", max_uses=3)
        nonces = [f"{number:022}" for number in range(5) for _ in range(2)]
        came = await asyncio.gather(
            *(each.ledger.shares.exchange(code, nonce) for nonce in nonces for each in (here, there)),
            return_exceptions=True,
        )
        let_in = [each for each in came if not isinstance(each, BaseException)]
        assert len({each.text for each in let_in}) == 3
        assert len(let_in) == 12
        assert all(isinstance(each, LinkNotValid) for each in came if isinstance(each, BaseException))
        assert [each.uses for each in await here.ledger.shares.list()] == [3]

    async def test_what_is_no_link_any_more_is_told_like_what_never_was(self, stage: Stage) -> None:
        here = await stage.process()
        shares = here.ledger.shares
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

    async def test_revoking_a_link_ends_all_who_came_by_it(self, stage: Stage) -> None:
        here, there = await stage.processes()
        share, code = await here.ledger.shares.create(scope="shop")
        stays, _ = await here.ledger.tokens.create(owner="ann", scopes=ALL)
        guests = [await here.ledger.shares.exchange(code, nonce) for nonce in (NONCE, OTHER)]
        found = await here.ledger.tokens.find(digest_of(guests[0].text))
        revoked = await there.ledger.shares.revoke(share.id)
        assert revoked.revoked_at == stage.clock.now_ms()
        for each in guests:
            ended = (await here.ledger.tokens.find(digest_of(each.text))).token
            assert ended is not None
            assert not ended.is_valid(stage.clock.now_ms())
        with pytest.raises(AdmissionMoved):
            await tell(here.ledger.turn("q", owner=guests[0].token.owner, admitted=found.version))
        [kept] = [each for each in await here.ledger.tokens.list() if each.id == stays.id]
        assert kept.revoked_at is None
        assert await there.ledger.shares.revoke(share.id) == revoked
        with pytest.raises(LinkNotValid):
            await here.ledger.shares.exchange(code, NONCE)
        assert await here.ledger.check() == []

    async def test_a_link_ends_with_the_token_that_made_it(self, stage: Stage) -> None:
        here = await stage.process()
        boss, _ = await here.ledger.tokens.create(owner="ann", scopes=ALL)
        _share, code = await here.ledger.shares.create(scope="shop", parent=boss.id)
        guest = await here.ledger.shares.exchange(code, NONCE)
        ended = await here.ledger.tokens.revoke(boss.id)
        assert {each.id for each in ended} == {boss.id, guest.token.id}
        [listed] = await here.ledger.shares.list()
        assert listed.revoked_at is not None
        with pytest.raises(LinkNotValid):
            await here.ledger.shares.exchange(code, OTHER)
        with pytest.raises(TokenEnded):
            await here.ledger.shares.create(scope="shop", parent=boss.id)
        assert await here.ledger.check() == []

    async def test_nobody_stays_longer_than_link_and_maker(self, stage: Stage) -> None:
        here = await stage.process()
        now = stage.clock.now_ms()
        boss, _ = await here.ledger.tokens.create(owner="ann", scopes=ALL, lifetime=100)
        share, code = await here.ledger.shares.create(scope="shop", parent=boss.id)
        assert share.expires_at == now + 100 * SECOND
        assert (await here.ledger.shares.exchange(code, NONCE)).token.expires_at == now + 100 * SECOND
        with pytest.raises(TokenTooWide, match="later end"):
            await here.ledger.shares.create(scope="shop", parent=boss.id, lifetime=101)
        _, code = await here.ledger.shares.create(scope="shop", lifetime=50, visitor_lifetime=10)
        assert (await here.ledger.shares.exchange(code, NONCE)).token.expires_at == now + 10 * SECOND
        _, code = await here.ledger.shares.create(scope="shop", visitor_lifetime=None)
        assert (await here.ledger.shares.exchange(code, NONCE)).token.expires_at is None

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
    async def test_no_link_gives_more_than_its_maker_has(
        self, stage: Stage, makers: dict[str, Any], wish: dict[str, Any]
    ) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann", scope="shop")
        maker, _ = await here.ledger.tokens.create(owner="ann", **makers)
        given = {"chat": chat.id} if "chat" in wish else wish
        with pytest.raises(TokenTooWide):
            await here.ledger.shares.create(**given, parent=maker.id)
        assert await here.ledger.shares.list() == []

    async def test_a_chat_is_shared_by_its_owner_where_he_sees_it(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann", scope="shop")
        ben, _ = await here.ledger.tokens.create(owner="ben", scopes=ALL)
        desk, _ = await here.ledger.tokens.create(owner="ann", scopes=USER, chat_scope="desk")
        for other in (ben, desk):
            with pytest.raises(ConversationNotFound):
                await here.ledger.shares.create(chat=chat.id, parent=other.id)
        shop, _ = await here.ledger.tokens.create(owner="ann", scopes=USER, chat_scope="shop")
        share, code = await here.ledger.shares.create(chat=chat.id, parent=shop.id)
        assert (share.owner, share.chat_scope, share.conversation) == ("ann", "shop", chat.id)
        guest = await here.ledger.shares.exchange(code, NONCE)
        with pytest.raises(TokenTooWide, match="came by a link"):
            await here.ledger.shares.create(chat=chat.id, parent=guest.token.id)
        await chat.delete()
        with pytest.raises(ConversationDeleted):
            await here.ledger.shares.create(chat=chat.id, parent=shop.id)
        assert await here.ledger.check() == []

    async def test_so_many_come_within_a_minute_and_no_more(self, stage: Stage) -> None:
        here, there = await stage.processes()
        _, code = await here.ledger.shares.create(scope="shop", per_minute=2)
        first = await here.ledger.shares.exchange(code, NONCE)
        stage.clock.advance(30)
        await there.ledger.shares.exchange(code, OTHER)
        with pytest.raises(TooManyVisitors):
            await there.ledger.shares.exchange(code, "p" * 22)
        assert (await there.ledger.shares.exchange(code, NONCE)).text == first.text
        stage.clock.advance(30)
        await here.ledger.shares.exchange(code, "p" * 22)
        with pytest.raises(TooManyVisitors):
            await here.ledger.shares.exchange(code, "q" * 22)

    async def test_so_many_are_there_by_one_link_and_so_many_links_there_are(self, stage: Stage) -> None:
        here = await stage.process(limits=replace_limits(visitors=2, shares=2, tokens=1))
        shares, chat = here.ledger.shares, await here.chat(owner="ann")
        _, code = await shares.create(chat=chat.id, owner="ann", visitor_lifetime=10)
        for nonce in (NONCE, OTHER):
            await shares.exchange(code, nonce)
        with pytest.raises(TooManyVisitors):
            await shares.exchange(code, "p" * 22)
        await here.ledger.tokens.create(owner="ann", scopes=ALL)  # visitors take nothing from their host
        stage.clock.advance(10)
        await shares.exchange(code, "p" * 22)
        gone, _ = await shares.create(scope="shop", owner="ann")
        with pytest.raises(TooManyShares):
            await shares.create(scope="shop", owner="ann")
        await shares.create(scope="shop", owner="ben")
        await shares.revoke(gone.id)
        await shares.create(scope="shop", owner="ann")

    async def test_with_the_first_link_nobody_comes_without_a_token(self, stage: Stage) -> None:
        here, there = await stage.processes()
        assert not (await there.ledger.tokens.find(None)).any_tokens
        await here.ledger.shares.create(scope="shop")
        assert (await there.ledger.tokens.find(None)).any_tokens

    async def test_links_are_listed_and_revoked_by_who_sees_them(self, stage: Stage) -> None:
        here = await stage.process()
        shares, chat = here.ledger.shares, await here.chat(owner="ann", scope="desk")
        one, _ = await shares.create(scope="shop", owner="ann")
        two, _ = await shares.create(scope="desk", owner="ben")
        three, _ = await shares.create(chat=chat.id, owner="ann")
        assert await shares.list() == [three, two, one]
        assert await shares.list(before=three.id, limit=1) == [two]
        assert await shares.list(owner="ann") == [three, one]
        assert await shares.list(within=Within("desk"), limit=1) == [three]
        assert await shares.list(owner="ann", only_chats=True) == [three]
        others: list[dict[str, Any]] = [
            {"owner": "ben"},
            {"within": Within("desk")},
            {"only_chats": True},
            {"within": Within(chat=chat.id)},
        ]
        for seen in others:
            with pytest.raises(ShareNotFound):
                await shares.revoke(one.id, **seen)
        assert [each.revoked_at for each in await shares.list()] == [None, None, None]
        await shares.revoke(one.id, owner="ann", within=Within("shop"))

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
    async def test_what_is_no_link_is_refused(self, stage: Stage, wish: dict[str, Any]) -> None:
        here = await stage.process()
        with pytest.raises(InvalidInput):
            await here.ledger.shares.create(**wish)
        assert await here.ledger.shares.list() == []

    @pytest.mark.parametrize("nonce", ["", "n" * 21, "n" * 129, "n" * 21 + " ", "\ud800" * 22])
    async def test_what_is_no_nonce_is_refused(self, stage: Stage, nonce: str) -> None:
        here = await stage.process()
        share, code = await here.ledger.shares.create(scope="shop")
        with pytest.raises(InvalidInput, match="nonce"):
            await here.ledger.shares.exchange(code, nonce)
        assert [each.uses for each in await here.ledger.shares.list()] == [share.uses]

    async def test_ended_links_are_forgotten_in_time(self, stage: Stage) -> None:
        here = await stage.process()
        share, code = await here.ledger.shares.create(scope="shop", lifetime=10)
        await here.ledger.shares.exchange(code, NONCE)
        stage.clock.advance(29 * DAY)
        await here.tend()
        assert [each.id for each in await here.ledger.shares.list()] == [share.id]
        stage.clock.advance(2 * DAY)
        await here.tend()
        assert await here.ledger.shares.list() == []
        assert await here.ledger.check() == []

    # What a store does.

    async def test_the_rows_of_links(self, stores: list[Store]) -> None:
        store, there = stores
        full = link(
            name="n",
            chat_scope="",
            conversation=None,
            models=("a", "b"),
            max_uses=3,
            uses=2,
            per_minute=4,
            visitor_lifetime=5,
            expires_at=60,
            parent=IDS.new(TokenId),
        )
        plain = link(owner="ben")
        await write(store, do("add_share", full), do("add_share", plain))
        assert await read(there, do("share", None, full.id)) == full
        assert await read(there, do("share", "ben", full.id)) is None
        assert await read(there, do("share_by_digest", plain.digest)) == plain
        assert await read(there, do("share_by_digest", b"")) is None
        assert full.parent is not None
        assert await read(there, do("shares_made_by", full.parent)) == [full]
        assert await read(there, do("shares", None, None, 9)) == [plain, full]
        assert await read(there, do("shares", None, plain.id, 9)) == [full]
        assert await read(there, do("shares", "ann", None, 9)) == [full]
        counts = [do("count_shares", "ann", now, 9) for now in (59, 60)]
        assert [await read(there, count) for count in counts] == [1, 0]
        for twin in (replace(plain, id=IDS.new(ShareId)), replace(link(), id=plain.id)):
            with pytest.raises(StoreError):
                await write(store, do("add_share", twin))
        await write(store, do("count_use", full.id), do("revoke_share", plain.id, 7))
        await write(store, do("revoke_share", plain.id, 9))
        changed = [replace(plain, revoked_at=7), replace(full, uses=3)]
        assert await read(there, do("shares", None, None, 9)) == changed
        assert await write(store, do("purge_shares", 7, 9)) == [0]
        assert await write(store, do("purge_shares", 61, 1), do("purge_shares", 61, 9)) == [1, 1]

    async def test_the_tokens_of_a_link(self, stores: list[Store]) -> None:
        store, there = stores
        share = link()
        came = [token(share=share.id, owner=owner, created_at=at) for owner, at in (("g1", 5), ("g2", 9))]
        late = token(share=share.id, owner="g1", created_at=9)
        apart = token(owner="g1", created_at=9)
        rows = [do("add_token", each) for each in (*came, late, apart)]
        await write(store, do("add_share", share), *rows)
        bounds = [(4, 9), (5, 9), (9, 9), (0, 2)]
        counts = [await read(there, do("count_visitors", share.id, *each)) for each in bounds]
        assert counts == [3, 2, 0, 2]
        assert await read(there, do("count_tokens", "g1", 1, 9)) == 1
        await write(store, do("revoke_token", late.id, 10))
        assert await write(store, do("revoke_visitors", share.id, 11)) == [["g1", "g2"]]
        assert await write(store, do("revoke_visitors", share.id, 12)) == [[]]
        ended = [await read(there, do("token", None, each.id)) for each in (*came, late, apart)]
        assert [each.revoked_at for each in ended] == [11, 11, 10, None]


def replace_limits(**changes: Any) -> Limits:
    return dataclasses.replace(LIMITS, **changes)
