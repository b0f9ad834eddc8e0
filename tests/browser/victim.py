"""The attacked server: a process on loopback with a private chat and a model that counts its requests."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from tests.unit.server.processes import ServerProcess, started
from turnledger.testing.upstream import ScriptedUpstream

PATIENCE = 20.0
"""Seconds after which a wait fails."""
BY_ITSELF = ("lease", "turn_words", "title_words", "search_block", "title_block", "search_mark", "turn_due")
"""Tables, or their prefixes, that a server writes without a request: leases and search index."""
SECRET = "Nightingale marmalade, told in confidence"
"""Text of the private chat."""
COMPLETIONS = "/v1/chat/completions"
NAMED = "chat.test"
"""A configured name of the server."""
BARRIER = "seen-so-far-"

Line = dict[str, Any]


class Model:
    """A ScriptedUpstream on a loop in another thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._upstream = ScriptedUpstream(otherwise=["One ", "two ", "three."])
        self._do(self._upstream.listen())
        self.url = self._upstream.url

    @property
    def request_count(self) -> int:
        """Number of requests."""
        return sum(request.method == "POST" for request in self._upstream.received)

    def close(self) -> None:
        self._do(self._upstream.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)


class Victim:
    """The server with its log, store and model, and requests of a program."""

    def __init__(self, server: ServerProcess, model: Model, store: Path) -> None:
        self._model = model
        self._store = store
        self._lines: list[Line] = []
        self._changed = threading.Condition()
        self._barriers = itertools.count()
        self.address, self.port = server.address
        self._listener = threading.Thread(target=self._listen, args=(server,), daemon=True)
        self._listener.start()
        answer = self.fetch("POST", COMPLETIONS, question(SECRET), **{"X-Conversation-Id": "private"})
        assert answer.status == 200
        self.chat, self.turn = answer.headers["X-Conversation-Id"], answer.headers["X-Turn-Id"]
        # A search writes the index now, instead of some seconds later.
        assert self.fetch("GET", "/api/search?q=confidence").status == 200

    @property
    def private(self) -> tuple[str, ...]:
        """Paths with private answers."""
        return (f"/api/chats/{self.chat}", f"/api/turns/{self.turn}/events", "/v1/models", "/metrics")

    @property
    def not_there(self) -> str:
        """A path like the first of these, for a chat that does not exist."""
        return f"/api/chats/{self.chat[:-1]}{'1' if self.chat[-1] == '0' else '0'}"

    def url(self, path: str = "", *, host: str | None = None) -> str:
        return f"http://{host or self.address}:{self.port}{path}"

    def fetch(self, method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPResponse:
        """Send a request as a program does, and read the answer."""
        connection = http.client.HTTPConnection(self.address, self.port, timeout=PATIENCE)
        try:
            if body is not None:
                headers["Content-Type"] = "application/json"
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            answer.read()
            return answer
        finally:
            connection.close()

    def everything(self) -> tuple[int, dict[str, list[Any]]]:
        """Return the number of model requests, and every row except those of BY_ITSELF."""
        connection = apsw.Connection(str(self._store), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            tables = [
                name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            ]
            rows = {
                name: list(connection.execute(f'SELECT * FROM "{name}"'))
                for name in tables
                if not name.startswith(BY_ITSELF)
            }
        finally:
            connection.close()
        return self._model.request_count, rows

    @contextmanager
    def unharmed(self, *paths: str) -> Iterator[list[Line]]:
        """Expect that in the block each path was requested, every request refused, the model not called and
        nothing written. The yielded log lines are complete after the block."""
        before = self.everything()
        with self.watched(*paths) as seen:
            yield seen
        assert {(line["path"], line["status"]) for line in seen} == {(path, 403) for path in paths}
        assert self.everything() == before

    @contextmanager
    def watched(self, *paths: str) -> Iterator[list[Line]]:
        """Collect the logged requests of the block, complete after it; waits until each path was requested.
        Omits the icon, which browsers request by themselves."""
        seen: list[Line] = []
        begin = self._barrier()
        yield seen
        for path in paths:
            self._wait_for(lambda line, path=path: line.get("path") == path, begin)
        end = self._barrier()
        seen += [
            line for line in self._lines[begin : end - 1] if line["event"] == "request" and _is_meant(line)
        ]

    def _barrier(self) -> int:
        """Return the number of lines once a request sent now has been logged."""
        request_id, begin = f"{BARRIER}{next(self._barriers)}", len(self._lines)
        self.fetch("GET", "/healthz", **{"X-Request-Id": request_id})
        return self._wait_for(lambda line: line.get("request_id") == request_id, begin)

    def _wait_for(self, is_it: Callable[[Line], object], begin: int) -> int:
        def after() -> int | None:
            return next((n for n, line in enumerate(self._lines[begin:], begin + 1) if is_it(line)), None)

        with self._changed:
            found = self._changed.wait_for(after, PATIENCE)
            assert found is not None, f"it was not logged: {self._lines[begin:]}"
            return found

    def join_log(self) -> None:
        """Wait until the log of a killed server is read to its end."""
        self._listener.join(PATIENCE)

    def _listen(self, server: ServerProcess) -> None:
        assert server.process.stderr is not None
        for text in server.process.stderr:
            if not text.endswith("\n"):
                return  # it was killed while it wrote
            with self._changed:
                self._lines.append(json.loads(text))
                self._changed.notify_all()


def learned_values(result: Any) -> list[Any]:
    """Return the values a page read, without the event or error that ended the attack."""
    match result:
        case dict():
            rest = [value for name, value in result.items() if name not in {"event", "error"}]
            return [each for value in rest for each in learned_values(value)]
        case list():
            return [each for value in result for each in learned_values(value)]
    return [result] if result else []


def question(text: str, **others: Any) -> dict[str, Any]:
    return {"model": "demo", "messages": [{"role": "user", "content": text}], **others}


@contextmanager
def run_victim(
    folder: Path, *origins: str, program: str = "turnledger", frames: tuple[str, ...] = ()
) -> Iterator[Victim]:
    """Start the server; pages of these origins may call it, and `frames` may frame it."""
    model = Model()
    store, config = folder / "chats.db", folder / "turnledger.toml"
    config.write_text(
        f"[server]\nstore = 'sqlite:///{store}'\nport = 0\norigins = {list(origins)}\nhosts = ['{NAMED}']\n"
        f"frame_ancestors = {list(frames)}\n"
        # Titles are requests of the server's own, which these tests do not count.
        f"[models.demo]\nupstream = '{model.url}'\n[chats]\ntitle_model = ''\n"
    )
    try:
        with started(program, "serve", "--config", str(config), "--log-format", "json") as server:
            victim = Victim(server, model, store)
            try:
                yield victim
            finally:
                server.process.kill()
                victim.join_log()
    finally:
        model.close()


def _is_meant(line: Line) -> bool:
    return line["event"] == "request" and line["path"] != "/favicon.ico"
