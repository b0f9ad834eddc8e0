"""The long form of tests that `make test` shortens or leaves out."""

from __future__ import annotations

import re

from tests.proof import ROOT, run_tests

SECONDS = 2400
HAS_LONG_FORM = re.compile(r"tests\.long_form import|\bon_clients\(|stores\.postgresql import")
"""Tests of the PostgreSQL store run on each version."""


def files() -> list[str]:
    """Return the test files that have a long form."""
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in tests if HAS_LONG_FORM.search(path.read_text("utf-8"))]


def prove() -> None:
    run_tests("--dist", "worksteal", *files(), LONG_TESTS="1")
