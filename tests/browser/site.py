"""Foreign web sites: a port that serves pages under any name, and one whose name can be rebound while its
page is open."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

PAGE = "<!doctype html><title>a page</title><link rel=icon href=data:,><body>"
SERVICE_WORKER = """
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", event => event.waitUntil(self.clients.claim()));
self.addEventListener("message", async event => {
  const results = [];
  for (const mode of ["cors", "no-cors"]) {
    try {
      const answer = await fetch(event.data, {mode});
      const cache = await caches.open("loot");
      await cache.put("/loot", answer.clone());
      results.push({status: answer.status, body: await answer.text()});
    } catch (problem) {
      results.push({error: problem.name});
    }
  }
  event.source.postMessage(results);
});
"""


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        where = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(where.query).items()}
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if where.path == "/redirect":
            self._answer(int(query.get("status", "302")), "", Location=query["to"])
        elif where.path == "/worker.js":
            self._answer(200, SERVICE_WORKER, **{"Content-Type": "text/javascript"})
        elif where.path == "/reporting":
            policy = f"img-src 'none'; report-uri {query['to']}"
            self._answer(200, f"{PAGE}<img src=/forbidden>", **{"Content-Security-Policy": policy})
        else:
            self._answer(200, query.get("html", PAGE))

    do_POST = do_GET

    def _answer(self, status: int, body: str, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "text/html; charset=utf-8", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def site() -> Iterator[int]:
    """Serve pages and yield the port. `?html=` sets the content, `/redirect?to=` redirects."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Rebinding:
    """A port that forwards to another, and after `rebind` to a third, as a name does under DNS rebinding."""

    def __init__(self, leads_to: int) -> None:
        self._leads_to = leads_to
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        Thread(target=self._listen, daemon=True).start()

    def rebind(self, port: int) -> None:
        """Forward to another port, and close open connections to the old one."""
        self._leads_to = port
        for each in list(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.rebind(0)

    def _listen(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            Thread(target=self._lead, args=(near,), daemon=True).start()

    def _lead(self, near: socket.socket) -> None:
        with suppress(OSError), near, socket.create_connection(("127.0.0.1", self._leads_to)) as far:
            self._open |= {near, far}
            back = Thread(target=_pass_on, args=(far, near), daemon=True)
            back.start()
            _pass_on(near, far)
            back.join()
            self._open -= {near, far}


def _pass_on(near: socket.socket, far: socket.socket) -> None:
    with suppress(OSError):
        while piece := near.recv(65_536):
            far.sendall(piece)
    with suppress(OSError):
        far.shutdown(socket.SHUT_WR)
