"""The rows of tokens and share links."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from turnledger.engine.ports import Store
from turnledger.engine.tables.access import FoundToken
from turnledger.errors import StoreError
from turnledger.model.access.share import Share
from turnledger.model.access.token import Token, TokenScope
from turnledger.model.ids import ConversationId, ShareId, TokenId
from turnledger.testing.store_contract.rows.kit import IDS, LATE, TEXT, do, link, read, read_all, token, write
from turnledger.testing.store_contract.stage import Contract


async def insert_tokens(store: Store, made: list[Token]) -> list[Token]:
    await write(store, *(do("add_token", each) for each in made))
    return made


async def insert_links(store: Store, made: list[Share]) -> list[Share]:
    await write(store, *(do("add_share", each) for each in made))
    return made


def full_token() -> Token:
    return token(
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
        share=IDS.new(ShareId),
        defaults={"on_busy": "reject", "messages": TEXT},
    )


class TokenRows(Contract):
    async def test_token_is_read_as_added_by_its_owner_or_the_operator(
        self, here: Store, there: Store
    ) -> None:
        for made in await insert_tokens(here, [full_token(), token()]):
            owners = (made.owner, None, "eve")
            found = await read_all(there, "token", *((owner, made.id) for owner in owners))
            assert found == [made, made, None]
        assert await read(there, do("token", None, IDS.new(TokenId))) is None

    async def test_token_by_digest_has_the_admission_of_its_owner(self, here: Store, there: Store) -> None:
        made = await insert_tokens(here, [full_token(), token()])
        await write(here, do("raise_admission", "ann"))
        for each, admission in zip(made, (0, await read(there, do("admission"))), strict=True):
            found = await read(there, do("token_by_digest", each.digest))
            assert found == FoundToken(each, admission)
        assert await read_all(there, "token_by_digest", (b"",), (made[0].digest[:-1],)) == [None, None]

    async def test_tokens_are_newest_first_of_an_owner_or_of_all(self, here: Store, there: Store) -> None:
        made = await insert_tokens(here, [token(revoked_at=1), token(owner="ben"), token(expires_at=1)])
        for owner, before, limit, expected in (
            (None, None, 9, made[::-1]),
            (None, None, 2, made[:0:-1]),
            (None, made[2].id, 9, made[1::-1]),
            ("ann", None, 9, [made[2], made[0]]),
            ("ann", made[2].id, 9, [made[0]]),
            ("eve", None, 9, []),
        ):
            assert await read(there, do("tokens", owner, before, limit)) == expected

    async def test_child_tokens_are_those_a_token_created_oldest_first(
        self, here: Store, there: Store
    ) -> None:
        [parent, other] = await insert_tokens(here, [token(), token()])
        owners = ("ann", "ben")
        made = await insert_tokens(
            here, [token(parent=parent.id, owner=each, revoked_at=1) for each in owners]
        )
        await insert_tokens(here, [token(parent=other.id)])
        assert await read_all(there, "child_tokens", (parent.id,), (made[0].id,)) == [made, []]

    async def test_count_tokens_counts_valid_ones_without_visitors(self, here: Store, there: Store) -> None:
        ended = [token(expires_at=10), token(revoked_at=5)]
        await insert_tokens(here, [token(), *ended, token(owner="ben"), token(share=IDS.new(ShareId))])
        bounds = [("ann", 9, 9), ("ann", 10, 9), ("ann", 9, 1), ("eve", 9, 9)]
        assert await read_all(there, "count_tokens", *bounds) == [2, 1, 1, 0]

    async def test_add_token_refuses_a_taken_id_or_digest(self, here: Store, there: Store) -> None:
        [made] = await insert_tokens(here, [token()])
        for other in (token(id=made.id), token(digest=made.digest)):
            with pytest.raises(StoreError):
                await write(there, do("add_token", other))
        assert await read(there, do("tokens", None, None, 9)) == [made]

    async def test_revoke_token_keeps_the_first_time(self, here: Store, there: Store) -> None:
        made, other = await insert_tokens(here, [token(), token()])
        for at in (5, 6, 4):
            await write(here, do("revoke_token", made.id, at))
        await write(here, do("revoke_token", IDS.new(TokenId), 6))
        assert await read(there, do("tokens", None, None, 9)) == [other, replace(made, revoked_at=5)]

    async def test_record_use_never_sets_the_time_back(self, here: Store, there: Store) -> None:
        made, other = await insert_tokens(here, [token(), token()])
        for at, used in ((5, 5), (4, 5), (7, 7)):
            await write(here, do("record_use", made.id, at))
            assert (await read(there, do("token", None, made.id))).used_at == used
        await write(here, do("record_use", IDS.new(TokenId), 6))
        assert await read(there, do("tokens", None, None, 9)) == [other, replace(made, used_at=7)]

    async def test_purge_tokens_removes_those_that_ended_before_in_bounded_steps(
        self, here: Store, there: Store
    ) -> None:
        rows = await insert_tokens(
            here,
            [
                token(),
                token(expires_at=10),
                token(revoked_at=10),
                token(revoked_at=10, expires_at=90),
                token(revoked_at=90, expires_at=10),
                token(revoked_at=90),
                token(expires_at=20),
            ],
        )
        assert await write(there, do("purge_tokens", 10, 9)) == [0]
        assert await write(there, do("purge_tokens", 20, 3)) == [3]
        assert await write(there, do("purge_tokens", 20, 9)) == [1]
        assert await read(here, do("tokens", None, None, 9)) == [rows[6], rows[5], rows[0]]
        assert await read(here, do("token_by_digest", rows[1].digest)) is None

    async def test_raise_admission_raises_that_of_one_owner_and_no_flag_version(
        self, here: Store, there: Store
    ) -> None:
        await write(here, do("raise_admission", "ann"), do("raise_admission", "ann"))
        await write(there, do("raise_admission", "ben"))
        numbers = [await read(there, do("admission", owner=owner)) for owner in ("ann", "ben", "eve")]
        assert numbers[0] > numbers[1] > numbers[2] == 0
        assert await read(here, do("flag_version")) == 0


class LinkRows(Contract):
    async def test_share_is_read_as_added_by_its_owner_or_the_operator(
        self, here: Store, there: Store
    ) -> None:
        full = link(
            owner=TEXT,
            name=TEXT,
            chat_scope=TEXT,
            conversation=IDS.new(ConversationId),
            models=(TEXT, "b", "a"),
            max_uses=3,
            uses=2,
            per_minute=4,
            visitor_lifetime=5,
            expires_at=LATE,
            revoked_at=LATE,
            parent=IDS.new(TokenId),
        )
        for made in await insert_links(here, [full, link()]):
            owners = (made.owner, None, "eve")
            found = await read_all(there, "share", *((owner, made.id) for owner in owners))
            assert found == [made, made, None]
        assert await read(there, do("share", None, IDS.new(ShareId))) is None

    async def test_share_by_digest_is_found_by_the_whole_digest_only(self, here: Store, there: Store) -> None:
        made = await insert_links(here, [link(), link(owner="ben", revoked_at=1)])
        digests = [(each.digest,) for each in made]
        assert await read_all(there, "share_by_digest", *digests) == made
        assert await read_all(there, "share_by_digest", (b"",), (made[0].digest[:-1],)) == [None, None]

    async def test_shares_are_newest_first_of_an_owner_or_of_all(self, here: Store, there: Store) -> None:
        made = await insert_links(here, [link(revoked_at=1), link(owner="ben"), link(expires_at=1)])
        for owner, before, limit, expected in (
            (None, None, 9, made[::-1]),
            (None, None, 2, made[:0:-1]),
            (None, made[2].id, 9, made[1::-1]),
            ("ann", None, 9, [made[2], made[0]]),
            ("ann", made[2].id, 9, [made[0]]),
            ("eve", None, 9, []),
        ):
            assert await read(there, do("shares", owner, before, limit)) == expected

    async def test_child_shares_are_those_a_token_created_oldest_first(
        self, here: Store, there: Store
    ) -> None:
        parent = IDS.new(TokenId)
        made = await insert_links(here, [link(parent=parent, owner=owner) for owner in ("ann", "ben")])
        await insert_links(here, [link(), link(parent=IDS.new(TokenId))])
        assert await read_all(there, "child_shares", (parent,), (IDS.new(TokenId),)) == [made, []]

    async def test_count_shares_counts_valid_ones(self, here: Store, there: Store) -> None:
        await insert_links(here, [link(), link(expires_at=10), link(revoked_at=5), link(owner="ben")])
        bounds = [("ann", 9, 9), ("ann", 10, 9), ("ann", 9, 1), ("eve", 9, 9)]
        assert await read_all(there, "count_shares", *bounds) == [2, 1, 1, 0]

    async def test_add_share_refuses_a_taken_id_or_digest(self, here: Store, there: Store) -> None:
        [made] = await insert_links(here, [link()])
        for twin in (link(id=made.id), link(digest=made.digest)):
            with pytest.raises(StoreError):
                await write(there, do("add_share", twin))
        assert await read(there, do("shares", None, None, 9)) == [made]

    async def test_count_use_raises_the_uses_of_one_link(self, here: Store, there: Store) -> None:
        made, other = await insert_links(here, [link(uses=2), link()])
        await write(here, do("count_use", made.id), do("count_use", IDS.new(ShareId)))
        assert await read(there, do("shares", None, None, 9)) == [other, replace(made, uses=3)]

    async def test_revoke_share_keeps_the_first_time(self, here: Store, there: Store) -> None:
        made, other = await insert_links(here, [link(), link()])
        for at in (5, 6, 4):
            await write(here, do("revoke_share", made.id, at))
        await write(here, do("revoke_share", IDS.new(ShareId), 6))
        assert await read(there, do("shares", None, None, 9)) == [other, replace(made, revoked_at=5)]

    async def test_revoke_visitors_revokes_all_tokens_of_a_link_once(self, here: Store, there: Store) -> None:
        share = IDS.new(ShareId)
        made = await insert_tokens(
            here,
            [
                *(token(share=share, owner=owner) for owner in ("g2", "g1", "g1")),
                token(share=share, owner="g3", revoked_at=10),
                token(owner="g1"),
                token(share=IDS.new(ShareId), owner="g4"),
            ],
        )
        assert await write(here, do("revoke_visitors", share, 11)) == [["g1", "g2"]]
        assert await write(there, do("revoke_visitors", share, 12)) == [[]]
        found = await read_all(there, "token", *((None, each.id) for each in made))
        assert [each.revoked_at for each in found] == [11, 11, 11, 10, None, None]

    async def test_count_visitors_counts_tokens_obtained_since(self, here: Store, there: Store) -> None:
        share = IDS.new(ShareId)
        times = ((5, None), (9, None), (9, 10))
        await insert_tokens(here, [token(share=share, created_at=at, revoked_at=end) for at, end in times])
        await insert_tokens(here, [token(created_at=9), token(share=IDS.new(ShareId), created_at=9)])
        bounds = [(share, 4, 9), (share, 5, 9), (share, 9, 9), (share, 0, 2)]
        assert await read_all(there, "count_visitors", *bounds) == [3, 2, 0, 2]

    async def test_purge_shares_removes_those_that_ended_before_in_bounded_steps(
        self, here: Store, there: Store
    ) -> None:
        rows = await insert_links(
            here,
            [
                link(),
                link(expires_at=10),
                link(revoked_at=10),
                link(revoked_at=90, expires_at=10),
                link(expires_at=20),
            ],
        )
        assert await write(there, do("purge_shares", 10, 9)) == [0]
        assert await write(there, do("purge_shares", 20, 2)) == [2]
        assert await write(there, do("purge_shares", 20, 9)) == [1]
        assert await read(here, do("shares", None, None, 9)) == [rows[4], rows[0]]
        assert await read(here, do("share_by_digest", rows[1].digest)) is None
