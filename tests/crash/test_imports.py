"""A process killed during an import leaves whole chats, and importing the same file again completes it."""

from __future__ import annotations

import signal
from pathlib import Path
from random import Random

import pytest

from tests.fork_server import ForkedProcess
from turnledger import Ledger, Limits
from turnledger.errors import StoreError
from turnledger.model.transfer import ImportOutcome
from turnledger.stores.memory.tables import MemoryTables
from turnledger.stores.sqlite.tables.tables import SqliteTables
from turnledger.testing.scripted_model import ScriptedModel

CHATS, TURNS = 9, 40


@pytest.fixture(scope="module")
async def chats() -> list[bytes]:
    """Chats as files, the longest unused first, each with a branch and a fork of the one before."""
    async with await Ledger.open("memory:", limits=Limits(lease_time=600)) as ledger:
        chat = await ledger.conversation()
        for number in range(CHATS):
            for turn in range(TURNS):
                await chat.run(ScriptedModel([f"{number}/{turn} " + "x" * 500]), "Hello")
            await chat.undo()
            chat = await chat.fork((await chat.turns())[5].id) if number % 2 else await ledger.conversation()
        return await exported(ledger)


async def exported(ledger: Ledger) -> list[bytes]:
    assert await ledger.check() == []
    files: list[bytes] = []
    async for line in ledger.export_all():
        if line.startswith(b'{"type":"chat"'):
            files.append(b"")
        files[-1] += line
    return files


def import_and_die(url: str, file: Path, after: int) -> None:
    """Import in a process of its own, which is killed when it has reported this many chats."""
    with ForkedProcess("turnledger", "chats", "import", str(file), "--store", url) as process:
        for _ in range(after):
            assert process.stdout.readline().startswith("line ")
        process.send_signal(signal.SIGKILL)


async def test_killed_import_leaves_whole_chats_and_is_resumable(chats: list[bytes], tmp_path: Path) -> None:
    dice = Random(1)
    file, url = tmp_path / "chats.jsonl", f"sqlite:///{tmp_path / 'chats.db'}"
    file.write_bytes(b"".join(chats))
    after = 0
    for _ in range(3):
        after += dice.randint(1, 2)
        import_and_die(url, file, after)
        async with await Ledger.open(url) as ledger:
            found = await exported(ledger)
        assert found == chats[: len(found)]
        assert len(found) >= after
    async with await Ledger.open(url) as ledger:
        reports = [report async for report in ledger.import_lines([file.read_bytes()])]
        assert {report.did for report in reports} <= {ImportOutcome.IMPORTED, ImportOutcome.UNCHANGED}
        assert len(reports) == len(chats)
        assert await exported(ledger) == chats


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("place", [0, 25, TURNS - 1])
async def test_import_that_fails_at_any_turn_leaves_no_chat(
    chats: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, place: int
) -> None:
    # What each store calls once for a turn.
    tables, name = (MemoryTables, "add_turn") if store == "memory" else (SqliteTables, "_columns_of_turn")
    write, left = getattr(tables, name), [place]

    def failing(*given: object) -> object:
        left[0] -= 1
        if left[0] == -1:
            raise StoreError("the disk is gone")
        return write(*given)

    url = "memory:" if store == "memory" else f"sqlite:///{tmp_path / 'chats.db'}"
    async with await Ledger.open(url) as ledger:
        with monkeypatch.context() as patched:
            patched.setattr(tables, name, failing)
            with pytest.raises(StoreError, match="gone"):
                _ = [report async for report in ledger.import_lines([chats[0]])]
        assert await exported(ledger) == []
        assert (await ledger.usage()).bytes == 0
        reports = [report async for report in ledger.import_lines([chats[0]])]
        assert [report.did for report in reports] == [ImportOutcome.IMPORTED]
        assert await exported(ledger) == [chats[0]]
