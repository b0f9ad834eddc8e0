"""Texts and credentials that servers and models receive in a test run, recorded beside the logs, which must
not contain them.

It runs in every process of a run, and so imports only modules that each has imported anyway, and none of the
project.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

SERVER, UPSTREAM = "turnledger.server.app", "turnledger.testing.upstream"
CREDENTIALS = ("authorization", "x-api-key", "cookie")
TEXTS = frozenset({"content", "text", "arguments", "output", "instructions", "refusal", "title"})
"""Fields of requests with texts of users."""
LARGEST = 1_000_000
"""Larger bodies belong to tests of limits."""


class Notes:
    """Texts and credentials, each once. Written at once, or when flushed, so that no loop waits."""

    def __init__(self, path: str, *, at_once: bool) -> None:
        self._path = path
        self._at_once = at_once
        self._known: set[tuple[str, str]] = set()
        self._waiting: list[str] = []

    def text(self, text: str) -> None:
        self._note("text", text)

    def headers(self, headers: Iterable[tuple[str, str]]) -> None:
        """Record credentials."""
        for name, value in headers:
            if name in CREDENTIALS:
                self._note("credential", value.partition(" ")[2] or value)

    def body(self, body: bytes) -> None:
        """Record the texts of a JSON document."""
        if len(body) > LARGEST:
            return
        import json

        try:
            left = [("", json.loads(body))]
        except (ValueError, RecursionError):
            return
        while left:
            name, value = left.pop()
            if isinstance(value, dict):
                left += value.items()
            elif isinstance(value, list):
                left += [(name, each) for each in value]
            elif isinstance(value, str) and name in TEXTS:
                self.text(value)

    def flush(self) -> None:
        if self._waiting:
            lines, self._waiting = "".join(self._waiting), []
            append(self._path, lines)

    def _note(self, kind: str, text: str) -> None:
        if (kind, text) not in self._known:
            import json

            self._known.add((kind, text))
            self._waiting.append(json.dumps({kind: text}) + "\n")
            if self._at_once:
                self.flush()


def append(path: str, text: str) -> None:
    """Append in one write, so that lines of several threads do not mix."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, text.encode("utf-8", "backslashreplace"))
    finally:
        os.close(file)


def record_server(module: Any, notes: Notes) -> None:
    """Record the requests to every application."""
    answer = module.App.__call__

    async def answer_noted(app: Any, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await answer(app, scope, receive, send)
        notes.headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
        body = b""

        async def receive_noted() -> Any:
            nonlocal body
            message = await receive()
            if message["type"] == "http.request" and len(body) <= LARGEST:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    notes.body(body)
            return message

        return await answer(app, scope, receive_noted, send)

    module.App.__call__ = answer_noted


def record_upstream(module: Any, notes: Notes) -> None:
    """Record the answers and requests of every scripted upstream."""
    begin, answer = module.ScriptedUpstream.__init__, module.ScriptedUpstream._answer

    def begin_noted(upstream: Any, *scripts: Any, **options: Any) -> None:
        for script in (*scripts, options.get("otherwise") or ()):
            for step in script:
                if isinstance(step, str):
                    notes.text(step)
        begin(upstream, *scripts, **options)

    async def answer_noted(upstream: Any, request: Any, wire: Any) -> None:
        notes.headers(request.headers.items())
        await answer(upstream, request, wire)

    module.ScriptedUpstream.__init__ = begin_noted
    module.ScriptedUpstream._answer = answer_noted


class ImportHook:
    """A module finder that hooks modules after their import."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._to: dict[str, Callable[[Any, Notes], None]] = {
            SERVER: record_server,
            UPSTREAM: record_upstream,
        }

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        listen = self._to.pop(name, None)
        if listen is None:
            return None
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_listen(module: Any) -> None:
            run(module)
            listen(module, self._notes)

        spec.loader.exec_module = run_and_listen  # type: ignore[method-assign]
        return spec


def listen(notes: Notes) -> None:
    """Record texts to servers and models of this process."""
    sys.meta_path.insert(0, ImportHook(notes))
    for name, listen_to in ((SERVER, record_server), (UPSTREAM, record_upstream)):
        if name in sys.modules:
            listen_to(sys.modules[name], notes)
