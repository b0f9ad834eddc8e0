"""Writes whose connection breaks: before the commit nothing was written; during it the outcome is unknown,
and the ledger finds it out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import asyncpg
import pytest
from msgspec.structs import replace

from turnledger import Ledger
from turnledger.engine.attempt.dead_process import BuryRequest, bury
from turnledger.engine.lane.lease_watch import renew
from turnledger.engine.ports import Tables
from turnledger.errors import InvalidInput, OutcomeUnknown, StoreUnavailable
from turnledger.hosting import Host
from turnledger.model.access.token import TokenScope
from turnledger.model.conversation import Branch, Conversation
from turnledger.model.ids import ConversationId, LeaseId
from turnledger.stores.postgresql import PostgresStore
from turnledger.testing.postgresql import PostgresServer
from turnledger.testing.store_contract.rows.kit import IDS, conversation, full_attempt

SOCKET = ".s.PGSQL.5432"
ANSWER = "On its way."


class Proxy:
    """Forwards connections to the server; cuts one when its client sends COMMIT, or the answer of a turn,
    before or after the server has received it."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self.cuts: list[str] = []
        """What to do with the next commits."""
        self._clients: set[asyncio.StreamWriter] = set()
        self._silenced: set[asyncio.StreamWriter] = set()
        self.withheld = 0
        """Answers that silenced clients did not receive."""
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        self._tasks.add(asyncio.create_task(self.serve(reader, writer)))

    def silence(self) -> None:
        """Send nothing more to the clients that are connected: to them, the server hangs."""
        self._silenced |= self._clients

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for each in self._clients:  # also of tasks that were cancelled before they began
            each.close()
        await asyncio.gather(*(each.wait_closed() for each in self._clients), return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(self._server / SOCKET)
        answers = asyncio.create_task(self._forward(server_reader, writer))
        try:
            while sent := await reader.read(1 << 16):
                is_commit = b"COMMIT\x00" in sent or ANSWER.encode() in sent
                cut = self.cuts.pop() if self.cuts and is_commit else None
                if cut == "before":
                    break
                if cut == "after":
                    answers.cancel()
                    await asyncio.wait([answers])
                    server_writer.write(sent)
                    await server_reader.read(1 << 16)  # it is done, and the client does not learn of it
                    break
                server_writer.write(sent)
                await server_writer.drain()
        finally:
            answers.cancel()
            for each in (server_writer, writer):
                each.close()
            closed = (each.wait_closed() for each in (server_writer, writer))
            await asyncio.gather(answers, *closed, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while received := await reader.read(1 << 16):
            if writer in self._silenced:
                self.withheld += 1
            else:
                writer.write(received)
                await writer.drain()
        writer.close()


@pytest.fixture
async def proxied(server: PostgresServer, url: str, tmp_path: Path) -> AsyncIterator[tuple[str, Proxy]]:
    async with proxy_to(server.folder, tmp_path) as proxy:
        yield f"{url.partition('?')[0]}?host={quote(str(tmp_path), safe='')}", proxy


@asynccontextmanager
async def proxy_to(server: Path, folder: Path) -> AsyncIterator[Proxy]:
    proxy = Proxy(server)
    listening = await asyncio.start_unix_server(proxy.accept, folder / SOCKET)
    yield proxy
    listening.close()
    await proxy.close()


async def add(tables: Tables, given: object) -> None:
    await tables.add_conversation(given)  # type: ignore[arg-type]


async def add_with_branch(tables: Tables, given: Conversation) -> None:
    await tables.add_conversation(given)
    await tables.add_branch(Branch(id=given.branch, conversation=given.id))


async def has_lease(tables: Tables, asked: tuple[ConversationId, LeaseId]) -> bool:
    lane = await tables.lane(*asked)
    return lane is not None and lane.has_lease


async def waiting_for_a_lock(url: str) -> None:
    """Return when a transaction of this database waits for another."""
    connection = await asyncpg.connect(url)
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while not await connection.fetchval(waiting):
        await asyncio.sleep(0)
    await connection.close()


async def count(url: str, table: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval(f"SELECT count(*) FROM {table}"))
    finally:
        await connection.close()


@pytest.mark.parametrize(("cut", "stored"), [("before", 0), ("after", 1)])
async def test_connection_lost_at_the_commit_is_an_unknown_outcome(
    proxied: tuple[str, Proxy], url: str, cut: str, stored: int
) -> None:
    place, proxy = proxied
    store = await PostgresStore.open(place)
    proxy.cuts.append(cut)
    with pytest.raises(OutcomeUnknown):
        await store.transact(add, conversation(owner="ann"), "ann")
    assert await count(url, "conversation") == stored
    await store.close()


async def test_connection_lost_before_the_commit_has_written_nothing(url: str) -> None:
    store = await PostgresStore.open(url)

    async def add_and_lose(tables: Tables, given: object) -> None:
        await tables.add_conversation(given)  # type: ignore[arg-type]
        other = await asyncpg.connect(url)
        own = "pid <> pg_backend_pid() AND datname = current_database() AND state = 'idle in transaction'"
        await other.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {own}")
        await other.close()
        await tables.usage()

    with pytest.raises(StoreUnavailable, match=r"connection (is lost|was closed)"):
        await store.transact(add_and_lose, conversation(owner="ann"), "ann")
    assert await count(url, "conversation") == 0
    await store.transact(add, conversation(owner="ann"), "ann")
    await store.close()


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_turn_whose_commit_was_cut_off_is_in_the_history_once(
    proxied: tuple[str, Proxy], url: str, cut: str
) -> None:
    place, proxy = proxied
    async with await Ledger.open(place) as ledger:
        chat = await ledger.conversation(conversation_key="lane")
        async with chat.turn("Where is my order?") as turn:
            turn.emit(ANSWER)
            proxy.cuts.append(cut)
        assert [each.text for each in await chat.turns()] == [ANSWER]
        async with chat.turn("And now?") as turn:
            turn.emit("Here.")
        assert len(await chat.turns()) == 2
        assert await ledger.check() == []
    assert await count(url, "turn") == 2


async def test_lease_is_not_buried_while_a_turn_begins_under_it(url: str) -> None:
    here, there = await PostgresStore.open(url), await PostgresStore.open(url)
    given, lease = conversation(owner="ann"), IDS.new(LeaseId)
    await here.transact(add_with_branch, given, "ann")
    await here.transact_whole(renew, lease)
    order: list[str] = []

    async def begin(tables: Tables, _: None) -> bool:
        await tables.usage()  # so that it runs alone
        lane = await tables.lane(given.id, lease)
        burial = asyncio.create_task(bury_it())
        await waiting_for_a_lock(url)
        order.append("begun")
        tasks.append(burial)
        return lane is not None and lane.has_lease

    async def bury_it() -> None:
        await there.transact_whole(lambda whole, id: whole.bury_lease(id), lease)
        order.append("buried")

    tasks: list[asyncio.Task[None]] = []
    assert await here.transact(begin, None, "ann")
    await asyncio.gather(*tasks)
    assert order == ["begun", "buried"]
    assert not await here.transact(has_lease, (given.id, lease), "ann")
    await here.close()
    await there.close()


async def test_lease_is_not_buried_if_a_turn_has_begun_under_it_meanwhile(url: str) -> None:
    """Its process was frozen, and found dead. Recovery finds its attempts through the lease."""
    here, there = await PostgresStore.open(url), await PostgresStore.open(url)
    given, lease = conversation(owner="ann"), IDS.new(LeaseId)
    await here.transact(add_with_branch, given, "ann")
    await here.transact_whole(renew, lease)
    burials: list[asyncio.Task[None]] = []

    async def begin(tables: Tables, _: None) -> None:
        await tables.usage()  # so that it runs alone
        assert await tables.lane(given.id, lease) is not None
        await tables.add_attempt(replace(full_attempt(given), lease=lease))
        burials.append(asyncio.create_task(there.transact_whole(bury, BuryRequest(lease, {lease: 1}))))
        await waiting_for_a_lock(url)

    await here.transact(begin, None, "ann")
    await asyncio.gather(*burials)
    assert await here.transact(has_lease, (given.id, lease), "ann")
    await here.close()
    await there.close()


async def test_number_that_is_too_large_is_refused_as_input(url: str) -> None:
    store = await PostgresStore.open(url)
    given = conversation(owner="ann")

    async def touch(tables: Tables, at: int) -> None:
        await tables.add_conversation(given)
        await tables.touch_conversation(given.id, at)

    with pytest.raises(InvalidInput):
        await store.transact(touch, 2**63, "ann")
    await store.close()


@pytest.mark.parametrize("revoked", ["the link", "its token"])
async def test_revocation_locks_visitors_before_their_link_as_their_turns_do(url: str, revoked: str) -> None:
    async with await Ledger.open(url) as ledger:
        host = Host(ledger)
        parent, _ = await host.tokens.create(owner="ann", scopes=frozenset(TokenScope))
        share, code = await host.shares.create(owner="ann", scope="shop", parent=parent.id)
        visitor = (await host.shares.exchange(code, "n" * 22)).token
        async with (await ledger.for_owner(visitor.owner, scope="shop").conversation()).turn("Hi") as turn:
            turn.emit(ANSWER)
        holder, other = await asyncpg.connect(url), await asyncpg.connect(url)
        async with holder.transaction():
            await holder.execute("SELECT 1 FROM owner WHERE owner = $1 FOR KEY SHARE", visitor.owner)
            revoking = (
                host.shares.revoke(share.id) if revoked == "the link" else host.tokens.revoke(parent.id)
            )
            task = asyncio.ensure_future(revoking)
            await waiting_for_a_lock(url)
            await other.execute("SELECT 1 FROM share FOR UPDATE NOWAIT")
        await task
        await holder.close()
        await other.close()
        assert (await host.shares.list())[0].revoked_at is not None


async def test_cancelled_read_is_cancelled_and_the_store_goes_on(proxied: tuple[str, Proxy]) -> None:
    place, proxy = proxied
    store = await PostgresStore.open(f"{place}&wait=1")
    proxy.silence()
    reading = asyncio.create_task(store.read_whole(lambda whole, _: whole.newest_time(), None))
    while not proxy.withheld:
        await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait((reading,))
    assert reading.cancelled()
    await store.transact(add, conversation(owner="ann"), "ann")
    await store.close()
