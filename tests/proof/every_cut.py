"""Connections that are cut at every byte: a turn is whole, kept or gone by its policy, and can be read on."""

from __future__ import annotations

from tests.proof import run_tests

SECONDS = 1800


def prove() -> None:
    run_tests("--timeout", str(SECONDS), "tests/crash/test_cut_connections.py", CUT_EVERY="1")
