"""Server errors become the error class of their code, and each is known to be retryable or not."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.client.script import error_reply
from turnledger import errors
from turnledger.client.core.steps import Reply
from turnledger.client.errors import (
    DAY,
    PROCESS_CODES,
    error_in_reply,
    error_in_stream,
    error_of,
    error_of_failure,
)
from turnledger.errors import TurnledgerError
from turnledger.model.turn import Failure
from turnledger.server.access.auth import missing_token_error, token_error
from turnledger.server.errors import KINDS, error_body, kind_of


def tree(kind: type[TurnledgerError] = TurnledgerError) -> list[type[TurnledgerError]]:
    below = [each for child in kind.__subclasses__() for each in tree(child)]
    return [kind, *(each for each in below if each.__module__ == errors.__name__)]


SENT = [kind for kind in tree() if kind not in (errors.TurnReplayed, errors.TurnAttached)]


@pytest.mark.parametrize("kind", SENT, ids=lambda kind: kind.__name__)
def test_error_class_is_found_by_its_code(kind: type[TurnledgerError]) -> None:
    error = error_of(kind.code, "So it is.", status=418, request_id="req_7")
    assert type(error) is kind
    assert (str(error), error.code, error.status, error.request_id) == ("So it is.", kind.code, 418, "req_7")


@pytest.mark.parametrize("kind", SENT, ids=lambda kind: kind.__name__)
def test_error_from_the_server_has_the_fields_of_a_local_one(kind: type[TurnledgerError]) -> None:
    made = {
        errors.MissingToolResults: lambda: errors.MissingToolResults(("a",)),
        errors.StorageFull: lambda: errors.StorageFull(1),
        errors.RevisionConflict: lambda: errors.RevisionConflict(1),
        errors.ModelRefused: lambda: errors.ModelRefused(400),
    }.get(kind, kind)()
    assert vars(error_of(kind.code, "")).keys() >= vars(made).keys()


@pytest.mark.parametrize("in_reply", [True, False], ids=["reply", "stream"])
def test_error_from_the_server_names_the_field_it_is_about(in_reply: bool) -> None:
    body = error_body(errors.InvalidInput("Too long.", param="title"))
    report = error_in_reply(Reply(400, {}, body)) if in_reply else error_in_stream(body, None)
    assert report.error.param == "title"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, errors.NotAdmitted),
        (403, errors.NotAdmitted),
        (429, errors.TooManyRequests),
        (502, errors.ServerUnavailable),
        (503, errors.ServerUnavailable),
        (404, errors.RequestFailed),
        (418, errors.RequestFailed),
    ],
)
def test_error_with_an_unknown_code_follows_its_status(status: int, kind: type[TurnledgerError]) -> None:
    error = error_in_reply(error_reply(status, "unheard_of")).error
    assert (type(error), error.code, error.status) == (kind, "unheard_of", status)


def test_error_from_a_foreign_server_is_classified_by_its_status() -> None:
    error = error_in_reply(Reply(502, {}, b"<html>Bad Gateway</html>"))
    assert (error.error.code, error.error.status, error.error.request_id) == ("status_502", 502, None)
    assert error.is_temporary


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_transient_status_is_retried_unless_the_server_forbids_it(status: int) -> None:
    assert error_in_reply(error_reply(status, "x")).is_temporary
    assert not error_in_reply(error_reply(status, "x", x_should_retry="false")).is_temporary


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 412, 422, 507])
def test_permanent_status_is_not_retried(status: int) -> None:
    assert not error_in_reply(error_reply(status, "x")).is_temporary


@pytest.mark.parametrize(
    "code",
    ["model_error", "model_unavailable", "model_timeout", "malformed_answer", "turn_failed", "empty_turn"],
)
def test_model_failure_is_not_retried(code: str) -> None:
    assert not error_in_reply(error_reply(502, code)).is_temporary
    body = error_reply(502, code, kind="server_error").body
    assert not error_in_stream(body, None).is_temporary


@pytest.mark.parametrize("kind", list(KINDS), ids=lambda kind: kind.__name__)
def test_error_in_a_stream_is_as_transient_as_by_its_status(kind: type[TurnledgerError]) -> None:
    if kind in (errors.TurnReplayed, errors.TurnAttached, errors.ModelRefused, TurnledgerError):
        return
    error = kind.__new__(kind)
    Exception.__init__(error, "So it is.")
    answer = kind_of(error)
    headers = {name.decode(): value.decode() for name, value in answer.headers}
    if issubclass(kind, errors.RequestFailed):
        return  # of the client alone
    by_status = error_in_reply(Reply(answer.status, headers, error_body(error)))
    assert error_in_stream(error_body(error), None).is_temporary == by_status.is_temporary


def test_garbled_error_in_a_stream_is_retried() -> None:
    assert error_in_stream(b"{", "req_1").is_temporary


def test_failure_becomes_the_error_of_its_code() -> None:
    error = error_of_failure(Failure("model_timeout", "It took too long."))
    assert (type(error), str(error)) == (errors.ModelTimeout, "It took too long.")


def test_failure_with_an_unknown_code_becomes_turn_failed() -> None:
    error = error_of_failure(Failure("KeyError", "KeyError: 'x'"))
    assert (type(error), error.code, str(error)) == (errors.TurnFailed, "KeyError", "KeyError: 'x'")
    assert type(error_of_failure(None)) is errors.TurnFailed


def test_process_failures_and_model_failures_have_disjoint_codes() -> None:
    assert {"process_died", "cancelled", "superseded", "store_unavailable", "ledger_closed"} <= PROCESS_CODES
    assert not {kind.code for kind in tree(errors.ModelError)} & PROCESS_CODES
    assert errors.ConversationDeleted.code not in PROCESS_CODES


def test_numeric_error_code_becomes_text() -> None:
    reply = Reply(400, {}, msgspec.json.encode({"error": {"message": "No.", "code": 17}}))
    assert error_in_reply(reply).error.code == "17"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        *(("7", 7.0), ("0.5", 0.5), ("-1", 0.0), ("inf", DAY), ("1e300", DAY), ("nan", 0.0)),
        ("Fri, 1 Jan", None),
    ],
)
def test_retry_after_is_parsed_to_seconds_up_to_a_day(header: str, seconds: float | None) -> None:
    assert error_in_reply(error_reply(503, "shutting_down", retry_after=header)).retry_after == seconds


@pytest.mark.parametrize(
    "code", [missing_token_error().code, token_error(None).code, "token_revoked", "token_expired"]
)
def test_authentication_error_in_a_stream_becomes_not_admitted(code: str) -> None:
    """A stream has no status any more."""
    error = error_in_stream(error_reply(401, code).body, "req_1").error
    assert (type(error), error.status, error.code) == (errors.NotAdmitted, 401, code)
