"""The supervisor: the process that starts, watches and replaces the workers of one server."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Self

import msgspec

from turnledger.errors import TurnledgerError
from turnledger.server.config.settings import Settings
from turnledger.server.listen.channel import (
    NOT_STARTED,
    Channel,
    FailureReport,
    Handover,
    Order,
    ReadyReport,
    reports,
)
from turnledger.server.listen.serve import CLEANUP_TIME, FLUSH_TIME, LINGER_TIME, Announce, worker_ceiling
from turnledger.server.listen.socket import BACKLOG, bind, url_of
from turnledger.server.ops.counters import SharedCounters
from turnledger.server.ops.logs import log
from turnledger.server.ops.metrics import Metrics
from turnledger.server.ops.watchdog import CHECK_EVERY, YOUNG, resident_bytes

BOOT = (
    "import sys; sys.path[:] = sys.argv[2:]\n"
    "from turnledger.server.listen.worker import main; main(int(sys.argv[1]))"
)
"""Code for the interpreter. It uses our module path, whatever is in the current folder."""
_BLOCKED_SIGNALS = {signal.SIGINT, signal.SIGHUP}


class WorkerFailed(TurnledgerError):
    """A worker could not start. See the log above."""

    code = "worker_failed"


class WorkerProcess:
    """A process made by `start`. Only `poll` may ask the system whether it has ended."""

    def __init__(self, process: subprocess.Popen[bytes], channel: Channel, part: int) -> None:
        self._process = process
        self._channel = channel
        self.part = part
        self.began_at = asyncio.get_running_loop().time()
        self.reported_at = self.began_at
        """The time of its last report."""
        self.is_oversized = False
        """Whether it uses too much memory, and is to be replaced."""
        self.is_leaving = False
        self.ended = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, hand_over: Callable[[], Handover], environ: Mapping[str, str]) -> Self:
        """Start the same interpreter with the same module path, and send it the handover. Raises OSError and
        the errors of `hand_over`; then no process was started."""
        parent_end, child_end = socket.socketpair()
        with child_end:
            channel = await Channel.open(parent_end)
            # No await from here on: a cancellation finds either no process, or a registered one.
            try:
                handover = hand_over()
                process = _start(child_end.fileno(), (handover.listening, handover.counters), environ)
            except BaseException:
                await channel.close()
                raise
        channel.send(handover)
        return cls(process, channel, handover.part)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, or the negative number of the signal that killed it."""
        return self._process.returncode

    async def ready(self) -> ReadyReport:
        """Wait until it accepts requests. Raises WorkerFailed, or ModuleNotFoundError for a missing
        package."""
        report = await self._channel.receive(reports)
        if isinstance(report, ReadyReport):
            return report
        if report is None:
            await self.ended.wait()
            message = f"A worker ended before it was ready ({self.code}). See the log above."
            raise WorkerFailed(message)
        if not isinstance(report, FailureReport):
            raise WorkerFailed("A worker sent an unexpected report. Restart the server.")
        if report.missing is not None:
            raise ModuleNotFoundError(report.message, name=report.missing)
        failed = WorkerFailed(report.message)
        failed.code = report.code  # type: ignore[misc] # that of the worker's error
        raise failed

    async def listen(self) -> None:
        """Record the reports of a ready worker until it is gone."""
        while await self._channel.receive(reports) is not None:
            self.reported_at = asyncio.get_running_loop().time()

    def send(self, order: Order) -> None:
        """Send an order; does nothing if the process is dead."""
        self._channel.send(order)

    def end(self, order: Order, within: float) -> None:
        """Order it to end; kill it if it has not ended within that many seconds."""
        self.is_leaving = True
        self.send(order)
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(within, self.kill)

    def kill(self) -> None:
        self._process.kill()

    def poll(self) -> bool:
        """Return whether it has ended since the last call; sets `ended`."""
        if self.ended.is_set() or self._process.poll() is None:
            return False
        self.ended.set()
        return True

    async def close(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        await self._channel.close()


def _start(channel: int, others: tuple[int, ...], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # A Ctrl-C in the terminal must not end it before it ignores the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED_SIGNALS)
    try:
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", "-c", BOOT, str(channel), *sys.path],
            pass_fds=(channel, *others),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=dict(environ),
        )
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED_SIGNALS)


FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0
FIXED_SETTINGS = ("host", "port", "workers", "store", "insecure", "log_format")
KILL_DELAY = 5.0
"""Seconds that a worker may exceed its own limits for ending; then it is killed."""

# OSError: the system has no room for another process, file or page, but may later.
_START_ERRORS = (TurnledgerError, ModuleNotFoundError, OSError)

Reload = Callable[[], Settings]
"""Reads the settings again. May raise InvalidSettings."""


def supervise(settings: Settings, environ: Mapping[str, str], announce: Announce, reload: Reload) -> None:
    """Serve with several workers until this process is signalled to end. Raises InvalidSettings, or the error
    of the first worker that could not start."""
    with (
        bind(settings) as listener,
        tempfile.TemporaryDirectory(prefix="turnledger-", ignore_cleanup_errors=True) as folder,
    ):
        # A worker that leaves and its replacement need one part each.
        counters = SharedCounters.create(parts=2 * settings.workers)
        try:
            asyncio.run(Supervisor(settings, environ, listener, counters, Path(folder), reload).run(announce))
        finally:
            counters.close()


class Supervisor:
    """Keeps the configured number of workers. SIGTERM, SIGINT: all workers end within their grace time; the
    second signal cancels requests. SIGHUP: reload the settings and replace the workers one by one, each new
    one before the old one leaves."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        listener: socket.socket,
        counters: SharedCounters,
        folder: Path,
        reload: Reload,
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._listener = listener
        self._counters = counters
        self._folder = folder
        self._reload = reload
        self._parts = set(range(counters.parts))
        self._part_is_free = asyncio.Event()
        self._living: set[WorkerProcess] = set()
        """Started, and not ended."""
        self._serving: set[WorkerProcess] = set()
        """Of these, ready and not ordered to end."""
        self._has_begun = asyncio.Event()
        """Set when all workers were ready for the first time."""
        self._is_ending = asyncio.Event()
        self._all_ended = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._rolling: asyncio.Task[None] | None = None
        self._has_pending_roll = False
        self._young_deaths = 0
        # Under nohup it is meant to outlive the terminal.
        self._has_terminal = has_terminal() and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN

    async def run(self, announce: Announce) -> None:
        """Start the workers, announce the server when all are ready, and keep them until signalled to end.
        Raises the error of one that cannot start, after all others have ended."""
        loop = asyncio.get_running_loop()
        for number, act in (
            (signal.SIGTERM, self.end),
            (signal.SIGINT, self.end),
            (signal.SIGHUP, self.hang_up),
            (signal.SIGCHLD, self._reap_workers),
        ):
            loop.add_signal_handler(number, act)
        self._listener.listen(BACKLOG)
        starting = asyncio.create_task(self._start_all())
        try:
            await self._wait_until_started(starting)
            if not self._is_ending.is_set():
                announce(url_of(self._listener), starting.result())
                self._has_begun.set()
                self._spawn(self._watch())
                await self._is_ending.wait()
        finally:
            await self._end_all()

    def end(self) -> None:
        """End all workers; on the second call, cancel their requests."""
        if not self._is_ending.is_set():
            log.info("shutting_down", grace=self._settings.grace)
            self._is_ending.set()
            return
        log.warning("signalled_again")
        for worker in self._living:
            worker.end(Order.HURRY, CLEANUP_TIME + FLUSH_TIME + KILL_DELAY)

    def hang_up(self) -> None:
        """Replace all workers; end them if the terminal was closed."""
        if self._has_terminal and not has_terminal():
            if not self._is_ending.is_set():
                self.end()
        elif self._rolling is None or self._rolling.done():
            self._rolling = self._spawn(self._roll())
        else:
            self._has_pending_roll = True

    # Starting workers.

    async def _start_all(self) -> ReadyReport:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._start()) for _ in range(self._settings.workers)]
        return tasks[0].result()

    async def _start(self) -> ReadyReport:
        while not self._parts:
            self._part_is_free.clear()
            await self._part_is_free.wait()
        part = min(self._parts)
        self._parts.remove(part)
        try:
            worker = await WorkerProcess.start(lambda: self._handover(part), self._environ)
        except BaseException:
            self._parts.add(part)
            raise
        self._living.add(worker)
        ready = await worker.ready()
        if worker not in self._living:
            raise WorkerFailed(f"A worker died as soon as it was ready ({worker.code}). See the log above.")
        worker.reported_at = asyncio.get_running_loop().time()
        self._spawn(worker.listen())
        if not worker.is_leaving:
            self._serving.add(worker)
        log.info("worker_started", worker=part, pid=worker.pid)
        return ready

    def _handover(self, part: int) -> Handover:
        if self._is_ending.is_set():
            raise WorkerFailed("The server is shutting down.")
        ensure_folder(self._folder)
        return Handover(
            settings=self._settings,
            part=part,
            listening=self._listener.fileno(),
            counters=self._counters.descriptor,
            metrics_folder=str(self._folder),
            log_format=self._settings.log_format or ("console" if sys.stderr.isatty() else "json"),
        )

    async def _wait_until_started(self, starting: asyncio.Task[ReadyReport]) -> None:
        ending = asyncio.create_task(self._is_ending.wait())
        try:
            await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
            if starting.done() and not self._is_ending.is_set():
                _raise_first(starting)
        finally:
            for task in (starting, ending):
                task.cancel()
            await asyncio.wait((starting, ending))

    # Dead workers.

    def _reap_workers(self) -> None:
        for worker in [each for each in self._living if each.poll()]:
            self._spawn(self._clean_up(worker))

    async def _clean_up(self, worker: WorkerProcess) -> None:
        """Clean up after a worker that has ended, and replace it if necessary."""
        was_serving = worker in self._serving
        self._living.discard(worker)
        self._serving.discard(worker)
        self._counters.clear(worker.part)
        Metrics.clear(self._folder, worker.part)
        self._parts.add(worker.part)
        self._part_is_free.set()
        if not self._living:
            self._all_ended.set()
        if worker.code != NOT_STARTED:  # such a worker has reported why
            report = log.info if worker.is_leaving and worker.code == 0 else log.error
            report("worker_ended", worker=worker.part, pid=worker.pid, code=worker.code)
        if worker.code:
            self._order_recovery()
        await worker.close()
        if was_serving and not worker.is_leaving:
            died_young = asyncio.get_running_loop().time() - worker.began_at < YOUNG
            self._young_deaths = self._young_deaths + 1 if died_young else 0
            await self._replace()

    def _order_recovery(self) -> None:
        for worker in self._serving:
            worker.send(Order.RECOVER)

    async def _replace(self) -> None:
        while not self._is_ending.is_set():
            await asyncio.sleep(pause_after(self._young_deaths))
            if self._is_ending.is_set() or len(self._serving) >= self._settings.workers:
                return
            try:
                await self._start()
            except _START_ERRORS as problem:
                if not self._is_ending.is_set():
                    log.error("worker_not_started", **_log_fields(problem))
                self._young_deaths += 1
            else:
                self._dismiss_surplus()
                self._order_recovery()  # when the worker died, there may have been no other to order
                return

    # Stalled or oversized workers.

    async def _watch(self) -> None:
        """Kill workers whose loop has stalled, and replace those that use too much memory."""
        loop = asyncio.get_running_loop()
        checked_at = loop.time()
        while True:
            await asyncio.sleep(CHECK_EVERY)
            now, before, limits = loop.time(), checked_at, self._settings.limits
            ceiling = worker_ceiling(self._settings)
            checked_at = now
            if now - before > limits.stall_wait / 2:
                # This process was paused itself, with the whole machine and its workers.
                for worker in self._serving:
                    worker.reported_at = now
            for worker in list(self._serving):
                if now - worker.reported_at > limits.stall_wait:
                    log.error("worker_stalled", worker=worker.part, pid=worker.pid)
                    worker.kill()
                elif self._is_too_large(worker, ceiling):
                    worker.is_oversized = True
                    self._spawn(self._replace_large(worker))

    def _is_too_large(self, worker: WorkerProcess, limit: int | None) -> bool:
        if limit is None or any(each.is_oversized for each in self._living):
            return False  # one at a time: two starting workers would use even more memory
        if asyncio.get_running_loop().time() - worker.began_at < YOUNG:
            return False  # a worker that is large from the start would be replaced forever
        return (resident_bytes(worker.pid) or 0) > limit

    async def _replace_large(self, worker: WorkerProcess) -> None:
        """Start another worker, and order this one to leave when that is ready."""
        log.warning("worker_too_large", worker=worker.part, pid=worker.pid)
        try:
            await self._start()
        except _START_ERRORS as problem:
            if not self._is_ending.is_set():
                log.error("worker_not_started", **_log_fields(problem))
            await asyncio.sleep(LONGEST_PAUSE)
            worker.is_oversized = False
        else:
            self._dismiss_surplus()

    # Replacing all.

    async def _roll(self) -> None:
        await self._has_begun.wait()
        self._has_pending_roll = True
        while self._has_pending_roll and not self._is_ending.is_set():
            self._has_pending_roll = False
            current = self._settings
            try:
                self._settings = keep_fixed_settings(self._reload(), current)
                await self._replace_all()
            except _START_ERRORS as problem:
                self._settings = current  # workers are known to start with these
                if not self._is_ending.is_set():
                    log.error("workers_not_replaced", **_log_fields(problem))
            else:
                if not self._is_ending.is_set():
                    log.info("workers_replaced")

    async def _replace_all(self) -> None:
        for worker in self._by_age():
            if worker in self._serving:
                await self._start()
                self._dismiss_surplus()

    def _dismiss_surplus(self) -> None:
        """Order surplus workers to leave: first those that use too much memory, then the oldest."""
        surplus = max(len(self._serving) - self._settings.workers, 0)
        for worker in self._by_age()[:surplus]:
            self._serving.discard(worker)
            worker.end(Order.LEAVE, LINGER_TIME + self._end_timeout())

    def _by_age(self) -> list[WorkerProcess]:
        return sorted(self._serving, key=lambda worker: (not worker.is_oversized, worker.began_at))

    # Ending.

    async def _end_all(self) -> None:
        self._is_ending.set()
        self._listener.close()  # the port is free when the workers have closed it, too
        for worker in self._living:
            worker.end(Order.END, self._end_timeout())
        while self._living:
            self._all_ended.clear()
            await self._all_ended.wait()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _end_timeout(self) -> float:
        return self._settings.grace + CLEANUP_TIME + FLUSH_TIME + KILL_DELAY

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def pause_after(young_deaths: int) -> float:
    """Return the seconds to wait before replacing a worker, after this many young deaths in a row."""
    return min(FIRST_PAUSE * 2**young_deaths, LONGEST_PAUSE) if young_deaths else 0.0


def keep_fixed_settings(loaded: Settings, current: Settings) -> Settings:
    """Return the new settings, except those that cannot change while the server runs: log their names."""
    fixed = {name: getattr(current, name) for name in FIXED_SETTINGS}
    if changed := [name for name, value in fixed.items() if getattr(loaded, name) != value]:
        log.warning("settings_need_restart", settings=changed)
    return msgspec.structs.replace(loaded, **fixed)


def ensure_folder(folder: Path) -> None:
    """Recreate the folder if a clean-up of old files has removed it. Raises WorkerFailed if another user owns
    the one in its place."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if folder.lstat().st_uid != os.getuid():
            raise WorkerFailed(f"{folder} belongs to another user. Restart the server.") from None


def has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _raise_first(starting: asyncio.Task[ReadyReport]) -> None:
    """Raise only the error of the first worker: the others failed for the same reason."""
    problem = starting.exception()
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    if problem is not None:
        raise problem from None


def _log_fields(problem: BaseException) -> dict[str, str]:
    default_code = "missing" if isinstance(problem, ModuleNotFoundError) else "worker_failed"
    return {"code": getattr(problem, "code", default_code), "problem": str(problem)}
