"""The supervisor: replaces dead workers, reloads on demand, and reports workers that cannot start."""

from __future__ import annotations

import asyncio
import errno
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
from msgspec.structs import replace
from openai import AsyncOpenAI
from typer.testing import CliRunner

from tests.crash.killed_server import environment
from tests.crash.several_workers import SeveralWorkers, several_workers
from tests.crash.tcp_server import completion
from tests.unit.server.logging_state import kept_logging
from tests.unit.server.processes import STAND_IN
from turnledger.cli.main import app
from turnledger.server.config.settings import ModelSettings, ServerLimits, Settings
from turnledger.server.listen import supervisor as module
from turnledger.server.listen.channel import ReadyReport
from turnledger.server.listen.socket import bind
from turnledger.server.listen.supervisor import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    Supervisor,
    WorkerFailed,
    WorkerProcess,
    ensure_folder,
    keep_fixed_settings,
    pause_after,
)
from turnledger.server.ops.counters import SharedCounters

pytestmark = pytest.mark.skipif(os.name != "posix", reason="several workers need POSIX")


def test_restart_delay_of_failing_workers_doubles_up_to_the_maximum() -> None:
    pauses = [pause_after(deaths) for deaths in range(12)]
    assert pauses[0] == 0.0
    assert pauses[1:3] == [2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE


def test_reload_keeps_settings_that_a_running_server_cannot_change() -> None:
    used = Settings(port=1234, workers=2, store="sqlite:///here", grace=3, log_format="json")
    models = {"m": ModelSettings(upstream="http://localhost")}
    read = Settings(port=8383, workers=7, store="sqlite:///there", grace=5, models=models)
    both = keep_fixed_settings(read, used)
    assert (both.port, both.workers, both.store, both.log_format) == (1234, 2, "sqlite:///here", "json")
    assert (both.grace, both.models) == (5, models)


async def number(server: SeveralWorkers, name: str) -> float:
    metrics = (await server.get("/metrics")).body.decode()
    found = re.search(rf"^turnledger_{re.escape(name)} (\S+)$", metrics, re.MULTILINE)
    return float(found[1]) if found else 0.0


async def test_dead_or_stalled_worker_is_replaced_and_its_metrics_are_kept(
    tmp_path: Path,
) -> None:
    config = tmp_path / "stall.toml"
    config.write_text("[server.limits]\nstall_wait = 5\n")
    async with several_workers(tmp_path, None, "--config", str(config)) as server:
        for line, key in zip(await server.two_lines(), "ab", strict=True):
            assert (await line.exchange(completion("Hello", X_Conversation_Id=key))).status == 200
        assert await number(server, 'turns_total{outcome="completed"}') == 2
        assert await number(server, "commit_seconds_count") == 2
        line = await server.line()
        pending = asyncio.create_task(line.exchange(completion("/stall after 1", X_Conversation_Id="c")))
        # Others know of it within a second or so.
        while await number(server, "running_turns") != 1:
            pass
        for sent_signal, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 0)):
            seen = len(server.events)
            os.kill(server.pids()[line.worker], sent_signal)
            ended = await server.event("worker_ended", after=seen, worker=line.worker)
            assert (ended["code"], ended["level"]) == (code, "error"), sent_signal
            await server.event("worker_started", after=seen)
        await pending
        assert await number(server, "running_turns") == 0
        assert await number(server, 'turns_total{outcome="completed"}') == 2
        seen = len(server.events)
        os.kill(server.pids()[line.worker], signal.SIGSTOP)
        await server.event("worker_stalled", after=seen, worker=line.worker)
        ended = await server.event("worker_ended", after=seen, worker=line.worker)
        assert ended["code"] == -signal.SIGKILL
        await server.event("worker_started", after=seen)
        assert len(server.pids()) == 2
        server.signal(signal.SIGTERM)
        assert await server.wait_ended() == 0
        assert server.other_lines == []


async def talk(port: int, place: int, is_over: asyncio.Event) -> int:
    """Have one turn after the other, every second one streamed, until stopped; return the number."""
    answered = 0
    async with AsyncOpenAI(
        base_url=f"http://127.0.0.1:{port}/v1",
        api_key="-",
        max_retries=2,
        default_headers={"X-Conversation-Id": f"talk-{place}"},
    ) as client:
        create = partial(
            client.chat.completions.create, model="demo", messages=[{"role": "user", "content": "Hi"}]
        )
        while not is_over.is_set():
            if place % 2:
                text = (await create()).choices[0].message.content or ""
            else:
                chunks = [chunk async for chunk in await create(stream=True)]
                text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            assert text.startswith("You said")
            answered += 1
    return answered


async def test_reload_replaces_workers_without_interruption_and_rejects_invalid_settings(
    tmp_path: Path,
) -> None:
    config = tmp_path / "my.toml"
    config.write_text("")
    flags = ("--config", str(config), "--log-level", "info")
    async with several_workers(tmp_path, None, *flags) as server:
        long = completion("x" * 5000)
        assert (await (await server.line()).exchange(long)).status == 200
        before, is_over = server.pids(), asyncio.Event()
        talking = [asyncio.create_task(talk(server.port, place, is_over)) for place in range(6)]
        config.write_text('[server]\nlog_format = "console"\n[server.limits]\nbody_bytes = 5000\n')
        server.signal(signal.SIGHUP)
        assert (await server.event("settings_need_restart"))["settings"] == ["log_format"]
        await server.event("workers_replaced")
        for pid in before.values():
            await server.event("worker_ended", pid=pid, code=0)
        is_over.set()
        assert sum(await asyncio.gather(*talking)) > 0
        pids = server.pids()
        assert not set(before.values()) & set(pids.values())
        assert {event["status"] for event in server.events if event["event"] == "request"} <= {200, 503}
        assert not [event for event in server.events if event["level"] == "error"]
        for line in await server.two_lines():
            assert (await line.exchange(long)).status == 413
        config.write_text("[models.fast]\n")
        server.signal(signal.SIGHUP)
        problem = await server.event("workers_not_replaced")
        assert (problem["code"], "line 1" in problem["problem"]) == ("invalid_settings", True)
        assert (await (await server.line()).exchange(long)).status == 413
        assert server.pids() == pids


def test_unopenable_store_is_reported_the_same_with_one_or_several_workers(tmp_path: Path) -> None:
    (tmp_path / "chats.db").write_text("this is not a database" * 100)
    flags = ["serve", "--port", "0", "--workers", "2", "--store", f"sqlite:///{tmp_path}/chats.db"]
    with kept_logging():
        results = [CliRunner().invoke(app, command) for command in (flags, [*flags, "--workers", "1"])]
    assert [each.exit_code for each in results] == [2, 2]
    assert results[0].stderr.startswith("not_a_store: ")
    assert results[0].stderr == results[1].stderr


def test_in_memory_store_with_several_workers_is_refused() -> None:
    with kept_logging():
        done = CliRunner().invoke(app, ["serve", "--port", "0", "--workers", "2", "--store", "memory:"])
    assert done.exit_code == 2
    assert done.stderr.startswith("invalid_settings: --workers: several processes cannot share")
    assert "--store sqlite:" in done.stderr


def serve(folder: Path) -> NoReturn:
    """Become a server with stand-ins for its workers."""
    code = f"from turnledger.server.listen import supervisor; supervisor.BOOT = {STAND_IN!r}\n"
    code += "from turnledger.cli import main; main()"
    flags = ["--port", "0", "--workers", "2", "--store", f"sqlite:///{folder}/chats.db"]
    os.execve(sys.executable, [sys.executable, "-c", code, "serve", *flags], environment(folder))


def test_server_ends_when_its_terminal_is_closed(tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if not pid:
        serve(tmp_path)
    output = b""
    while b"Turnledger is at" not in output:
        output += os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_server_started_with_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    reads, writes = os.pipe()
    pid, terminal = pty.fork()
    if not pid:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for descriptor in (1, 2):
            os.dup2(writes, descriptor)
        serve(tmp_path)
    os.close(writes)
    output = b""
    with os.fdopen(reads, "rb", 0) as log:
        for awaited, act in (
            (b"Turnledger is at", lambda: os.close(terminal)),
            (b"workers_replaced", lambda: os.kill(pid, signal.SIGTERM)),
        ):
            while awaited not in output:
                piece = log.read(4096)
                assert piece, output
                output += piece
            act()
        while log.read(4096):
            pass
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that report and obey, and serve nothing: they are there at once."""
    monkeypatch.setattr(module, "BOOT", STAND_IN)


@contextmanager
def supervisor(
    folder: Path, reload: Callable[[], Settings], limits: ServerLimits | None = None
) -> Iterator[Supervisor]:
    """One in this process, of a server with one worker."""
    settings = Settings(port=0, workers=1, store=f"sqlite:///{folder / 'chats.db'}")
    if limits is not None:
        settings = replace(settings, limits=limits)
    counters = SharedCounters.create(parts=2)
    metrics = folder / "metrics"
    metrics.mkdir()
    with bind(settings) as listener:
        try:
            yield Supervisor(settings, environment(folder), listener, counters, metrics, reload)
        finally:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
                loop.remove_signal_handler(number)
            counters.close()


async def test_worker_that_dies_as_it_becomes_ready_fails_the_start(
    tmp_path: Path, stand_in: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    become_ready = WorkerProcess.ready

    async def ready_and_dead(worker: WorkerProcess) -> list[str]:
        """Return only after the exit of the worker was noticed."""
        models = await become_ready(worker)
        worker.kill()
        await worker.ended.wait()
        await asyncio.sleep(0)
        return models

    monkeypatch.setattr(WorkerProcess, "ready", ready_and_dead)
    refused = pytest.raises(WorkerFailed, match="as soon as it was ready")
    with supervisor(tmp_path, Settings) as one, refused:
        await one.run(lambda *_: one.end())


async def test_worker_is_replaced_once_the_system_can_start_processes_again(
    tmp_path: Path, stand_in: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened = []
    start, become_ready = subprocess.Popen, WorkerProcess.ready

    def start_or_not(*command: Any, **options: Any) -> subprocess.Popen[bytes]:
        happened.append("start")
        if len(happened) == 3:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return start(*command, **options)

    async def note_ready(worker: WorkerProcess) -> list[str]:
        models = await become_ready(worker)
        happened.append("ready")
        if len(happened) == 5:
            one.end()
        else:
            asyncio.get_running_loop().call_soon(worker.kill)
        return models

    monkeypatch.setattr(subprocess, "Popen", start_or_not)
    monkeypatch.setattr(WorkerProcess, "ready", note_ready)
    with supervisor(tmp_path, Settings) as one:
        await one.run(lambda *_: None)
    assert happened == ["start", "ready", "start", "start", "ready"]


class Passing:
    """In the place of asyncio: each sleep lets so many seconds pass, and the last one is cancelled."""

    def __init__(self, *seconds: float) -> None:
        self._left = list(seconds)
        self._now = 0.0

    def get_running_loop(self) -> Passing:
        return self

    def time(self) -> float:
        return self._now

    async def sleep(self, _: float) -> None:
        if not self._left:
            raise asyncio.CancelledError
        self._now += self._left.pop(0)


class Silent:
    """A worker that has sent one message."""

    reported_at, began_at, part, pid = 0.0, 0.0, 1, 1

    def __init__(self, killed: list[int]) -> None:
        self._killed = killed

    def kill(self) -> None:
        self._killed.append(self.pid)


@pytest.mark.parametrize(
    ("seconds", "is_killed"),
    [((1.0, 3600.0, 1.0), False), ((25.0, 25.0, 25.0), True), ((3600.0, 25.0, 25.0, 25.0), True)],
)
async def test_silent_worker_is_killed_except_after_a_pause_of_the_whole_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, ...], is_killed: bool
) -> None:
    killed: list[int] = []
    worker: Any = Silent(killed)
    with supervisor(tmp_path, Settings) as one:
        one._serving.add(worker)
        monkeypatch.setattr(module, "asyncio", Passing(*seconds))
        with pytest.raises(asyncio.CancelledError):
            await one._watch()
    assert bool(killed) == is_killed


async def test_worker_above_its_memory_limit_is_replaced(
    tmp_path: Path, stand_in: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers: list[WorkerProcess] = []
    become_ready = WorkerProcess.ready

    async def note_ready(worker: WorkerProcess) -> ReadyReport:
        workers.append(worker)
        return await become_ready(worker)

    limits = ServerLimits(worker_bytes=1 << 30)
    monkeypatch.setattr(module, "YOUNG", 0.0)
    monkeypatch.setattr(module, "CHECK_EVERY", 0.01)
    monkeypatch.setattr(module, "resident_bytes", lambda pid: (2 << 30) * (pid == workers[0].pid))
    monkeypatch.setattr(WorkerProcess, "ready", note_ready)
    with supervisor(tmp_path, Settings, limits) as one:
        running = asyncio.create_task(one.run(lambda *_: None))
        while not (len(workers) == 2 and workers[0].ended.is_set()):
            await asyncio.sleep(0.01)
        one.end()
        await running
    first, second = workers
    assert (first.is_leaving, first.code) == (True, 0)
    assert second.code == 0


async def test_hangup_before_the_workers_are_ready_replaces_them_once_they_are(
    tmp_path: Path, stand_in: None
) -> None:
    happened = []

    def reload() -> Settings:
        happened.append("read anew")
        one.end()
        return Settings()

    with supervisor(tmp_path, reload) as one:
        running = asyncio.create_task(one.run(lambda *_: happened.append("announced")))
        await asyncio.sleep(0)
        one.hang_up()
        await running
    assert happened == ["announced", "read anew"]


async def test_reload_whose_settings_start_no_worker_is_abandoned(
    tmp_path: Path, stand_in: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    become_ready = WorkerProcess.ready

    async def note_ready(worker: WorkerProcess) -> list[str]:
        try:
            models = await become_ready(worker)
        except WorkerFailed:
            if len(started) == 1:
                os.kill(started[0], signal.SIGKILL)
                started.append(0)
            raise
        started.append(worker.pid)
        if len(started) == 3:
            one.end()
        return models

    def reload() -> Settings:
        return Settings(models={"m": ModelSettings(upstream="no URL")})

    monkeypatch.setattr(WorkerProcess, "ready", note_ready)
    with supervisor(tmp_path, reload) as one:
        await one.run(lambda *_: one.hang_up())
    assert len(started) == 3


def test_metrics_folder_is_recreated_privately(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "metrics"
    for _ in range(2):
        ensure_folder(folder)
        assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(WorkerFailed, match="belongs to another user"):
        ensure_folder(folder)
