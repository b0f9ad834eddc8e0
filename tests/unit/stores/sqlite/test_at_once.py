"""A begin runs at once, on the event loop, if its lane is in memory and nothing is in the way."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from turnledger import Chat, Ledger
from turnledger.engine.ports import Sync, Tables
from turnledger.model.ids import ConversationId
from turnledger.stores.sqlite import SqliteStore
from turnledger.stores.sqlite.tables.lane_cache import NOT_IN_LANES, NOTED
from turnledger.stores.sqlite.tables.records import ON_LANES, QUERIES
from turnledger.stores.sqlite.threads import LOG_PAGES

LANE_COLUMNS = frozenset(re.findall(r"\b[cbo]\.(\w+)", QUERIES["lane"])) | {"beat"}


async def where(tables: Tables, _: object) -> int:
    return threading.get_ident()


@pytest.fixture
async def chat(tmp_path: Path) -> AsyncIterator[Chat]:
    ledger = await Ledger.open(f"sqlite:///{tmp_path}/chats.db")
    yield await ledger.conversation()
    await ledger.close()


async def exchange(chat: Chat, text: str = "Hello") -> None:
    async with chat.turn(text) as turn:
        turn.emit("Hi")


async def runs_here(chat: Chat, about: ConversationId | None = None, sync: Sync = Sync.PROCESS) -> bool:
    """Return whether an operation about a chat runs on the event loop."""
    thread = await chat._process.store.transact(where, None, chat.owner, sync, about or chat.id)
    return thread == threading.get_ident()


async def test_operation_about_a_chat_just_used_runs_at_once(chat: Chat) -> None:
    assert not await runs_here(chat)
    await exchange(chat)  # also gives it a title
    await exchange(chat)
    assert await runs_here(chat)


async def test_operation_that_must_reach_the_disk_never_runs_at_once(chat: Chat) -> None:
    await exchange(chat)
    await exchange(chat)
    assert not await runs_here(chat, sync=Sync.DISK)


async def test_operation_about_a_chat_not_in_memory_does_not_run_at_once(chat: Chat) -> None:
    await exchange(chat)
    assert not await runs_here(chat, chat._process.ids.new(ConversationId))


async def test_operation_waits_for_another_process_in_the_thread(chat: Chat, tmp_path: Path) -> None:
    await exchange(chat)
    await exchange(chat)
    neighbour = apsw.Connection(str(tmp_path / "chats.db"))
    neighbour.execute("BEGIN IMMEDIATE")
    running = asyncio.ensure_future(runs_here(chat))
    await asyncio.sleep(0)
    assert not running.done()
    neighbour.execute("ROLLBACK")
    assert not await running


async def test_write_of_another_process_is_seen_by_the_next_begin(chat: Chat, tmp_path: Path) -> None:
    await exchange(chat, "First")
    await exchange(chat)
    there = await Ledger.open(f"sqlite:///{tmp_path}/chats.db")
    await exchange(await there.conversation(chat.id), "From elsewhere")
    await exchange(chat, "And here")
    asked = [turn.input[0].text for turn in await chat.turns()]
    assert asked == ["First", "Hello", "From elsewhere", "And here"]
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
