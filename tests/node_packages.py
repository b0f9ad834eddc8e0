"""Node packages, rebuilt when their sources changed."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from tools.node_package import CannotBuild, NodePackage


def skip_or_fail(problem: str) -> NoReturn:
    """Skip the test for a missing tool, or fail it in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(problem)
    pytest.skip(problem)


@cache
def built(package: NodePackage) -> Path:
    """Install the package with its tools for tests, build it unless it is fresh, and return its folder.
    Without Node, see `skip_or_fail`."""
    problem = package.missing
    if not package.is_fresh and problem is not None:
        skip_or_fail(problem)
    try:
        if problem is None:
            package.install()
        package.build()
    except CannotBuild as problem:
        pytest.fail(str(problem))
    return package.folder
