"""Worker processes for the crash tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.processes import Start, Worker
from tests.disk_folder import tmp_path  # noqa: F401


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:  # noqa: F811 - the one from above
    """Start a worker on the folder of the test."""
    started: list[Worker] = []

    def start(what: str, *arguments: object, lease_time: float = 2.0) -> Worker:
        command = (what, str(tmp_path), str(lease_time), *map(str, arguments))
        worker = Worker(tmp_path / f"errors-{len(started)}", *command)
        started.append(worker)
        return worker

    yield start
    for worker in started:
        if worker.process.returncode is None:
            worker.process.kill()
            worker.end()
