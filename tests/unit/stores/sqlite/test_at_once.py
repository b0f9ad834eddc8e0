"""A begin runs at once, on the event loop, if its lane is in memory and nothing is in the way."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
import weakref
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.unit.stores.sqlite.operations import ids
from turnledger import Chat, Ledger
from turnledger.engine.attempt.fork import Divergence
from turnledger.engine.attempt.idempotency import IdempotencyKey
from turnledger.engine.conversations.resolve import Target
from turnledger.engine.feed import ChangeReader
from turnledger.engine.ports import Sync, Tables
from turnledger.engine.turn.begin import BeginBounds, BeginRequest, Round, TurnContent
from turnledger.errors import OutcomeUnknown, Superseded
from turnledger.model.conversation import EVERYWHERE
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.item import message
from turnledger.stores.sqlite import SqliteStore
from turnledger.stores.sqlite.tables.records import NOT_IN_LANES, NOTED, ON_LANES, QUERIES
from turnledger.stores.sqlite.threads import LOG_PAGES

LANE_COLUMNS = frozenset(re.findall(r"\b[cbo]\.(\w+)", QUERIES["lane"])) | {"beat"}


async def where(tables: Tables, _: object) -> int:
    return threading.get_ident()


@pytest.fixture
async def new_chat(tmp_path: Path) -> AsyncIterator[Chat]:
    ledger = await Ledger.open(f"sqlite:///{tmp_path}/chats.db")
    yield await ledger.conversation()
    await ledger.close()


@pytest.fixture
async def chat(new_chat: Chat) -> Chat:
    """A chat whose lane is in memory."""
    await exchange(new_chat)  # also gives it a title
    await exchange(new_chat)
    return new_chat


async def exchange(chat: Chat, text: str = "Hello") -> None:
    async with chat.turn(text) as turn:
        turn.emit("Hi")


async def runs_here(chat: Chat, about: ConversationId | None = None, sync: Sync = Sync.PROCESS) -> bool:
    """Return whether an operation about a chat runs on the event loop."""
    thread = await chat._process.store.transact(where, None, chat.owner, sync, about or chat.id)
    return thread == threading.get_ident()


async def test_operation_about_a_chat_just_used_runs_at_once(new_chat: Chat) -> None:
    assert not await runs_here(new_chat)
    await exchange(new_chat)  # also gives it a title
    await exchange(new_chat)
    assert await runs_here(new_chat)


async def test_operation_that_must_reach_the_disk_never_runs_at_once(chat: Chat) -> None:
    assert not await runs_here(chat, sync=Sync.DISK)


async def test_operation_about_a_chat_not_in_memory_does_not_run_at_once(chat: Chat) -> None:
    assert not await runs_here(chat, chat._process.ids.new(ConversationId))


async def test_operation_waits_for_another_process_in_the_thread(chat: Chat, tmp_path: Path) -> None:
    neighbour = apsw.Connection(str(tmp_path / "chats.db"))
    neighbour.execute("BEGIN IMMEDIATE")
    running = asyncio.ensure_future(runs_here(chat))
    await asyncio.sleep(0)
    assert not running.done()
    neighbour.execute("ROLLBACK")
    assert not await running


async def test_operation_after_a_write_of_another_process_does_not_run_at_once(
    chat: Chat, tmp_path: Path
) -> None:
    neighbour = apsw.Connection(str(tmp_path / "chats.db"))
    neighbour.execute("UPDATE lease SET beat = beat + 1")
    assert not await runs_here(chat)


async def test_operation_does_not_run_beside_one_in_the_thread(chat: Chat) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    async def block(tables: Tables, _: object) -> None:
        has_begun.set()
        may_end.wait()

    blocked = asyncio.ensure_future(chat._process.store.transact(block, None, chat.owner))
    await asyncio.to_thread(has_begun.wait)
    running = asyncio.ensure_future(runs_here(chat))
    await asyncio.sleep(0)
    assert not running.done()
    may_end.set()
    await blocked
    assert not await running


async def test_operation_after_the_log_was_moved_does_not_run_at_once(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (tmp_path / "chats.db").stat().st_size
    monkeypatch.setattr("turnledger.stores.sqlite.threads.LOG_PAGES", 1)
    async with chat.turn("Long") as turn:
        turn.emit("words " * 10_000)
    assert (tmp_path / "chats.db").stat().st_size > before  # moved, by the commit in the thread
    assert not await runs_here(chat)


async def test_unforeseen_error_at_once_is_one_of_the_store(chat: Chat) -> None:
    writer = chat._process.store._writer  # type: ignore[attr-defined]

    def run_out_of_memory(job: object) -> bool:
        raise MemoryError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(writer, "run_at_once", run_out_of_memory)
        with pytest.raises(OutcomeUnknown):
            await runs_here(chat)


async def test_refused_operation_is_not_kept_alive_by_its_error(chat: Chat) -> None:

    class Request:
        pass

    async def refuse(tables: Tables, request: Request) -> None:
        raise Superseded

    request = Request()
    kept = weakref.ref(request)
    gc.disable()
    try:
        with suppress(Superseded):
            await chat._process.store.transact(refuse, request, chat.owner, Sync.PROCESS, chat.id)
        del request
        assert kept() is None
    finally:
        gc.enable()
    assert await runs_here(chat)  # it wrote nothing, and the lane is still known


async def test_begin_runs_at_once_while_someone_follows_the_chats(chat: Chat) -> None:
    with ChangeReader(chat._process, "somebody else", EVERYWHERE, None):
        assert await runs_here(chat)


@pytest.mark.parametrize(
    ("changes", "is_near"),
    [
        ({}, True),
        ({"key": IdempotencyKey("key", b"")}, False),
        ({"content": TurnContent(input=(message("user", "x" * 100_000),))}, False),
        ({"content": TurnContent(diverge=Divergence(branch=ids.new(BranchId)))}, False),
    ],
    ids=["plain", "keyed", "long", "edit"],
)
def test_only_a_short_begin_without_further_rows_may_run_at_once(
    changes: dict[str, Any], is_near: bool
) -> None:
    id = ids.new(ConversationId)
    request = BeginRequest(
        target=Target("ann", id),
        attempt=ids.new(TurnId),
        lease=ids.new(LeaseId),
        bounds=BeginBounds(wait_until=0, queue_limit=1),
        round=Round(now=0, due=0),
        **changes,
    )
    assert request.near == (id if is_near else None)


async def test_write_of_another_process_is_seen_by_the_next_begin(chat: Chat, tmp_path: Path) -> None:
    there = await Ledger.open(f"sqlite:///{tmp_path}/chats.db")
    await exchange(await there.conversation(chat.id), "From elsewhere")
    await exchange(chat, "And here")
    asked = [turn.input[0].text for turn in await chat.turns()]
    assert asked == ["Hello", "Hello", "From elsewhere", "And here"]
    await there.close()


async def test_log_is_not_moved_into_the_database_on_the_event_loop(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "chats.db")
    writer = store._writer
    writer._is_at_once = True
    writer._after_commit(writer._connection, "main", LOG_PAGES)
    assert not writer._is_restart_due
    writer._is_at_once = False
    writer._after_commit(writer._connection, "main", LOG_PAGES)
    assert writer._is_restart_due  # the next write syncs the log, and so runs in the thread
    await store.close()


def test_queries_that_change_a_lane_empty_the_cache_or_are_noted() -> None:
    changing = {name for name, query in QUERIES.items() if changes_lane(query)}
    assert changing - ON_LANES - NOTED == set()
    assert changing & NOT_IN_LANES == set()
    assert {"save_branch", "move_conversation", "raise_admission", "bury_lease"} <= changing


def changes_lane(query: str) -> bool:
    if "INSERT INTO owner" in query:
        return "flag_version" in query or "admission" in query
    changed = re.search(r"UPDATE (?:conversation|branch|lease) SET (.*?)(?: WHERE|$)", query)
    columns = re.findall(r"(\w+) = ", changed[1]) if changed else []
    removes = re.search(r"DELETE FROM (branch|lease|conversation)\b", query) is not None
    return removes or any(column in LANE_COLUMNS for column in columns)
