"""Stores for the tests of the SQLite store."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from turnledger.stores.sqlite import SqliteStore
from turnledger.testing.faulty_disk import FaultyDisk

ROOT = Path(__file__).parents[4]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path)
    yield store
    await store.close()


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    disk = FaultyDisk()
    yield disk
    disk.unregister()


Neighbour = Callable[..., Popen[str]]


@pytest.fixture
def neighbour() -> Iterator[Neighbour]:
    """Start another process on a store, and wait until it is ready."""
    started: list[Popen[str]] = []

    def start(what: str, *arguments: object, wait: bool = True) -> Popen[str]:
        command = [sys.executable, "-m", "tests.unit.stores.sqlite.neighbour", what, *map(str, arguments)]
        process = Popen(command, cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True)
        started.append(process)
        if wait:
            wait_until_ready(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_until_ready(process: Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
