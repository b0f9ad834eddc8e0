"""Operations of turns as one statement: how many round trips they take, and what makes a guess wrong."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from turnledger import Ledger
from turnledger.engine.lane.lease_watch import renew
from turnledger.engine.ports import Tables
from turnledger.errors import TurnReplayed
from turnledger.model.conversation import Branch, Conversation
from turnledger.model.ids import LeaseId
from turnledger.stores.postgresql import PostgresStore
from turnledger.stores.postgresql.connections import QuietConnection
from turnledger.stores.postgresql.tables.queries import QUERIES
from turnledger.testing.store_contract.rows.kit import IDS, conversation
from turnledger.testing.store_contract.stage import call


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the statements that writes send: a prepared one is one round trip."""
    sent: Counter[str] = Counter()

    def count(method: str) -> None:
        original = getattr(QuietConnection, method)

        async def counted(self: Any, query: str, *arguments: Any, **options: Any) -> Any:
            task = asyncio.current_task()
            if task is not None and task.get_name() == "turnledger-write":
                sent["writes"] += 1
            return await original(self, query, *arguments, **options)

        monkeypatch.setattr(QuietConnection, method, counted)

    for method in ("execute", "fetch", "executemany"):
        count(method)
    return sent


def taken(trips: Counter[str]) -> int:
    return trips.pop("writes", 0)


@pytest.mark.parametrize("key", [None, "order-7"])
async def test_begin_and_commit_take_one_round_trip_each(
    url: str, trips: Counter[str], key: str | None
) -> None:
    async with await Ledger.open(url) as ledger:
        chat = await ledger.conversation(conversation_key="lane")
        for _ in range(2):  # the first turn also names the chat
            async with chat.turn("Where is my order?") as turn:
                turn.emit("On its way.")
        taken(trips)
        async with chat.turn("And now?", idempotency_key=key) as turn:
            turn.emit("Here.")
            assert taken(trips) == 1
        assert taken(trips) == 1
        assert await ledger.check() == []


async def test_flush_takes_one_round_trip_and_a_tool_call_two(url: str, trips: Counter[str]) -> None:
    async def look() -> str:
        return "in Rome"

    async with await Ledger.open(url) as ledger:
        chat = await ledger.conversation(conversation_key="lane")
        async with chat.turn("Where is my order?") as turn:
            taken(trips)
            turn.emit("One moment.")
            await ledger._process.flusher.flush()
            assert taken(trips) == 1
            await turn.add(call("look", "c"))
            taken(trips)
            await turn.call(call("look", "c"), look)
            assert taken(trips) == 2
            turn.emit("It is in Rome.")
        assert await ledger.check() == []


async def test_begin_after_a_turn_of_another_process_takes_three(url: str, trips: Counter[str]) -> None:
    async with await Ledger.open(url) as here, await Ledger.open(url) as there:
        for ledger in (here, here, there, here):
            chat = await ledger.conversation(conversation_key="lane")
            taken(trips)
            async with chat.turn("Where is my order?") as turn:
                turn.emit("On its way.")
                begun = taken(trips)
        assert begun == 3, "one for the wrong guess, one to read, one for the right guess"
        assert len(await chat.turns()) == 4


async def test_one_of_two_processes_at_once_takes_the_lane(url: str) -> None:
    """Both remember a free lane."""
    async with await Ledger.open(url) as here, await Ledger.open(url) as there:
        chats = [await each.conversation(conversation_key="lane") for each in (here, there)]

        async def ask(place: int) -> None:
            async with chats[place % 2].turn("Where is my order?") as turn:
                turn.emit(f"{place}")

        await asyncio.gather(*(ask(place) for place in range(10)))
        assert sorted(each.text for each in await chats[0].turns()) == [str(n) for n in range(10)]
        assert await here.check() == []


async def added(store: PostgresStore) -> tuple[Conversation, LeaseId]:
    given, lease = conversation(owner="ann"), IDS.new(LeaseId)

    async def add(tables: Tables, _: None) -> None:
        await tables.add_conversation(given)
        await tables.add_branch(Branch(id=given.branch, conversation=given.id))

    await store.transact(add, None, "ann")
    await store.transact_whole(renew, lease)
    return given, lease


@pytest.mark.parametrize("change", ["the flags", "the tokens", "the lease", "the conversation", "the branch"])
async def test_operation_runs_again_if_what_it_read_has_changed(url: str, change: str) -> None:
    here, there = await PostgresStore.open(url), await PostgresStore.open(url)
    given, lease = await added(here)

    async def alter(whole: Any, _: None) -> None:
        tables = whole.of("ann")
        if change == "the flags":
            await tables._own("raise_flag_version")
        elif change == "the tokens":
            await whole.raise_admission("ann")
        elif change == "the lease":
            await whole.bury_lease(lease)
        elif change == "the conversation":
            await tables.touch_conversation(given.id, given.touched_at + 1)
        else:
            await tables._own("next_ticket", given.branch.raw)

    seen = []

    async def save(tables: Tables, _: None) -> None:
        lane = await tables.lane(given.id, lease)
        seen.append(lane)
        if len(seen) == 1:
            await there.transact_whole(alter, None)
        assert lane is not None
        await tables.save_branch(lane.branch)

    await here.transact(save, None, "ann")
    assert len(seen) == 2, "the first guess was wrong"
    await here.close()
    await there.close()


async def test_key_that_another_process_has_used_replays_its_turn(url: str) -> None:
    async with await Ledger.open(url) as here, await Ledger.open(url) as there:
        for ledger in (here, there):
            chat = await ledger.conversation(conversation_key="lane")
            with suppress(TurnReplayed):
                async with chat.turn("Where is my order?", idempotency_key="order-7") as turn:
                    assert ledger is here, "the turn ran again"
                    turn.emit("On its way.")
        assert [each.text for each in await chat.turns()] == ["On its way."]


VERSIONED = re.compile(r"UPDATE (branch|conversation|attempt)\b.*?SET (.*)")
UNVERSIONED = {"touch_conversation", "sweep_again", "mark_swept"}
"""A guard compares when a conversation was touched; whether an ended one is swept concerns no turn."""


def test_every_change_of_a_guarded_row_raises_its_version() -> None:
    changing = {name: found for name, query in QUERIES.items() if (found := VERSIONED.search(query))}
    assert len(changing) > 5
    unversioned = {name for name, found in changing.items() if "version = version + " not in found[2]}
    assert unversioned == UNVERSIONED
