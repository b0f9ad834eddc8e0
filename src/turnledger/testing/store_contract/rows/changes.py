"""The rows of changes, in the order of their positions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from turnledger.engine.ports import Store, Tables
from turnledger.engine.tables.changes import ChangeTail
from turnledger.model.change import ChangeKind, LiveChange, Position
from turnledger.model.ids import BranchId, TurnId
from turnledger.testing.store_contract.rows.kit import IDS, TEXT, change, do, do_whole, read, write
from turnledger.testing.store_contract.stage import Contract


async def changes_of(store: Store, owner: str = "ann") -> list[LiveChange]:
    found: list[LiveChange] = await read(store, do("changes", None, 99, owner=owner))
    return found


async def times_kept(store: Store) -> list[int]:
    return [each.at for each in await changes_of(store)]


class StoredChanges(Contract):
    async def test_newest_position_is_that_of_the_last_change_of_any_owner(
        self, here: Store, there: Store
    ) -> None:
        positions = [await read(there, do("newest_position"))]
        for owner in ("ann", "bob", "ann"):
            await write(here, do("add_change", change(owner)))
            newest = (await changes_of(there, owner))[-1].position
            positions.append(newest)
            for step in (do("newest_position"), do_whole("newest_position")):
                assert await read(there, step) == newest
        assert positions == sorted(set(positions))

    async def test_is_kept_until_a_change_after_the_position_is_purged(
        self, here: Store, there: Store
    ) -> None:
        start = await read(there, do("newest_position"))
        await write(here, *(do("add_change", change(owner)) for owner in ("ann", "bob", "ann")))
        tail = await read(there, do("tail", start, {"ann", "bob"}, 9))
        positions = [start, *(each.position for each in tail.changes)]

        async def kept() -> list[bool]:
            answers = [await read(there, do("is_kept", each)) for each in positions]
            assert answers == [await read(there, do_whole("is_kept", each)) for each in positions]
            assert answers == [await read(there, do("is_kept", each, owner="bob")) for each in positions]
            return answers

        assert await kept() == [True] * 4
        await write(here, do("purge_changes", 99, 0, 1))
        assert (await kept())[0] is False
        assert (await kept())[2:] == [True, True]
        await write(here, do("purge_changes", 99, 0, 9))
        assert (await kept())[:2] == [False, False]
        assert (await kept())[3] is True

    async def test_is_kept_is_false_for_a_text_that_is_no_position(self, here: Store, there: Store) -> None:
        await write(here, do("add_change", change()))
        newest = await read(there, do("newest_position"))
        for other in ("", "x", TEXT, f"{newest}0", newest[:-1], "-1", "é" * len(newest), newest[::-1]):
            assert other == newest or not await read(there, do("is_kept", Position(other))), other

    async def test_add_change_stores_every_kind_without_the_chat(self, here: Store, there: Store) -> None:
        kinds = [kind for kind in ChangeKind if kind not in (ChangeKind.START, ChangeKind.GAP)]
        await write(here, *(do("add_change", replace(change(), kind=kind)) for kind in kinds))
        found = await changes_of(there)
        assert [(each.kind, each.chat) for each in found] == [(kind, None) for kind in kinds]

    async def test_add_change_that_is_rolled_back_leaves_no_position(self, here: Store, there: Store) -> None:
        start = await read(there, do("newest_position"))
        lost: list[Position] = []

        async def fail(tables: Tables, _: None) -> None:
            await tables.add_change(change())
            lost.append(await tables.newest_position())
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await here.transact(fail, None, "ann")
        assert lost[0] == start or not await read(there, do("is_kept", lost[0]))
        assert await read(there, do("newest_position")) == start
        await write(here, do("add_change", change(at=2)))
        [found] = await changes_of(there)
        assert await read(there, do("newest_position")) == found.position > start

    async def test_changes_are_those_of_the_owner_after_a_position(self, here: Store, there: Store) -> None:
        start = await read(there, do("newest_position"))
        full = change(scope="shop", turn=IDS.new(TurnId), branch=IDS.new(BranchId), detail="completed", at=7)
        written = [full, change("bob"), change()]
        await write(here, *(do("add_change", each) for each in written))
        found = await changes_of(there)
        assert [replace(each, position=Position("")) for each in found] == [full, written[2]]
        for after, limit, expected in (
            (None, 1, found[:1]),
            (start, 9, found),
            (found[0].position, 9, found[1:]),
            (found[1].position, 9, []),
        ):
            assert await read(there, do("changes", after, limit)) == expected
        await write(here, do("purge_changes", 99, 1, 99))
        assert await changes_of(there) == found[1:]

    async def test_tail_has_the_changes_of_these_owners_in_order(self, here: Store, there: Store) -> None:
        start = await read(there, do("newest_position"))
        written = [change(owner, at=7, detail="d") for owner in ("ann", "bob", "eve", "ann")]
        await write(here, *(do("add_change", each) for each in written))
        tail = await read(there, do("tail", start, {"ann", "bob"}, 9))
        found = [replace(each, position=Position("")) for each in tail.changes]
        assert found == [written[0], written[1], written[3]]
        positions = [start, *(each.position for each in tail.changes)]
        assert positions == sorted(set(positions))
        assert tail == ChangeTail(tail.changes, positions[-1], has_more=False)
        assert await changes_of(there, "bob") == tail.changes[1:2]

    async def test_tail_reads_on_past_the_changes_of_other_owners(self, here: Store, there: Store) -> None:
        start = await read(there, do("newest_position"))
        await write(here, *(do("add_change", change(owner)) for owner in ("bob", "bob", "ann")))
        first = await read(there, do("tail", start, {"ann"}, 2))
        assert (first.changes, first.has_more) == ([], True)
        second = await read(there, do("tail", first.through, {"ann"}, 2))
        assert (second.changes, second.has_more) == (await changes_of(there), False)
        assert second.through == await read(there, do("newest_position"))
        last = await read(there, do("tail", second.through, {"ann"}, 2))
        assert last == ChangeTail([], second.through, has_more=False)

    async def test_purge_changes_by_age_and_count_keeps_the_newest(self, here: Store, there: Store) -> None:
        assert await write(here, do("purge_changes", 99, 0, 99)) == [0]
        await write(here, *(do("add_change", change(at=at)) for at in (1, 2, 3, 4, 5, 6)))
        assert await write(here, do("purge_changes", 3, 99, 1)) == [1]
        assert await times_kept(there) == [2, 3, 4, 5, 6]
        assert await write(here, do("purge_changes", 3, 99, 99)) == [1]
        assert await write(here, do("purge_changes", 0, 3, 99)) == [1]
        assert await times_kept(there) == [4, 5, 6]
        assert await write(here, do("purge_changes", 99, 0, 99)) == [2]
        await write(here, do("add_change", change(at=7)))
        assert await times_kept(there) == [6, 7]

    async def test_purge_changes_stops_at_the_first_that_stays(self, here: Store, there: Store) -> None:
        # Clocks differ and operations may wait, so times need not increase with the positions.
        await write(here, *(do("add_change", change(at=at)) for at in (1, 9, 1, 1, 8)))
        assert await write(here, do("purge_changes", 5, 99, 99)) == [1]
        assert await times_kept(there) == [9, 1, 1, 8]
        assert await write(here, do("purge_changes", 5, 2, 99)) == [3]
        assert await times_kept(there) == [8]

    async def test_secret_is_32_random_bytes_of_the_store(self, stores: list[Store]) -> None:
        secrets = [await read(store, do("secret")) for store in stores]
        assert secrets[0] == secrets[1]
        assert len(secrets[0]) == 32
        assert len(set(secrets[0])) > 8
