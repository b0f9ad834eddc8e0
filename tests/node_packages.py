"""What tests need of Node: packages that are built anew when their sources were changed."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from tools.node_package import CannotBuild, NodePackage


@cache
def built(package: NodePackage) -> Path:
    """Build the package unless it is fresh, and return its folder. Skips the test where there is no Node that
    could; fails instead where everything has to be proven."""
    if not package.is_fresh and (problem := package.missing) is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(problem)
        pytest.skip(problem)
    try:
        package.build()
    except CannotBuild as problem:
        pytest.fail(str(problem))
    return package.folder
