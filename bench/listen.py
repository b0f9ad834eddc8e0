"""What plain uvicorn leaves open where this server has code of its own: `python -m bench.listen [--quick]`.

Both are sent a head and trailers far beyond any real ones, and half a head; memory is what each adds to the
peak of the process. Then the event loop of one of two workers stops: whether uvicorn's supervisor replaces
it is printed for plain uvicorn alone; tests/unit/server/listen does the same to this server.
"""

from __future__ import annotations

import argparse
import socket
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import uvicorn
import uvicorn.supervisors

from bench.http.__main__ import started

MEGABYTE = 1 << 20
FIELD = b"x: yyyyyyyyyyyyyyy\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Read the body, and answer. `/stall` stops the event loop for good."""
    if scope["type"] != "http":
        raise RuntimeError("not spoken here")
    while (await receive()).get("more_body"):
        pass
    if scope["path"] == "/stall":
        while True:
            time.sleep(60)  # noqa: ASYNC251 - that is the point
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def plain(workers: int) -> None:
    """Run uvicorn at a free port, which it prints, with all other defaults."""
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config("bench.listen:app", workers=workers, log_level="critical", http="httptools")
    if workers == 1:
        uvicorn.Server(config).run(sockets=[listening])
    else:
        uvicorn.supervisors.Multiprocess(config, sockets=[listening]).run()


def flood(port: int, first: bytes, megabytes: int) -> None:
    """Send fields behind a beginning until all are sent or the server closes."""
    with socket.create_connection(("127.0.0.1", port)) as client, suppress(ConnectionError):
        client.sendall(first)
        for _ in range(megabytes):
            client.sendall(FIELD * (MEGABYTE // len(FIELD)))


def closes_half_a_head(port: int, seconds: float) -> float | None:
    """Return after how many seconds the server closes a connection with half a head; None if it does not."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Half: ")
        begun = time.monotonic()
        with suppress(TimeoutError):
            while client.recv(4096):
                pass
            return time.monotonic() - begun
    return None


def peak(pid: int) -> int:
    """The most memory that a process has held, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def blows(command: tuple[str, ...], megabytes: int, seconds: float) -> list[str]:
    """Strike a fresh server each time; return what became of it."""
    begin = b"POST /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    chunked = begin + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"
    results = []
    for first in (begin, chunked):
        with started(*command) as server:
            before = peak(server.process.pid)
            flood(server.port, first, megabytes)
            results.append(f"+{(peak(server.process.pid) - before) / MEGABYTE:.0f} MB")
            if first is chunked:
                closed = closes_half_a_head(server.port, seconds)
    return [*results, f"open after {seconds:.0f} s" if closed is None else f"closed after {closed:.0f} s"]


def children(pid: int) -> set[str]:
    """The processes that a process has started."""
    return set(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def stall(seconds: float) -> str:
    """Stop the loop of one worker; return whether the supervisor replaces it."""
    with ExitStack() as stack:
        server = stack.enter_context(started("-m", "bench.listen", "--plain", "2"))
        for path in (b"/", b"/stall"):  # the answer to the first shows that a worker is there
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            client.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path)
            if path == b"/":
                client.recv(4096)
        workers = children(server.process.pid)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.1)
            if workers - children(server.process.pid):
                return "replaced"
    return f"not replaced after {seconds:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.listen", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--plain", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plain:
        return plain(given.plain)
    megabytes, seconds = (4, 0.2) if given.quick else (60, 40.0)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        store = f"sqlite:///{Path(folder).resolve()}/bench.db"
        serve = ("-m", "turnledger", "serve", "--port", "0", "--store", store, "--log-level", "error")
        bare, ours = (
            blows(command, megabytes, seconds) for command in (("-m", "bench.listen", "--plain", "1"), serve)
        )
    print(f"{'':34} {'uvicorn':>22} {'this server':>22}")
    names = (f"head of {megabytes} MB", f"trailers of {megabytes} MB", "half a head")
    for name, one, other in zip(names, bare, ours, strict=True):
        print(f"{name:34} {one:>22} {other:>22}")
    print(f"{'stalled loop of a worker':34} {stall(seconds):>22}")
    return None


if __name__ == "__main__":
    main()
