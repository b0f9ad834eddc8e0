from collections.abc import Iterator

import pytest

from turnledger.server.logs import log


@pytest.fixture(autouse=True)
def restored_log() -> Iterator[None]:
    """A command that serves has the log of the whole process."""
    before = log._to
    yield
    log._to = before


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
