"""A long history is read in pages, and decoded and compared beside the event loop."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from turnledger import Ledger, Limits
from turnledger.engine import process
from turnledger.engine.history import history as history_module
from turnledger.engine.history.history import read_turns
from turnledger.engine.turn import resend, running_turn
from turnledger.stores.memory import MemoryStore
from turnledger.testing.gates import GatedStore

TURNS = 7


@pytest.fixture
async def store(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GatedStore]:
    """A store with a chat of some turns, which count as many."""
    for module in (history_module, running_turn, resend):
        monkeypatch.setattr(module, "LONG", 2)
    for module in (process, resend):
        monkeypatch.setattr(module, "TURNS_AT_ONCE", 3)
    store = GatedStore(MemoryStore())
    async with await Ledger.over(store, limits=Limits(lease_time=600.0)) as ledger:
        for number in range(TURNS):
            async with ledger.turn(f"question {number}", conversation_key="k") as turn:
                turn.emit(f"answer {number}")
        ledger._process.cache.forget(turn.branch.id)
        store.trips.clear()
        yield store


@pytest.fixture
async def ledger(store: GatedStore) -> AsyncIterator[Ledger]:
    async with await Ledger.over(store, limits=Limits(lease_time=600.0)) as ledger:
        yield ledger


def threads_of(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> tuple[list[threading.Thread], Callable[..., Any]]:
    """Note in which threads a function runs."""
    seen: list[threading.Thread] = []
    original = getattr(owner, name)

    def noted(*given: Any) -> Any:
        seen.append(threading.current_thread())
        return original(*given)

    monkeypatch.setattr(owner, name, noted)
    return seen, original


def messages(count: int) -> list[dict[str, str]]:
    said = [("user", "question"), ("assistant", "answer")]
    return [{"role": role, "content": f"{text} {n}"} for n in range(count) for role, text in said]


async def test_long_history_is_read_in_pages(ledger: Ledger, store: GatedStore) -> None:
    async with ledger.turn("more", conversation_key="k") as turn:
        assert len(turn.snapshot.history) == TURNS
        turn.emit("yes")
    assert store.trips.count(read_turns.__name__) == 3


async def test_long_history_is_decoded_beside_the_loop(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, _ = threads_of(monkeypatch, history_module, "said_from")
    async with ledger.turn("more", conversation_key="k") as turn:
        told = msgspec.json.decode(await turn.read_messages_json())
        assert told == [*messages(TURNS), {"role": "user", "content": "more"}] == turn.messages
        assert threading.main_thread() not in seen[:1]
        assert await turn.read_messages_json() == turn.messages_json
        turn.emit("yes")


async def test_resent_long_history_is_compared_beside_the_loop(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, _ = threads_of(monkeypatch, resend, "decide")
    reached: list[int] = []
    reach = history_module.BranchCache.reach

    def noted(self: Any, branch: Any, history: Any) -> bool:
        reached.append(len(history))
        return reach(self, branch, history)

    monkeypatch.setattr(history_module.BranchCache, "reach", noted)
    async with ledger.resent(
        [*messages(TURNS), {"role": "user", "content": "more"}], conversation_key="k"
    ) as turn:
        assert [item.text for item in turn.input] == ["more"]
        turn.emit("yes")
    assert seen
    assert threading.main_thread() not in seen
    assert reached == [3, 6]
