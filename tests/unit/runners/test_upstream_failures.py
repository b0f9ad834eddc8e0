"""Each way in which an upstream fails has its error, and says whether asking again may help."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from turnledger.errors import (
    MalformedAnswer,
    ModelError,
    ModelRefused,
    ModelTimeout,
    ModelUnavailable,
)
from turnledger.runners.upstream_failures import of_answer, of_connection, of_status

KEY = ConnectionKey("host.invalid", 443, True, True, None, None, None)
ERROR = {"message": "No.", "code": "c"}


@pytest.mark.parametrize(
    ("problem", "error", "may_retry"),
    [
        (aiohttp.ConnectionTimeoutError(), ModelTimeout, True),
        (aiohttp.SocketTimeoutError(), ModelTimeout, False),
        (TimeoutError(), ModelTimeout, False),
        (aiohttp.ClientConnectorError(KEY, OSError(111, "refused")), ModelUnavailable, True),
        (aiohttp.ClientConnectorDNSError(KEY, OSError(-2, "unknown")), ModelUnavailable, True),
        (aiohttp.ClientConnectorSSLError(KEY, OSError(1, "tls")), ModelUnavailable, False),
        (aiohttp.ServerDisconnectedError(), ModelUnavailable, True),
        (aiohttp.ClientOSError(104, "reset"), ModelUnavailable, True),
        (aiohttp.ClientPayloadError(), ModelUnavailable, False),
        (aiohttp.ClientError(), ModelUnavailable, False),
    ],
)
def test_exceptions_before_an_answer(problem: Exception, error: type[ModelError], may_retry: bool) -> None:
    broken_off = of_connection(problem)
    assert (type(broken_off.error), broken_off.may_retry) == (error, may_retry)
    assert "host.invalid" not in str(broken_off.error)


@pytest.mark.parametrize(
    ("problem", "error"),
    [
        (aiohttp.SocketTimeoutError(), ModelTimeout),
        (TimeoutError(), ModelTimeout),
        (aiohttp.ClientPayloadError(), ModelUnavailable),
        (aiohttp.ServerDisconnectedError(), ModelUnavailable),
        (aiohttp.ClientConnectionError(), ModelUnavailable),
    ],
)
def test_exceptions_within_an_answer(problem: Exception, error: type[ModelError]) -> None:
    assert type(of_answer(problem)) is error


def test_what_is_no_http_is_malformed() -> None:
    problem = aiohttp.ClientResponseError(None, (), status=400)  # type: ignore[arg-type]
    assert type(of_answer(problem)) is MalformedAnswer


@pytest.mark.parametrize("status", [400, 404, 409, 413, 415, 418, 422, 429, 451])
def test_statuses_about_the_request_are_refusals(status: int) -> None:
    refused = of_status(status, {}, ERROR).error
    assert isinstance(refused, ModelRefused)
    assert (refused.status, refused.error) == (status, ERROR)


@pytest.mark.parametrize("status", [201, 301, 307, 401, 402, 403, 407, 500, 502, 503, 504, 529])
def test_other_statuses_are_the_upstreams_own_affair(status: int) -> None:
    error = of_status(status, {}, {"message": "sk-secret"}).error
    assert type(error) is ModelUnavailable
    assert str(status) in str(error)
    assert "sk-secret" not in str(error)


def test_an_upstream_that_gave_up_waiting_is_a_timeout() -> None:
    assert type(of_status(408, {}, ERROR).error) is ModelTimeout


def test_few_statuses_are_worth_another_try() -> None:
    assert [each for each in range(300, 600) if of_status(each, {}, {}).may_retry] == [429, 502, 503, 504]
    assert not of_status(503, {"x-should-retry": "false"}, {}).may_retry


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after-ms": "30"}, 0.03),
        ({"retry-after-ms": "30", "retry-after": "2"}, 0.03),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_how_long_to_wait_is_read(headers: dict[str, str], seconds: float | None) -> None:
    broken_off = of_status(429, headers, {})
    assert broken_off.retry_after == seconds
    assert isinstance(broken_off.error, ModelRefused)
    assert broken_off.error.retry_after == seconds
