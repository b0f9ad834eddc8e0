"""Failures of an upstream, mapped to ModelErrors. None reveals its address."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from turnledger.errors import (
    MalformedAnswer,
    ModelError,
    ModelRefused,
    ModelTimeout,
    ModelUnavailable,
)
from turnledger.runners.context_limit import context_exceeded
from turnledger.runners.error_cleaner import (
    ABOUT_THE_ACCOUNT,
    can_heal,
    problem_of_account,
    refuses_repeated_roles,
)

_CUT = "The connection to the model broke before its answer was complete. Try again."
_RETRIED = frozenset({429, 502, 503, 504})
_FINAL = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""Codes of a rate limit that no wait ends."""
_NO_SUCH_PATH = frozenset({"", "404 page not found", "not found", "file not found", "method not allowed"})
"""Words of servers without such a path, in lower case. A model that they lack is named."""


class UpstreamFailure(Exception):
    """A missing answer: the error to raise, whether a retry may help, and after how many seconds."""

    def __init__(
        self, error: ModelError, *, may_retry: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.may_retry = may_retry
        self.retry_after = retry_after


class NoResponse(UpstreamFailure):
    """The connection ended before the first byte of the response."""


class ProxyFailure(UpstreamFailure):
    """The proxy does not lead to the upstream."""


def of_proxy(status: int | None) -> ProxyFailure:
    """Return the failure for a proxy's status; None: it did not answer."""
    if status is None:
        message = "The proxy cannot be reached, or closed the connection. Try again."
        return ProxyFailure(ModelUnavailable(message), may_retry=True)
    if status == 407:
        message = "The proxy refused its credentials (status 407): check them."
        return ProxyFailure(ModelUnavailable(message, should_retry=False))
    message = f"The proxy could not connect to the model (status {status}). Check both."
    return ProxyFailure(ModelUnavailable(message), may_retry=status in _RETRIED)


def of_connection(problem: OSError) -> UpstreamFailure:
    if isinstance(problem, TimeoutError):
        return UpstreamFailure(
            ModelTimeout("The model could not be reached in time. Try again."), may_retry=True
        )
    if isinstance(problem, ssl.SSLError):
        message = "No secure connection to the model could be made. Check its URL and certificate."
        return UpstreamFailure(ModelUnavailable(message, should_retry=False))
    return UpstreamFailure(ModelUnavailable("The model cannot be reached. Try again."), may_retry=True)


def cut_off() -> UpstreamFailure:
    return UpstreamFailure(ModelUnavailable(_CUT))


def no_response() -> NoResponse:
    return NoResponse(ModelUnavailable(_CUT), may_retry=True)


def too_slow() -> UpstreamFailure:
    return UpstreamFailure(ModelTimeout("The model took too long to go on with its answer. Try again."))


def not_http() -> UpstreamFailure:
    message = "The model's server answered with something that is not HTTP. Check its URL."
    return UpstreamFailure(MalformedAnswer(message))


def wrong_encoding() -> UpstreamFailure:
    message = "The model's server compressed its answer by another method than gzip: switch that off there."
    return UpstreamFailure(MalformedAnswer(message))


def model_closed() -> UpstreamFailure:
    return UpstreamFailure(ModelUnavailable("The model was closed. Open a new one."))


def of_status(status: int, headers: Mapping[bytes, bytes], error: Mapping[str, Any]) -> UpstreamFailure:
    """Return the failure of a status, with its cleaned error object."""
    failure = _error_of_status(status, error)
    failure.retry_after = retry_after = _retry_after(headers)
    is_final = headers.get(b"x-should-retry") == b"false" or error.get("code") in _FINAL
    failure.context_exceeded = context_exceeded(error, status)
    failure.refuses_repeated_roles = refuses_repeated_roles(error)
    failure.should_retry = can_heal(status) and not is_final and failure.context_exceeded is None
    may_retry = status in _RETRIED and failure.should_retry
    return UpstreamFailure(failure, may_retry=may_retry, retry_after=retry_after)


def _error_of_status(status: int, error: Mapping[str, Any]) -> ModelError:
    words = str(error.get("message", "")).rstrip(".")
    if status == 407:
        return of_proxy(status).error
    if status in ABOUT_THE_ACCOUNT:
        return ModelUnavailable(problem_of_account(status, words))
    if status == 408:
        return ModelTimeout("The model's server gave up waiting (status 408). Try again.")
    if 300 <= status < 400:
        return ModelUnavailable(f"The model's server redirects (status {status}): correct its URL.")
    if status in (404, 405) and words.lower() in _NO_SUCH_PATH:
        remedy = "check the upstream's URL, which often ends with /v1"
        return ModelRefused(status, {**error, "message": "; ".join(filter(None, (words, remedy)))})
    if 400 <= status < 500:
        return ModelRefused(status, error)
    reason = f": {words}" if words else ""
    remedy = "Try again." if can_heal(status) else "Check its URL."
    return ModelUnavailable(f"The model's server failed with status {status}{reason}. {remedy}")


def _retry_after(headers: Mapping[bytes, bytes]) -> float | None:
    for name, unit in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue  # absent, or a date
        if 0 <= seconds < float("inf"):
            return seconds
    return None
