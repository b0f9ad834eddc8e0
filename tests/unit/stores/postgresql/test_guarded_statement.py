"""Operations of turns as one statement: how many round trips they take, and what makes a guess wrong."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from tests.unit.stores.postgresql.test_outcomes import waiting_for_a_lock
from turnledger import Ledger
from turnledger.engine.lane.lease_watch import renew
from turnledger.engine.ports import Tables
from turnledger.engine.tables.lanes import Lane
from turnledger.errors import TurnReplayed
from turnledger.model.conversation import Branch, Conversation
from turnledger.model.ids import LeaseId, TurnId
from turnledger.model.turn import Attempt, OnStop
from turnledger.stores.postgresql import PostgresStore
from turnledger.stores.postgresql.connections import QuietConnection
from turnledger.stores.postgresql.store import BEGIN_READ
from turnledger.stores.postgresql.tables.guarded_statement import LOCK_ORDER, SAVED, Guess, guarded
from turnledger.stores.postgresql.tables.queries import QUERIES
from turnledger.testing.store_contract.rows.kit import IDS, change, claim, conversation, full_attempt
from turnledger.testing.store_contract.stage import call


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the statements that the writes of each task send: a prepared one is one round trip."""
    sent: Counter[str] = Counter()
    reading: set[Any] = set()

    def count(method: str) -> None:
        original = getattr(QuietConnection, method)

        async def counted(self: Any, query: str, *arguments: Any, **options: Any) -> Any:
            if query == BEGIN_READ:
                reading.add(self)
            if self not in reading:
                sent[_task()] += 1
            elif query == "ROLLBACK":
                reading.discard(self)
            return await original(self, query, *arguments, **options)

        monkeypatch.setattr(QuietConnection, method, counted)

    for method in ("execute", "fetch", "executemany"):
        count(method)
    return sent


def taken(trips: Counter[str]) -> int:
    """Return how many statements the writes of this task took since the last call."""
    found = trips[_task()] + trips["turnledger-write"]
    trips.clear()
    return found


def _task() -> str:
    task = asyncio.current_task()
    return task.get_name() if task is not None else ""


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


CHANGES = ["the flags", "the tokens", "the lease", "the conversation", "the branch"]


def alteration(changed: str, given: Conversation, lease: LeaseId) -> Callable[[Any, None], Awaitable[None]]:
    async def alter(whole: Any, _: None) -> None:
        tables = whole.of("ann")
        if changed == "the flags":
            await tables._own("raise_flag_version")
        elif changed == "the tokens":
            await whole.raise_admission("ann")
        elif changed == "the lease":
            await whole.bury_lease(lease)
        elif changed == "the conversation":
            await tables.touch_conversation(given.id, given.touched_at + 1)
        else:
            await tables._own("next_ticket", given.branch.raw)

    return alter


@pytest.mark.parametrize("changed", CHANGES)
async def test_operation_runs_again_if_what_it_read_has_changed(url: str, changed: str) -> None:
    here, there = await PostgresStore.open(url), await PostgresStore.open(url)
    given, lease = await added(here)
    seen = []

    async def save(tables: Tables, _: None) -> None:
        lane = await tables.lane(given.id, lease)
        seen.append(lane)
        if len(seen) == 1:
            await there.transact_whole(alteration(changed, given, lease), None)
        assert lane is not None
        await tables.save_branch(lane.branch)

    await here.transact(save, None, "ann")
    assert len(seen) == 2, "the first guess was wrong"
    await here.close()
    await there.close()


class Refused(Exception):
    pass


def saving(given: Conversation, lease: LeaseId, before: Callable[[], Awaitable[object]]) -> Any:
    """Return an operation that writes a branch, a claim and a change, and refuses to do it twice."""
    tries = 0

    async def save(tables: Tables, _: None) -> None:
        nonlocal tries
        tries += 1
        if tries > 1:
            raise Refused
        lane = await tables.lane(given.id, lease)
        assert lane is not None
        await tables.save_branch(replace(lane.branch, fence=7))
        await tables.claim("order-7")
        await tables.save_claim(claim(idempotency_key="order-7"))
        await tables.add_change(replace(change(), conversation=given.id))
        await before()

    return save


async def written(store: PostgresStore, given: Conversation) -> tuple[int, bool, int]:
    async def look(tables: Tables, _: None) -> tuple[int, bool, int]:
        branch = await tables.branch(given.branch)
        assert branch is not None
        changes = await tables.changes(None, 9)
        return branch.fence, await tables.claim("order-7") is not None, len(changes)

    return await store.read(look, None, "ann")


@pytest.mark.parametrize("changed", CHANGES)
async def test_wrong_guess_writes_nothing(url: str, changed: str) -> None:
    here, there = await PostgresStore.open(url), await PostgresStore.open(url)
    given, lease = await added(here)
    alter = alteration(changed, given, lease)
    save = saving(given, lease, lambda: there.transact_whole(alter, None))
    with pytest.raises(Refused):
        await here.transact(save, None, "ann")
    assert await written(here, given) == (0, False, 0)
    await here.close()
    await there.close()


def altered(value: object) -> list[Any]:
    """Return other values of this type, or of any type of a column."""
    if isinstance(value, int):
        return [1 - value]
    if isinstance(value, str):
        return [f"{value}x"]
    return [bytes(16), 1, "x"]


async def outcome_of(
    connection: asyncpg.Connection[Any], query: str, arguments: list[Any]
) -> tuple[bool, bool]:
    """Run a statement and undo it; return whether it found a row, and whether it wrote any."""
    written = "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_xact_user_tables"
    transaction = connection.transaction()
    await transaction.start()
    try:
        before = await connection.fetchval(written)
        found = await connection.fetch(query, *arguments)
        return bool(found), await connection.fetchval(written) != before
    finally:
        await transaction.rollback()


async def test_no_statement_of_a_turn_writes_anything_if_one_of_its_guards_is_wrong(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All parts of a statement that write run, whatever the others find."""
    tried: set[str] = set()
    carry_out = Guess.carry_out

    async def carry_out_after_trying(guess: Guess) -> None:
        if guess._writes:
            await try_each(guess)
        await carry_out(guess)

    async def try_each(guess: Guess) -> None:
        names = tuple(name for name, _ in guess._writes)
        guards = {} if "guard_settings" in guess.guards else {"guard_owner": ("ann",)}
        guards |= guess.guards
        query, order = guarded(tuple(guards), names, guess._sync)
        arguments = [each for name in order for each in guards[name]]
        places = dict.fromkeys(range(len(arguments)), order)
        if names[0] == SAVED:
            saved = len(arguments), len(guess._writes[0][1])
            places |= dict.fromkeys((saved[0], saved[0] + 1, sum(saved) - 2, sum(saved) - 1), (SAVED,))
        arguments += [each for _, row in guess._writes for each in row]
        assert await outcome_of(guess.connection, query, arguments) == (True, True)
        for place, of in places.items():
            for other in altered(arguments[place]):
                wrong = [*arguments[:place], other, *arguments[place + 1 :]]
                with suppress(asyncpg.DataError):  # of another type
                    assert await outcome_of(guess.connection, query, wrong) == (False, False)
                    tried.update(of)

    async def look() -> str:
        return "in Rome"

    async with await Ledger.open(url) as ledger:
        chat = await ledger.for_owner("ann").conversation(conversation_key="lane")
        async with chat.turn("Where is my order?") as turn:
            turn.emit("On its way.")
        monkeypatch.setattr(Guess, "carry_out", carry_out_after_trying)
        for key in (None, "order-7"):
            async with chat.turn("And now?", idempotency_key=key) as turn:
                turn.emit("One moment.")
                await ledger._process.flusher.flush()
                await turn.add(call("look", "c"))
                await turn.call(call("look", "c"), look)
        assert await ledger.check() == []
    assert tried == {*LOCK_ORDER, SAVED}


@pytest.mark.parametrize("row", ["branch", "conversation"])
async def test_guess_that_waited_for_another_writer_sees_what_that_wrote(url: str, row: str) -> None:
    store, other = await PostgresStore.open(url), await asyncpg.connect(url)
    given, lease = await added(store)
    async with other.transaction():
        await other.execute(f"UPDATE {row} SET version = version + 1")
        save = saving(given, lease, lambda: asyncio.sleep(0))
        saving_it = asyncio.create_task(store.transact(save, None, "ann"))
        await waiting_for_a_lock(url)
    with pytest.raises(Refused):
        await saving_it
    assert await written(store, given) == (0, False, 0)
    await other.close()
    await store.close()


async def test_right_guess_writes_all(url: str) -> None:
    store = await PostgresStore.open(url)
    given, lease = await added(store)
    await store.transact(saving(given, lease, lambda: asyncio.sleep(0)), None, "ann")
    assert await written(store, given) == (7, True, 1)
    await store.close()


async def test_key_that_another_process_has_used_replays_its_turn(url: str) -> None:
    async with await Ledger.open(url) as here, await Ledger.open(url) as there:
        for ledger in (here, there):
            chat = await ledger.conversation(conversation_key="lane")
            with suppress(TurnReplayed):
                async with chat.turn("Where is my order?", idempotency_key="order-7") as turn:
                    assert ledger is here, "the turn ran again"
                    turn.emit("On its way.")
        assert [each.text for each in await chat.turns()] == ["On its way."]


async def test_attempt_read_after_a_write_of_another_is_compared(url: str) -> None:
    here, there = await PostgresStore.open(url), await PostgresStore.open(url)
    given, _ = await added(here)
    known, other, third = (replace(full_attempt(given), id=IDS.new(TurnId)) for _ in range(3))

    async def add(tables: Tables, attempt: Attempt) -> None:
        await tables.branch(given.branch)
        await tables.add_attempt(attempt)

    async def stop(tables: Tables, _: None) -> None:
        await tables.save_attempt(replace(known, stop=OnStop.KEEP))

    async def save(tables: Tables, is_saved: bool) -> OnStop | None:
        if is_saved:
            await tables.save_attempt(other)
        else:
            await tables.branch(given.branch)
            await tables.add_attempt(third)
        found = await tables.attempt(known.id)
        assert found is not None
        return found.stop

    for each in (known, other):
        await here.transact(add, each, "ann")
    await there.transact(stop, None, "ann")
    for is_saved in (False, True):
        assert await here.transact(save, is_saved, "ann") is OnStop.KEEP
    await here.close()
    await there.close()


async def test_operation_sees_what_it_wrote(url: str) -> None:
    store = await PostgresStore.open(url)
    given, lease = await added(store)
    attempt = full_attempt(given)

    async def add(tables: Tables, _: None) -> None:
        await tables.lane(given.id, lease)
        await tables.add_attempt(attempt)

    async def change(tables: Tables, _: None) -> tuple[Lane | None, Attempt | None]:
        lane = await tables.lane(given.id, lease)
        assert lane is not None
        await tables.drop_attempt(attempt.id)
        await tables.save_conversation(replace(lane.conversation, pinned=True))
        return await tables.lane(given.id, lease), await tables.attempt(attempt.id)

    await store.transact(add, None, "ann")
    lane, dropped = await store.transact(change, None, "ann")
    assert lane is not None
    assert (lane.conversation.pinned, dropped) == (True, None)
    await store.close()


VERSIONED = re.compile(r"UPDATE (branch|conversation|attempt)\b.*?SET (.*)")
UNVERSIONED = {"touch_conversation", "sweep_again", "mark_swept"}
"""A guard compares when a conversation was touched; whether an ended one is swept concerns no turn."""


def test_every_change_of_a_guarded_row_raises_its_version() -> None:
    changing = {name: found for name, query in QUERIES.items() if (found := VERSIONED.search(query))}
    assert len(changing) > 5
    unversioned = {name for name, found in changing.items() if "version = version + " not in found[2]}
    assert unversioned == UNVERSIONED
