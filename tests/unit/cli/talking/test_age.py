"""How long ago something was."""

from __future__ import annotations

import pytest

from turnledger.cli.talking.age import age_of

NOW = 1_800_000_000


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (3 * 3600, "3 h ago"),
        (24 * 3600, "yesterday"),
        (5 * 24 * 3600, "5 days ago"),
        (400 * 24 * 3600, "2025-12-"),
    ],
)
def test_it_is_told_as_people_say_it(seconds: int, told: str) -> None:
    assert age_of((NOW - seconds) * 1000, NOW).startswith(told)
