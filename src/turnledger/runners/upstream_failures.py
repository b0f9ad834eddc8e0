"""What went wrong with an upstream, as the errors that callers know. None of them tells its address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp

from turnledger.errors import (
    MalformedAnswer,
    ModelError,
    ModelRefused,
    ModelTimeout,
    ModelUnavailable,
)

_ABOUT_US = frozenset({401, 402, 403, 407})
"""Statuses that are about the operator's account: what they say is not for who made the request."""
_RETRIED = frozenset({429, 502, 503, 504})


class BrokenOff(Exception):
    """An answer that did not come: the error to raise for it, whether asking again may help, and how many
    seconds the upstream asks to wait."""

    def __init__(
        self, error: ModelError, *, may_retry: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.may_retry = may_retry
        self.retry_after = retry_after


def of_connection(problem: Exception) -> BrokenOff:
    """What an exception of aiohttp means, before the first byte of an answer."""
    if isinstance(problem, aiohttp.ConnectionTimeoutError):
        return BrokenOff(ModelTimeout("The model could not be reached in time. Try again."), may_retry=True)
    if isinstance(problem, aiohttp.ClientSSLError):
        return BrokenOff(ModelUnavailable("No secure connection to the model could be made."))
    if isinstance(problem, aiohttp.ClientConnectorError):
        return BrokenOff(ModelUnavailable("The model cannot be reached. Try again."), may_retry=True)
    if isinstance(problem, aiohttp.ClientOSError | aiohttp.ServerDisconnectedError):
        return BrokenOff(of_answer(problem), may_retry=True)
    return BrokenOff(of_answer(problem))


def of_answer(problem: Exception) -> ModelError:
    """What an exception of aiohttp means, while an answer is waited for or read."""
    if isinstance(problem, TimeoutError):
        return ModelTimeout("The model took too long to go on with its answer. Try again.")
    if isinstance(problem, aiohttp.ClientResponseError):
        return MalformedAnswer("The model's server answered with something that is not HTTP.")
    return ModelUnavailable("The connection to the model was cut before its answer was whole. Try again.")


def of_status(status: int, headers: Mapping[str, str], error: Mapping[str, Any]) -> BrokenOff:
    """What an answer with another status than 200 means."""
    retry_after = _retry_after(headers)
    return BrokenOff(
        _error_of_status(status, error, retry_after),
        may_retry=status in _RETRIED and headers.get("x-should-retry") != "false",
        retry_after=retry_after,
    )


def _error_of_status(status: int, error: Mapping[str, Any], retry_after: float | None) -> ModelError:
    if status in _ABOUT_US:
        return ModelUnavailable(f"The model's server refused the api_key (status {status}): check it.")
    if status == 408:
        return ModelTimeout("The model's server gave up waiting (status 408). Try again.")
    if 300 <= status < 400:
        return ModelUnavailable(f"The model's server redirects (status {status}): correct its URL.")
    if 400 <= status < 500:
        return ModelRefused(status, error, retry_after)
    return ModelUnavailable(f"The model's server failed with status {status}. Try again.")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue  # absent, or a date
        if 0 <= seconds < float("inf"):
            return seconds
    return None
