from collections.abc import Iterator

import pytest

from tests.unit.server.logging_kept import kept_logging


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command that serves takes over the log of the whole process."""
    with kept_logging():
        yield


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
