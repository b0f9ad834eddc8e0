"""The long form of tests, for what takes too long in `make test`; the proof `long_tests` runs it.

`@long_only` marks tests that run in the long form only. `sample` shortens a list of cases otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

IS_LONG = os.environ.get("LONG_TESTS") == "1"
long_only = pytest.mark.long_only

Case = TypeVar("Case")


def sample(cases: Sequence[Case], count: int) -> list[Case]:
    """Return all cases in the long form, else this many, evenly spread."""
    if IS_LONG or count >= len(cases):
        return list(cases)
    return [cases[place * len(cases) // count] for place in range(count)]
