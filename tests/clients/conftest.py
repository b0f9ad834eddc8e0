"""What the tests of clients share."""

import pytest

pytest.register_assert_rewrite("tests.clients.playing", "tests.clients.scenario")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"
