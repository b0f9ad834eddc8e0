"""/readyz of a real server whose disk fills up or whose file fails, and its recovery."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from threading import Event, Thread

import apsw
import pytest

from tests.crash.processes import children_of
from tests.fork_server import ForkedProcess
from tests.unit.server.processes import ROOT, ServerProcess, started

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="disks are filled in the way of Linux")

PATIENCE = 60.0
# Nobody reads the log while it runs: it must not fill its pipe.
SERVE = ("tests.tuned_cli", "fresh=0.05", "pace=0", "serve", "--port", "0", "--log-level", "error", "--store")


def readiness(server: ServerProcess) -> tuple[int, str]:
    head, _, body = server.get("/readyz").partition("\r\n\r\n")
    return int(head.split(" ")[1]), json.loads(body)["status"]


def becomes(server: ServerProcess, status: int, *codes: str) -> None:
    """Poll until the status is this: the server caches it for a moment."""
    deadline = time.monotonic() + PATIENCE
    while (found := readiness(server))[0] != status:
        assert time.monotonic() < deadline, f"{found}, and not {status}"
        time.sleep(0.02)  # polling without a pause slows down the server
    assert found[1] in codes


@contextmanager
def on_a_small_disk(folder: Path) -> Iterator[ServerProcess]:
    """A server whose folder is a disk of four megabytes, which only it can see, and which is gone with it."""
    serve = f"exec {sys.executable} -m {' '.join(SERVE)} sqlite:///{folder}/chats.db"
    command = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs -o size=4m none {folder} && {serve}"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )
    with process:
        try:
            yield ServerProcess(process)
        finally:
            process.kill()


def may_mount(folder: str = "/mnt") -> bool:
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "-o", "size=4m", "none", folder]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount a disk")
def test_readyz_reports_a_full_disk_and_recovers(tmp_path: Path) -> None:
    with on_a_small_disk(tmp_path) as server:
        assert readiness(server) == (200, "ready")
        filler = Path(f"/proc/{server.process.pid}/root{tmp_path}/filler")
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="space"):
            for _ in range(2048):  # twice its size
                file.write(bytes(4096))
        becomes(server, 503, "store_full")
        assert "free some space" in server.get("/readyz")
        with pytest.raises(urllib.error.HTTPError, match="503") as refused:
            run_turn(server, "Not answered")
        assert json.load(refused.value)["error"]["code"] == "store_full"
        filler.unlink()
        becomes(server, 200, "ready")


def run_turn(server: ServerProcess, text: str, chat: str = "chat") -> None:
    """Have a turn of a chat answered."""
    body = {"model": "demo", "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(
        f"{server.url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "X-Conversation-Id": chat, "X-Conversation-Messages": "new"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200


def test_readyz_reports_a_failing_file_and_a_kill_loses_no_turn(
    tmp_path: Path,
) -> None:
    import resource

    store = tmp_path / "chats.db"
    with started(*SERVE, f"sqlite:///{store}") as server:
        assert readiness(server) == (200, "ready")
        for number in range(5):
            run_turn(server, f"Question {number}")

        pid = server.process.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))  # it may grow no more
        becomes(server, 503, "store_full", "store_unavailable")
        assert '{"status":"ok"}' in server.get("/healthz")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        becomes(server, 200, "ready")

        store.rename(tmp_path / "elsewhere")
        becomes(server, 503, "store_unavailable")
        assert str(tmp_path) not in server.get("/readyz")
        (tmp_path / "elsewhere").rename(store)
        becomes(server, 200, "ready")

        Path(f"{store}-wal").unlink()
        becomes(server, 503, "store_unavailable")
        with pytest.raises(urllib.error.HTTPError, match="503"):
            run_turn(server, "Not answered")
        server.process.kill()
    with started(*SERVE, f"sqlite:///{store}") as server:
        assert readiness(server) == (200, "ready")
        run_turn(server, "Question 5")
        server.end(signal.SIGTERM)
    connection = apsw.Connection(str(store))
    assert connection.execute("SELECT count(*) FROM turn").get == 6
    connection.close()


def refusal(server: ServerProcess) -> str | None:
    """Why a turn is refused; None if it is answered."""
    try:
        run_turn(server, "Are you there?")
    except urllib.error.HTTPError as error:
        return str(json.load(error)["error"]["code"])
    return None


class Talker(Thread):
    """Has turns of one chat answered until one is not, and counts the answers."""

    def __init__(self, server: ServerProcess, chat: str) -> None:
        super().__init__(daemon=True)
        self.answered = 0
        self.has_begun = Event()
        self._server, self._chat = server, chat

    def run(self) -> None:
        # A turn that was on its way waits for the store, and its connection breaks when the server is killed.
        with suppress(OSError, HTTPException):
            while True:
                run_turn(self._server, f"Question {self.answered}", self._chat)
                self.answered += 1
                self.has_begun.set()


def test_workers_whose_wal_index_is_removed_refuse_turns_and_lose_none(tmp_path: Path) -> None:
    store = tmp_path / "chats.db"
    with started(*SERVE, f"sqlite:///{store}", "--workers", "2") as server:
        talkers = [Talker(server, f"chat {number}") for number in range(4)]
        for talker in talkers:
            talker.start()
        for talker in talkers:
            talker.has_begun.wait()
        Path(f"{store}-shm").unlink()
        becomes(server, 503, "store_unavailable")
        with ThreadPoolExecutor(20) as pool:  # so many connections meet both workers
            while None in (refused := list(pool.map(refusal, [server] * 20))):
                pass
        assert set(refused) == {"store_unavailable"}
        assert [readiness(server) for _ in range(8)] == [(503, "store_unavailable")] * 8
        pids = [server.process.pid, *children_of(server.process.pid)]
        assert len(pids) >= 3
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for talker in talkers:
            talker.join()
    with started(*SERVE, f"sqlite:///{store}") as server:
        assert readiness(server) == (200, "ready")
        run_turn(server, "Again", "chat 0")
        server.end(signal.SIGTERM)
    with ForkedProcess("turnledger", "check", "--store", f"sqlite:///{store}") as checking:
        assert checking.communicate()[1] == ""
        assert checking.returncode == 0
    connection = apsw.Connection(str(store))
    kept = dict(
        connection.execute(
            "SELECT conversation_key, length FROM conversation JOIN branch ON branch.id = conversation.branch"
        ).fetchall()
    )
    connection.close()
    for number, talker in enumerate(talkers):
        # Clients repeat unanswered requests, which may be stored, too.
        assert kept[f"chat {number}"] >= talker.answered > 0
