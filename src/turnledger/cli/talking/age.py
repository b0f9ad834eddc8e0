"""How long ago something was, as people say it."""

from __future__ import annotations

from datetime import datetime

MINUTE, HOUR, DAY = 60, 3600, 24 * 3600


def age_of(at: int, now: float) -> str:
    """The time since `at`, in milliseconds since 1970; now is in seconds. What is long ago is a date."""
    passed = now - at / 1000
    if passed < MINUTE:
        return "just now"
    if passed < HOUR:
        return f"{int(passed / MINUTE)} min ago"
    if passed < DAY:
        return f"{int(passed / HOUR)} h ago"
    if passed < 30 * DAY:
        days = int(passed / DAY)
        return "yesterday" if days == 1 else f"{days} days ago"
    return datetime.fromtimestamp(at / 1000).astimezone().strftime("%Y-%m-%d")
