"""When something ends, as people write it."""

import pytest

from turnledger.cli.options import date_of, expiry_of
from turnledger.errors import InvalidInput

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("90m", NOW + 5_400_000),
        ("12h", NOW + 43_200_000),
        ("30d", NOW + 2_592_000_000),
        ("2w", NOW + 1_209_600_000),
        ("0d", NOW),
        ("1970-01-02", 86_400_000),
        ("1970-01-02T00:00:01", 86_401_000),
        ("1970-01-02T01:00+01:00", 86_400_000),
        ("1970-01-02T00:00:00Z", 86_400_000),
    ],
)
def test_spans_and_dates_are_understood(text: str, time: int) -> None:
    assert expiry_of(text, NOW) == time


@pytest.mark.parametrize(
    "text",
    [
        "",
        "never",
        "12",
        "d",
        "-1d",
        "1.5h",
        "12 h",
        "1y",
        "9999999999d",
        "31.12.2027",
    ],
)
def test_anything_else_is_told_with_what_is_understood(text: str) -> None:
    with pytest.raises(InvalidInput, match="30d"):
        expiry_of(text, NOW)


def test_a_time_is_told_in_utc() -> None:
    assert date_of(NOW) == "2027-01-15 08:00"


@pytest.mark.parametrize("time", [2**53, -(2**53), 10**30])
def test_a_time_that_no_calendar_has_is_told_as_it_is(time: int) -> None:
    assert date_of(time) == f"{time} ms"
