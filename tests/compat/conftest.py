"""Servers for the compatibility tests."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.compat.live_server import LiveServer, run_server

Serve: TypeAlias = Callable[..., LiveServer]


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """A store in a file; other tests have one in memory."""
    return f"sqlite:///{tmp_path / 'chats.db'}"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers that end with the test; see `run_server`."""
    with ExitStack() as running:

        def start(*scripts: Any, **options: Any) -> LiveServer:
            return running.enter_context(run_server(*scripts, **options))

        yield start


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as threads:
        yield threads
