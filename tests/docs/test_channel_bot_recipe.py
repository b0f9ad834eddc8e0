"""The recipe of a bot: a small chat service delivers events twice, and the bot is killed meanwhile."""

from __future__ import annotations

import hashlib
import hmac
import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest

from tests.docs.recipe import Recipe, at_work
from tests.unit.server.processes import started

SECRET = "shared with the service"
PATIENCE = 20


class Service:
    """What is posted, in order, and how to deliver something."""

    def __init__(self) -> None:
        self.posted: queue.Queue[tuple[str, str]] = queue.Queue()
        self.bot = ""
        self.url = ""

    def deliver(self, id: str, channel: str, user: str, text: str, secret: str = SECRET) -> int:
        event = {"type": "message", "id": id, "channel": channel, "user": user, "text": text}
        body = json.dumps(event).encode()
        signed = hmac.new(secret.encode(), b"1:" + body, hashlib.sha256).hexdigest()
        headers = {"X-Timestamp": "1", "X-Signature": signed, "Content-Type": "application/json"}
        return httpx2.post(f"{self.bot}/events", content=body, headers=headers, trust_env=False).status_code

    def hears(self) -> tuple[str, str]:
        return self.posted.get(timeout=PATIENCE)


@contextmanager
def chat_service() -> Iterator[Service]:
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            service.posted.put((told["channel"], told["text"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def ledger() -> Iterator[str]:
    with started("turnledger", "serve", "--port", "0", "--store", "memory:") as server:
        yield server.url


@contextmanager
def bot(service: Service, folder: Path, *, is_killed: bool = False) -> Iterator[None]:
    environ = {"SIGNING_SECRET": SECRET, "SERVICE": service.url}
    with at_work(folder, "uvicorn", "bot:app", "--port", "0", is_killed=is_killed, **environ) as service.bot:
        yield


def test_every_row_of_the_table(ledger: str, tmp_path: Path) -> None:
    Recipe("channel-bot", tmp_path, {"http://127.0.0.1:8383": ledger}).write()
    with chat_service() as service:
        with bot(service, tmp_path, is_killed=True):
            said = [service.deliver("e1", "#general", "ada", "My name is Ada.") for _ in (1, 2)]
            assert said == [200, 200]
            first = 'You said "ada: My name is Ada.". I remember nothing before that.'
            assert service.hears() == ("#general", first)
            service.deliver("e2", "#general", "grace", "Who is here?")
            assert 'the last one "ada: My name is Ada."' in service.hears()[1]
            service.deliver("e3", "#random", "alan", "Hello")
            assert service.hears() == ("#random", 'You said "alan: Hello". I remember nothing before that.')
            assert service.deliver("e4", "#general", "mallory", "Hi", secret="guessed") == 401
            for forged in ({}, {"X-Timestamp": "1", "X-Signature": b"\xff"}):
                told = httpx2.post(f"{service.bot}/events", content=b"{}", headers=forged, trust_env=False)
                assert told.status_code == 401
            service.deliver("e0", "#random", "/fail", "is the name of a user who makes the demo model fail")
            failed = "I have no answer to that (model_unavailable). Ask me again."
            assert service.hears() == ("#random", failed)
            service.deliver("e9", "#random", "alan", "Hello?")
            assert (
                'I remember 1 message of yours before that, the last one "alan: Hello".' in service.hears()[1]
            )
            service.deliver("e5", "#general", "ada", "new topic")
            assert service.hears() == ("#general", "What is it about?")
            service.deliver("e6", "#general", "ada", "Tea.")
            assert service.hears()[1] == 'You said "ada: Tea.". I remember nothing before that.'
            service.deliver("e7", "#general", "ada", "And milk.")
        with bot(service, tmp_path):  # killed above, with a message that it may or may not have answered
            service.deliver("e7", "#general", "ada", "And milk.")
            service.deliver("e8", "#general", "ada", "And sugar.")
            heard = service.hears()[1], service.hears()[1]
    assert '"ada: And milk."' in heard[0]
    assert "I remember 2 messages" in heard[1]
    assert service.posted.empty()
