"""A message of a program killed while sending is sent once by the next program."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.unit.server.processes import ROOT, ServerProcess, started
from turnledger.client import Answer, Client

SENDING = """
import sys
from turnledger.client import Client

url, outbox, room = sys.argv[1:]
with Client(url, model="demo", outbox=outbox) as client:
    for event in client.chats.open(conversation_key=room).send("/count 10", stream=True):
        print(type(event).__name__, flush=True)
"""


@contextmanager
def sending(url: str, outbox: Path, room: str) -> Iterator[subprocess.Popen[str]]:
    """A program that sends one message, killed when the block is left."""
    command = [sys.executable, "-c", SENDING, url, str(outbox), room]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as program:
        try:
            yield program
        finally:
            program.send_signal(signal.SIGKILL)


class Elsewhere(httpx2.HTTPTransport):
    """Sends to the current address of a server that has moved."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__()
        self._port = server.address[1]

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        request.url = request.url.copy_with(port=self._port)
        request.headers["host"] = f"127.0.0.1:{self._port}"
        return super().handle_request(request)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with started("turnledger", "serve", "--port", "0", "--store", "memory:") as server:
        yield server


def check_sent_once(client: Client, room: str) -> Answer:
    [unsent] = client.outbox.pending()
    [(sent, answer)] = client.outbox.send_all()
    assert isinstance(answer, Answer), answer
    assert (sent, client.outbox.pending()) == (unsent, [])
    [turn] = client.chats.open(conversation_key=room).read().turns
    assert (turn.id, turn.text.split()[-1]) == (answer.turn.id, "10")
    return answer


def test_message_of_a_program_killed_midstream_is_sent_once(server: ServerProcess, tmp_path: Path) -> None:
    outbox = tmp_path / "unsent.db"
    with sending(server.url, outbox, "listening") as program:
        assert program.stdout is not None
        assert "TextDelta" in iter(lambda: program.stdout.readline().strip(), "")  # type: ignore[union-attr]
    with Client(server.url, model="demo", outbox=outbox) as client:
        check_sent_once(client, "listening")


def test_message_of_a_program_killed_at_its_first_byte_is_recorded_and_sent_once(
    server: ServerProcess, tmp_path: Path
) -> None:
    outbox = tmp_path / "unsent.db"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with sending(url, outbox, "unheard"):
            connection, _ = listening.accept()
            with connection:
                assert connection.recv(1)
                with Client(url, model="demo", outbox=outbox) as client:
                    [unsent] = client.outbox.pending()
                    assert client.outbox.send_all() == []  # the program lives, and is at it
    assert unsent.fields["input"] == "/count 10"
    with (
        httpx2.Client(transport=Elsewhere(server)) as http,
        Client(url, model="demo", outbox=outbox, http=http) as client,
    ):
        assert not check_sent_once(client, "unheard").is_replayed
