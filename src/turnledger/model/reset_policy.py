"""Reset policies: when a conversation_key moves to a fresh conversation automatically."""

from __future__ import annotations

import datetime
import re
from zoneinfo import ZoneInfo

from turnledger.errors import InvalidInput
from turnledger.model import codec

UTC = "UTC"
LONGEST_IDLE = 1e9
"""Seconds."""
KNOWN_POLICIES = "never, idle SECONDS, daily HOUR [TIMEZONE]"
_POLICY = re.compile(
    r"(?:idle (?P<seconds>[0-9]{1,10}(?:\.[0-9]{1,3})?))?(?P<comma>, )?"
    r"(?:daily (?P<hour>[0-9]{1,2})(?: (?P<zone>[^ ,]+))?)?"
)


class ResetPolicy(codec.Document, frozen=True, kw_only=True):
    """When a conversation ends: at the earlier of the two times, or never.

    Time is measured from its start and its last interaction; reading, renaming and housekeeping do not count.
    Made by `ResetPolicy.never()`, `.idle(seconds)` and `.daily(hour, timezone)`.
    """

    idle_after: int | None = None
    """Milliseconds without interaction."""
    daily_at: int | None = None
    """The hour, 0 to 23, at which a new day begins."""
    timezone: str = UTC
    """The IANA time zone of that hour."""

    @classmethod
    def never(cls) -> ResetPolicy:
        """Keep the key with its conversation until `ledger.reset`."""
        return NEVER

    @classmethod
    def idle(cls, seconds: float) -> ResetPolicy:
        """Reset after this many seconds without interaction."""
        if not 0 < seconds <= LONGEST_IDLE:
            raise InvalidInput(f"An idle time must be above 0 and at most {LONGEST_IDLE:g} seconds.")
        return cls(idle_after=max(1, round(seconds * 1000)))

    @classmethod
    def daily(cls, hour: int, timezone: str = UTC) -> ResetPolicy:
        """Reset every day at this hour. If daylight saving skips the hour, reset at the jump; if it repeats
        the hour, at its first occurrence."""
        if hour not in range(24):
            raise InvalidInput("An hour is a whole number from 0 to 23.")
        zone_of(timezone)
        return cls(daily_at=int(hour), timezone=timezone)

    @classmethod
    def parse(cls, text: str) -> ResetPolicy:
        """Return the policy that `str` writes: `never`, `idle 1800`, `daily 4`, `daily 4 Europe/Berlin`, or
        `idle 1800, daily 4`. Raises InvalidInput with the known ones."""
        if text == "never":
            return NEVER
        found = _POLICY.fullmatch(text)
        # A comma stands between two policies, and nowhere else.
        if found is None or not text or bool(found["comma"]) != bool(found["seconds"] and found["hour"]):
            raise InvalidInput(f"Unknown reset policy {text[:40]!r}. Known: {KNOWN_POLICIES}.")
        idle = cls.idle(float(found["seconds"])) if found["seconds"] else NEVER
        daily = cls.daily(int(found["hour"]), found["zone"] or UTC) if found["hour"] else NEVER
        return cls(idle_after=idle.idle_after, daily_at=daily.daily_at, timezone=daily.timezone)

    def __str__(self) -> str:
        parts: list[str] = []
        if self.idle_after is not None:
            parts.append(f"idle {self.idle_after / 1000:.3f}".rstrip("0").rstrip("."))
        if self.daily_at is not None:
            parts.append(f"daily {self.daily_at}{'' if self.timezone == UTC else f' {self.timezone}'}")
        return ", ".join(parts) or "never"

    def is_over(self, started_at: int, touched_at: int, now: int) -> bool:
        """Return whether a conversation of these times has ended. Raises InvalidInput if this machine does
        not know the time zone: a wrong guess would split a conversation."""
        last = max(started_at, touched_at)
        if self.idle_after is not None and now - last >= self.idle_after:
            return True
        return self.daily_at is not None and last_daily(self.daily_at, self.timezone, now) > last


NEVER = ResetPolicy()


def policy_of(text: str | None) -> ResetPolicy | None:
    """Return the policy of a text that may be missing. Raises InvalidInput."""
    return None if text is None else ResetPolicy.parse(text)


def last_daily(hour: int, timezone: str, now: int) -> int:
    """Return the latest such hour not after `now`, in milliseconds since 1970."""
    zone = zone_of(timezone)
    day = datetime.datetime.fromtimestamp(now / 1000, zone).date()
    while (at := _moment(day, hour, zone)) > now:  # several days back where a zone skipped a whole day
        day -= datetime.timedelta(days=1)
    return at


def _moment(day: datetime.date, hour: int, zone: datetime.tzinfo) -> int:
    # With fold=0: the first of a repeated hour, and the moment of the jump for a skipped one.
    return round(datetime.datetime.combine(day, datetime.time(hour), zone).timestamp() * 1000)


def zone_of(name: str) -> datetime.tzinfo:
    """Return the time zone of an IANA name. Raises InvalidInput if this machine does not know it."""
    if name == UTC:
        return datetime.UTC  # needs no time zone database
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise InvalidInput(
            f"Unknown time zone {name!r}. Use an IANA name such as Europe/Berlin, or install the "
            "tzdata package."
        ) from None
