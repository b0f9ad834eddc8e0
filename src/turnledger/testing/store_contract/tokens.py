"""Tokens and share links: found by their text only, and useless once revoked."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from turnledger.engine.ports import Store
from turnledger.errors import (
    AdmissionMoved,
    InvalidId,
    LinkNotValid,
    ShareNotFound,
    StoreError,
    TokenEnded,
    TokenNotFound,
)
from turnledger.hosting import Authorization, Host
from turnledger.model.access.share import Share
from turnledger.model.access.token import Token, TokenScope, digest_of, is_token_text
from turnledger.model.conversation import Within
from turnledger.model.ids import IdSource, ShareId, TokenId
from turnledger.testing.store_contract.rows import IDS, LATE, TEXT, do, insert_conversation, read, write
from turnledger.testing.store_contract.stage import Contract, Stage, run_block

ALL = frozenset(TokenScope)
DAY = 24 * 3600.0
UNKNOWN = IdSource(lambda: 1, Random(2).getrandbits).new(TokenId)


def token(**changes: Any) -> Token:
    id = IDS.new(TokenId)
    made = Token(id=id, owner="ann", scopes=ALL, created_at=1, digest=digest_of(id))
    return replace(made, **changes)


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

    async def test_processes_share_the_secret_of_the_store(self, stage: Stage) -> None:
        here, there = await stage.processes()
        secret = await Host(here.ledger).tokens.store_secret()
        assert len(secret) == 32
        assert len(set(secret)) > 8
        assert await Host(there.ledger).tokens.store_secret() == secret

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

    async def test_token_use_time_only_increases(self, stage: Stage) -> None:
        here, there = await stage.processes()
        first, _ = await Host(here.ledger).tokens.create(scopes=ALL)
        second, _ = await Host(here.ledger).tokens.create(scopes=ALL)
        await Host(here.ledger).tokens.record_uses({first.id: 20, second.id: 10, UNKNOWN: 5})
        await Host(there.ledger).tokens.record_uses({first.id: 15, second.id: 15})
        await Host(there.ledger).tokens.record_uses({})
        assert [each.used_at for each in await Host(here.ledger).tokens.list()] == [15, 20]

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

    async def test_token_is_read_as_written(self, stores: list[Store]) -> None:
        here, there = stores
        full = token(
            owner=TEXT,
            name=TEXT,
            scopes=frozenset({TokenScope.ADMIN, TokenScope.CHATS_READ}),
            chat_scope=TEXT,
            models=(TEXT, "b", "a"),
            created_at=LATE,
            expires_at=LATE,
            revoked_at=LATE,
            used_at=LATE,
            parent=IDS.new(TokenId),
        )
        plain = token()
        await write(here, do("add_token", full), do("add_token", plain))
        for each in (full, plain):
            assert await read(there, do("token", each.owner, each.id)) == each
            assert await read(there, do("token", None, each.id)) == each
            assert await read(there, do("token", "eve", each.id)) is None
            assert await read(there, do("token_by_digest", each.digest)) == (each, 0)
        assert await read(there, do("token_by_digest", b"")) is None
        assert await read(there, do("child_tokens", full.parent)) == [full]
        assert await read(there, do("child_tokens", full.id)) == []
        assert await read(there, do("tokens", None, None, 9)) == [plain, full]
        assert await read(there, do("tokens", "ann", None, 9)) == [plain]
        assert await read(there, do("tokens", None, plain.id, 9)) == [full]
        assert await read(there, do("all_tokens", None, 1)) == [(TEXT, full.id)]
        assert await read(there, do("all_tokens", full.id, 9)) == [("ann", plain.id)]

    async def test_tokens_have_unique_ids_and_texts(self, stores: list[Store]) -> None:
        here, there = stores
        made = token()
        await write(here, do("add_token", made))
        for other in (token(id=made.id), token(digest=made.digest)):
            with pytest.raises(StoreError):
                await write(there, do("add_token", other))
        assert await read(there, do("tokens", None, None, 9)) == [made]

    async def test_admission_number_is_per_owner_and_read_with_lane_and_token(
        self, stores: list[Store]
    ) -> None:
        here, there = stores
        found, made = await insert_conversation(here), token()
        await write(here, do("add_token", made))
        versions = [await read(there, do("admission", "ann"))]
        for number in range(3):
            await write(stores[number % 2], do("raise_admission", "ann"))
            versions.append(await read(there, do("admission", "ann")))
            assert (await read(here, do("lane", "ann", found.id, found.id)))[4] == versions[-1]
            assert (await read(here, do("token_by_digest", made.digest)))[1] == versions[-1]
        assert versions == sorted(set(versions))
        assert versions[0] == await read(there, do("admission", "eve")) == 0
        assert (await read(here, do("lane", "ann", found.id, found.id)))[3] == 0
        assert await read(here, do("flag_version", "ann")) == 0

    async def test_tokens_are_counted_while_valid(self, stores: list[Store]) -> None:
        here, there = stores
        await write(
            here,
            do("add_token", token()),
            do("add_token", token(expires_at=10)),
            do("add_token", token(revoked_at=5)),
            do("add_token", token(owner="ben")),
        )
        for now, limit, count in ((9, 9, 2), (10, 9, 1), (9, 1, 1)):
            assert await read(there, do("count_tokens", "ann", now, limit)) == count
        assert await read(there, do("count_tokens", "eve", 9, 9)) == 0

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

    async def test_token_row_is_revoked_once_and_its_use_time_increases(self, stores: list[Store]) -> None:
        here, there = stores
        made = token()
        await write(here, do("add_token", made))
        await write(there, do("revoke_token", made.id, 5), do("record_use", made.id, 7))
        await write(here, do("revoke_token", made.id, 6), do("record_use", made.id, 6))
        await write(here, do("revoke_token", UNKNOWN, 6), do("record_use", UNKNOWN, 6))
        assert await read(there, do("tokens", None, None, 9)) == [replace(made, revoked_at=5, used_at=7)]

    async def test_tokens_are_purged_by_end_in_bounded_steps(self, stores: list[Store]) -> None:
        here, there = stores
        rows = [
            token(),
            token(expires_at=10),
            token(revoked_at=10),
            token(revoked_at=10, expires_at=90),
            token(revoked_at=90, expires_at=10),
            token(revoked_at=90),
            token(expires_at=20),
        ]
        await write(here, *(do("add_token", each) for each in rows))
        assert await write(there, do("purge_tokens", 10, 9)) == [0]
        assert await write(there, do("purge_tokens", 20, 3)) == [3]
        assert await write(there, do("purge_tokens", 20, 9)) == [1]
        assert await read(here, do("tokens", None, None, 9)) == [rows[6], rows[5], rows[0]]
        assert await read(here, do("token_by_digest", rows[1].digest)) is None


NONCE, OTHER = "n" * 22, "o" * 22


def link(**changes: Any) -> Share:
    id = IDS.new(ShareId)
    return replace(
        Share(id=id, owner="ann", chat_scope="shop", created_at=1, digest=digest_of(id)), **changes
    )


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

    async def test_link_rows_are_read_as_written(self, stores: list[Store]) -> None:
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
        assert await read(there, do("child_shares", full.parent)) == [full]
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

    async def test_visitor_tokens_of_a_link_are_counted_and_revoked(self, stores: list[Store]) -> None:
        store, there = stores
        share = link()
        visitors = [token(share=share.id, owner=owner, created_at=at) for owner, at in (("g1", 5), ("g2", 9))]
        late = token(share=share.id, owner="g1", created_at=9)
        apart = token(owner="g1", created_at=9)
        rows = [do("add_token", each) for each in (*visitors, late, apart)]
        await write(store, do("add_share", share), *rows)
        bounds = [(4, 9), (5, 9), (9, 9), (0, 2)]
        counts = [await read(there, do("count_visitors", share.id, *each)) for each in bounds]
        assert counts == [3, 2, 0, 2]
        assert await read(there, do("count_tokens", "g1", 1, 9)) == 1
        await write(store, do("revoke_token", late.id, 10))
        assert await write(store, do("revoke_visitors", share.id, 11)) == [["g1", "g2"]]
        assert await write(store, do("revoke_visitors", share.id, 12)) == [[]]
        ended = [await read(there, do("token", None, each.id)) for each in (*visitors, late, apart)]
        assert [each.revoked_at for each in ended] == [11, 11, 10, None]
