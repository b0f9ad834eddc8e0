"""Readiness of the store, and metrics under stable names."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from tests.unit.server.asgi import fetch, run_app
from tests.unit.server.logging_state import kept_logging
from turnledger import Ledger
from turnledger.engine.lane.lease_watch import renew
from turnledger.errors import LedgerClosed, StoreFull, StoreReadOnly
from turnledger.server.app import make_app
from turnledger.server.config.settings import Settings
from turnledger.server.models.models import Models
from turnledger.server.ops import readiness
from turnledger.server.ops.logs import configure
from turnledger.server.ops.metrics import FILE_BYTES, Metrics
from turnledger.server.ops.readiness import FRESH, NO_ANSWER, Readiness
from turnledger.stores.memory import MemoryStore
from turnledger.testing.gates import GatedStore


class Disk:
    """A store to be probed. It raises `problem`; `now` is its time."""

    def __init__(self) -> None:
        self.problem: Exception | None = None
        self.probes = 0
        self.now = 100.0
        self.answers = asyncio.Event()
        self.answers.set()
        self.readiness = Readiness(self.probe, lambda: self.now)

    async def probe(self) -> None:
        self.probes += 1
        await self.answers.wait()
        if self.problem is not None:
            raise self.problem

    async def code(self) -> str | None:
        found = await self.readiness.problem()
        return found and found.code


async def test_readiness_probe_is_shared_by_concurrent_requests() -> None:
    disk = Disk()
    disk.answers.clear()
    pending = [asyncio.create_task(disk.code()) for _ in range(50)]
    await asyncio.sleep(0)
    disk.answers.set()
    assert await asyncio.gather(*pending) == [None] * 50
    assert disk.probes == 1


async def test_readiness_probe_runs_at_most_once_per_interval() -> None:
    disk = Disk()
    for _ in range(10):
        assert await disk.code() is None
        disk.now += FRESH / 10.1
    assert disk.probes == 1
    disk.now += FRESH
    disk.problem = StoreFull()
    assert await disk.code() == "store_full"
    assert await disk.code() == "store_full"
    assert disk.probes == 2


async def test_readiness_recovers_when_the_store_does() -> None:
    disk = Disk()
    for problem, code in (
        (StoreReadOnly(), "store_read_only"),
        (None, None),
        (LedgerClosed(), "ledger_closed"),
    ):
        disk.problem = problem
        disk.now += FRESH
        assert await disk.code() == code


async def test_readiness_probe_that_hangs_is_not_ready_and_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "PATIENCE", 0.0)
    disk = Disk()
    disk.answers.clear()
    assert await disk.readiness.problem() == NO_ANSWER
    disk.now += 10 * FRESH
    assert await disk.readiness.problem() == NO_ANSWER
    assert disk.probes == 1
    monkeypatch.setattr(readiness, "PATIENCE", 60.0)
    disk.answers.set()
    assert await disk.code() is None
    assert disk.probes == 1


async def test_readiness_request_that_is_cancelled_does_not_cancel_the_shared_probe() -> None:
    disk = Disk()
    disk.answers.clear()
    leaves, stays = (asyncio.create_task(disk.code()) for _ in range(2))
    await asyncio.sleep(0)
    leaves.cancel()
    await asyncio.wait([leaves])
    disk.answers.set()
    assert await stays is None
    assert disk.probes == 1


async def test_readiness_probe_with_an_unexpected_exception_is_not_ready() -> None:
    disk = Disk()
    disk.problem = ZeroDivisionError()
    assert await disk.code() == "store_error"


async def test_readiness_changes_are_logged_once_with_their_details() -> None:
    disk, written = Disk(), StringIO()
    with kept_logging():
        configure("json", "info", written)
        for problem in (StoreFull("/a/b: full"), StoreFull("/a/b: full"), None, None):
            disk.problem = problem
            disk.now += FRESH
            await disk.code()
    logged = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [(each["event"], each.get("details")) for each in logged] == [
        ("not_ready", "/a/b: full"),
        ("ready_again", None),
    ]


def test_metrics_count_turns_waits_streams_requests_and_gauges() -> None:
    metrics = Metrics()
    metrics.turns("committed").inc()
    metrics.turns("committed").inc()
    metrics.turns("failed").inc()
    metrics.lane_wait.observe(0.02)
    metrics.first_token.observe(0.3)
    metrics.commit.observe(0.004)
    metrics.streams.inc()
    metrics.streams.inc()
    metrics.streams.dec()
    metrics.requests(200).inc()
    metrics.export("queue_length", "Waiting.", lambda: 7)
    text = metrics.text().decode()
    for line in (
        'turnledger_turns_total{outcome="committed"} 2.0',
        'turnledger_turns_total{outcome="failed"} 1.0',
        "turnledger_lane_wait_seconds_count 1.0",
        'turnledger_lane_wait_seconds_bucket{le="0.05"} 1.0',
        'turnledger_lane_wait_seconds_bucket{le="0.01"} 0.0',
        "turnledger_first_token_seconds_sum 0.3",
        'turnledger_commit_seconds_bucket{le="0.005"} 1.0',
        "turnledger_open_streams 1.0",
        'turnledger_requests_total{status="200"} 1.0',
        "turnledger_queue_length 7.0",
    ):
        assert line in text.splitlines()


def test_metrics_of_two_servers_in_one_process_are_separate() -> None:
    first, second = Metrics(), Metrics()
    first.turns("committed").inc()
    assert b'outcome="committed"' not in second.text()


def test_metric_names_are_prefixed_and_described() -> None:
    text = Metrics().text().decode()
    names = re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE)
    assert names
    assert all(name.startswith("turnledger_") and meaning.endswith(".") for name, meaning in names)


def worker(folder: Path, part: int, code: str) -> str:
    """What a process prints that counts as a worker with this part; all of its metrics are shared."""
    script = (
        "from pathlib import Path; from turnledger.server.ops.metrics import Metrics\n"
        f"metrics = Metrics.shared(Path({str(folder)!r}), {part})\n{code}\n"
        "print(metrics.text().decode())"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4] / "src")}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environ, check=True
    )
    return done.stdout


def test_metrics_sum_workers_and_keep_the_counters_of_dead_ones(tmp_path: Path) -> None:
    counts = "metrics.requests(200).inc(); metrics.lane_wait.observe(0.02); metrics.streams.inc()"
    watches = "metrics.export('queue_length', 'Waiting.', lambda: 7)"
    worker(tmp_path, 0, f"{counts}\n{watches}")
    both = worker(tmp_path, 1, f"{counts}\n{watches}").splitlines()
    for line in (
        'turnledger_requests_total{status="200"} 2.0',
        'turnledger_lane_wait_seconds_bucket{le="0.05"} 2.0',
        "turnledger_open_streams 2.0",
        "turnledger_queue_length 14.0",
    ):
        assert line in both
    Metrics.clear(tmp_path, 0)
    # The next owner of a dead worker's part continues its counts.
    after = worker(tmp_path, 0, "metrics.requests(200).inc()").splitlines()
    assert 'turnledger_requests_total{status="200"} 3.0' in after
    assert "turnledger_open_streams 1.0" in after
    assert "turnledger_queue_length 7.0" in after
    assert len(list(tmp_path.iterdir())) == 6


def test_metrics_files_are_fully_allocated_on_disk(tmp_path: Path) -> None:
    # Of a disk that fills up later, the system would kill the worker that touches what it was not given.
    worker(tmp_path, 0, "metrics.requests(200).inc()")
    files = list(tmp_path.iterdir())
    assert len(files) == 3
    assert all(file.stat().st_blocks * 512 >= FILE_BYTES for file in files)


def test_metrics_of_an_idle_worker_survive_the_removal_of_their_folder(tmp_path: Path) -> None:
    # Without a supervisor, the first worker to end removes it; the others may not have counted anything yet.
    folder = tmp_path / "metrics"
    folder.mkdir()
    removes = f"import shutil; shutil.rmtree({str(folder)!r})"
    counts = "metrics.turns('completed').inc(); metrics.requests(200).inc(); metrics.commit.observe(0.1)"
    worker(folder, 0, f"{removes}; {counts}; raise SystemExit")
    assert not folder.exists()


async def test_healthz_and_readyz_report_a_working_server() -> None:
    async with run_app() as app:
        assert (await fetch(app, "/healthz")).json == {"status": "ok"}
        reply = await fetch(app, "/readyz")
        assert (reply.status, reply.json) == (200, {"status": "ready"})
        assert (await fetch(app, "/healthz", method="HEAD")).status == 200


async def test_readyz_reports_a_failing_store_without_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "FRESH", 0.0)
    store = GatedStore(MemoryStore())
    async with await Ledger.over(store) as ledger:
        app = make_app(ledger, Models({}), Settings())
        store.refuse(renew, StoreFull("/home/somebody/chats.db: disk is full."))
        reply = await fetch(app, "/readyz")
        assert (reply.status, reply.json["status"]) == (503, "store_full")
        assert "free some space" in reply.json["message"]
        assert b"somebody" not in reply.body
        assert (await fetch(app, "/healthz")).status == 200
        assert (await fetch(app, "/readyz")).status == 200


async def test_readyz_reports_a_server_that_is_shutting_down() -> None:
    async with run_app() as app:
        app.service.shutting_down.set()
        reply = await fetch(app, "/readyz")
        assert (reply.status, reply.json["status"]) == (503, "shutting_down")
        assert "shutting down" in reply.json["message"]
        assert (await fetch(app, "/healthz")).status == 200


async def test_metrics_endpoint_returns_text() -> None:
    async with run_app() as app:
        await fetch(app, "/nothing")
        reply = await fetch(app, "/metrics")
        assert (reply.header(b"content-type") or b"").startswith(b"text/plain")
        assert b'turnledger_requests_total{status="404"} 1.0' in reply.body
        for name in (b"running_turns", b"queue_length", b"event_readers"):
            assert b"turnledger_" + name + b" 0.0" in reply.body


async def test_readiness_names_the_remedy_when_the_log_of_the_store_is_gone(tmp_path: Path) -> None:
    async with await Ledger.open(f"sqlite:///{tmp_path}/chats.db") as ledger:
        app = make_app(ledger, Models({}), Settings())
        (tmp_path / "chats.db-wal").unlink()
        reply = await fetch(app, "/readyz")
        assert (reply.status, reply.json["status"]) == (503, "store_unavailable")
        assert "stop all processes of the store, then restart" in reply.json["message"]
        assert str(tmp_path) not in reply.body.decode()
        listed = await fetch(app, "/api/chats")
        assert listed.json["error"]["message"] == reply.json["message"]
