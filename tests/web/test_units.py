"""The page's own tests pass, and its types are right, those of its tests too."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.node_packages import built, lacks
from tools.node_package import PAGE

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def package() -> Path:
    folder = built(PAGE)
    # A page that was built elsewhere needs no Node; its tests do.
    if PAGE.missing is not None or not (folder / "node_modules").is_dir():
        lacks(PAGE.missing or "The packages of the page are not installed. Run `npm ci` in web/.")
    return folder


def run(package: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=package, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"
    return COLOURS.sub("", done.stdout)


def test_its_own_tests_pass(package: Path) -> None:
    told = run(package, "npm", "--silent", "test")
    count = re.search(r"^ *Tests +(\d+) passed \(\1\)$", told, re.MULTILINE)
    assert count is not None, told
    assert int(count[1]) > 400


def test_its_types_are_right(package: Path) -> None:
    run(package, "npm", "--silent", "run", "types")
