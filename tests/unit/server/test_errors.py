"""Every error has an answer in the shape of the OpenAI API, without internal details."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
import pytest

from tests.unit.server.asgi import Reply
from turnledger import errors
from turnledger.errors import ModelRefused, TurnledgerError
from turnledger.server.errors import (
    KINDS,
    NO_RETRY,
    PASSED_ON,
    RequestRefused,
    error_body,
    kind_of,
    send_error,
    shutdown_error,
)

TREE = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, TurnledgerError)]


async def answered(problem: BaseException) -> Reply:
    reply = Reply()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            reply.status, reply.headers = message["status"], message["headers"]
        else:
            reply.body += message["body"]

    await send_error(send, problem, "req_1")
    return reply


def test_error_table_has_an_entry_for_every_error_class() -> None:
    assert set(KINDS) == set(TREE)


@pytest.mark.parametrize("kind", TREE)
def test_error_headers_let_the_official_client_retry_only_where_it_helps(kind: type[TurnledgerError]) -> None:
    status, _, headers = KINDS[kind]
    assert (NO_RETRY in headers) == (status == 409 or kind in NEVER_BETTER)
    if status in {429, 503}:
        assert "retry-after" in {name.decode() for name, _ in headers}


NEVER_BETTER = {
    errors.StoreCorrupt,
    errors.NotAStore,
    errors.StoreTooNew,
    errors.UnsafeSqlite,
    errors.StorageFull,
}


@pytest.mark.parametrize(
    ("problem", "status", "code"),
    [
        (errors.NoNewInput(), 400, "no_new_input"),
        (errors.IdempotencyMismatch(), 422, "idempotency_mismatch"),
        (errors.ConversationNotFound(), 404, "conversation_not_found"),
        (errors.ConversationDeleted(), 410, "conversation_deleted"),
        (errors.ConversationExpired(), 410, "conversation_expired"),
        (errors.HistoryDiverged(), 409, "history_diverged"),
        (errors.ConversationBusy(), 409, "conversation_busy"),
        (errors.QueueFull(), 429, "queue_full"),
        (errors.WaitEnded(), 409, "wait_ended"),
        (errors.RevisionConflict(3), 412, "revision_conflict"),
        (errors.TurnStopped(), 409, "turn_stopped"),
        (errors.CommitOutcomeUnknown(), 503, "commit_outcome_unknown"),
        (errors.ModelUnavailable(), 502, "model_unavailable"),
        (errors.ModelTimeout(), 504, "model_timeout"),
        (shutdown_error(), 503, "shutting_down"),
    ],
)
async def test_error_has_stable_status_and_code(problem: TurnledgerError, status: int, code: str) -> None:
    reply = await answered(problem)
    assert (reply.status, reply.code) == (status, code)
    assert reply.json["error"]["message"] == str(problem)
    assert set(reply.json["error"]) == {"message", "type", "param", "code"}
    assert reply.header(b"content-type") == b"application/json"
    assert reply.header(b"content-length") == b"%d" % len(reply.body)


async def test_unlisted_error_class_is_answered_as_its_parent() -> None:
    class Fuller(errors.QueueFull):
        """Even fuller."""

        code = "fuller"

    assert (await answered(Fuller())).status == 429


async def test_unexpected_error_is_answered_500_without_its_message(caplog: pytest.LogCaptureFixture) -> None:
    reply = await answered(ValueError("private text"))
    assert (reply.status, reply.code) == (500, "internal_error")
    assert b"somebody" not in reply.body
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.parametrize("kind", [each for each in TREE if issubclass(each, errors.StoreError)])
async def test_store_error_keeps_its_path_out_of_the_answer(
    kind: type[errors.StoreError], caplog: pytest.LogCaptureFixture
) -> None:
    body = (await answered(kind("/home/somebody/chats.db: database or disk is full"))).body
    assert b"somebody" not in body
    assert msgspec.json.decode(body)["error"]["message"] == str(kind())
    assert "/home/somebody/chats.db" in caplog.records[-1].__dict__["details"]


async def test_a_refusal_has_its_status_code_param_and_headers() -> None:
    reply = await answered(RequestRefused(400, "bad", "No good.", param="n", headers=[(b"x-a", b"b")]))
    error = {"message": "No good.", "type": "invalid_request_error", "param": "n", "code": "bad"}
    assert reply.json == {"error": error}
    assert reply.header(b"x-a") == b"b"
    assert kind_of(RequestRefused(429, "a", "b")).type == "rate_limit_error"
    assert kind_of(RequestRefused(503, "a", "b")).type == "server_error"


@pytest.mark.parametrize("status", sorted(PASSED_ON))
async def test_upstream_refusal_of_the_request_is_passed_on_with_its_message(status: int) -> None:
    error = {"message": "Too long", "type": "theirs", "code": "context_length_exceeded", "param": "messages"}
    reply = await answered(ModelRefused(status, error, 1.5))
    assert (reply.status, reply.code) == (status, "context_length_exceeded")
    assert (reply.json["error"]["type"], reply.json["error"]["param"]) == ("theirs", "messages")
    assert "Too long" in reply.json["error"]["message"]
    assert reply.header(b"retry-after") == (b"2" if status == 429 else None)


async def test_upstream_refusal_with_another_status_is_answered_502() -> None:
    assert (await answered(ModelRefused(418))).status == 502
    odd: Any = {"message": 3, "code": {"a": 1}}
    assert msgspec.json.decode(error_body(ModelRefused(400, odd)))["error"]["code"] == "model_refused"
