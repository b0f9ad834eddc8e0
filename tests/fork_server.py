"""Processes that start at once: `ForkedProcess("turnledger", "serve", …)` is `python -m turnledger serve …`
without the half second of its imports.

One process imports the modules; every other is a fork of it. A keeper process waits for each fork and reports
its end.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Self

ROOT = Path(__file__).parents[1]
IMPORTED = (
    "apsw",
    "tests.crash.worker_requests",
    "turnledger.cli.commands.chats",
    "turnledger.cli.commands.check",
    "turnledger.cli.commands.doctor",
    "turnledger.cli.commands.serve",
    "turnledger.cli.commands.tokens",
    "turnledger.cli.commands.transfer",
    "turnledger.client",
    "turnledger.runners.demo",
    "turnledger.server.chat_page.files",
    "turnledger.server.config.file",
    "turnledger.server.listen.serve",
    "turnledger.stores.memory",
    "turnledger.stores.sqlite",
    "turnledger.testing.fake_clock",
    "typer._adapters",
    "uvicorn.lifespan.off",
    "uvloop",
)
NUMBER = struct.Struct("i")


class ForkedProcess:
    """A process that runs a module, with the parts of `subprocess.Popen` that tests need. It leads its own
    session. Standard input and output are pipes, and standard error unless a file is given."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        stderr: IO[Any] | None = None,
    ) -> None:
        self.returncode: int | None = None
        self._lock = threading.Lock()
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        ours_err, theirs_err = os.pipe() if stderr is None else (None, os.dup(stderr.fileno()))
        self._status, theirs_status = os.pipe()
        weakref.finalize(self, os.close, self._status)
        self.stdin = os.fdopen(ours_in, "w")
        self.stdout = os.fdopen(ours_out)
        self.stderr = os.fdopen(ours_err) if ours_err is not None else None
        theirs = [theirs_in, theirs_out, theirs_err, theirs_status]
        env = dict(os.environ if env is None else env)
        if "TURNLEDGER_RUN_LOGS" in os.environ:
            from tests.run_logs.plugin import with_run_logs

            env = with_run_logs(env)
        order = {
            "argv": [module, *arguments],
            "folder": os.getcwd(),
            "env": env,
        }
        order = json.dumps(order).encode()
        with _lock:
            socket.send_fds(_fork_server(), [NUMBER.pack(len(order))], theirs)
            _fork_server().sendall(order)
        for each in theirs:
            os.close(each)
        self.pid = self._read()
        os.set_blocking(self._status, False)

    def _read(self) -> int:
        data = os.read(self._status, NUMBER.size)
        assert data, "the keeper of the process has died"
        number: int = NUMBER.unpack(data)[0]
        return number

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        while (code := self._look(timeout)) is None:
            if timeout is not None:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code

    def wait_until_stopped(self) -> None:
        """Wait until SIGSTOP took effect."""
        select.select([self._status], [], [])
        assert os.WIFSTOPPED(self._read())

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            with self._lock:
                if self.returncode is None:
                    self.returncode = os.waitstatus_to_exitcode(self._read())
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # its keeper is about to report
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end; return the unread output."""
        assert self.stderr is not None
        with ThreadPoolExecutor(2) as pool:
            reading = pool.map(lambda file: file.read(), (self.stdout, self.stderr))
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()  # or the readers would never end
                raise
            out, err = reading
        return out, err

    def close(self) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.wait()


_lock = threading.Lock()


@cache
def _fork_server() -> socket.socket:
    """Return the connection to the forking process, which ends with this one."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-E", "-m", "tests.fork_server", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )

    def close() -> None:
        ours.close()
        process.wait()

    atexit.register(close)
    return ours


def main(connection: socket.socket) -> list[str]:
    """Fork for each order; return in each fork, with its arguments."""
    sys.path.insert(0, str(ROOT / "src"))
    for name in IMPORTED:
        import_module(name)
    build_commands()
    gc.collect()
    gc.freeze()
    while True:
        head, descriptors, *_ = socket.recv_fds(connection, NUMBER.size, 4)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass  # a finished keeper
        if not head:
            os._exit(0)
        order = connection.recv(NUMBER.unpack(head)[0], socket.MSG_WAITALL)
        if os.fork() == 0:
            connection.close()
            return become(descriptors, **json.loads(order))
        for each in descriptors:
            os.close(each)


def build_commands() -> None:
    """Build the commands once: Typer does it for each call, in a tenth of a second."""
    typer, cli = import_module("typer.main"), import_module("turnledger.cli")
    run = cli.main
    typer.get_command = cache(typer.get_command)
    typer.get_command(import_module("turnledger.cli.main").app)
    cli.main = run  # replaced by the module of its name


def become(descriptors: list[int], argv: list[str], folder: str, env: dict[str, str]) -> list[str]:
    """Fork again: the keeper never returns, the process does."""
    status = descriptors.pop()
    child = os.fork()
    for number, each in enumerate(descriptors):
        if child == 0:
            os.dup2(each, number)
        os.close(each)
    if child != 0:
        for number in range(3):
            os.close(number)
        os.write(status, NUMBER.pack(child))
        ended = False
        while not ended:
            _, wait_status = os.waitpid(child, os.WUNTRACED)
            os.write(status, NUMBER.pack(wait_status))
            ended = not os.WIFSTOPPED(wait_status)
        os._exit(0)
    os.close(status)
    os.setsid()
    # Undo signals ignored by the test run, as in the background or with nohup.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    # As in every process that starts with this environment.
    sys.path[:0] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    sys.modules.pop("sitecustomize", None)
    with suppress(ModuleNotFoundError):
        import_module("sitecustomize")
    return argv


if __name__ == "__main__":
    sys.argv = main(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
