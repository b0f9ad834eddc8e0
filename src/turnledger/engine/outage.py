"""Outages: logged when the store begins to fail, once a minute while it does, and when it works again.

While it fails, each turn and each timer here postpones something several times a second.
"""

from __future__ import annotations

import logging

from turnledger.engine.ports import Clock
from turnledger.errors import StoreCorrupt, StoreError, TurnledgerError

log = logging.getLogger("turnledger")

REMINDED_EVERY = 60.0


class Outage:
    """What one process knows of an outage of its store."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None
        self._logged_at = 0.0
        self.failures = 0
        """How often the store has failed since the start."""

    def note(self, error: TurnledgerError, postponed: str, **ids: str) -> None:
        """Log an error of the store unless it is known, and what is done later because of it. Damage concerns
        some rows only, and is no outage."""
        is_outage = isinstance(error, StoreError) and not isinstance(error, StoreCorrupt)
        level = logging.DEBUG if is_outage else logging.WARNING
        log.log(level, postponed, extra={**ids, "code": error.code})
        if not is_outage:
            return
        now = self._clock.monotonic()
        self.failures += 1
        if self._since is None:
            self._since = now
        elif now - self._logged_at < REMINDED_EVERY:
            return
        self._logged_at = now
        seconds = round(now - self._since)
        log.warning("store_fails", extra={"code": error.code, "details": str(error), "seconds": seconds})

    def end(self) -> None:
        """Log that the store works again, if it failed."""
        if self._since is not None:
            seconds = round(self._clock.monotonic() - self._since)
            log.info("store_works_again", extra={"seconds": seconds})
            self._since = None
