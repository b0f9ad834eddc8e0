"""Tokens and share links: found by their text only, and useless once revoked."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from turnledger.errors import (
    AdmissionMoved,
    InvalidId,
    LinkNotValid,
    ShareNotFound,
    TokenEnded,
    TokenNotFound,
)
from turnledger.hosting import Authorization, Host
from turnledger.model.access.token import Token, TokenScope, digest_of, is_token_text
from turnledger.model.conversation import Within
from turnledger.model.ids import IdSource, TokenId
from turnledger.testing.store_contract.stage import Contract, Stage, run_block

ALL = frozenset(TokenScope)
DAY = 24 * 3600.0
UNKNOWN = IdSource(lambda: 1, Random(2).getrandbits).new(TokenId)


class StoredTokens(Contract):
    async def test_token_is_found_by_its_text_only(self, stage: Stage) -> None:
        here, there = await stage.processes()
        made, text = await Host(here.ledger).tokens.create(
            owner="ann", scopes=[TokenScope.TURNS_RUN], name="phone"
        )
        assert is_token_text(text)
        assert made == Token(
            id=made.id,
            owner="ann",
            name="phone",
            scopes=frozenset({TokenScope.TURNS_RUN}),
            created_at=stage.clock.now_ms(),
            digest=digest_of(text),
        )
        found = await Host(there.ledger).tokens.find(digest_of(text))
        assert (found.token, found.version, found.any_tokens) == (made, 0, True)
        for other in (digest_of(text + "x"), made.digest[:-1], b"", None):
            assert (await Host(there.ledger).tokens.find(other)).token is None

    async def test_tokens_are_listed_newest_first_in_pages(self, stage: Stage) -> None:
        here, there = await stage.processes()
        made = []
        for number, owner in enumerate(["ann", "ben", "ann", "ann", "ben"]):
            stage.clock.advance(1)
            where = "shop" if number % 3 == 2 else ""
            made.append((await Host(here.ledger).tokens.create(owner=owner, scopes=ALL, chat_scope=where))[0])
        tokens = Host(there.ledger).tokens
        assert await tokens.list() == made[::-1]
        assert await tokens.list(owner="ann") == [made[3], made[2], made[0]]
        assert await tokens.list(limit=2) == [made[4], made[3]]
        assert await tokens.list(limit=2, before=made[3].id) == [made[2], made[1]]
        assert await tokens.list(limit=1, owner="ann", before=made[2].id) == [made[0]]
        assert await tokens.list(owner="ann", within=Within("shop"), limit=1) == [made[2]]
        assert await tokens.list(owner="ben", within=Within("shop")) == await tokens.list(owner="eve") == []

    async def test_token_revocation_revokes_tokens_it_created(self, stage: Stage) -> None:
        here, there = await stage.processes()
        tokens = Host(here.ledger).tokens
        root, _ = await tokens.create(owner="ann", scopes=ALL)
        child, _ = await tokens.create(scopes=ALL, parent=root.id)
        grandchild, _ = await tokens.create(scopes=[TokenScope.ADMIN], parent=child.id)
        last, _ = await tokens.create(scopes=[TokenScope.ADMIN], parent=grandchild.id)
        other, _ = await tokens.create(owner="ann", scopes=ALL)
        version = (await tokens.find(other.digest)).version
        stage.clock.advance(1)
        ended = await Host(there.ledger).tokens.revoke(child.id)
        now = stage.clock.now_ms()
        assert ended == tuple(replace(each, revoked_at=now) for each in (child, grandchild, last))
        for each in (child, grandchild, last):
            found = (await tokens.find(each.digest)).token
            assert found == replace(each, revoked_at=now)
        for each in (root, other):
            admission = await tokens.find(each.digest)
            assert admission.token == each
            assert admission.version != version

    async def test_token_of_another_owner_is_not_found(self, stage: Stage) -> None:
        process = await stage.process()
        tokens = Host(process.ledger).tokens
        made, _ = await tokens.create(owner="ann", scopes=ALL, chat_scope="shop")
        for known in (
            {"owner": "eve"},
            {"within": Within("")},
            {"within": Within("shop2")},
            {"owner": "eve", "within": Within("shop")},
        ):
            with pytest.raises(TokenNotFound):
                await tokens.revoke(made.id, **known)
        with pytest.raises(TokenNotFound):
            await tokens.revoke(UNKNOWN)
        with pytest.raises(InvalidId):
            await tokens.revoke("tok_1")
        assert (await tokens.find(made.digest)).token == made
        assert len(await tokens.revoke(made.id, owner="ann", within=Within("shop"))) == 1

    async def test_tokens_that_ended_long_ago_are_purged(self, stage: Stage) -> None:
        process = await stage.process()
        tokens = Host(process.ledger).tokens
        kept, _ = await tokens.create(scopes=ALL)
        expired, _ = await tokens.create(scopes=ALL, lifetime=DAY)
        revoked, _ = await tokens.create(scopes=ALL, lifetime=100 * DAY)
        await tokens.revoke(revoked.id)
        stage.clock.advance(30 * DAY)
        await process.tend()
        assert [each.id for each in await tokens.list()] == [revoked.id, expired.id, kept.id]
        stage.clock.advance(1)
        await process.tend()
        assert [each.id for each in await tokens.list()] == [expired.id, kept.id]
        assert (await tokens.find(revoked.digest)).token is None
        stage.clock.advance(DAY)
        await process.tend()
        assert [each.id for each in await tokens.list()] == [kept.id]

    async def test_token_revokes_only_itself_and_tokens_it_created(self, stage: Stage) -> None:
        here, there = await stage.processes()
        tokens = Host(here.ledger).tokens
        admin = [TokenScope.ADMIN]
        root, _ = await tokens.create(scopes=admin)
        other, _ = await tokens.create(scopes=admin)
        child, _ = await tokens.create(scopes=admin, parent=root.id)
        sibling, _ = await tokens.create(scopes=admin, parent=root.id)
        grandchild, _ = await tokens.create(scopes=admin, parent=child.id)
        for above in (root, other, sibling, child):
            with pytest.raises(TokenNotFound):
                await Host(there.ledger).tokens.revoke(above.id, by=grandchild.id)
        for beyond in (root, other, sibling):
            with pytest.raises(TokenNotFound):
                await Host(there.ledger).tokens.revoke(beyond.id, by=child.id)
        assert [each.id for each in await tokens.revoke(grandchild.id, by=child.id)] == [grandchild.id]
        assert [each.id for each in await tokens.revoke(child.id, by=child.id)] == [child.id, grandchild.id]
        assert [each.id for each in await tokens.revoke(other.id, by=root.id)] == [other.id]


NONCE, OTHER = "n" * 22, "o" * 22


class ShareLinks(Contract):
    async def test_token_revokes_only_links_it_created_or_to_its_chats(self, stage: Stage) -> None:
        here, there = await stage.processes()
        tokens, shares = Host(here.ledger).tokens, Host(here.ledger).shares
        chat = await here.chat(owner="ann")
        root, _ = await tokens.create(owner="ann", scopes=ALL)
        child, _ = await tokens.create(owner="ann", scopes=ALL, parent=root.id)
        beside, _ = await tokens.create(owner="ben", scopes=ALL, parent=root.id)
        of_root, _ = await shares.create(scope="shop", parent=root.id)
        of_child, _ = await shares.create(scope="shop", parent=child.id)
        to_chat, _ = await shares.create(chat=chat.id, parent=root.id)
        for share, by in ((of_root, child), (of_root, beside), (of_child, beside), (to_chat, beside)):
            with pytest.raises(ShareNotFound):
                await Host(there.ledger).shares.revoke(share.id, by=by)
        for share, by in ((to_chat, child), (of_child, child), (of_root, root)):
            assert (await Host(there.ledger).shares.revoke(share.id, by=by)).revoked_at is not None

    async def test_concurrent_link_exchanges_count_one_use_per_nonce(self, stage: Stage) -> None:
        here, there = await stage.processes()
        _, code = await Host(here.ledger).shares.create(scope="shop", max_uses=3)
        nonces = [f"{number:022}" for number in range(5) for _ in range(2)]
        results = await asyncio.gather(
            *(Host(each.ledger).shares.exchange(code, nonce) for nonce in nonces for each in (here, there)),
            return_exceptions=True,
        )
        admitted = [each for each in results if not isinstance(each, BaseException)]
        assert len({each.text for each in admitted}) == 3
        assert len(admitted) == 12
        assert all(isinstance(each, LinkNotValid) for each in results if isinstance(each, BaseException))
        assert [each.uses for each in await Host(here.ledger).shares.list()] == [3]

    async def test_link_revocation_revokes_its_visitors(self, stage: Stage) -> None:
        here, there = await stage.processes()
        share, code = await Host(here.ledger).shares.create(scope="shop")
        stays, _ = await Host(here.ledger).tokens.create(owner="ann", scopes=ALL)
        guests = [await Host(here.ledger).shares.exchange(code, nonce) for nonce in (NONCE, OTHER)]
        found = await Host(here.ledger).tokens.find(digest_of(guests[0].text))
        revoked = await Host(there.ledger).shares.revoke(share.id)
        assert revoked.revoked_at == stage.clock.now_ms()
        for each in guests:
            ended = (await Host(here.ledger).tokens.find(digest_of(each.text))).token
            assert ended is not None
            assert not ended.is_valid(stage.clock.now_ms())
        owner, authorization = guests[0].token.owner, Authorization(found.version)
        caller = here.ledger.for_owner(owner, authorization=authorization)
        with pytest.raises(AdmissionMoved):
            await run_block(caller.turn("q"))
        [kept] = [each for each in await Host(here.ledger).tokens.list() if each.id == stays.id]
        assert kept.revoked_at is None
        assert await Host(there.ledger).shares.revoke(share.id) == revoked
        with pytest.raises(LinkNotValid):
            await Host(here.ledger).shares.exchange(code, NONCE)
        assert await here.ledger.check() == []

    async def test_link_ends_with_the_token_that_created_it(self, stage: Stage) -> None:
        here = await stage.process()
        boss, _ = await Host(here.ledger).tokens.create(owner="ann", scopes=ALL)
        _share, code = await Host(here.ledger).shares.create(scope="shop", parent=boss.id)
        guest = await Host(here.ledger).shares.exchange(code, NONCE)
        ended = await Host(here.ledger).tokens.revoke(boss.id)
        assert {each.id for each in ended} == {boss.id, guest.token.id}
        [listed] = await Host(here.ledger).shares.list()
        assert listed.revoked_at is not None
        with pytest.raises(LinkNotValid):
            await Host(here.ledger).shares.exchange(code, OTHER)
        with pytest.raises(TokenEnded):
            await Host(here.ledger).shares.create(scope="shop", parent=boss.id)
        assert await here.ledger.check() == []

    async def test_links_are_listed_and_revoked_by_callers_that_see_them(self, stage: Stage) -> None:
        here = await stage.process()
        shares, chat = Host(here.ledger).shares, await here.chat(owner="ann", scope="desk")
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
