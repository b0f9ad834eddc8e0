"""Failures of an upstream map to errors and to whether the request may be retried."""

from __future__ import annotations

import socket
import ssl

import pytest

from turnledger.errors import (
    MalformedAnswer,
    ModelError,
    ModelRefused,
    ModelTimeout,
    ModelUnavailable,
)
from turnledger.runners.upstream.failures import (
    UpstreamFailure,
    cut_off,
    model_closed,
    no_response,
    not_http,
    of_connection,
    of_status,
    too_slow,
    wrong_encoding,
)

ERROR = {"message": "No.", "code": "c"}


@pytest.mark.parametrize(
    ("problem", "error", "may_retry"),
    [
        (TimeoutError(), ModelTimeout, True),
        (TimeoutError(110, "host.invalid"), ModelTimeout, True),
        (ConnectionRefusedError(111, "host.invalid"), ModelUnavailable, True),
        (socket.gaierror(-2, "host.invalid"), ModelUnavailable, True),
        (OSError(24, "too many open files"), ModelUnavailable, True),
        (ConnectionResetError(104, "host.invalid"), ModelUnavailable, True),
        (ssl.SSLCertVerificationError(1, "host.invalid"), ModelUnavailable, False),
        (ssl.SSLError(1, "host.invalid"), ModelUnavailable, False),
    ],
)
def test_connection_problem_maps_to_an_error_and_whether_to_retry(
    problem: OSError, error: type[ModelError], may_retry: bool
) -> None:
    broken_off = of_connection(problem)
    assert (type(broken_off.error), broken_off.may_retry) == (error, may_retry)
    assert "host.invalid" not in str(broken_off.error)


@pytest.mark.parametrize(
    ("broken_off", "error", "may_retry"),
    [
        (cut_off(), ModelUnavailable, False),
        (no_response(), ModelUnavailable, True),
        (too_slow(), ModelTimeout, False),
        (not_http(), MalformedAnswer, False),
        (wrong_encoding(), MalformedAnswer, False),
        (model_closed(), ModelUnavailable, False),
    ],
)
def test_response_failure_maps_to_an_error_and_whether_to_retry(
    broken_off: UpstreamFailure, error: type[ModelError], may_retry: bool
) -> None:
    assert (type(broken_off.error), broken_off.may_retry) == (error, may_retry)


@pytest.mark.parametrize("status", [400, 404, 409, 413, 415, 418, 422, 429, 451])
def test_status_about_the_request_maps_to_model_refused_with_its_error(status: int) -> None:
    refused = of_status(status, {}, ERROR).error
    assert isinstance(refused, ModelRefused)
    assert (refused.status, refused.error) == (status, ERROR)


@pytest.mark.parametrize("status", [201, 301, 307, 401, 402, 403, 407, 500, 502, 503, 504, 529])
def test_status_about_the_upstream_maps_to_model_unavailable(status: int) -> None:
    error = of_status(status, {}, {"message": "Its words."}).error
    assert type(error) is ModelUnavailable
    assert str(status) in str(error)
    assert ("Its words" in str(error)) is (status not in (301, 307, 401, 403, 407))


def test_error_says_try_again_only_if_a_retry_may_help() -> None:
    errors = [of_status(each, {}, {}).error for each in range(500, 600)]
    assert [each.should_retry for each in errors] == ["Try again" in str(each) for each in errors]


def test_status_that_no_retry_heals_is_marked() -> None:
    healing = {each for each in range(300, 600) if of_status(each, {}, {}).error.should_retry}
    assert healing == {408, 409, 425, 429, *range(500, 600)} - {501, 505}
    for headers, error in (({b"x-should-retry": b"false"}, {}), ({}, {"code": "insufficient_quota"})):
        failure = of_status(429, headers, error)
        assert (failure.may_retry, failure.error.should_retry) == (False, False)


def test_status_408_maps_to_model_timeout() -> None:
    assert type(of_status(408, {}, ERROR).error) is ModelTimeout


def test_status_may_be_retried_only_for_429_502_503_and_504() -> None:
    assert [each for each in range(300, 600) if of_status(each, {}, {}).may_retry] == [429, 502, 503, 504]
    assert not of_status(503, {b"x-should-retry": b"false"}, {}).may_retry


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({b"retry-after": b"2"}, 2.0),
        ({b"retry-after-ms": b"30"}, 0.03),
        ({b"retry-after-ms": b"30", b"retry-after": b"2"}, 0.03),
        ({b"retry-after-ms": b"soon", b"retry-after": b"2"}, 2.0),
        ({b"retry-after": b"Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({b"retry-after": b"-1"}, None),
        ({b"retry-after": b"inf"}, None),
        ({b"retry-after": b"nan"}, None),
    ],
)
def test_retry_after_headers_are_parsed_into_seconds(
    headers: dict[bytes, bytes], seconds: float | None
) -> None:
    broken_off = of_status(429, headers, {})
    assert broken_off.retry_after == seconds
    assert isinstance(broken_off.error, ModelRefused)
    assert broken_off.error.retry_after == seconds
