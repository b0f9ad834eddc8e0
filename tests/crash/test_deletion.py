"""A crash at any point of delete, restore or purge leaves a store that `check` accepts: each chat before or
after, restorable chats and forks complete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.crash.deletion_worker import LIMITS, TURNS, made
from tests.fork_server import ForkedProcess
from turnledger import Chat, Ledger, errors
from turnledger.engine.lifecycle.delete import EndDueRequest, end_due
from turnledger.engine.lifecycle.purge import PurgeRequest, purge
from turnledger.engine.ports import Inspection
from turnledger.engine.wrapped_store import WrappedStore, Write
from turnledger.hosting import Host
from turnledger.model.conversation import ConversationState
from turnledger.model.ids import ConversationId
from turnledger.stores.memory import MemoryStore
from turnledger.stores.sqlite import SqliteStore
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.faulty_disk import FaultyDisk

LIVE, DELETED, PURGED = ConversationState.LIVE, ConversationState.DELETED, ConversationState.PURGED


# Real processes, killed.


@pytest.mark.parametrize("seed", range(2))
async def test_kill_during_delete_restore_or_purge_leaves_each_chat_before_or_after(
    tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    output: list[str] = []
    for life in range(3):
        output += lived(tmp_path, f"{seed}-{life}", random.randint(15, 60))
        output.append("killed")
    async with await Ledger.over(
        await SqliteStore.open(tmp_path / "chats.db"), limits=LIMITS, clock=FakeClock()
    ) as ledger:
        await Host(ledger).recover()
        assert await ledger.check() == []
        await check_forks(ledger, output)
        for id, possible in states_after(output).items():
            state = await state_of(ledger, id)
            # Time that passed may have purged what was deleted.
            assert state in possible or (state is PURGED and DELETED in possible), (id, state, possible)
            if state is DELETED:
                await check_restored(ledger, id)
            elif state is LIVE:
                await check_whole(await ledger.conversation(id))
        for _ in range(60):
            await ledger._recovery.run_round()
        assert await ledger.check(at_rest=True) == []
        await check_forks(ledger, output)


def lived(folder: Path, seed: str, lines: int) -> list[str]:
    """Return the output of a process that is killed after this many lines."""
    with ForkedProcess("tests.crash.deletion_worker", str(folder), seed) as process:
        output = [process.stdout.readline().rstrip() for _ in range(lines)]
        process.kill()
        output += [line.rstrip() for line in process.stdout if line.endswith("\n")]
    assert all(output), "it ended by itself"
    return output


def states_after(output: list[str]) -> dict[str, set[ConversationState]]:
    """Return the possible states of each chat: the last reported one, and one under way at a kill."""
    leads_to = {"delete": DELETED, "restore": LIVE, "purge": PURGED}
    possible: dict[str, set[ConversationState]] = {}
    for line in output:
        word, *rest = line.split()
        if word == "made":
            possible[rest[0]] = {LIVE}
        if len(rest) < 2 or rest[1] not in possible:
            continue
        what, id = rest
        if word == "will" and what in leads_to:
            possible[id] = {*possible[id], leads_to[what]}
        if word == "did" and what in leads_to:
            # A purged chat stays purged, whatever was requested since.
            possible[id] = {leads_to[what], *({PURGED} & possible[id])}
        if word == "refused":
            possible[id] = {PURGED}
    return possible


async def state_of(ledger: Ledger, id: str) -> ConversationState:
    try:
        await ledger.conversation(id)
    except errors.ConversationDeleted as deleted:
        return PURGED if deleted.restorable_until is None else DELETED
    return LIVE


async def check_whole(chat: Chat) -> None:
    info = await chat.info()
    assert info.title is not None
    assert info.metadata["number"]
    turns = await chat.turns()
    # An edit that was not committed when its process died is not there.
    assert [turn.number for turn in turns] in (list(range(1, TURNS + 1)), [1, 2, 3])


async def check_restored(ledger: Ledger, id: str) -> None:
    try:
        await check_whole(await ledger.restore(id))
    except errors.ConversationDeleted:
        return  # its time is over, and it is only not marked yet
    await ledger.delete(id)


async def check_forks(ledger: Ledger, output: list[str]) -> None:
    forks = [line.split()[1] for line in output if line.startswith("forked")]
    assert forks
    for id in forks:
        fork = await ledger.conversation(id)
        assert [turn.text for turn in await fork.turns()] == ["a0", "a1"]


# A crash in the middle of a transaction, at each of its steps.


class Cut(Exception):
    """The process dies here."""


class CutRows:
    """The rows of a store, for so many steps."""

    def __init__(self, rows: Any, left: list[None]) -> None:
        self._rows = rows
        self._left = left

    def of(self, owner: str) -> CutRows:
        return CutRows(self._rows.of(owner), self._left)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._rows, name)
        if name == "owner":
            return method

        async def step(*given: Any, **named: Any) -> Any:
            if not self._left:
                raise Cut
            self._left.pop()
            return await method(*given, **named)

        return step


class CutStore(WrappedStore):
    """A store whose process dies after so many steps of its next transaction."""

    steps: int | None = None

    async def write(self, write: Write) -> Any:
        steps = self.steps
        if steps is None:
            return await super().write(write)

        async def cut(rows: Any, request: Any) -> Any:
            return await write.operation(CutRows(rows, [None] * steps), request)

        return await super().write(write._replace(operation=cut))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_transaction_cut_at_any_step_is_rolled_back(kind: str, tmp_path: Path) -> None:
    inner: Any = MemoryStore()
    if kind == "sqlite":
        inner = await SqliteStore.open(tmp_path / "chats.db", inline=True)
    store = CutStore(inner)
    clock, cuts = FakeClock(), 0
    async with await Ledger.over(store, limits=LIMITS, clock=clock) as ledger:
        chat, fork = await played(ledger)
        for deed in deeds(ledger, chat, clock):
            before, steps = await stored(ledger, chat), 0
            while await is_cut(store, steps, deed):
                assert await stored(ledger, chat) == before
                assert await ledger.check() == []
                steps, cuts = steps + 1, cuts + 1
            assert await ledger.check() == []
            assert [turn.text for turn in await fork.turns()] == ["a0", "a1"]
        assert cuts > 60
        assert await state_of(ledger, chat.id) is PURGED


async def is_cut(store: CutStore, steps: int, deed: Callable[[], Awaitable[Any]]) -> bool:
    store.steps = steps
    try:
        await deed()
    except Cut:
        return True
    finally:
        store.steps = None
    return False


async def played(ledger: Ledger) -> tuple[Chat, Chat]:
    """A chat with a fork, an edit and a turn whose tool has acted and that did not end well."""
    chat = await made(ledger, 0)
    [fork] = [each for each in await everything(ledger) if each.id != chat.id]
    call = {"type": "function_call", "call_id": "c", "name": "pay", "arguments": "{}"}

    async def pay() -> str:
        return "paid"

    with pytest.raises(RuntimeError):
        async with chat.turn("pay") as turn:
            await turn.call(call, pay)
            raise RuntimeError
    return chat, fork


async def everything(ledger: Ledger) -> list[Chat]:
    async def ids(inspection: Inspection, _: None) -> list[ConversationId]:
        return [each.row for each in await inspection.all_conversations(None, 100)]

    return [await ledger.conversation(id) for id in await ledger._process.store.inspect(ids, None)]


def deeds(ledger: Ledger, chat: Chat, clock: FakeClock) -> Iterator[Callable[[], Awaitable[Any]]]:
    """Each is one transaction: delete and restore, twice, then let its time pass, and sweep."""
    process = ledger._process
    for _ in range(2):
        yield lambda: ledger.delete(chat.id)
        yield lambda: ledger.restore(chat.id)
    yield lambda: ledger.delete(chat.id)
    clock.advance(LIMITS.restore_time)
    now = clock.now_ms()
    yield lambda: process.store.transact(
        end_due, EndDueRequest((chat.id,), now, now, now - 1_000), chat.owner
    )
    for _ in range(8):
        yield lambda: process.store.transact_whole(purge, PurgeRequest(now, 10_000_000, 2))


async def stored(ledger: Ledger, chat: Chat) -> list[Any]:
    """All that is stored of a chat and its fork."""

    async def rows(inspection: Inspection, _: None) -> list[Any]:
        tables = inspection.of(chat.owner)
        branches = [await tables.branch(each.row) for each in await inspection.all_branches(None, 100)]
        attempts = await tables.attempts(chat.id, 100)
        return [
            [await tables.conversation(each.row) for each in await inspection.all_conversations(None, 100)],
            branches,
            [await tables.origin(each.id) for each in branches if each],
            [await tables.turns(each.id, 0, 100, 100) for each in branches if each],
            attempts,
            [await tables.journal(each.id) for each in attempts],
            await tables.changes(None, 100),
            await tables.usage(),
        ]

    return await ledger._process.store.inspect(rows, None)


# Power loss.


async def test_power_loss_preserves_every_acknowledged_deletion_state(tmp_path: Path) -> None:
    disk, random, clock = FaultyDisk(), Random(7), FakeClock()
    path = tmp_path / "chats.db"
    store = await SqliteStore.open(path, inline=True, vfs=disk.name)
    async with await Ledger.over(store, limits=LIMITS, clock=clock) as ledger:
        chat, fork = await played(ledger)
        for number, deed in enumerate(deeds(ledger, chat, clock)):
            await deed()
            expected = await state_of(ledger, chat.id)
            for kind, coin in (("nothing", None), ("something", random)):
                image = disk.lose_power(path, tmp_path / f"{number}-{kind}", coin)
                after = await SqliteStore.open(image, inline=True)
                async with await Ledger.over(after, limits=LIMITS, clock=clock) as survived:
                    assert await survived.check() == []
                    assert await state_of(survived, chat.id) is expected
                    again = await survived.conversation(fork.id)
                    assert [turn.text for turn in await again.turns()] == ["a0", "a1"]
