"""Tokens: what is made is found by its text alone, nothing is made beyond its maker, and what is revoked lets
nobody in from that moment on, in any process."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from turnledger.engine.limits import Limits
from turnledger.engine.ports import Store
from turnledger.errors import (
    InvalidId,
    InvalidInput,
    StoreError,
    TokenEnded,
    TokenNotFound,
    TokenTooWide,
    TooManyTokens,
)
from turnledger.ledger import OWNER
from turnledger.model.access.token import Token, TokenScope, digest_of, is_token_text
from turnledger.model.conversation import Within
from turnledger.model.ids import IdSource, TokenId
from turnledger.testing.store_contract.rows import IDS, LATE, TEXT, begun, do, read, write
from turnledger.testing.store_contract.stage import LIMITS, Contract, Stage

ALL = frozenset(TokenScope)
DAY = 24 * 3600.0
UNKNOWN = IdSource(lambda: 1, Random(2).getrandbits).new(TokenId)


def token(**changes: Any) -> Token:
    id = IDS.new(TokenId)
    made = Token(id=id, owner="ann", scopes=ALL, created_at=1, digest=digest_of(id))
    return replace(made, **changes)


class TokensKept(Contract):
    # What a ledger does.

    async def test_a_token_is_found_by_its_text_and_by_nothing_else(self, stage: Stage) -> None:
        here, there = await stage.processes()
        made, text = await here.ledger.tokens.create(owner="ann", scopes=[TokenScope.TURNS_RUN], name="phone")
        assert is_token_text(text)
        assert made == Token(
            id=made.id,
            owner="ann",
            name="phone",
            scopes=frozenset({TokenScope.TURNS_RUN}),
            created_at=stage.clock.now_ms(),
            digest=digest_of(text),
        )
        found = await there.ledger.tokens.find(digest_of(text))
        assert (found.token, found.version, found.any_tokens) == (made, 0, True)
        for other in (digest_of(text + "x"), made.digest[:-1], b"", None):
            assert (await there.ledger.tokens.find(other)).token is None

    async def test_a_store_has_a_secret_that_all_of_its_processes_know(self, stage: Stage) -> None:
        here, there = await stage.processes()
        secret = await here.ledger.tokens.store_secret()
        assert len(secret) == 32
        assert len(set(secret)) > 8
        assert await there.ledger.tokens.store_secret() == secret

    async def test_two_tokens_have_two_texts(self, stage: Stage) -> None:
        here, there = await stage.processes()
        texts = {(await each.ledger.tokens.create(scopes=ALL))[1] for each in (here, there, here, there)}
        assert len(texts) == 4

    async def test_the_first_token_of_all_shuts_out_those_who_come_without(self, stage: Stage) -> None:
        here, there = await stage.processes()
        before = await there.ledger.tokens.find(None)
        assert (before.token, before.version, before.any_tokens) == (None, 0, False)
        await here.ledger.tokens.create(owner="ann", scopes=[TokenScope.CHATS_READ])
        after = await there.ledger.tokens.find(None)
        assert after.any_tokens
        assert after.version != before.version
        await here.ledger.tokens.create(owner="ben", scopes=[TokenScope.CHATS_READ])
        assert await there.ledger.tokens.find(None) == after

    async def test_nobody_comes_without_again_when_all_tokens_are_gone(self, stage: Stage) -> None:
        process = await stage.process()
        made, _ = await process.ledger.tokens.create(scopes=[TokenScope.CHATS_READ])
        await process.ledger.tokens.revoke(made.id)
        stage.clock.advance(31 * DAY)
        await process.tend()
        assert await process.ledger.tokens.list() == []
        assert (await process.ledger.tokens.find(None)).any_tokens

    async def test_without_an_owner_it_is_the_one_of_those_who_come_without(self, stage: Stage) -> None:
        process = await stage.process()
        made, _ = await process.ledger.tokens.create(scopes=["turns:run", "chats:read"])
        assert (made.owner, made.scopes) == (OWNER, frozenset({TokenScope.TURNS_RUN, TokenScope.CHATS_READ}))

    async def test_a_token_ends_with_its_time(self, stage: Stage) -> None:
        process = await stage.process()
        now = stage.clock.now_ms()
        short, _ = await process.ledger.tokens.create(scopes=ALL, lifetime=1.5)
        dated, _ = await process.ledger.tokens.create(scopes=ALL, expires_at=now + 2_000)
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
    async def test_what_cannot_be_a_token_is_not_made(self, stage: Stage, wish: dict[str, Any]) -> None:
        process = await stage.process()
        with pytest.raises((InvalidInput, InvalidId)):
            await process.ledger.tokens.create(**{"scopes": ALL, **wish})
        assert await process.ledger.tokens.list() == []
        assert not (await process.ledger.tokens.find(None)).any_tokens

    async def test_a_token_made_by_another_is_as_wide_as_that_one_unless_it_says_less(
        self, stage: Stage
    ) -> None:
        process = await stage.process()
        tokens = process.ledger.tokens
        parent, _ = await tokens.create(
            owner="ann", scopes=ALL, chat_scope="shop", models=["a", "b"], lifetime=60
        )
        same, _ = await tokens.create(scopes=ALL, parent=parent.id)
        assert same == replace(parent, id=same.id, parent=parent.id, digest=same.digest)
        less, _ = await tokens.create(
            scopes=[TokenScope.TURNS_RUN], chat_scope="shop", models=["b"], lifetime=30, parent=parent.id
        )
        assert not less.beyond(parent)
        bens, _ = await tokens.create(owner="ben", scopes=[TokenScope.TURNS_RUN], parent=parent.id)
        assert (bens.owner, bens.chat_scope) == ("ben", "shop")
        assert (less.models, less.expires_at) == (("b",), stage.clock.now_ms() + 30_000)

    @pytest.mark.parametrize(
        ("wish", "said"),
        [
            ({"scopes": ["admin", "chats:write"]}, "the scope chats:write"),
            ({"chat_scope": ""}, "other conversations"),
            ({"chat_scope": "shop2"}, "other conversations"),
            ({"models": []}, "other models"),
            ({"models": ["a", "c"]}, "other models"),
            ({"lifetime": 61}, "a later end"),
        ],
    )
    async def test_nothing_is_made_beyond_its_maker(
        self, stage: Stage, wish: dict[str, Any], said: str
    ) -> None:
        process = await stage.process()
        tokens = process.ledger.tokens
        narrow: dict[str, Any] = {
            "scopes": ["admin"],
            "chat_scope": "shop",
            "models": ["a", "b"],
            "lifetime": 60,
        }
        parent, _ = await tokens.create(owner="ann", **narrow)
        with pytest.raises(TokenTooWide, match=said):
            await tokens.create(**{"scopes": ["admin"], "parent": parent.id, **wish})
        assert await tokens.list() == [parent]

    async def test_only_an_admin_that_is_valid_makes_tokens(self, stage: Stage) -> None:
        here, there = await stage.processes()
        plain, _ = await here.ledger.tokens.create(scopes=ALL - {TokenScope.ADMIN})
        with pytest.raises(TokenTooWide, match="admin"):
            await here.ledger.tokens.create(scopes=[TokenScope.CHATS_READ], parent=plain.id)
        revoked, _ = await here.ledger.tokens.create(scopes=ALL)
        expired, _ = await here.ledger.tokens.create(scopes=ALL, lifetime=1)
        await there.ledger.tokens.revoke(revoked.id)
        stage.clock.advance(1)
        for parent in (revoked.id, expired.id, UNKNOWN):
            with pytest.raises(TokenEnded):
                await here.ledger.tokens.create(scopes=[TokenScope.CHATS_READ], parent=parent)
        assert len(await here.ledger.tokens.list()) == 3

    async def test_an_owner_has_so_many_tokens_and_no_more(self, stage: Stage) -> None:
        process = await stage.process(Limits(lease_time=LIMITS.lease_time, tokens=2))
        tokens = process.ledger.tokens
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

    async def test_a_list_goes_back_in_time_page_by_page(self, stage: Stage) -> None:
        here, there = await stage.processes()
        made = []
        for number, owner in enumerate(["ann", "ben", "ann", "ann", "ben"]):
            stage.clock.advance(1)
            where = "shop" if number % 3 == 2 else ""
            made.append((await here.ledger.tokens.create(owner=owner, scopes=ALL, chat_scope=where))[0])
        tokens = there.ledger.tokens
        assert await tokens.list() == made[::-1]
        assert await tokens.list(owner="ann") == [made[3], made[2], made[0]]
        assert await tokens.list(limit=2) == [made[4], made[3]]
        assert await tokens.list(limit=2, before=made[3].id) == [made[2], made[1]]
        assert await tokens.list(limit=1, owner="ann", before=made[2].id) == [made[0]]
        assert await tokens.list(owner="ann", within=Within("shop"), limit=1) == [made[2]]
        assert await tokens.list(owner="ben", within=Within("shop")) == await tokens.list(owner="eve") == []

    async def test_a_revocation_takes_along_what_was_made_by_it(self, stage: Stage) -> None:
        here, there = await stage.processes()
        tokens = here.ledger.tokens
        root, _ = await tokens.create(owner="ann", scopes=ALL)
        child, _ = await tokens.create(scopes=ALL, parent=root.id)
        grandchild, _ = await tokens.create(scopes=[TokenScope.ADMIN], parent=child.id)
        last, _ = await tokens.create(scopes=[TokenScope.ADMIN], parent=grandchild.id)
        other, _ = await tokens.create(owner="ann", scopes=ALL)
        version = (await tokens.find(other.digest)).version
        stage.clock.advance(1)
        ended = await there.ledger.tokens.revoke(child.id)
        now = stage.clock.now_ms()
        assert ended == tuple(replace(each, revoked_at=now) for each in (child, grandchild, last))
        for each in (child, grandchild, last):
            found = (await tokens.find(each.digest)).token
            assert found == replace(each, revoked_at=now)
        for each in (root, other):
            admission = await tokens.find(each.digest)
            assert admission.token == each
            assert admission.version != version

    async def test_a_revocation_can_be_repeated_and_changes_nothing_then(self, stage: Stage) -> None:
        process = await stage.process()
        tokens = process.ledger.tokens
        made, _ = await tokens.create(owner="ann", scopes=ALL)
        ended = await tokens.revoke(made.id)
        version = (await tokens.find(made.digest)).version
        stage.clock.advance(1)
        assert await tokens.revoke(made.id) == ended
        assert (await tokens.find(made.digest)).version == version

    async def test_to_others_a_token_does_not_exist(self, stage: Stage) -> None:
        process = await stage.process()
        tokens = process.ledger.tokens
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

    async def test_uses_are_noted_forward_only(self, stage: Stage) -> None:
        here, there = await stage.processes()
        first, _ = await here.ledger.tokens.create(scopes=ALL)
        second, _ = await here.ledger.tokens.create(scopes=ALL)
        await here.ledger.tokens.note_uses({first.id: 20, second.id: 10, UNKNOWN: 5})
        await there.ledger.tokens.note_uses({first.id: 15, second.id: 15})
        await there.ledger.tokens.note_uses({})
        assert [each.used_at for each in await here.ledger.tokens.list()] == [15, 20]

    async def test_what_ended_long_ago_is_forgotten(self, stage: Stage) -> None:
        process = await stage.process()
        tokens = process.ledger.tokens
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

    # Rows.

    async def test_a_token_is_read_as_it_was_written(self, stores: list[Store]) -> None:
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
        assert await read(there, do("minted_by", full.parent)) == [full]
        assert await read(there, do("minted_by", full.id)) == []
        assert await read(there, do("tokens", None, None, 9)) == [plain, full]
        assert await read(there, do("tokens", "ann", None, 9)) == [plain]
        assert await read(there, do("tokens", None, plain.id, 9)) == [full]
        assert await read(there, do("all_tokens", None, 1)) == [(TEXT, full.id)]
        assert await read(there, do("all_tokens", full.id, 9)) == [("ann", plain.id)]

    async def test_no_two_tokens_share_an_id_or_a_text(self, stores: list[Store]) -> None:
        here, there = stores
        made = token()
        await write(here, do("add_token", made))
        for other in (token(id=made.id), token(digest=made.digest)):
            with pytest.raises(StoreError):
                await write(there, do("add_token", other))
        assert await read(there, do("tokens", None, None, 9)) == [made]

    async def test_the_admission_is_a_number_of_its_owner_and_seen_with_lane_and_token(
        self, stores: list[Store]
    ) -> None:
        here, there = stores
        found, made = await begun(here), token()
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

    async def test_tokens_are_counted_while_they_are_valid(self, stores: list[Store]) -> None:
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

    async def test_a_token_revokes_itself_and_what_it_made_only(self, stage: Stage) -> None:
        here, there = await stage.processes()
        tokens = here.ledger.tokens
        admin = [TokenScope.ADMIN]
        root, _ = await tokens.create(scopes=admin)
        other, _ = await tokens.create(scopes=admin)
        child, _ = await tokens.create(scopes=admin, parent=root.id)
        sibling, _ = await tokens.create(scopes=admin, parent=root.id)
        grandchild, _ = await tokens.create(scopes=admin, parent=child.id)
        for above in (root, other, sibling, child):
            with pytest.raises(TokenNotFound):
                await there.ledger.tokens.revoke(above.id, by=grandchild.id)
        for beyond in (root, other, sibling):
            with pytest.raises(TokenNotFound):
                await there.ledger.tokens.revoke(beyond.id, by=child.id)
        assert [each.id for each in await tokens.revoke(grandchild.id, by=child.id)] == [grandchild.id]
        assert [each.id for each in await tokens.revoke(child.id, by=child.id)] == [child.id, grandchild.id]
        assert [each.id for each in await tokens.revoke(other.id, by=root.id)] == [other.id]

    async def test_a_token_is_revoked_once_and_used_later_and_later(self, stores: list[Store]) -> None:
        here, there = stores
        made = token()
        await write(here, do("add_token", made))
        await write(there, do("revoke_token", made.id, 5), do("note_use", made.id, 7))
        await write(here, do("revoke_token", made.id, 6), do("note_use", made.id, 6))
        await write(here, do("revoke_token", UNKNOWN, 6), do("note_use", UNKNOWN, 6))
        assert await read(there, do("tokens", None, None, 9)) == [replace(made, revoked_at=5, used_at=7)]

    async def test_tokens_are_purged_by_their_end_a_few_at_a_time(self, stores: list[Store]) -> None:
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
