"""The group-commit writer, driven by hand."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import apsw
import pytest

from tests.unit.stores.sqlite.operations import (
    add_claim_then_refuse,
    add_claims,
    beat,
    has_claim,
    ids,
    migrate_further,
    refuse,
)
from turnledger.engine.ports import Sync, Tables
from turnledger.errors import (
    InvalidInput,
    OutcomeUnknown,
    StoreCorrupt,
    StoreFull,
    StoreTooNew,
    StoreUnavailable,
    Superseded,
)
from turnledger.model.ids import LeaseId
from turnledger.stores.sqlite import connections
from turnledger.stores.sqlite.migrations import VERSION
from turnledger.stores.sqlite.threads import Job, SqliteReader, Writer
from turnledger.testing.faulty_disk import FaultyDisk


class Bench:
    """A writer on a new store, with a count of its commits."""

    def __init__(self, path: str, vfs: str | None = None) -> None:
        connections.prepare(path, vfs)
        self.path = path
        self.vfs = vfs
        self.connection = connections.connect_writer(path, vfs)
        self.commits = 0
        self.connection.set_commit_hook(self.count_commit)
        self.writer = Writer(self.connection, path)

    def count_commit(self) -> bool:
        self.commits += 1
        return False

    def run(self, *jobs: Job) -> list[Job]:
        self.writer.run_batch(jobs)
        return list(jobs)

    def has(self, *claims: str, vfs: bool = True) -> list[bool]:
        reader = SqliteReader(connections.connect_reader(self.path, self.vfs if vfs else None), self.path)
        jobs = [Job(has_claim, ("owner", claim)) for claim in claims]
        reader.run_batch(jobs)
        reader.close()
        return [job.outcome() for job in jobs]


def add(*claims: str, sync: Sync = Sync.DISK) -> Job:
    return Job(add_claims, ("owner", *claims), sync)


def add_then_refuse(claim: str) -> Job:
    return Job(add_claim_then_refuse, ("owner", claim))


@pytest.fixture
def bench(path: Path) -> Iterator[Bench]:
    bench = Bench(str(path))
    yield bench
    bench.writer.close()


def test_a_batch_is_one_transaction(bench: Bench) -> None:
    jobs = bench.run(add("a"), add("b"), add("c"))
    assert [job.error for job in jobs] == [None] * 3
    assert bench.commits == 1
    assert bench.has("a", "b", "c") == [True] * 3


def test_a_job_that_raises_undoes_only_itself(bench: Bench) -> None:
    jobs = bench.run(add("a"), add_then_refuse("b"), add("c"), add_then_refuse("d"), add("e"))
    assert [type(job.error) for job in jobs] == [type(None), Superseded, type(None), Superseded, type(None)]
    assert bench.has("a", "b", "c", "d", "e") == [True, False, True, False, True]


def test_a_job_that_raises_before_it_writes_costs_the_others_nothing(bench: Bench) -> None:
    jobs = bench.run(add("a"), Job(refuse, None), add("b"))
    assert isinstance(jobs[1].error, Superseded)
    assert bench.commits == 1
    assert bench.has("a", "b") == [True, True]


def test_a_job_alone_that_raises_is_undone(bench: Bench) -> None:
    (job,) = bench.run(add_then_refuse("a"))
    with pytest.raises(Superseded):
        job.outcome()
    assert bench.has("a") == [False]
    assert not bench.connection.in_transaction


def test_jobs_see_what_earlier_jobs_of_their_batch_wrote(bench: Bench) -> None:
    _, job = bench.run(add("a"), Job(has_claim, ("owner", "a")))
    assert job.outcome() is True


def test_when_sqlite_gives_up_the_transaction_the_innocent_run_again(bench: Bench) -> None:
    async def give_up(tables: Tables, _: None) -> None:
        bench.connection.execute("INSERT INTO lease (id, beat) VALUES (x'00', 1)")
        bench.connection.execute("INSERT OR ROLLBACK INTO lease VALUES (x'00', 1)")

    jobs = bench.run(add("a"), Job(give_up, None), add("b"), Job(refuse, None), add("c"))
    assert [job.error is None for job in jobs] == [True, False, True, False, True]
    assert bench.has("a", "b", "c") == [True] * 3


def test_a_full_disk_fails_only_the_job_that_does_not_fit(bench: Bench) -> None:
    bench.connection.pragma("max_page_count", bench.connection.pragma("page_count") + 2)
    jobs = bench.run(add("a"), add("b" * 100_000), add("c"))
    assert [type(job.error) for job in jobs] == [type(None), StoreFull, type(None)]
    assert bench.has("a", "b" * 100_000, "c") == [True, False, True]


def test_a_failed_commit_makes_every_outcome_of_the_batch_unknown(path: Path, disk: FaultyDisk) -> None:
    bench = Bench(str(path), disk.name)
    disk.refuses_sync = "-wal"
    jobs = bench.run(add("a"), Job(refuse, None), add("b"))
    assert [type(job.error) for job in jobs] == [OutcomeUnknown] * 3
    assert not bench.connection.in_transaction
    bench.writer.close()


def test_writer_whose_disk_is_full_at_commit_says_that_nothing_was_written(
    path: Path, disk: FaultyDisk, tmp_path: Path
) -> None:
    bench = Bench(str(path), disk.name)
    bench.run(add("first"))
    for sync in (Sync.PROCESS, Sync.DISK):
        disk.is_full = True
        jobs = bench.run(add("a", sync=sync), Job(refuse, None), add("b", sync=sync))
        assert [type(job.error) for job in jobs] == [StoreFull] * 3
        disk.is_full = False
        restarted = Bench(str(disk.lose_power(path, tmp_path / sync.name, Random(1))))
        assert restarted.has("first", "a", "b") == [True, False, False]
        restarted.writer.close()
    assert bench.run(add("a"))[0].error is None
    bench.writer.close()


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (apsw.CorruptError("malformed"), "malformed, .* restore it from a backup"),
        (apsw.IOError("disk I/O error"), "disk I/O error, while finishing a write"),
    ],
)
def test_an_unknown_outcome_names_its_reason(
    path: Path, disk: FaultyDisk, refusal: apsw.Error, reason: str
) -> None:
    bench = Bench(str(path), disk.name)
    disk.refuses_sync, disk.refusal = "-wal", refusal
    (job,) = bench.run(add("a"))
    with pytest.raises(OutcomeUnknown, match=reason):
        job.outcome()
    bench.writer.close()


def test_a_batch_of_failures_keeps_its_known_errors(path: Path) -> None:
    bench = Bench(str(path))
    ((page,),) = bench.connection.execute(
        "SELECT rootpage FROM sqlite_schema WHERE name = 'lease'"
    ).fetchall()
    bench.writer.close()
    content = bytearray(path.read_bytes())
    content[(page - 1) * connections.PAGE_SIZE : page * connections.PAGE_SIZE] = (
        b"\xff" * connections.PAGE_SIZE
    )
    path.write_bytes(content)
    bench = Bench(str(path))
    jobs = bench.run(Job(beat, ids.new(LeaseId)), Job(refuse, None))
    assert [type(job.error) for job in jobs] == [StoreCorrupt, Superseded]
    assert not bench.connection.in_transaction
    bench.writer.close()


def test_after_a_failed_sync_another_write_makes_the_outcome_certain(
    path: Path, disk: FaultyDisk, tmp_path: Path
) -> None:
    bench = Bench(str(path), disk.name)
    bench.run(add("first"))
    disk.refuses_sync = "-wal"
    bench.run(add("lost"))
    disk.refuses_sync = None
    (job,) = bench.run(add("next"))
    assert job.error is None
    told = bench.has("lost", "next")
    restarted = Bench(str(disk.lose_power(path, tmp_path / "restarted")))
    assert told == restarted.has("lost", "next") == [False, True]
    restarted.writer.close()
    bench.writer.close()


def test_without_another_write_a_failed_sync_may_come_back(path: Path, disk: FaultyDisk) -> None:
    bench = Bench(str(path), disk.name)
    bench.run(add("first"))  # the log has its header by now
    disk.refuses_sync = "-wal"
    bench.run(add("ghost"))
    assert bench.has("ghost") == [False]
    folder = path.parent / "restarted"
    folder.mkdir()
    for each in (path, path.with_name(f"{path.name}-wal")):
        folder.joinpath(each.name).write_bytes(each.read_bytes())
    restarted = Bench(str(folder / path.name))
    assert restarted.has("ghost") == [True]
    restarted.writer.close()
    bench.writer.close()


@pytest.mark.parametrize(
    ("levels", "syncs"),
    [
        ((Sync.DISK,), 1),
        ((Sync.PROCESS,), 0),
        ((Sync.PROCESS, Sync.PROCESS), 0),
        ((Sync.PROCESS, Sync.DISK, Sync.PROCESS), 1),
    ],
)
def test_a_batch_waits_for_the_disk_if_any_job_asks_for_it(
    path: Path, disk: FaultyDisk, levels: tuple[Sync, ...], syncs: int
) -> None:
    bench = Bench(str(path), disk.name)
    for round in "abc":
        bench.run(add("before" + round, sync=Sync.DISK))
        before = len(disk.syncs)
        bench.run(*(add(f"{round}{n}", sync=level) for n, level in enumerate(levels)))
        assert len(disk.syncs) - before == syncs
        bench.run(add("after" + round, sync=Sync.PROCESS))
    bench.writer.close()


def test_a_neighbour_that_does_not_let_go_makes_the_store_unavailable(bench: Bench) -> None:
    neighbour = apsw.Connection(bench.path)
    neighbour.execute("BEGIN IMMEDIATE")
    bench.connection.set_busy_timeout(0)
    jobs = bench.run(add("a"), add("b"))
    assert [type(job.error) for job in jobs] == [StoreUnavailable] * 2
    neighbour.execute("ROLLBACK")
    (job,) = bench.run(add("c"))
    assert job.error is None
    assert bench.has("a", "b", "c") == [False, False, True]
    neighbour.close()


def test_job_withdrawn_while_a_neighbour_holds_the_lock_leaves_and_the_others_are_committed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    neighbour = apsw.Connection(bench.path)
    neighbour.execute("BEGIN IMMEDIATE")
    patient, withdrawn = add("a"), add("b")
    handed_over: list[Job] = []
    bench.writer.hand_over = handed_over.extend
    waits: Iterator[Callable[[], object]] = iter(
        [withdrawn.withdraw, lambda: None, lambda: neighbour.execute("ROLLBACK")]
    )
    monkeypatch.setattr(time, "sleep", lambda _: next(waits)())
    bench.run(patient, withdrawn)
    assert handed_over == [withdrawn]
    assert isinstance(withdrawn.error, StoreUnavailable)
    assert patient.error is None
    assert bench.has("a", "b") == [True, False]
    neighbour.close()


async def test_job_withdrawn_before_it_is_claimed_fails_its_caller_and_never_runs() -> None:
    future: asyncio.Future[None] = asyncio.Future()
    for job in (Job(refuse, None, Sync.DISK, future), Job(refuse, None)):
        job.withdraw()
        assert job.is_withdrawn
        assert not job.claim()
    with pytest.raises(StoreUnavailable, match="Nothing was written"):
        future.result()


async def test_job_withdrawn_after_it_was_claimed_leaves_the_answer_to_the_writer() -> None:
    future: asyncio.Future[None] = asyncio.Future()
    job = Job(refuse, None, Sync.DISK, future)
    assert not job.is_withdrawn
    assert job.claim()
    job.withdraw()
    assert job.is_withdrawn
    assert not future.done()


async def test_job_withdrawn_after_its_caller_was_answered_changes_nothing() -> None:
    future: asyncio.Future[str] = asyncio.Future()
    future.set_result("answer")
    Job(refuse, None, Sync.DISK, future).withdraw()
    assert await future == "answer"


def test_an_operation_that_waits_for_anything_else_is_undone(bench: Bench) -> None:
    class Never:
        def __await__(self) -> Iterator[None]:
            yield

    ended: list[str] = []

    async def waits(tables: Tables, _: None) -> None:
        await add_claims(tables, ("owner", "a"))
        try:
            await Never()
        finally:
            ended.append("waits")

    _, job = bench.run(add("b"), Job(waits, None))
    assert ended == ["waits"] * 2  # in the batch, then alone
    with pytest.raises(RuntimeError, match="waits"):
        job.outcome()
    assert bench.has("a", "b") == [False, True]


def test_a_text_that_cannot_be_stored_is_invalid_input(bench: Bench) -> None:
    (job,) = bench.run(add("\ud800"))
    with pytest.raises(InvalidInput):
        job.outcome()


def test_a_transaction_left_open_is_ended_before_the_next(bench: Bench) -> None:
    bench.connection.execute("BEGIN IMMEDIATE; INSERT INTO lease (id, beat) VALUES (x'00', 1)")
    (job,) = bench.run(add("a"))
    assert job.error is None
    assert bench.connection.execute("SELECT count(*) FROM lease").fetchall() == [(0,)]


def test_writer_after_a_newer_process_migrated_the_store_refuses_every_transaction(bench: Bench) -> None:
    bench.run(add("before"))
    migrate_further(bench.path)
    jobs = bench.run(add("a"), add("b", sync=Sync.PROCESS), Job(has_claim, ("owner", "before")))
    for job in jobs:
        with pytest.raises(StoreTooNew, match=f"schema {VERSION + 1}"):
            job.outcome()
    assert not bench.connection.in_transaction
    rows = bench.connection.execute("SELECT idempotency_key FROM claim").fetchall()
    assert rows == [("before",)]
