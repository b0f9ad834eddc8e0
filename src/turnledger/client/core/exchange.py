"""One request and its response, repeated as far as that is safe: how long to wait, and when to give up."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from turnledger.client.core.steps import ConnectionFailure, Exchange, Pause, Reply, Request, Steps
from turnledger.client.errors import ErrorReport, error_in_reply
from turnledger.errors import InvalidInput, ServerUnavailable


class Timeouts(Struct, frozen=True, kw_only=True):
    """Seconds."""

    connect: float = 5.0
    silence: float = 45.0
    """Without a byte from the server. It sends something every 20 seconds while a turn runs or waits."""
    write: float = 30.0
    """Without a byte accepted by the server."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            seconds = getattr(self, name)
            if not seconds > 0:
                raise InvalidInput(f"{name} is {seconds}; timeouts must be above zero seconds.")


class Retries(Struct, frozen=True, kw_only=True):
    """How to repeat a request without a complete response, or with one that says to try again."""

    times: int = 10
    """Maximum number without progress; a new event is progress. 0: never."""
    first_pause: float = 0.1
    """Seconds before the first repetition; each later pause is twice as long, less a random part."""
    max_pause: float = 5.0
    """Maximum seconds of a pause, unless the server asks for more."""
    patience: float = 60.0
    """Seconds from the first failure after which no repetition begins."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not value >= 0:
                raise InvalidInput(f"{name} is {value}; it must not be negative.")


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

    def pause(self, requested: float | None = None) -> float | None:
        """Count a failed try, and return the seconds before the next one; None: give up. `requested` are the
        seconds that the server requested."""
        now = self._pacing.now()
        if not self.failed:
            self._since = now
        self.failed += 1
        if self.failed > self._retries.times:
            return None
        ceiling = min(self._retries.max_pause, self._retries.first_pause * 2.0 ** min(self.failed - 1, 30))
        seconds = self._jitter(ceiling, requested)
        return None if now - self._since + seconds > self._retries.patience else seconds

    def longest_pause(self, requested: float | None = None) -> float:
        """Return the seconds between tries, for a caller that does not give up."""
        return self._jitter(self._retries.max_pause, requested)

    def _jitter(self, seconds: float, requested: float | None) -> float:
        """Randomly shorten the pause, or lengthen the requested one. Otherwise clients that lost one server
        together would reconnect together."""
        chance = self._pacing.chance()
        seconds *= 0.5 + chance / 2
        if requested is None:
            return seconds
        return max(seconds, requested + min(requested / 2, self._retries.max_pause) * (1 - chance))


_UNTOUCHED_STATUSES = frozenset({408, 425, 429, 503})
"""With these statuses the server did nothing; with others it may have."""


class RepeatedExchange:
    """Sends a request until it has a usable response."""

    def __init__(
        self,
        retry_count: RetryCount,
        *,
        is_repeatable: bool = True,
        idempotency_key: str | None = None,
        hint: str = "It may have been carried out; check before repeating it.",
    ) -> None:
        """`hint` is the hint of the error if the request cannot be repeated, and may have been carried
        out."""
        self._retry_count = retry_count
        self._is_repeatable = is_repeatable
        self._idempotency_key = idempotency_key
        self._hint = hint
        self.may_be_done = False
        """Whether an earlier try may have been carried out and its response lost."""
        self.refusal: Reply | None = None

    def run(self, request: Request) -> Steps[Reply]:
        """Return the successful response. Raises the server's error, or ServerUnavailable."""
        while True:
            outcome: Reply | ConnectionFailure = yield Exchange(request)
            if isinstance(outcome, Reply) and outcome.status < 300:
                return outcome
            failure = outcome if isinstance(outcome, ConnectionFailure) else self._report_refusal(outcome)
            if not self._may_repeat(outcome):
                raise self._final_error(failure)
            retry_after = None if isinstance(failure, ConnectionFailure) else failure.retry_after
            seconds = self._retry_count.pause(retry_after)
            if seconds is None:
                raise self._final_error(failure)
            self.may_be_done |= self._may_be_done_by(outcome)
            yield Pause(seconds)

    def _report_refusal(self, reply: Reply) -> ErrorReport:
        self.refusal = reply
        problem = error_in_reply(reply)
        if not problem.is_temporary:
            raise problem.error
        return problem

    def _may_repeat(self, outcome: Reply | ConnectionFailure) -> bool:
        if isinstance(outcome, ConnectionFailure) and outcome.is_hopeless:
            return False
        return self._is_repeatable or not self._may_be_done_by(outcome)

    @staticmethod
    def _may_be_done_by(outcome: Reply | ConnectionFailure) -> bool:
        if isinstance(outcome, ConnectionFailure):
            return outcome.may_have_arrived
        return outcome.status not in _UNTOUCHED_STATUSES

    def _final_error(self, failure: ErrorReport | ConnectionFailure) -> Exception:
        if not isinstance(failure, ConnectionFailure):
            return failure.error
        tries = f", after {self._retry_count.failed} tries" if self._retry_count.failed > 1 else ""
        message = f"The server sent no complete answer{tries}: {failure.reason}."
        if not failure.may_have_arrived and not self.may_be_done:
            remedy = "its address and certificate" if failure.is_hopeless else "that it is running"
            message += f" The request never reached it. Check {remedy}."
        elif not self._is_repeatable:
            message += f" {self._hint}"
        else:
            message += " Try again later."
        return ServerUnavailable(message, idempotency_key=self._idempotency_key)
