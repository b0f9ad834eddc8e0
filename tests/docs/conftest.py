"""A server for the examples of all pages, with the demo model and a store in memory, and one for those that
list their chats and would find those of others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.unit.server.processes import ServerProcess, started


@contextmanager
def serving() -> Iterator[ServerProcess]:
    # No test reads the log while the server runs: it must not fill its pipe.
    flags = ("--port", "0", "--store", "memory:", "--log-level", "error")
    with started("turnledger", "serve", *flags) as server:
        yield server


@pytest.fixture(scope="package")
def server() -> Iterator[ServerProcess]:
    with serving() as server:
        yield server


@pytest.fixture(scope="package")
def other_server() -> Iterator[ServerProcess]:
    with serving() as server:
        yield server
