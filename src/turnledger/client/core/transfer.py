"""Exports, received line by line, and imports.

An export that breaks off is incomplete, and cannot be resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, TypeAlias

import msgspec

from turnledger.client.core.exchange import RepeatedExchange, RetryCount
from turnledger.client.core.steps import (
    MAX_BYTES,
    READ,
    ConnectionFailure,
    Emit,
    Open,
    Pause,
    Reply,
    Request,
    Steps,
)
from turnledger.client.errors import error_in_reply, error_in_stream
from turnledger.client.shapes import decode_shape
from turnledger.errors import RequestFailed, ServerUnavailable
from turnledger.model.transfer import ImportReport

FILES = ("application/x-ndjson", "text/markdown")
"""Content types of files; a proxy's login page has another."""


def download(retry_count: RetryCount, request: Request) -> Steps[None]:
    """Yield the lines of a file with their line ends; repeated only before the first line. Raises
    ServerUnavailable if it breaks off later, RequestFailed for anything but a file."""
    while True:
        opened: Reply | ConnectionFailure = yield Open(request)
        if isinstance(opened, Reply) and opened.status == 200:
            _check(opened)
            failure, count = yield from _lines()
            if failure is None:
                return
            if count:
                raise ServerUnavailable(
                    f"The export stopped early after {count} lines: {failure.reason}. Request it again."
                )
            opened = failure
        if isinstance(opened, Reply):
            problem = error_in_reply(opened)
            seconds = retry_count.pause(problem.retry_after) if problem.is_temporary else None
            if seconds is None:
                raise problem.error
        else:
            seconds = None if opened.is_hopeless else retry_count.pause()
            if seconds is None:
                raise ServerUnavailable(
                    f"The server sent no complete answer: {opened.reason}. Request it again."
                )
        yield Pause(seconds)


def _check(opened: Reply) -> None:
    kind = opened.headers.get("content-type", "").partition(";")[0]
    if kind not in FILES:
        raise RequestFailed(
            f"The server answered with {kind or 'something'}, not a Turnledger export. Check "
            "base_url and any proxy."
        )


def _lines() -> Steps[tuple[ConnectionFailure | None, int]]:
    count, rest = 0, bytearray()
    while True:
        chunk: bytes | ConnectionFailure = yield READ
        if isinstance(chunk, ConnectionFailure):
            return chunk, count
        if not chunk:
            if rest:
                yield Emit([bytes(rest)])
            return None, count
        if b"\n" not in chunk:
            rest += chunk
            if len(rest) > MAX_BYTES:
                raise RequestFailed("The server sent an endless line. Check base_url.")
            continue
        lines = (bytes(rest) + chunk).splitlines(keepends=True)
        rest = bytearray() if lines[-1].endswith(b"\n") else bytearray(lines.pop())
        count += len(lines)
        yield Emit(lines)


PIECE = 256 * 1024
Source: TypeAlias = bytes | BinaryIO | Iterable[bytes]
"""An export: its bytes, pieces of any size, or a file opened in binary mode."""

_HINT = "Some chats may have been imported. Import the same file again."


class _Line(msgspec.Struct):
    done: dict[str, int] | None = None
    error: dict[str, Any] | None = None


def import_chats(
    retry_count: RetryCount, source: Source, scope: str | None
) -> Steps[tuple[ImportReport, ...]]:
    """Send a file, and return what was done with its lines. After a lost response it is sent again only if it
    can be read again; chats imported before are then `unchanged`."""
    make_reader = _reader_of(source)
    exchange = RepeatedExchange(retry_count, is_repeatable=make_reader is not None, hint=_HINT)
    request = Request(
        method="POST",
        path="/api/import",
        headers={"content-type": "application/x-ndjson"},
        query=() if scope is None else (("scope", scope),),
        pieces=make_reader or _OneTimeSource(source),
    )
    reply = yield from exchange.run(request)
    *reports, last = reply.body.splitlines() or [b"{}"]
    end = decode_shape(_Line, last)
    if end.error is not None:
        raise error_in_stream(last, reply.headers.get("x-request-id")).error
    if end.done is None:
        raise ServerUnavailable("The import report stopped early. Import the same file again.")
    return tuple(decode_shape(ImportReport, line) for line in reports)


def _reader_of(source: Any) -> Callable[[], Iterator[bytes]] | None:
    """Return a function that reads the source from its beginning; None if it can be read only once."""
    if isinstance(source, bytes | bytearray | memoryview):
        data = bytes(source)
        return lambda: iter(data[at : at + PIECE] for at in range(0, len(data), PIECE))
    if isinstance(source, str):
        raise TypeError("an import is bytes: open its file in binary mode, or encode the text")
    if isinstance(source, Sequence):
        return lambda: _check_bytes(source)
    if hasattr(source, "read") and hasattr(source, "seekable") and source.seekable():
        return _reader_of_file(source)
    return None


class _OneTimeSource:
    def __init__(self, source: Iterable[Any]) -> None:
        self._source = source
        self._has_begun = False

    def __call__(self) -> Iterator[bytes]:
        """Start. Raises ServerUnavailable if some of it was sent before: the rest alone is another file."""
        if self._has_begun:
            raise ServerUnavailable(f"This source cannot be read again. {_HINT}")
        return self._pieces()

    def _pieces(self) -> Iterator[bytes]:
        self._has_begun = True
        yield from _check_bytes(self._source)


def _reader_of_file(file: BinaryIO) -> Callable[[], Iterator[bytes]]:
    start = file.tell()

    def read() -> Iterator[bytes]:
        file.seek(start)
        return _check_bytes(iter(lambda: file.read(PIECE), b""))

    return read


def _check_bytes(pieces: Iterable[Any]) -> Iterator[bytes]:
    for piece in pieces:
        if not isinstance(piece, bytes):
            raise TypeError(f"an import is bytes, not {type(piece).__name__}")
        yield piece
