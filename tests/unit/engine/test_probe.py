"""The probe of a store: damage that leaves turns possible, and damage that does not."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.unit.engine.populated_store import run_turn
from turnledger import Ledger
from turnledger.errors import StoreCorrupt
from turnledger.hosting import Host


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    path = tmp_path / "chats.db"
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        for _ in range(3):
            await run_turn(await ledger.conversation(), "Are you there?")
    return path


def overwrite_root(path: Path, name: str) -> None:
    """Fill the root page of a table or an index with garbage."""
    connection = apsw.Connection(str(path))
    page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).get
    size = connection.pragma("page_size")
    connection.close()
    content = bytearray(path.read_bytes())
    content[(page - 1) * size : page * size] = b"\xa5" * size
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["turn", "branch", "conversation", "attempt", "claim"])
async def test_probe_of_a_store_in_which_no_turn_can_begin_raises_store_corrupt(
    path: Path, name: str
) -> None:
    overwrite_root(path, name)
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        with pytest.raises(StoreCorrupt):
            await Host(ledger).probe()


async def test_probe_of_a_store_with_one_damaged_chat_passes(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE branch SET pending = x'00' WHERE ref = 1")
    connection.close()
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        await Host(ledger).probe()
        await Host(ledger).probe()


async def test_probe_of_an_empty_store_passes(tmp_path: Path) -> None:
    async with await Ledger.open(f"sqlite:///{tmp_path / 'new.db'}") as ledger:
        await Host(ledger).probe()
