"""A folder for a test that is about what is left on the disk when a process dies."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest) -> Iterator[Path]:
    """On the disk, as a store is: most of a write is waiting for that, and most kills shall hit there. Kept
    if the test fails."""
    folder = Path(tempfile.mkdtemp(prefix=f"{request.node.originalname}-"))
    failed = request.session.testsfailed
    yield folder
    if request.session.testsfailed == failed:
        shutil.rmtree(folder)
