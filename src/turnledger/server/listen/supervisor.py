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
from turnledger.server.listen.channel import NOT_STARTED, Channel, Failed, Handover, Order, Ready, reports
from turnledger.server.listen.serve import CLEANING, FLUSHING, LINGERING, Announce, worker_ceiling
from turnledger.server.listen.socket import BACKLOG, bind, url_of
from turnledger.server.ops.counters import SharedBoard
from turnledger.server.ops.logs import log
from turnledger.server.ops.metrics import Metrics
from turnledger.server.ops.watchdog import LOOK_EVERY, YOUNG, resident_bytes

BOOT = (
    "import sys; sys.path[:] = sys.argv[2:]\n"
    "from turnledger.server.listen.worker import main; main(int(sys.argv[1]))"
)
"""Code for the interpreter. It uses our module path, whatever is in the current folder."""
_HELD = {signal.SIGINT, signal.SIGHUP}


class WorkerFailed(TurnledgerError):
    """A worker could not start."""

    code = "worker_failed"


def failed_with(code: str, message: str) -> WorkerFailed:
    kind: type[WorkerFailed] = type("WorkerFailed", (WorkerFailed,), {"code": code})
    return kind(message)


class WorkerProcess:
    """A process made by `start`. Only `poll` may ask the system whether it has ended."""

    def __init__(self, process: subprocess.Popen[bytes], channel: Channel, part: int) -> None:
        self._process = process
        self._channel = channel
        self.part = part
        self.began_at = asyncio.get_running_loop().time()
        self.heard_at = self.began_at
        """The time of its last report."""
        self.is_spent = False
        """Whether it uses too much memory, and is to be replaced."""
        self.is_leaving = False
        self.ended = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, hand_over: Callable[[], Handover], environ: Mapping[str, str]) -> Self:
        """Start the same interpreter with the same module path, and send it the handover. Raises OSError and
        the errors of `hand_over`; then no process was started."""
        ours, theirs = socket.socketpair()
        with theirs:
            channel = await Channel.over(ours)
            # No await from here on: a cancellation finds either no process, or a registered one.
            try:
                handover = hand_over()
                process = _start(theirs.fileno(), (handover.listening, handover.board), environ)
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

    async def ready(self) -> Ready:
        """Wait until it accepts requests. Raises WorkerFailed, or ModuleNotFoundError for a missing
        package."""
        report = await self._channel.receive(reports)
        if isinstance(report, Ready):
            return report
        if report is None:
            await self.ended.wait()
            message = f"A worker ended before it could be asked ({self.code}). The log above may say why."
            raise WorkerFailed(message)
        if not isinstance(report, Failed):
            raise WorkerFailed("A worker reported out of order.")
        if report.missing is not None:
            raise ModuleNotFoundError(report.message, name=report.missing)
        raise failed_with(report.code, report.message)

    async def listen(self) -> None:
        """Record the reports of a ready worker until it is gone."""
        while await self._channel.receive(reports) is not None:
            self.heard_at = asyncio.get_running_loop().time()

    def tell(self, order: Order) -> None:
        """Send an order; does nothing if the process is dead."""
        self._channel.send(order)

    def end(self, order: Order, within: float) -> None:
        """Order it to end; kill it if it has not ended within that many seconds."""
        self.is_leaving = True
        self.tell(order)
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
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", "-c", BOOT, str(channel), *sys.path],
            pass_fds=(channel, *others),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=dict(environ),
        )
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)


FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0
BEYOND = 5.0
"""Seconds that a worker may exceed its own limits for ending; then it is killed."""

# OSError: the system has no room for another process, file or page, but may later.
_NOT_BEGUN = (TurnledgerError, ModuleNotFoundError, OSError)

Reload = Callable[[], Settings]
"""Reads the settings again. May raise InvalidSettings."""


def supervise(settings: Settings, environ: Mapping[str, str], announce: Announce, reload: Reload) -> None:
    """Serve with several workers until this process is signalled to end. Raises InvalidSettings, or the error
    of the first worker that could not start."""
    with (
        bind(settings) as listening,
        tempfile.TemporaryDirectory(prefix="turnledger-", ignore_cleanup_errors=True) as folder,
    ):
        # A worker that leaves and its replacement need one part each.
        board = SharedBoard.create(parts=2 * settings.workers)
        try:
            asyncio.run(Supervisor(settings, environ, listening, board, Path(folder), reload).run(announce))
        finally:
            board.close()


class Supervisor:
    """Keeps the configured number of workers. SIGTERM, SIGINT: all workers end within their grace time; the
    second signal cancels requests. SIGHUP: reload the settings and replace the workers one by one, each new
    one before the old one leaves."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        listening: socket.socket,
        board: SharedBoard,
        folder: Path,
        reload: Reload,
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._listening = listening
        self._board = board
        self._folder = folder
        self._reload = reload
        self._parts = set(range(board.parts))
        self._part_is_free = asyncio.Event()
        self._living: set[WorkerProcess] = set()
        """Started, and not ended."""
        self._serving: set[WorkerProcess] = set()
        """Of these, ready and not ordered to end."""
        self._has_begun = asyncio.Event()
        """Set when all workers were ready for the first time."""
        self._told_to_end = asyncio.Event()
        self._all_ended = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._rolling: asyncio.Task[None] | None = None
        self._is_to_roll_again = False
        self._young_deaths = 0
        # Under nohup it is meant to outlive the terminal.
        self._has_terminal = terminal_is_there() and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN

    async def run(self, announce: Announce) -> None:
        """Start the workers, announce the server when all are ready, and keep them until signalled to end.
        Raises the error of one that cannot start, after all others have ended."""
        loop = asyncio.get_running_loop()
        for number, act in (
            (signal.SIGTERM, self.end),
            (signal.SIGINT, self.end),
            (signal.SIGHUP, self.hang_up),
            (signal.SIGCHLD, self._look_for_dead),
        ):
            loop.add_signal_handler(number, act)
        self._listening.listen(BACKLOG)
        starting = asyncio.create_task(self._start_all())
        try:
            await self._unless_told_to_end(starting)
            if not self._told_to_end.is_set():
                announce(url_of(self._listening), starting.result())
                self._has_begun.set()
                self._spawn(self._watch())
                await self._told_to_end.wait()
        finally:
            await self._end_all()

    def end(self) -> None:
        """End all workers; on the second call, cancel their requests."""
        if not self._told_to_end.is_set():
            log.info("shutting_down", grace=self._settings.grace)
            self._told_to_end.set()
            return
        log.warning("told_again")
        for worker in self._living:
            worker.end(Order.HURRY, CLEANING + FLUSHING + BEYOND)

    def hang_up(self) -> None:
        """Replace all workers; end them if the terminal was closed."""
        if self._has_terminal and not terminal_is_there():
            if not self._told_to_end.is_set():
                self.end()
        elif self._rolling is None or self._rolling.done():
            self._rolling = self._spawn(self._roll())
        else:
            self._is_to_roll_again = True

    # Starting workers.

    async def _start_all(self) -> Ready:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._start()) for _ in range(self._settings.workers)]
        return tasks[0].result()

    async def _start(self) -> Ready:
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
            raise WorkerFailed(f"A worker died as soon as it could be asked ({worker.code}).")
        worker.heard_at = asyncio.get_running_loop().time()
        self._spawn(worker.listen())
        if not worker.is_leaving:
            self._serving.add(worker)
        log.info("worker_started", worker=part, pid=worker.pid)
        return ready

    def _handover(self, part: int) -> Handover:
        if self._told_to_end.is_set():
            raise WorkerFailed("The server ends.")
        keep_folder(self._folder)
        return Handover(
            settings=self._settings,
            part=part,
            listening=self._listening.fileno(),
            board=self._board.descriptor,
            metrics_folder=str(self._folder),
            log_format=self._settings.log_format or ("console" if sys.stderr.isatty() else "json"),
        )

    async def _unless_told_to_end(self, starting: asyncio.Task[Ready]) -> None:
        ending = asyncio.create_task(self._told_to_end.wait())
        try:
            await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
            if starting.done() and not self._told_to_end.is_set():
                _raise_first(starting)
        finally:
            for task in (starting, ending):
                task.cancel()
            await asyncio.wait((starting, ending))

    # Dead workers.

    def _look_for_dead(self) -> None:
        for worker in [each for each in self._living if each.poll()]:
            self._spawn(self._clean_up(worker))

    async def _clean_up(self, worker: WorkerProcess) -> None:
        """Clean up after a worker that has ended, and replace it if necessary."""
        was_serving = worker in self._serving
        self._living.discard(worker)
        self._serving.discard(worker)
        self._board.clear(worker.part)
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
            is_young = asyncio.get_running_loop().time() - worker.began_at < YOUNG
            self._young_deaths = self._young_deaths + 1 if is_young else 0
            await self._replace()

    def _order_recovery(self) -> None:
        for worker in self._serving:
            worker.tell(Order.RECOVER)

    async def _replace(self) -> None:
        while not self._told_to_end.is_set():
            await asyncio.sleep(pause_after(self._young_deaths))
            if self._told_to_end.is_set() or len(self._serving) >= self._settings.workers:
                return
            try:
                await self._start()
            except _NOT_BEGUN as problem:
                if not self._told_to_end.is_set():
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
        looked_at = loop.time()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            now, before, limits = loop.time(), looked_at, self._settings.limits
            ceiling = worker_ceiling(self._settings)
            looked_at = now
            if now - before > limits.stall_wait / 2:
                # This process was paused itself, with the whole machine and its workers.
                for worker in self._serving:
                    worker.heard_at = now
            for worker in list(self._serving):
                if now - worker.heard_at > limits.stall_wait:
                    log.error("worker_stalled", worker=worker.part, pid=worker.pid)
                    worker.kill()
                elif self._is_too_large(worker, ceiling):
                    worker.is_spent = True
                    self._spawn(self._replace_large(worker))

    def _is_too_large(self, worker: WorkerProcess, most: int | None) -> bool:
        if most is None or any(each.is_spent for each in self._living):
            return False  # one at a time: two starting workers would use even more memory
        if asyncio.get_running_loop().time() - worker.began_at < YOUNG:
            return False  # a worker that is large from the start would be replaced forever
        return (resident_bytes(worker.pid) or 0) > most

    async def _replace_large(self, worker: WorkerProcess) -> None:
        """Start another worker, and order this one to leave when that is ready."""
        log.warning("worker_too_large", worker=worker.part, pid=worker.pid)
        try:
            await self._start()
        except _NOT_BEGUN as problem:
            if not self._told_to_end.is_set():
                log.error("worker_not_started", **_log_fields(problem))
            await asyncio.sleep(LONGEST_PAUSE)
            worker.is_spent = False
        else:
            self._dismiss_surplus()

    # Replacing all.

    async def _roll(self) -> None:
        await self._has_begun.wait()
        self._is_to_roll_again = True
        while self._is_to_roll_again and not self._told_to_end.is_set():
            self._is_to_roll_again = False
            used = self._settings
            try:
                self._settings = unmoved(self._reload(), used)
                await self._replace_all()
            except _NOT_BEGUN as problem:
                self._settings = used  # workers are known to start with these
                if not self._told_to_end.is_set():
                    log.error("workers_not_replaced", **_log_fields(problem))
            else:
                if not self._told_to_end.is_set():
                    log.info("workers_replaced")

    async def _replace_all(self) -> None:
        for old in self._by_age():
            if old in self._serving:
                await self._start()
                self._dismiss_surplus()

    def _dismiss_surplus(self) -> None:
        """Order surplus workers to leave: first those that use too much memory, then the oldest."""
        surplus = max(len(self._serving) - self._settings.workers, 0)
        for worker in self._by_age()[:surplus]:
            self._serving.discard(worker)
            worker.end(Order.LEAVE, LINGERING + self._patience())

    def _by_age(self) -> list[WorkerProcess]:
        return sorted(self._serving, key=lambda worker: (not worker.is_spent, worker.began_at))

    # Ending.

    async def _end_all(self) -> None:
        self._told_to_end.set()
        self._listening.close()  # the port is free when the workers have closed it, too
        for worker in self._living:
            worker.end(Order.END, self._patience())
        while self._living:
            self._all_ended.clear()
            await self._all_ended.wait()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _patience(self) -> float:
        return self._settings.grace + CLEANING + FLUSHING + BEYOND

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def pause_after(young_deaths: int) -> float:
    """Return the seconds to wait before replacing a worker, after this many young deaths in a row."""
    return min(FIRST_PAUSE * 2**young_deaths, LONGEST_PAUSE) if young_deaths else 0.0


def unmoved(read: Settings, used: Settings) -> Settings:
    """Return the new settings, except those that cannot change while the server runs."""
    return msgspec.structs.replace(
        read,
        host=used.host,
        port=used.port,
        workers=used.workers,
        store=used.store,
        insecure=used.insecure,
        log_format=used.log_format,
    )


def keep_folder(folder: Path) -> None:
    """Recreate the folder if a clean-up of old files has removed it. Raises WorkerFailed if another user owns
    the one in its place."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if folder.lstat().st_uid != os.getuid():
            raise WorkerFailed(f"{folder} belongs to another user. Restart the server.") from None


def terminal_is_there() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _raise_first(starting: asyncio.Task[Ready]) -> None:
    """Raise only the error of the first worker: the others failed for the same reason."""
    problem = starting.exception()
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    if problem is not None:
        raise problem from None


def _log_fields(problem: BaseException) -> dict[str, str]:
    unnamed = "missing" if isinstance(problem, ModuleNotFoundError) else "worker_failed"
    return {"code": getattr(problem, "code", unnamed), "problem": str(problem)}
