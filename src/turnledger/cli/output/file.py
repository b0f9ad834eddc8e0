"""A file for a result: it gets its name only once it is complete, and an existing one is kept until then."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from turnledger.errors import InvalidInput

Write = Callable[[bytes], object]


@contextmanager
def atomic_writer(output: Path) -> Iterator[Write]:
    """Yield the function that writes to it. Follows a link; writes directly to anything but a regular file,
    such as /dev/null or a pipe, and never replaces it. Raises InvalidInput if it cannot be written."""
    with _map_errors(output):
        before, target = _mode(output), output.resolve()
    if before is not None and not stat.S_ISREG(before) and not stat.S_ISDIR(before):
        with _map_errors(output):
            file = output.open("wb", buffering=0)  # unbuffered, so closing cannot fail
        with file:
            yield _writer(output, file)
        return
    with _map_errors(output):
        # A name that cannot be guessed: others may write to the folder, and another export may be running.
        partial = target.with_name(f".{secrets.token_hex(8)}.part")
        file = partial.open("xb", buffering=0)
    try:
        with file:
            yield _writer(output, file)
            with _map_errors(output):
                os.fsync(file.fileno())
        with _map_errors(output):
            if before is not None:
                partial.chmod(stat.S_IMODE(before))
            partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _writer(output: Path, file: FileIO) -> Write:
    def write(piece: bytes) -> None:
        remaining = memoryview(piece)
        with _map_errors(output):
            while remaining:
                remaining = remaining[file.write(remaining) :]

    return write


@contextmanager
def _map_errors(output: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise InvalidInput(f"{output} cannot be written: {problem.strerror}. Name another file.") from None
