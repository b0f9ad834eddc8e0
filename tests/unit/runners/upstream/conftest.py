"""Fixtures of upstream tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.runners.upstream.certificates import make_authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an unknown certificate authority."""
    folder = tmp_path_factory.mktemp("authority")
    make_authority(folder)
    return folder
