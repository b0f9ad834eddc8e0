"""Requests within and beyond the description of the API, 100 of each kind, for every way to authenticate, and
200 crowds of clients."""

from __future__ import annotations

from tests.proof import run_tests

SECONDS = 1800
EXAMPLES = 100
CROWDS = 200


def prove() -> None:
    settings = {"FUZZ_EXAMPLES": str(EXAMPLES), "FUZZ_SEEDS": str(CROWDS)}
    run_tests("--timeout", str(SECONDS), "tests/fuzz", **settings)
