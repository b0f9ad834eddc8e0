"""A visit: a store is read and left exactly as it was, and what is not there is not made."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.unit.engine.lived_in import live_in
from turnledger import Ledger
from turnledger.engine.check.check import CheckRequest, check
from turnledger.errors import NotAStore, StoreError, StoreReadOnly, StoreTooNew, TurnledgerError
from turnledger.stores.sqlite import SqliteStore, SqliteVisit
from turnledger.stores.url import visit_store


async def look(path: Path) -> int:
    visit = await SqliteVisit.open(path)
    try:
        return (await visit.read(check, CheckRequest())).conversations
    finally:
        await visit.close()


def write(path: Path, text: bytes) -> None:
    path.write_bytes(text)


def contents(path: Path) -> dict[str, bytes]:
    """What a visitor may not change: all but the shared memory, which each reader marks as it reads."""
    return {each.name: each.read_bytes() for each in path.parent.iterdir() if not each.name.endswith("-shm")}


async def test_a_store_is_left_as_it_was(path: Path) -> None:
    await (await live_in(await SqliteStore.open(path))).ledger.close()
    before = contents(path)
    assert list(before) == [path.name]
    assert await look(path) == 8
    assert contents(path) == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


async def test_a_log_that_a_dead_process_left_is_read_and_left(path: Path, tmp_path: Path) -> None:
    ledger = (await live_in(await SqliteStore.open(path))).ledger
    left = tmp_path / "left"
    left.mkdir()
    for each in (path, Path(f"{path}-wal")):
        (left / each.name).write_bytes(each.read_bytes())
    await ledger.close()
    before = contents(left / path.name)
    assert len(before) == 2
    assert await look(left / path.name) == 8
    assert contents(left / path.name) == before


async def test_a_store_in_use_is_read_beside_its_owner(path: Path) -> None:
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        await ledger.conversation()
        assert await look(path) == 1
        chat = await ledger.conversation()
        async with chat.turn("still at work") as turn:
            turn.emit("yes")
        assert await look(path) == 2


async def test_what_is_not_there_is_not_made(path: Path) -> None:
    with pytest.raises(NotAStore, match="There is no store at"):
        await SqliteVisit.open(path)
    assert contents(path) == {}


@pytest.mark.parametrize(
    ("text", "said"), [(b"", "There is no store at"), (b"a letter to my bank", "is not a database")]
)
async def test_what_is_not_ours_is_refused_and_left(path: Path, text: bytes, said: str) -> None:
    write(path, text)
    with pytest.raises(NotAStore, match=said):
        await SqliteVisit.open(path)
    assert contents(path) == {path.name: text}


@pytest.mark.parametrize(("version", "error"), [(99, StoreTooNew), (0, StoreError)])
async def test_another_version_is_refused_and_not_migrated(
    path: Path, version: int, error: type[TurnledgerError]
) -> None:
    await (await SqliteStore.open(path)).close()
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", version)
    connection.close()
    before = contents(path)
    with pytest.raises(error, match="newer Turnledger" if version else "older Turnledger"):
        await SqliteVisit.open(path)
    assert contents(path) == before


async def test_urls_lead_to_what_can_be_visited(path: Path) -> None:
    await (await SqliteStore.open(path)).close()
    visit = await visit_store(f"sqlite:///{path}")
    assert isinstance(visit, SqliteVisit)
    await visit.close()
    for url, said in [("memory:", "cannot be visited"), ("redis://x", "names no store")]:
        with pytest.raises(NotAStore, match=said):
            await visit_store(url)


async def test_a_visitor_cannot_write(path: Path) -> None:
    await (await SqliteStore.open(path)).close()
    visit = await SqliteVisit.open(path)

    async def write(tables: object, request: None) -> None:
        tables._run("mark_swept", 1)  # type: ignore[attr-defined]

    with pytest.raises(StoreReadOnly):
        await visit.read(write, None)
    await visit.close()
