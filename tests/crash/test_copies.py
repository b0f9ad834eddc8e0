"""Copies between stores: killed at any moment and resumed, they are equal, record by record, and usable."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import apsw
import pytest

from tests.crash.all_rows import all_rows
from tests.crash.killed_copy import copy
from tests.crash.stocked_store import LONG, ODD
from tests.fork_server import ForkedProcess
from tests.long_form import IS_LONG
from tests.unit.engine.populated_store import run_turn
from turnledger import Ledger, Limits
from turnledger.engine.check.check import CheckRequest, check
from turnledger.engine.lane.lease_watch import all_leases
from turnledger.engine.tables.records import CopyProgress
from turnledger.engine.transfer import store_copy
from turnledger.errors import (
    ConversationExpired,
    InvalidInput,
    NotAStore,
    StoreCorrupt,
    StoreUnavailable,
)
from turnledger.hosting import Host
from turnledger.model.access.token import digest_of
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import Conversation, ConversationState
from turnledger.stores.url import open_read_only, open_source, open_target
from turnledger.testing.postgresql import PostgresServer
from turnledger.testing.scripted_model import ScriptedModel, Tool

SMALL, LARGE = 20_000, 2_000_000
"""Bytes of a page: each table has one or more, or all are one."""
LEASE_TIME = 0.4
NewStore: TypeAlias = Callable[[str], str]
KINDS = ("sqlite", "postgresql")
PAIRS = [(source, target) for source in KINDS for target in KINDS]


@dataclass(frozen=True)
class Stocked:
    """A store whose process was killed, and what its clients know."""

    url: str
    known: dict[str, Any]
    rows: dict[str, Any]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer.start() as running:
        yield running


@pytest.fixture
def new_store(server: PostgresServer, tmp_path: Path) -> NewStore:
    """Makes the URL of an empty store of a kind."""
    names = iter(range(100))

    def make(kind: str) -> str:
        return server.create_database() if kind == "postgresql" else f"sqlite:///{tmp_path}/{next(names)}.db"

    return make


@pytest.fixture(scope="module")
def stocked(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stocked]:
    folder = tmp_path_factory.mktemp("stocked")
    urls = {"sqlite": f"sqlite:///{folder}/chats.db", "postgresql": server.create_database()}
    processes = {kind: ForkedProcess("tests.crash.stocked_store", url) for kind, url in urls.items()}
    return {kind: stocked_store(urls[kind], process) for kind, process in processes.items()}


def stocked_store(url: str, process: ForkedProcess) -> Stocked:
    with process:
        out, errors = process.communicate(60)
    assert process.returncode == -signal.SIGKILL, errors
    return Stocked(url, json.loads(out), asyncio.run(all_rows(url)))


def run_killed(source: str, target: str, page: int, moment: int, *broken: str) -> tuple[int, str]:
    with ForkedProcess("tests.crash.killed_copy", source, target, str(page), str(moment), *broken) as process:
        _, errors = process.communicate(60)
    return process.wait(), errors


async def findings(url: str) -> list[str]:
    visit = await open_read_only(url)
    try:
        report = await visit.inspect(check, CheckRequest())
    finally:
        await visit.close()
    return [finding.message for finding in report.findings if finding.is_damage]


@pytest.mark.parametrize(("source", "target"), PAIRS)
async def test_copy_has_every_row_of_its_source_and_run_again_changes_nothing(
    stocked: dict[str, Stocked], new_store: NewStore, source: str, target: str
) -> None:
    url = new_store(target)
    first = await copy(stocked[source].url, url, SMALL)
    assert min(first.records.values()) > 0, "a table is empty: this shows nothing of it"
    found = stocked[source].rows.values()
    assert {row.state for row in found if isinstance(row, Conversation)} == set(ConversationState)
    assert await all_rows(url) == stocked[source].rows
    assert await findings(url) == []
    again = await copy(stocked[source].url, url, LARGE)
    assert (first.was_complete, again.was_complete) == (False, True)
    assert first.records == again.records
    assert await all_rows(url) == stocked[source].rows


@pytest.mark.parametrize(("source", "target"), PAIRS if IS_LONG else PAIRS[1:2])
def test_copy_killed_at_any_moment_and_resumed_equals_its_source(
    stocked: dict[str, Stocked], new_store: NewStore, source: str, target: str
) -> None:
    url, page, passed = new_store(target), *((2_000, 0) if IS_LONG else (SMALL, 9))
    kills = 0
    # Each process passes some pages, and dies at one of the three moments of the next one.
    while (ended := run_killed(stocked[source].url, url, page, passed + kills % 3 + 1))[0] == -signal.SIGKILL:
        kills += 1
        with pytest.raises(NotAStore, match="unfinished copy"):
            asyncio.run(open_read_only(url))
    assert ended[0] == 0, ended[1]
    assert kills >= (50 if IS_LONG else 4)
    assert asyncio.run(all_rows(url)) == stocked[source].rows
    assert asyncio.run(findings(url)) == []


@pytest.mark.parametrize("target", KINDS)
def test_copy_that_saves_progress_apart_from_records_is_found_to_differ(
    stocked: dict[str, Stocked], new_store: NewStore, target: str
) -> None:
    url = new_store(target)
    assert run_killed(stocked["sqlite"].url, url, SMALL, 5, "apart")[0] == -signal.SIGKILL
    with pytest.raises(StoreCorrupt, match=r"belongs to nothing|conversation \(0 of 18 records\)"):
        asyncio.run(copy(stocked["sqlite"].url, url, SMALL))


@pytest.mark.parametrize(("source", "target"), PAIRS[1:3])
async def test_server_on_the_copy_continues_all_work(
    stocked: dict[str, Stocked], new_store: NewStore, source: str, target: str
) -> None:
    url, known = new_store(target), stocked[source].known
    await copy(stocked[source].url, url, LARGE)
    async with await Ledger.open(url, limits=Limits(lease_time=LEASE_TIME)) as ledger:
        ann, host = ledger.for_owner("ann"), Host(ledger)
        token = (await host.tokens.find(digest_of(known["token"]))).token
        assert token is not None
        assert (token.owner, token.name) == ("ann", ODD)

        # An old idempotency_key replays its answer; a failed one resumes after its journaled tool.
        detailed = await ann.conversation(conversation_key="detailed", create=False)
        replayed = await detailed.run(ScriptedModel(), LONG, idempotency_key=ODD)
        assert replayed.id == (await detailed.turns())[0].id
        await detailed.run(ScriptedModel(["And on."]), "Go on.")
        assert [turn.text for turn in await detailed.turns()][-2:] == ["Yes.", "And on."]
        failed = await ann.conversation(conversation_key="failed", create=False)
        again = ScriptedModel(["Once", Tool("pay"), "upon a time."])
        await failed.run(again, LONG, idempotency_key="failed")
        assert again.executed == {}

        # The running turn of the dead process is ended by its policy, and the next one runs.
        running = await ann.conversation(known["running"])
        await running.run(ScriptedModel(["Late."]), "After the move")
        assert [turn.kind for turn in await running.turns()][-2:] == ["settled", "completed"]
        assert (await ledger.check()) == []

        # Durable work is done, deleted chats can be restored, expired ones stay expired.
        async with asyncio.TaskGroup() as group:
            work = group.create_task(ledger.work(ScriptedModel(["Done."])))
            jobs = await ann.conversation(conversation_key="jobs", create=False)
            assert (await jobs.outcome(known["job"])).turn is not None
            work.cancel()
        await ann.restore(known["deleted"])
        with pytest.raises(ConversationExpired):
            await ann.conversation(known["expiring"])

        # Texts of before the move are found, and followers read anew.
        assert [hit.conversation.id for hit in (await ann.search("Butterflies")).hits] == [detailed.id]
        assert detailed.id in {hit.conversation.id for hit in (await ann.search("without end")).hits}
        async with aclosing(ann.changes(after=known["position"])) as changes:
            assert (await anext(changes)).kind is ChangeKind.GAP


@pytest.mark.parametrize("kind", KINDS)
async def test_followers_of_the_source_read_the_copy_anew(kind: str, new_store: NewStore) -> None:
    source, target = new_store(kind), new_store(kind)
    async with await Ledger.open(source) as ledger:
        positions = [await ledger.position()]
        for text in ("one", "two"):
            await run_turn(await ledger.conversation(), text)
            positions.append(await ledger.position())
    await copy(source, target, LARGE)
    async with await Ledger.open(target) as ledger:
        positions.append(await ledger.position())
        for text in ("three", "four"):
            await run_turn(await ledger.conversation(), text)
        kinds = []
        for position in positions:
            async with aclosing(ledger.changes(after=position)) as changes:
                kinds.append((await anext(changes)).kind)
        assert kinds == [ChangeKind.GAP] * 3 + [ChangeKind.CHAT_CREATED]


async def test_turn_without_checksum_of_an_older_version_gets_one(new_store: NewStore) -> None:
    source, target, back = new_store("sqlite"), new_store("postgresql"), new_store("sqlite")
    await add_conversation(source)
    connection = apsw.Connection(source.removeprefix("sqlite:///"))
    connection.execute("UPDATE turn SET checksum = NULL")
    connection.close()
    await copy(source, target, LARGE)
    await copy(target, back, LARGE)
    for url in (target, back):
        visit = await open_read_only(url)
        report = await visit.inspect(check, CheckRequest())
        await visit.close()
        assert (report.turns, report.turns_without_checksum, report.findings) == (1, 0, [])


@pytest.mark.parametrize("kind", KINDS)
async def test_store_in_use_is_refused_and_nothing_is_copied(kind: str, new_store: NewStore) -> None:
    source, target = new_store(kind), new_store(kind)

    async def until_it_beats(_: float) -> None:
        """Wait as long as a copy would, but not by a clock."""
        store = ledger._process.store
        before = await store.read_whole(all_leases, None)
        while await store.read_whole(all_leases, None) == before:
            await asyncio.sleep(0.01)

    for used in (source, target):
        async with await Ledger.open(used, limits=Limits(lease_time=LEASE_TIME)) as ledger:
            if used is source:
                await ledger.conversation()
            with pytest.raises(StoreUnavailable, match=r"in use by 1 process\. Stop"):
                await copy(source, target, LARGE, sleep=until_it_beats)
    assert (await copy(source, target, LARGE)).records["conversation"] == 1
    async with await Ledger.open(target, limits=Limits(lease_time=LEASE_TIME)) as ledger:
        with pytest.raises(StoreUnavailable, match=r"in use by 1 process\. Stop"):
            await copy(source, target, LARGE, sleep=until_it_beats)


@pytest.mark.parametrize("kind", KINDS)
async def test_source_used_while_it_is_copied_is_found_to_differ(
    kind: str, new_store: NewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = new_store(kind), new_store("sqlite")
    await add_conversation(source)

    copy_all = store_copy._copy

    async def copy_and_use(*arguments: Any) -> Any:
        progress = await copy_all(*arguments)
        async with await Ledger.open(source) as ledger:
            await Host(ledger).tokens.create(scopes=["turns:run"])
        return progress

    monkeypatch.setattr(store_copy, "_copy", copy_and_use)
    with pytest.raises(StoreCorrupt, match=r"token \(0 of 1 records\)"):
        await copy(source, target, LARGE)
    with pytest.raises(NotAStore, match="unfinished copy"):
        await Ledger.open(target)


@pytest.mark.parametrize("kind", KINDS)
async def test_target_that_is_not_a_copy_of_this_source_is_refused(kind: str, new_store: NewStore) -> None:
    source, other, target = new_store(kind), new_store(kind), new_store(kind)
    await add_conversation(source)
    await add_conversation(other)
    with pytest.raises(InvalidInput, match="not empty"):
        await copy(source, other, LARGE)
    with pytest.raises(InvalidInput, match="a backup of it"):
        await copy(source, source, LARGE)
    await copy(source, target, LARGE)
    with pytest.raises(InvalidInput, match="a copy of another store"):
        await copy(other, target, LARGE)
    await add_conversation(target)
    with pytest.raises(InvalidInput, match="was used since it was copied"):
        await copy(source, target, LARGE)
    await add_conversation(source)
    with pytest.raises(InvalidInput, match="was used since this copy began"):
        await copy(source, target, LARGE)
    assert len([name for name in await all_rows(target) if name.startswith("conversation ")]) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_second_process_that_copies_is_refused(kind: str, new_store: NewStore) -> None:
    source, target = new_store("sqlite"), new_store(kind)
    await add_conversation(source)
    reader, first, second = await open_source(source), await open_target(target), await open_target(target)
    begun = CopyProgress(await reader.state(), "owner")
    assert await first.begin(begun)
    assert not await second.begin(begun)
    page = await reader.read("owner", None, LARGE)
    after = CopyProgress(begun.source, "owner", page.after)
    await first.write("owner", page.records, begun, after)
    with pytest.raises(StoreUnavailable, match="Another process"):
        await second.write("owner", page.records, begun, after)
    for each in (reader, first, second):
        await each.close()


async def add_conversation(url: str) -> None:
    async with await Ledger.open(url) as ledger:
        await run_turn(await ledger.conversation(), "Hello")
