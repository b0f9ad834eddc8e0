"""Files that are received line by line. A file that is cut off is incomplete, and cannot be resumed."""

from __future__ import annotations

from turnledger.client.core.exchange import RetryCount
from turnledger.client.core.steps import MOST_BYTES, READ, Broken, Give, Open, Pause, Reply, Request, Steps
from turnledger.client.errors import told_by
from turnledger.errors import RequestFailed, ServerUnavailable

FILES = ("application/x-ndjson", "text/markdown")
"""The content types of files. A page of a proxy, as for logging in, is none."""


def download(trying: RetryCount, request: Request) -> Steps[None]:
    """Give the lines of a file, each with its line end; repeated as long as none was given. Raises
    ServerUnavailable if it is cut off later, RequestFailed for anything but a file."""
    while True:
        opened: Reply | Broken = yield Open(request)
        if isinstance(opened, Reply) and opened.status == 200:
            _check(opened)
            broken, count = yield from _lines()
            if broken is None:
                return
            if count:
                raise ServerUnavailable(
                    f"The file was cut off after {count} lines: {broken.reason}. It is not whole; ask again."
                )
            opened = broken
        if isinstance(opened, Reply):
            told = told_by(opened)
            seconds = trying.pause(told.retry_after) if told.is_passing else None
            if seconds is None:
                raise told.error
        else:
            seconds = None if opened.is_hopeless else trying.pause()
            if seconds is None:
                raise ServerUnavailable(f"No whole answer came from the server: {opened.reason}.")
        yield Pause(seconds)


def _check(opened: Reply) -> None:
    kind = opened.headers.get("content-type", "").partition(";")[0]
    if kind not in FILES:
        raise RequestFailed(
            f"The server answered with {kind or 'something'}, which is no file of Turnledger. Check the "
            "address, and what stands between."
        )


def _lines() -> Steps[tuple[Broken | None, int]]:
    count, rest = 0, bytearray()
    while True:
        chunk: bytes | Broken = yield READ
        if isinstance(chunk, Broken):
            return chunk, count
        if not chunk:
            if rest:
                yield Give([bytes(rest)])
            return None, count
        if b"\n" not in chunk:
            rest += chunk
            if len(rest) > MOST_BYTES:
                raise RequestFailed("The server sends a line without end. Check the address.")
            continue
        lines = (bytes(rest) + chunk).splitlines(keepends=True)
        rest = bytearray() if lines[-1].endswith(b"\n") else bytearray(lines.pop())
        count += len(lines)
        yield Give(lines)
