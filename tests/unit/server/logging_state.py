"""Undo the changes of a server to the logging of its process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from turnledger.server.ops.logs import log


@contextmanager
def kept_logging() -> Iterator[None]:
    root, ours, to = logging.getLogger(), logging.getLogger("turnledger"), log._write
    server = logging.getLogger("turnledger.server")
    before = (root.handlers[:], root.level, ours.level, server.level)
    server.setLevel(logging.NOTSET)
    root.handlers[:] = []  # those of pytest would be closed
    try:
        yield
    finally:
        log._write = to
        root.handlers[:], root.level = before[0], before[1]
        ours.setLevel(before[2])
        server.setLevel(before[3])
