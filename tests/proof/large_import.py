"""A 32 MB import delays no other owner's turn by more than 1 s and no other owner's search by more than 2 s.

Four files: many chats; one chat of as many turns as are allowed; one chat of few, huge turns; one chat of
many branches. A real server imports each one, then the same one again, while other owners run turns and
searches against it. Other load on the machine counts as delay: the load is printed first, and the median of
the same run beside the longest wait.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.unit.server.processes import started
from turnledger.engine.limits import Limits

SECONDS = 600
SIZE = 32_000_000
BOUNDS = 1.0, 2.0
"""Seconds that a turn may wait, and a search."""
AT = 1_770_000_000_000
WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "the",
    "lazy",
    "dog",
    "and",
    "sees",
    "twelve",
    "sparrows",
    "in",
    "an",
    "old",
    "garden",
]


def text_of(size: int, seed: int) -> str:
    words = [*WORDS[seed % len(WORDS) :], f"word{seed}"]
    return " ".join(words * (size // 20 + 1))[:size]


def chat_lines(name: str, turns: int, size: int, branches: int = 1) -> Iterator[str]:
    """A chat of so many turns and bytes; the turns of several branches all have the first turn as parent."""
    ids = [f"{name}-{number}" for number in range(turns)]
    heads = [{"id": f"{name}-b{number}", "head": ids[-1 - number]} for number in reversed(range(branches))]
    yield json.dumps(
        {"schema_version": 1, "type": "chat", "id": name, "created_at": AT, "touched_at": AT, "turns": turns}
        | {"title": f"Chat {name}", "branches": heads}
    )
    for number, id in enumerate(ids):
        parent = None if not number else ids[0] if branches > 1 else ids[number - 1]
        text = text_of(size // turns // 2, number)
        yield json.dumps(
            {"schema_version": 1, "type": "turn", "chat": name, "id": id, "parent": parent}
            | {"kind": "completed", "created_at": AT + number, "committed_at": AT + number}
            | {"input": [{"type": "message", "role": "user", "content": text}]}
            | {"output": [{"type": "message", "role": "assistant", "content": text}]}
        )


def files() -> Iterator[tuple[str, bytes]]:
    most = Limits().import_turns
    many = (line for chat in range(1_600) for line in chat_lines(f"c{chat}", 10, SIZE // 2_000))
    yield "1,600 chats", "\n".join(many).encode()
    yield f"one chat of {most:,} turns", "\n".join(chat_lines("long", most, SIZE - 370 * most)).encode()
    yield "one chat of 4 turns", "\n".join(chat_lines("large", 4, SIZE)).encode()
    branches = 10_000
    yield (
        f"one chat of {branches:,} branches",
        "\n".join(chat_lines("wide", branches + 1, SIZE - 400 * branches, branches)).encode(),
    )


@contextmanager
def served() -> Iterator[tuple[int, list[str]]]:
    """A server, its port, and the tokens of three owners."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/chats.db"
        tokens = [
            subprocess.run(
                [sys.executable, "-m", "turnledger", "tokens", "create", "--owner", owner, "--store", store],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            for owner in ("importer", "talker", "searcher")
        ]
        texts = [each.strip() for each in tokens]
        flags = ("--port", "0", "--log-level", "error", "--store", store)
        with started("turnledger", "serve", *flags) as server:
            yield server.address[1], texts


def fetch(port: int, token: str, method: str, path: str, body: bytes = b"", kind: str = "json") -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": f"application/{kind}"}
    if path.startswith("/v1"):
        headers["X-Conversation-Id"] = "talk"
    try:
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, (path, answer.status, text[:300])
        return text
    finally:
        connection.close()


class Client(threading.Thread):
    """Repeats one request until it is stopped, and notes how long each took."""

    def __init__(self, request: Callable[[], bytes]) -> None:
        super().__init__(daemon=True)
        self.waits: list[float] = []
        self.error: BaseException | None = None
        self._request, self._stopped = request, threading.Event()

    def run(self) -> None:
        try:
            while not self._stopped.is_set():
                started = time.monotonic()
                self._request()
                self.waits.append(time.monotonic() - started)
        except BaseException as error:
            self.error = error

    def stop(self) -> list[float]:
        self._stopped.set()
        self.join()
        if self.error is not None:
            raise self.error
        return self.waits


def measured(
    port: int, tokens: list[str], file: bytes, outcome: str
) -> tuple[float, list[float], list[float]]:
    """Import a file; return how long that took, and how long each turn and each search of others."""
    importer, talker, searcher = tokens
    turn = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "Are you there?"}]}).encode()
    clients = [
        Client(lambda: fetch(port, talker, "POST", "/v1/chat/completions", turn)),
        Client(lambda: fetch(port, searcher, "GET", "/api/search?q=fox")),
    ]
    for client in clients:
        client.start()
    started = time.monotonic()
    reports = fetch(port, importer, "POST", "/api/import", file, "x-ndjson").decode()
    took = time.monotonic() - started
    turns, searches = [client.stop() for client in clients]
    outcomes = Counter(json.loads(line).get("did") for line in reports.splitlines())
    assert outcomes[outcome], outcomes
    assert not outcomes["refused"] + outcomes["conflict"], outcomes
    return took, turns, searches


def prove() -> None:
    beyond: list[str] = []
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    for name, file in files():
        with served() as (port, tokens):
            for outcome in ("imported", "unchanged"):
                took, *waits = measured(port, tokens, file, outcome)
                line = f"{name}, {len(file) / 1e6:.0f} MB, {outcome} in {took:.1f} s"
                for kind, bound, each in zip(("turn", "search"), BOUNDS, waits, strict=True):
                    line += f"; {len(each)} × {kind}, median {statistics.median(each):.3f} s"
                    line += f", longest {max(each):.3f} s"
                    if max(each) > bound:
                        beyond.append(f"{name} ({outcome}): a {kind} waited {max(each):.2f} s")
                print(line, flush=True)
    if beyond:
        raise AssertionError("beyond the bound:\n" + "\n".join(beyond))
