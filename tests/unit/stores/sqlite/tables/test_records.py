"""Rows and what they stand for: lines are packed, and what cannot be read says so."""

from pathlib import Path
from struct import pack
from zlib import crc32

import apsw
import pytest

from tests.unit.engine.lived_in import say
from tests.unit.model.shapes import some_id
from turnledger import Ledger, Rule
from turnledger.engine.ports import Tables
from turnledger.errors import StoreCorrupt
from turnledger.model.conversation import Stretch
from turnledger.model.ids import BranchId
from turnledger.stores.sqlite import SqliteStore
from turnledger.stores.sqlite.tables.records import line_of, packed_line

A, B = some_id(BranchId, 1), some_id(BranchId, 2)
LINE = (Stretch(B, 3, 2**40), Stretch(A, 0, 3))


def test_a_line_comes_back_with_the_refs_of_its_branches() -> None:
    assert line_of(packed_line(LINE, [7, 5])) == (LINE, {B: 7, A: 5})


def test_no_line_is_no_value() -> None:
    assert packed_line((), []) is None
    assert line_of(None) == ((), {})


def test_a_line_that_was_cut_off_is_damage() -> None:
    packed = packed_line(LINE, [7, 5])
    assert packed is not None
    with pytest.raises(StoreCorrupt):
        line_of(packed[:-1])


@pytest.fixture
async def chats(path: Path) -> list[str]:
    """The ids of two chats in a store that is closed."""
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        made = [await ledger.conversation() for _ in range(2)]
        for chat, answer in zip(made, ("A heron.", "An egret."), strict=True):
            await say(chat, "What is it?", answer)
        return [str(chat.id) for chat in made]


async def test_turn_with_a_flipped_byte_in_its_text_is_corrupt_and_the_check_reports_it(
    path: Path, chats: list[str]
) -> None:
    replace_bytes(path, b"A heron.", b"A baron.")
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        damaged, sound = [await ledger.conversation(id) for id in chats]
        with pytest.raises(StoreCorrupt, match="does not match its checksum"):
            await damaged.turns()
        assert [turn.text for turn in await sound.turns()] == ["An egret."]
        [finding] = [each for each in await ledger.check() if each.rule is Rule.DOCUMENT]
        assert "does not match its checksum" in finding.message


async def test_turn_with_a_changed_event_log_is_corrupt(path: Path, chats: list[str]) -> None:
    execute(path, "UPDATE turn SET log = x'00'")
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        chat = await ledger.conversation(chats[0])
        [turn] = await chat.turns()
        with pytest.raises(StoreCorrupt, match="does not match its checksum"):
            async for _ in chat.events(turn.id):
                pass


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE turn SET branch = (SELECT max(ref) FROM branch) WHERE branch = 1",
        "UPDATE turn SET parent = zeroblob(16)",
    ],
)
async def test_turn_moved_to_another_branch_or_parent_is_corrupt(
    path: Path, chats: list[str], change: str
) -> None:
    execute(path, "DELETE FROM turn WHERE branch = 2")
    execute(path, change)
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        assert "does not match its checksum" in str(await ledger.check())


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM turn WHERE branch = 1 AND number = 1",
        "DELETE FROM turn WHERE branch = 1 AND number = 3",
        "DELETE FROM turn WHERE branch = 1",
        "UPDATE branch SET length = 0 WHERE ref = 1",
        "UPDATE branch SET length = 2 WHERE ref = 1",
        "UPDATE branch SET length = 4 WHERE ref = 1",
        "UPDATE branch SET id = zeroblob(16) WHERE ref = 1",
    ],
)
async def test_chat_with_a_missing_turn_is_corrupt_to_who_reads_exports_or_continues_it(
    path: Path, chats: list[str], damage: str
) -> None:
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        chat = await ledger.conversation(chats[0])
        for answer in ("An egret.", "A stork."):
            await say(chat, "And now?", answer)
    execute(path, damage)
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        chat = await ledger.conversation(chats[0])
        with pytest.raises(StoreCorrupt):
            await chat.turns()
        with pytest.raises(StoreCorrupt):
            await chat.history()
        if "length = 2" not in damage and "length = 0" not in damage:
            with pytest.raises(StoreCorrupt):
                [line async for line in ledger.transfer.export(chat.id)]
        if "SET id" not in damage:
            with pytest.raises(StoreCorrupt):
                await say(chat, "Are you there?")
        assert await ledger.check() != []


async def test_branch_of_another_chat_is_corrupt_to_who_reads_or_continues_the_chat(
    path: Path, chats: list[str]
) -> None:
    # As an index does whose entry was damaged: it leads to another row.
    execute(path, "UPDATE branch SET conversation = (SELECT max(conversation) FROM branch) WHERE ref = 1")
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        chat = await ledger.conversation(chats[0])
        with pytest.raises(StoreCorrupt):
            await chat.turns()
        with pytest.raises(StoreCorrupt):
            await say(chat, "Are you there?")


async def test_checksum_of_an_earlier_version_without_its_place_still_holds(
    path: Path, chats: list[str]
) -> None:
    connection = apsw.Connection(str(path))
    for ref, *columns, body, log in connection.execute(
        "SELECT ref, id, number, kind, created_at, committed_at, body, log FROM turn"
    ).fetchall():
        row = crc32(body, crc32(pack(">16sqBqq", *columns)))
        earlier = row | (crc32(log or b"") & 0x7FFF_FFFF) << 32
        connection.execute("UPDATE turn SET checksum = ? WHERE ref = ?", (earlier, ref))
    connection.close()
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        [turn] = await (await ledger.conversation(chats[0])).turns()
        assert turn.text == "A heron."
        assert await ledger.check() == []
    replace_bytes(path, b"A heron.", b"A baron.")
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        assert "does not match its checksum" in str(await ledger.check())


async def test_turn_of_an_older_version_without_a_checksum_is_read(path: Path, chats: list[str]) -> None:
    execute(path, "UPDATE turn SET checksum = NULL")
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        [turn] = await (await ledger.conversation(chats[0])).turns()
        assert turn.text == "A heron."
        assert await ledger.check() == []


async def test_row_with_values_of_other_types_is_corrupt(path: Path, chats: list[str]) -> None:
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.pragma("writable_schema", 1)
    connection.execute("UPDATE sqlite_schema SET sql = replace(sql, 'branch BLOB NOT NULL', 'branch BLOB')")
    connection.pragma("writable_schema", "RESET")
    connection.close()
    execute(path, "UPDATE conversation SET branch = NULL")
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        with pytest.raises(StoreCorrupt, match="a row cannot be read: AttributeError"):
            await ledger.conversation(chats[0])


async def test_bug_in_an_operation_is_not_taken_for_damage(path: Path) -> None:
    async def broken(tables: Tables, _: None) -> None:
        raise AttributeError("a bug")

    store = await SqliteStore.open(path, inline=True)
    with pytest.raises(AttributeError):
        await store.transact(broken, None)
    await store.close()


def replace_bytes(path: Path, old: bytes, new: bytes) -> None:
    path.write_bytes(path.read_bytes().replace(old, new))


def execute(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()
