"""What is particular to the tables of SQLite: sizes, checksums, positions, and that no secret is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from struct import pack
from zlib import crc32

import apsw
import pytest
from msgspec.structs import replace

from tests.unit.engine.populated_store import run_turn
from tests.unit.model.shapes import some_id
from turnledger import Ledger
from turnledger.engine.ports import Tables
from turnledger.engine.tables.lanes import HeldTicket
from turnledger.errors import StoreCorrupt
from turnledger.hosting import Host, TokenScope
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import Stretch
from turnledger.model.ids import BranchId
from turnledger.model.item import message
from turnledger.model.turn import Attempt, Turn
from turnledger.stores.row_codec import _NUMBER_OF_CHANGE, CHANGE_KINDS
from turnledger.stores.sqlite import SqliteStore
from turnledger.stores.sqlite.tables.records import START, line_of, pack_line, position_of
from turnledger.testing.store_contract.rows.kit import (
    add_ticket,
    change,
    do,
    full_attempt,
    insert_conversation,
    read,
    read_all,
    turn,
    write,
)
from turnledger.types import Rule


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path, inline=True)
    yield store
    await store.close()


async def test_journal_count_is_saved_without_rewriting_the_attempt(path: Path, store: SqliteStore) -> None:
    attempt = full_attempt(await insert_conversation(store), input=(message("user", "x" * 50_000),))
    await write(store, do("add_attempt", attempt))
    log = path.with_name(f"{path.name}-wal")
    before = log.stat().st_size
    counted = replace(attempt, journaled=5)
    await write(store, lambda whole: count_journal(whole.of("ann"), counted))
    assert log.stat().st_size - before < 20_000
    assert await read(store, do("attempt", attempt.id)) == counted


async def count_journal(tables: Tables, counted: Attempt) -> None:
    assert await tables.attempt(counted.id) is not None
    await tables.save_attempt(counted)


async def test_tickets_whose_conversation_is_missing_are_dropped(path: Path, store: SqliteStore) -> None:
    waiting = await add_ticket(store, await insert_conversation(store))
    execute(path, "DELETE FROM conversation")
    held = do("held_tickets", waiting.lease)
    assert await read(store, held) == [HeldTicket("", waiting)]
    await write(store, do("drop_orphaned_tickets", waiting.lease))
    assert await read(store, held) == []


@pytest.mark.parametrize("size", [250, 800, 1_800])
async def test_turn_takes_at_most_two_fifths_more_bytes_than_its_payload(path: Path, size: int) -> None:
    await (await SqliteStore.open(path)).close()
    empty = path.stat().st_size  # noqa: ASYNC240
    store = await SqliteStore.open(path)
    turns: list[Turn] = []
    branch = (await insert_conversation(store)).branch
    for number in range(1, 2_001):
        turns.append(turn(branch, number, turns[-1].id if turns else None, "x" * size))
    await write(store, *(do("add_turn", each) for each in turns))
    await store.close()
    payload = sum(len(each.body) for each in turns)
    assert path.stat().st_size - empty <= 1.4 * payload  # noqa: ASYNC240


A, B = some_id(BranchId, 1), some_id(BranchId, 2)
LINE = (Stretch(B, 3, 2**40), Stretch(A, 0, 3))


def test_packed_line_survives_storage_with_the_refs_of_its_branches() -> None:
    assert line_of(pack_line(LINE, [7, 5])) == (LINE, {B: 7, A: 5})


def test_packed_line_without_stretches_is_null() -> None:
    assert pack_line((), []) is None
    assert line_of(None) == ((), {})


def test_packed_line_that_is_cut_off_raises_store_corrupt() -> None:
    packed = pack_line(LINE, [7, 5])
    assert packed is not None
    with pytest.raises(StoreCorrupt):
        line_of(packed[:-1])


@pytest.fixture
async def chats(path: Path) -> list[str]:
    """The ids of two chats in a store that is closed."""
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        made = [await ledger.conversation() for _ in range(2)]
        for chat, answer in zip(made, ("A heron.", "An egret."), strict=True):
            await run_turn(chat, "What is it?", answer)
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
async def test_missing_turn_raises_store_corrupt_on_read_export_and_continue(
    path: Path, chats: list[str], damage: str
) -> None:
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        chat = await ledger.conversation(chats[0])
        for answer in ("An egret.", "A stork."):
            await run_turn(chat, "And now?", answer)
    execute(path, damage)
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        chat = await ledger.conversation(chats[0])
        with pytest.raises(StoreCorrupt):
            await chat.turns()
        with pytest.raises(StoreCorrupt):
            await chat.history()
        if "length = 2" not in damage and "length = 0" not in damage:
            with pytest.raises(StoreCorrupt):
                [line async for line in ledger.export(chat.id)]
        if "SET id" not in damage:
            with pytest.raises(StoreCorrupt):
                await run_turn(chat, "Are you there?")
        assert await ledger.check() != []


async def test_branch_of_another_conversation_raises_store_corrupt_on_read_and_continue(
    path: Path, chats: list[str]
) -> None:
    # As if a damaged index entry led to another row.
    execute(path, "UPDATE branch SET conversation = (SELECT max(conversation) FROM branch) WHERE ref = 1")
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        chat = await ledger.conversation(chats[0])
        with pytest.raises(StoreCorrupt):
            await chat.turns()
        with pytest.raises(StoreCorrupt):
            await run_turn(chat, "Are you there?")


async def test_checksum_of_an_earlier_version_is_still_verified(path: Path, chats: list[str]) -> None:
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


async def test_row_with_a_value_of_another_type_is_corrupt(path: Path, chats: list[str]) -> None:
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


def replace_bytes(path: Path, old: bytes, new: bytes) -> None:
    path.write_bytes(path.read_bytes().replace(old, new))


def execute(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()


def test_change_kind_numbers_are_unchanged() -> None:
    """Files contain them: append new kinds at the end."""
    assert [kind.value for kind in CHANGE_KINDS] == [
        "chat.created",
        "chat.changed",
        "chat.deleted",
        "chat.restored",
        "chat.switched",
        "turn.queued",
        "turn.running",
        "turn.committed",
        "turn.failed",
        "turn.stopped",
        "turn.withdrawn",
        "turn.flagged",
    ]
    assert set(ChangeKind) - set(_NUMBER_OF_CHANGE) == {ChangeKind.START, ChangeKind.GAP}


def test_positions_of_changes_sort_by_number_and_differ_when_any_input_differs() -> None:
    numbers = (1, 9, 10, 16, 255, 2**32, 2**60 - 1)
    positions = [START, *[position_of(number, 9 - place, b"a", None) for place, number in enumerate(numbers)]]
    assert sorted(positions) == positions
    columns = [(1, b"a", None), (2, b"a", None), (1, b"b", None), (1, b"a", b"t")]
    assert len({position_of(1, *each) for each in columns}) == 4


async def test_position_of_no_change_and_with_the_mark_of_another_is_not_kept(store: SqliteStore) -> None:
    await write(store, *(do("add_change", change()) for _ in range(3)))
    end = (await read(store, do("changes", None, 9)))[-1].position
    no_change = [f"{99:015x}" + end[15:], end[1:], "g" + end[1:], f"-{end[1:]}", f"{end} ", "1-2", "1", ""]
    other_mark = [START[:-8] + end[-8:], end[:-8] + START[-8:]]
    assert not any(await read_all(store, "is_kept", *((each,) for each in no_change + other_mark)))


NONCE = "a-nonce-that-a-page-has-made-up"


async def test_share_code_nonce_and_visitor_token_are_not_in_the_files(path: Path) -> None:
    async with await Ledger.over(await SqliteStore.open(path)) as ledger:
        share, code = await Host(ledger).shares.create(scope="shop")
        visit = await Host(ledger).shares.exchange(code, NONCE)
        files = [file for file in path.parent.iterdir() if file.is_file()]
        stored = b"".join(file.read_bytes() for file in files)
    assert share.digest in stored
    assert visit.token.digest in stored
    for secret in (code, visit.text, NONCE):
        assert secret[4:20].encode() not in stored
        assert secret[-12:].encode() not in stored


async def test_token_text_is_not_in_the_files(path: Path) -> None:
    async with await Ledger.over(await SqliteStore.open(path)) as ledger:
        made, text = await Host(ledger).tokens.create(scopes=list(TokenScope))
        files = [file for file in path.parent.iterdir() if file.is_file()]
        stored = b"".join(file.read_bytes() for file in files)
    assert made.digest in stored
    assert text[4:20].encode() not in stored
    assert text[-12:].encode() not in stored


async def test_token_with_unknown_scopes_is_corrupt(path: Path) -> None:
    async with await Ledger.over(await SqliteStore.open(path)) as ledger:
        made, _ = await Host(ledger).tokens.create(scopes=list(TokenScope))
        connection = apsw.Connection(str(path))
        connection.execute("UPDATE token SET scopes = 'turns:run everything'")
        connection.close()
        with pytest.raises(StoreCorrupt):
            await Host(ledger).tokens.find(made.digest)
        [finding] = await ledger.check()
    assert finding.rule is Rule.DOCUMENT
    assert finding.message.startswith(f"{made.id} cannot be read: The scopes")
