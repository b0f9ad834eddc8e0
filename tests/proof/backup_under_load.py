"""Backups taken while a server with two workers commits turns: each is sound, with all acknowledged turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

import apsw

from tests.unit.server.processes import ServerProcess, started

SECONDS = 300
CLIENTS = 6
BACKUPS = 8


class Client(threading.Thread):
    """Runs turns in its own chat, and counts the answers."""

    def __init__(self, server: ServerProcess, number: int) -> None:
        super().__init__(daemon=True)
        self.url = f"{server.url}/v1/chat/completions"
        self.number = number
        self.answered = 0
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.is_set():
            content = f"Message {self.answered} of client {self.number}"
            body = {"model": "demo", "messages": [{"role": "user", "content": content}]}
            headers = {
                "Content-Type": "application/json",
                "X-Conversation-Id": f"chat-{self.number}",
                "X-Conversation-Messages": "new",
            }
            request = urllib.request.Request(self.url, json.dumps(body).encode(), headers)
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert answer.status == 200
            self.answered += 1


def prove() -> None:
    folder = Path(tempfile.mkdtemp())
    store = f"sqlite:///{folder / 'chats.db'}"
    serve = ("turnledger", "serve", "--port", "0", "--workers", "2", "--log-level", "error", "--store", store)
    with started(*serve) as server:
        clients = [Client(server, number) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        grew = []
        for number in range(BACKUPS):
            acknowledged = sum(client.answered for client in clients)
            copy = folder / f"copy-{number}.db"
            _command("backup", str(copy), "--store", store)
            _command("check", f"sqlite:///{copy}")
            kept = _turns(copy)
            assert kept >= acknowledged, (number, kept, acknowledged)
            grew.append(kept)
        for client in clients:
            client.is_over.set()
        for client in clients:
            client.join()
    assert grew == sorted(grew), grew
    assert grew[-1] > grew[0], "nobody wrote meanwhile"
    print(f"{BACKUPS} sound backups of a store that grew from {grew[0]} to {grew[-1]} turns meanwhile")


def _command(*arguments: str) -> None:
    command = [sys.executable, "-m", "turnledger", *arguments]
    ran = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, (arguments, ran.stdout, ran.stderr)


def _turns(copy: Path) -> int:
    connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
    count = connection.execute("SELECT count(*) FROM turn").get
    connection.close()
    return int(count)
