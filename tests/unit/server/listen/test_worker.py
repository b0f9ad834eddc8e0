"""A worker as a process, and its channel to the supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.crash.killed_server import environment
from tests.unit.server.processes import STAND_IN
from turnledger.server.config.settings import ModelSettings, ServerLimits, Settings
from turnledger.server.listen import supervisor
from turnledger.server.listen.channel import (
    Channel,
    FailureReport,
    Handover,
    Order,
    ReadyReport,
    handovers,
    orders,
    reports,
)
from turnledger.server.listen.supervisor import WorkerFailed, WorkerProcess
from turnledger.server.ops.counters import SharedCounters

pytestmark = pytest.mark.skipif(os.name != "posix", reason="several workers need POSIX")
PATIENCE = 60.0


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Channel, Channel]]:
    ends = [await Channel.open(end) for end in socket.socketpair()]
    yield ends[0], ends[1]
    for end in ends:
        await end.close()


async def test_worker_channel_carries_large_settings_and_orders_unchanged() -> None:
    models = {f"model-{number}": ModelSettings(upstream="http://localhost/v1") for number in range(5_000)}
    settings = Settings(store="sqlite:///x", limits=ServerLimits(requests=7), models=models, hosts=("a", "b"))
    sent = Handover(
        settings=settings, part=3, listening=4, counters=5, metrics_folder="/tmp/x", log_format="json"
    )
    async with pair() as (supervisor, worker):
        supervisor.send(sent)
        supervisor.send(Order.RECOVER)
        supervisor.send(Order.END)
        assert await worker.receive(handovers) == sent
        assert [await worker.receive(orders) for _ in range(2)] == [Order.RECOVER, Order.END]


async def test_worker_channel_distinguishes_ready_and_failed_reports() -> None:
    async with pair() as (supervisor, worker):
        worker.send(ReadyReport(["demo"]))
        worker.send(FailureReport("not_a_store", "It is\nnone."))
        assert await supervisor.receive(reports) == ReadyReport(["demo"])
        assert await supervisor.receive(reports) == FailureReport("not_a_store", "It is\nnone.", None)


async def test_worker_channel_reports_a_closed_peer_and_drops_messages_to_it() -> None:
    async with pair() as (supervisor, worker):
        waiting = asyncio.create_task(worker.receive(orders))
        await supervisor.close()
        assert await waiting is None
        supervisor.send(Order.END)
        assert await worker.receive(orders) is None


async def test_worker_channel_ignores_an_incomplete_message() -> None:
    ours, theirs = socket.socketpair()
    worker = await Channel.open(theirs)
    ours.sendall(b'"end"')
    ours.close()
    assert await worker.receive(orders) is None
    await worker.close()


@asynccontextmanager
async def started(folder: Path, settings: Settings, **environ: str) -> AsyncIterator[WorkerProcess]:
    """A worker that is reaped when it ends."""
    counters = SharedCounters.create(parts=1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        handover = Handover(
            settings=settings,
            part=0,
            listening=listener.fileno(),
            counters=counters.descriptor,
            metrics_folder=str(folder),
            log_format="json",
        )
        try:
            worker = await WorkerProcess.start(lambda: handover, {**environment(folder), **environ})
        except OSError:
            counters.close()
            raise
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, worker.poll)
        try:
            yield worker
        finally:
            worker.kill()
            worker.poll()
            await worker.ended.wait()
            await worker.close()
            loop.remove_signal_handler(signal.SIGCHLD)
            counters.close()


def file_in(folder: Path) -> str:
    return f"sqlite:///{folder / 'chats.db'}"


async def test_worker_that_does_not_end_in_time_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "BOOT", STAND_IN)
    async with started(tmp_path, Settings(store=file_in(tmp_path), workers=2)) as worker:
        await worker.ready()
        os.kill(worker.pid, signal.SIGSTOP)
        worker.end(Order.END, 0.0)
        await worker.ended.wait()
        assert worker.code == -signal.SIGKILL


async def test_worker_that_cannot_start_reports_the_error_code_of_the_cause(tmp_path: Path) -> None:
    (tmp_path / "chats.db").write_text("this is not a database" * 100)
    async with started(tmp_path, Settings(store=file_in(tmp_path), workers=2)) as worker:
        with pytest.raises(WorkerFailed, match="is not a database") as problem:
            await worker.ready()
        assert problem.value.code == "not_a_store"
        await worker.ended.wait()
        assert worker.code == 2


async def test_worker_does_not_import_modules_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("msgspec", "turnledger", "uvicorn"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a stranger')")
    monkeypatch.chdir(tmp_path)
    async with started(tmp_path, Settings(store=file_in(tmp_path), workers=2)) as worker:
        assert (await worker.ready()).models == ["demo"]


async def test_worker_that_dies_before_it_is_ready_is_reported_as_failed(tmp_path: Path) -> None:
    async with started(tmp_path, Settings(store=file_in(tmp_path), workers=2)) as worker:
        worker.kill()
        with pytest.raises(WorkerFailed, match=r"before it was ready \(-9\)"):
            await worker.ready()


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def flags_of_descriptors(pid: int) -> list[int]:
    """Of all but the standard ones."""
    descriptors = [
        place.read_text() for place in Path(f"/proc/{pid}/fdinfo").iterdir() if int(place.name) > 2
    ]
    lines = [line for each in descriptors for line in each.splitlines() if line.startswith("flags:")]
    return [int(line.split()[1], 8) for line in lines]


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no /proc here")
async def test_worker_hides_its_settings_and_descriptors_and_ends_on_order(
    tmp_path: Path,
) -> None:
    models = {"m": ModelSettings(upstream="http://upstream.invalid/v1", api_key_env="SECRET_NAME")}
    settings = Settings(store=file_in(tmp_path), workers=2, models=models)
    async with started(tmp_path, settings, SECRET_NAME="secret") as worker:
        assert (await worker.ready()).models == ["m"]
        shown = command_line(worker.pid)
        assert [word for word in (b"upstream.invalid", b"SECRET_NAME", b"chats.db") if word in shown] == []
        flags = flags_of_descriptors(worker.pid)
        assert flags
        assert all(each & os.O_CLOEXEC for each in flags)
        for number in (signal.SIGINT, signal.SIGHUP):  # from a terminal, for the supervisor to decide on
            os.kill(worker.pid, number)
        worker.end(Order.END, PATIENCE)
        await worker.ended.wait()
        assert worker.code == 0


async def test_worker_that_cannot_be_started_leaves_no_descriptor_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no such program"))
    descriptors = len(os.listdir("/dev/fd"))
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            async with started(tmp_path, Settings(store=file_in(tmp_path), workers=2)):
                pass
    await asyncio.sleep(0)
    # `started` itself closes the counters and their socket.
    assert len(os.listdir("/dev/fd")) == descriptors


async def test_worker_that_cannot_create_its_metrics_file_is_reported_as_failed(tmp_path: Path) -> None:
    settings = Settings(store=file_in(tmp_path), workers=2)
    (tmp_path / "counter_0.new").mkdir()
    async with started(tmp_path, settings) as worker:
        with pytest.raises(WorkerFailed, match=r"could not start: .*counter_0\.new"):
            await worker.ready()
