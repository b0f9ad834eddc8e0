"""Exports, received line by line, and imports.

An export that breaks off is incomplete, and cannot be resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, TypeAlias

import msgspec

from turnledger.client.core.exchange import RepeatedExchange, RetryCount
from turnledger.client.core.steps import MOST_BYTES, READ, Broken, Give, Open, Pause, Reply, Request, Steps
from turnledger.client.errors import told_by, told_in_stream
from turnledger.client.shapes import decoded
from turnledger.errors import RequestFailed, ServerUnavailable
from turnledger.model.transfer import ImportReport

FILES = ("application/x-ndjson", "text/markdown")
"""Content types of files; a proxy's login page has another."""


def download(trying: RetryCount, request: Request) -> Steps[None]:
    """Yield the lines of a file with their line ends; repeated only before the first line. Raises
    ServerUnavailable if it breaks off later, RequestFailed for anything but a file."""
    while True:
        opened: Reply | Broken = yield Open(request)
        if isinstance(opened, Reply) and opened.status == 200:
            _check(opened)
            broken, count = yield from _lines()
            if broken is None:
                return
            if count:
                raise ServerUnavailable(
                    f"The export broke off after {count} lines: {broken.reason}. Request it again."
                )
            opened = broken
        if isinstance(opened, Reply):
            problem = told_by(opened)
            seconds = trying.pause(problem.retry_after) if problem.is_passing else None
            if seconds is None:
                raise problem.error
        else:
            seconds = None if opened.is_hopeless else trying.pause()
            if seconds is None:
                raise ServerUnavailable(f"The server sent no complete answer: {opened.reason}.")
        yield Pause(seconds)


def _check(opened: Reply) -> None:
    kind = opened.headers.get("content-type", "").partition(";")[0]
    if kind not in FILES:
        raise RequestFailed(
            f"The server answered with {kind or 'something'}, not a Turnledger export. Check "
            "base_url and any proxy."
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
                raise RequestFailed("The server sent an endless line. Check base_url.")
            continue
        lines = (bytes(rest) + chunk).splitlines(keepends=True)
        rest = bytearray() if lines[-1].endswith(b"\n") else bytearray(lines.pop())
        count += len(lines)
        yield Give(lines)


PIECE = 256 * 1024
Source: TypeAlias = bytes | BinaryIO | Iterable[bytes]
"""An export: its bytes, pieces of any size, or a file opened in binary mode."""

_ONCE = "Some chats may have been imported. Import the same file again: existing chats stay unchanged."


class _Line(msgspec.Struct):
    done: dict[str, int] | None = None
    error: dict[str, Any] | None = None


def import_chats(trying: RetryCount, source: Source, scope: str | None) -> Steps[tuple[ImportReport, ...]]:
    """Send a file, and return what was done with its lines. After a lost response it is sent again only if it
    can be read again; chats imported before are then `unchanged`."""
    read_again = _reader_of(source)
    exchanging = RepeatedExchange(trying, is_repeatable=read_again is not None, once=_ONCE)
    request = Request(
        method="POST",
        path="/api/import",
        headers={"content-type": "application/x-ndjson"},
        query=() if scope is None else (("scope", scope),),
        pieces=read_again or _ReadOnce(source),
    )
    reply = yield from exchanging.ask(request)
    *reports, last = reply.body.splitlines() or [b"{}"]
    end = decoded(_Line, last)
    if end.error is not None:
        raise told_in_stream(last, reply.headers.get("x-request-id")).error
    if end.done is None:
        raise ServerUnavailable("The import report broke off. Import the same file again.")
    return tuple(decoded(ImportReport, line) for line in reports)


def _reader_of(source: Any) -> Callable[[], Iterator[bytes]] | None:
    """Return a function that reads the source from its beginning; None if it can be read only once."""
    if isinstance(source, bytes | bytearray | memoryview):
        whole = bytes(source)
        return lambda: iter(whole[at : at + PIECE] for at in range(0, len(whole), PIECE))
    if isinstance(source, str):
        raise TypeError("an import is bytes: open its file in binary mode, or encode the text")
    if isinstance(source, Sequence):
        return lambda: _only_bytes(source)
    if hasattr(source, "read") and hasattr(source, "seekable") and source.seekable():
        return _reader_of_file(source)
    return None


class _ReadOnce:
    def __init__(self, source: Iterable[Any]) -> None:
        self._source = source
        self._has_begun = False

    def __call__(self) -> Iterator[bytes]:
        """Start. Raises ServerUnavailable if some of it was sent before: the rest alone is another file."""
        if self._has_begun:
            raise ServerUnavailable(
                f"The server asked for a retry, but this source can be read only once. {_ONCE}"
            )
        return self._pieces()

    def _pieces(self) -> Iterator[bytes]:
        self._has_begun = True
        yield from _only_bytes(self._source)


def _reader_of_file(file: BinaryIO) -> Callable[[], Iterator[bytes]]:
    start = file.tell()

    def read() -> Iterator[bytes]:
        file.seek(start)
        return _only_bytes(iter(lambda: file.read(PIECE), b""))

    return read


def _only_bytes(pieces: Iterable[Any]) -> Iterator[bytes]:
    for piece in pieces:
        if not isinstance(piece, bytes):
            raise TypeError(f"an import is bytes, not {type(piece).__name__}")
        yield piece
