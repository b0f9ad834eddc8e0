"""When something ends, as people write it: `12h`, `30d`, `2027-01-31`."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from turnledger.errors import InvalidInput

_SPAN = re.compile(r"([0-9]{1,9})([mhdw])")
_SECONDS = {"m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


def expiry_of(text: str, now: int) -> int:
    """The time that is meant, in milliseconds since 1970: a span from now on, or a date, in UTC unless it
    says otherwise. Raises InvalidInput."""
    span = _SPAN.fullmatch(text)
    if span is not None:
        return now + int(span[1]) * _SECONDS[span[2]] * 1000
    try:
        told = datetime.fromisoformat(text)
        told = told.replace(tzinfo=UTC) if told.tzinfo is None else told
        return round(told.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"--expires is {text!r}. Write a span, as in 90m, 12h, 30d or 8w, or a date, as in 2027-01-31 or "
            "2027-01-31T18:00+01:00."
        ) from None


def date_of(time: int) -> str:
    """A time as people read it, in UTC; one that no calendar has, as a server may tell it, as it is."""
    try:
        return datetime.fromtimestamp(time / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return f"{time} ms"
