"""Retention: what was removed because its owner keeps chats for so long, or so much of them, and no more.

Reset policies: when a conversation_key moves on from one conversation to a fresh one by itself.
"""

from __future__ import annotations

import datetime
from enum import StrEnum
from zoneinfo import ZoneInfo

import msgspec

from turnledger.errors import InvalidInput
from turnledger.model import codec
from turnledger.model.ids import ConversationId


class Reason(StrEnum):
    """Why a conversation was removed by itself."""

    AGE = "age"  # nobody used it for so long: it can be restored
    SIZE = "size"  # its owner stores more than may be, and it was the oldest: it is gone for good


class Retired(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that was removed."""

    owner: str
    conversation: ConversationId
    reason: Reason
    touched_at: int
    """When it was last used."""
    purge_at: int | None
    """Until when it can be restored; None if it cannot."""


class Retained(msgspec.Struct, frozen=True, kw_only=True):
    """What one round of retention did."""

    retired: tuple[Retired, ...] = ()
    """In the order in which they went."""
    full: tuple[str, ...] = ()
    """Owners that store more than may be: what is left of theirs is pinned, runs, or is shown by forks."""


UTC = "UTC"
LONGEST_IDLE = 1e9
"""Seconds."""


class ResetPolicy(codec.Document, frozen=True, kw_only=True):
    """When a conversation counts as over: whichever of the two comes first, or never.

    Measured from its start and its last interaction; renaming, reading and house-keeping count for nothing.
    Made by `ResetPolicy.never()`, `.idle(seconds)` and `.daily(hour, timezone)`.
    """

    idle_after: int | None = None
    """Milliseconds without interaction."""
    daily_at: int | None = None
    """The hour, 0 to 23, at which a new day begins."""
    timezone: str = UTC
    """Whose hour that is: an IANA name."""

    @classmethod
    def never(cls) -> ResetPolicy:
        """Only `ledger.reset` gives the key to another conversation."""
        return NEVER

    @classmethod
    def idle(cls, seconds: float) -> ResetPolicy:
        """After so many seconds without interaction."""
        if not 0 < seconds <= LONGEST_IDLE:
            raise InvalidInput(f"An idle time must be above 0 and at most {LONGEST_IDLE:g} seconds.")
        return cls(idle_after=max(1, round(seconds * 1000)))

    @classmethod
    def daily(cls, hour: int, timezone: str = UTC) -> ResetPolicy:
        """Every day at this hour. On the day that skips it, when the clock jumps over it; on the day that
        has it twice, the first time."""
        if hour not in range(24):
            raise InvalidInput("An hour is a whole number from 0 to 23.")
        zone_of(timezone)
        return cls(daily_at=int(hour), timezone=timezone)

    def is_over(self, started_at: int, touched_at: int, now: int) -> bool:
        """Whether a conversation of these times is over. Raises InvalidInput where its time zone is not
        known on this machine: a wrong guess would cut a conversation in two."""
        last = max(started_at, touched_at)
        if self.idle_after is not None and now - last >= self.idle_after:
            return True
        return self.daily_at is not None and last_daily(self.daily_at, self.timezone, now) > last


NEVER = ResetPolicy()


def last_daily(hour: int, timezone: str, now: int) -> int:
    """The latest moment not after `now` at which it was this hour there, in milliseconds since 1970."""
    zone = zone_of(timezone)
    day = datetime.datetime.fromtimestamp(now / 1000, zone).date()
    while (at := _moment(day, hour, zone)) > now:  # more than once where a zone has skipped a whole day
        day -= datetime.timedelta(days=1)
    return at


def _moment(day: datetime.date, hour: int, zone: datetime.tzinfo) -> int:
    # The first of two, and for an hour that was skipped the moment of the jump: what fold=0 stands for.
    return round(datetime.datetime.combine(day, datetime.time(hour), zone).timestamp() * 1000)


def zone_of(name: str) -> datetime.tzinfo:
    """The time zone of an IANA name; raises InvalidInput for one that is not known here."""
    if name == UTC:
        return datetime.UTC  # needs no time zone database
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise InvalidInput(
            f"The time zone {name!r} is not known on this machine. Use an IANA name such as Europe/Berlin; "
            "where the system has no time zones, install the tzdata package."
        ) from None
