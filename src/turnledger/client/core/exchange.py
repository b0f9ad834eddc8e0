"""One request and its response, repeated as far as that is safe: how long to wait, and when to give up."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from turnledger.client.core.steps import Broken, Exchange, Pause, Reply, Request, Steps
from turnledger.client.errors import Told, told_by
from turnledger.errors import InvalidInput, ServerUnavailable


class Timeouts(Struct, frozen=True, kw_only=True):
    """Seconds."""

    connect: float = 5.0
    silence: float = 45.0
    """Without a byte from the server. It sends something every 20 seconds while a turn runs or waits."""
    write: float = 30.0
    """Without a byte accepted by the server."""

    def __post_init__(self) -> None:
        if not all(seconds > 0 for seconds in (self.connect, self.silence, self.write)):
            raise InvalidInput("Timeouts must be above zero seconds.")


class Retries(Struct, frozen=True, kw_only=True):
    """How to repeat a request without a complete response, or with one that says to try again."""

    times: int = 10
    """Maximum number without progress; a new event is progress. 0: never."""
    first: float = 0.1
    """Seconds before the first repetition; each later pause is twice as long, less a random part."""
    most: float = 5.0
    """Maximum seconds of a pause, unless the server asks for more."""
    patience: float = 60.0
    """Seconds from the first failure after which no repetition begins."""

    def __post_init__(self) -> None:
        if not all(each >= 0 for each in (self.times, self.first, self.most, self.patience)):
            raise InvalidInput("Retry counts and seconds must not be negative.")


def _chance() -> float:
    """Return a number from 0 up to 1. Loading `random` takes longer than asking the system now and then."""
    return int.from_bytes(os.urandom(6)) / 2**48


class Pacing(Struct, frozen=True, kw_only=True):
    """Sources of time and chance. Tests pass their own, and never wait."""

    now: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = _chance
    sleep: Callable[[float], Awaitable[None] | None] | None = None
    """None: wait for the time to pass, or for the client to be closed."""


class RetryCount:
    def __init__(self, retries: Retries, pacing: Pacing) -> None:
        self._retries = retries
        self._pacing = pacing
        self.failed = 0
        """Failed tries since the last progress, which resets it to 0."""
        self._since = 0.0

    def pause(self, asked: float | None = None) -> float | None:
        """Count a failed try, and return the seconds before the next one; None: give up. `asked` are the
        seconds that the server requested."""
        now = self._pacing.now()
        if not self.failed:
            self._since = now
        self.failed += 1
        if self.failed > self._retries.times:
            return None
        longest = min(self._retries.most, self._retries.first * 2.0 ** min(self.failed - 1, 30))
        seconds = self._scattered(longest, asked)
        return None if now - self._since + seconds > self._retries.patience else seconds

    def longest(self, asked: float | None = None) -> float:
        """Return the seconds between tries, for a caller that does not give up."""
        return self._scattered(self._retries.most, asked)

    def _scattered(self, seconds: float, asked: float | None) -> float:
        """Randomly shorten the pause, or lengthen the requested one. Otherwise clients that lost one server
        together would reconnect together."""
        chance = self._pacing.chance()
        seconds *= 0.5 + chance / 2
        if asked is None:
            return seconds
        return max(seconds, asked + min(asked / 2, self._retries.most) * (1 - chance))


_SURELY_NOTHING = frozenset({408, 425, 429, 503})
"""With these statuses the server did nothing; with others it may have."""


class RepeatedExchange:
    """Sends a request until it has a usable response."""

    def __init__(
        self,
        trying: RetryCount,
        *,
        is_repeatable: bool = True,
        idempotency_key: str | None = None,
        once: str = "It may have been carried out; look before asking again.",
    ) -> None:
        """`once` is the hint of the error if the request cannot be repeated, and may have been carried
        out."""
        self._trying = trying
        self._is_repeatable = is_repeatable
        self._idempotency_key = idempotency_key
        self._once = once
        self.may_be_done = False
        """Whether an earlier try may have been carried out and its response lost."""
        self.refusal: Reply | None = None

    def ask(self, request: Request) -> Steps[Reply]:
        """Return the successful response. Raises the server's error, or ServerUnavailable."""
        while True:
            outcome: Reply | Broken = yield Exchange(request)
            if isinstance(outcome, Reply) and outcome.status < 300:
                return outcome
            trouble = outcome if isinstance(outcome, Broken) else self._refused(outcome)
            if not self._may_repeat(outcome):
                raise self._given_up(trouble)
            retry_after = None if isinstance(trouble, Broken) else trouble.retry_after
            seconds = self._trying.pause(retry_after)
            if seconds is None:
                raise self._given_up(trouble)
            self.may_be_done |= self._may_be_done_by(outcome)
            yield Pause(seconds)

    def _refused(self, reply: Reply) -> Told:
        self.refusal = reply
        problem = told_by(reply)
        if not problem.is_passing:
            raise problem.error
        return problem

    def _may_repeat(self, outcome: Reply | Broken) -> bool:
        if isinstance(outcome, Broken) and outcome.is_hopeless:
            return False
        return self._is_repeatable or not self._may_be_done_by(outcome)

    @staticmethod
    def _may_be_done_by(outcome: Reply | Broken) -> bool:
        if isinstance(outcome, Broken):
            return outcome.may_have_arrived
        return outcome.status not in _SURELY_NOTHING

    def _given_up(self, trouble: Told | Broken) -> Exception:
        if not isinstance(trouble, Broken):
            return trouble.error
        tries = f", after {self._trying.failed} tries" if self._trying.failed > 1 else ""
        message = f"The server sent no complete answer{tries}: {trouble.reason}."
        if not trouble.may_have_arrived and not self.may_be_done:
            message += " The request never reached it. Check that it runs there."
        elif not self._is_repeatable:
            message += f" {self._once}"
        return ServerUnavailable(message, idempotency_key=self._idempotency_key)
