"""A neighbour that holds the write lock: no finished answer is lost, and no cancelled caller is held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from turnledger import Ledger, Limits, RunningTurn
from turnledger.chat import Chat
from turnledger.engine.lane import shield
from turnledger.engine.turn.commit import commit
from turnledger.errors import CommitOutcomeUnknown, StoreUnavailable, turn_of
from turnledger.stores.sqlite import SqliteStore, connections

GUARD = 60.0
"""Seconds after which a task that should have ended is given up: far below what it would wait otherwise."""


class Watched:
    """The store, which says when a commit is handed to it and when one is refused."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.asked, self.refused = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def transact(self, operation: Any, *rest: Any) -> Any:
        if operation is commit:
            self.asked.set()
        try:
            return await self._store.transact(operation, *rest)
        except StoreUnavailable:
            self.refused.set()
            raise


@pytest.fixture
async def store(path: Path) -> Watched:
    return Watched(await SqliteStore.open(path))


@pytest.fixture
async def ledger(store: Watched) -> AsyncIterator[Ledger]:
    async with await Ledger.over(store) as ledger:
        yield ledger


@contextmanager
def neighbour_of(path: Path) -> Iterator[apsw.Connection]:
    """Another connection to the same file, as another process has one."""
    neighbour = apsw.Connection(str(path))
    try:
        yield neighbour
    finally:
        neighbour.close(True)


async def answer(chat: Chat, neighbour: apsw.Connection, **policy: str) -> None:
    """Run a turn whose commit finds the lock held."""

    async def run(turn: RunningTurn) -> None:
        turn.emit("Whole.")
        neighbour.execute("BEGIN IMMEDIATE")

    await chat.run(run, "q", **policy)  # type: ignore[arg-type]


async def finish(task: asyncio.Task[Any]) -> None:
    done, _ = await asyncio.wait((task,), timeout=GUARD)
    assert done, "the caller is held"


async def test_answer_is_committed_when_a_neighbour_releases_the_lock_after_the_busy_timeout(
    path: Path, store: Watched, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT", 0.01)
    monkeypatch.setattr(ledger._process, "limits", Limits(doubt_patience=0.0))
    chat = await ledger.conversation()
    with neighbour_of(path) as neighbour:
        task = asyncio.create_task(answer(chat, neighbour))
        await store.refused.wait()
        neighbour.execute("ROLLBACK")
        await finish(task)
    await task
    assert [turn.text for turn in await chat.turns()] == ["Whole."]


async def test_answer_is_given_up_at_once_when_the_patience_for_a_commit_has_ended(
    path: Path, store: Watched, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end needs the same lock, so it is not waited for: it is recorded when the lock is free."""
    monkeypatch.setattr(connections, "BUSY_TIMEOUT", 0.01)
    monkeypatch.setattr(ledger._process, "limits", Limits(commit_patience=0.0))
    chat = await ledger.conversation()
    with neighbour_of(path) as neighbour:
        task = asyncio.create_task(answer(chat, neighbour))
        await finish(task)
        assert isinstance(task.exception(), StoreUnavailable)
        neighbour.execute("ROLLBACK")
    await ledger._tending.tend()
    assert await chat.turns() == []
    await chat.run(say_yes, "next", on_busy="reject")


async def test_caller_cancelled_during_a_commit_that_waits_for_a_neighbour_is_released(
    path: Path, store: Watched, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT", 2 * GUARD)
    monkeypatch.setattr(shield, "GRACE", 0.01)
    chat = await ledger.conversation()
    with neighbour_of(path) as neighbour:
        task = asyncio.create_task(answer(chat, neighbour))
        await store.asked.wait()
        task.cancel()
        await finish(task)
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await task
        assert turn_of(cancelled.value) is None
        neighbour.execute("ROLLBACK")
    await ledger._tending.tend()
    assert await chat.turns() == []
    await chat.run(say_yes, "next", on_busy="reject")


async def test_cancelled_turn_whose_end_is_put_off_and_may_be_kept_is_in_doubt(
    path: Path, store: Watched, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT", 2 * GUARD)
    monkeypatch.setattr(shield, "GRACE", 0.01)
    chat = await ledger.conversation()
    with neighbour_of(path) as neighbour:
        task = asyncio.create_task(answer(chat, neighbour, on_failure="keep"))
        await store.asked.wait()
        task.cancel()
        await finish(task)
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await task
        with pytest.raises(CommitOutcomeUnknown):
            turn_of(cancelled.value)
        neighbour.execute("ROLLBACK")
    await ledger._tending.tend()
    assert [turn.kind for turn in await chat.turns()] == ["interrupted"]


async def test_caller_cancelled_while_its_commit_is_queued_behind_another_write_is_released(
    path: Path, store: Watched, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT", 2 * GUARD)
    monkeypatch.setattr(shield, "GRACE", 0.01)
    chat, other = await ledger.conversation(), await ledger.conversation()
    with neighbour_of(path) as neighbour:
        patient = asyncio.create_task(hold_writer(other, neighbour))
        turn = asyncio.create_task(chat.run(say_yes, "q"))
        await asyncio.sleep(0)
        turn.cancel()
        await finish(turn)
        assert turn.cancelled()
        assert not patient.done()
        neighbour.execute("ROLLBACK")
    await patient
    await ledger._tending.tend()
    assert await chat.turns() == []
    await chat.run(say_yes, "next", on_busy="reject")


async def test_caller_cancelled_inside_its_block_is_not_held_by_a_neighbour(
    path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT", 2 * GUARD)
    monkeypatch.setattr(shield, "GRACE", 0.01)
    chat, begun = await ledger.conversation(), asyncio.Event()

    async def hang(turn: RunningTurn) -> None:
        turn.emit("Half")
        begun.set()
        await asyncio.Event().wait()

    with neighbour_of(path) as neighbour:
        task = asyncio.create_task(chat.run(hang, "q"))
        await begun.wait()
        neighbour.execute("BEGIN IMMEDIATE")
        task.cancel()
        await finish(task)
        assert task.cancelled()
        neighbour.execute("ROLLBACK")
    await ledger._tending.tend()
    await chat.run(say_yes, "next", on_busy="reject")
    assert [turn.text for turn in await chat.turns()] == ["Yes."]


async def hold_writer(chat: Chat, neighbour: apsw.Connection) -> None:
    neighbour.execute("BEGIN IMMEDIATE")
    await chat.update(title="patient")


async def say_yes(turn: RunningTurn) -> None:
    turn.emit("Yes.")
