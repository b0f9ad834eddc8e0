"""A folder on the disk, for tests of what a dead process leaves."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder on the real disk, since most of a write is waiting for it, and most kills should hit there.
    Kept if the test fails."""
    folder = Path(tempfile.mkdtemp(prefix=f"{request.node.originalname}-"))
    failed = request.session.testsfailed
    yield folder
    if request.session.testsfailed == failed:
        shutil.rmtree(folder)
