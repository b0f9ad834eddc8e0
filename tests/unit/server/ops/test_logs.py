"""The log records requests and errors with their ids, and never message content."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.server.asgi import HOST, breaks, endpoint, fetch, run_app
from tests.unit.server.logging_state import kept_logging
from turnledger.server.ops.logs import configure, log, log_repeating, log_unexpected


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    with kept_logging():
        yield


def lines_of(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_log_has_one_line_per_request_with_its_ids_and_no_secret() -> None:
    async def turn(request: Any) -> Any:
        request.state.turn, request.state.conversation = "turn_1", "conv_1"
        raise LookupError

    stream = io.StringIO()
    configure("json", "info", stream)
    async with run_app(None, endpoint("/turn", turn)) as app:
        await fetch(
            app, "/turn", headers=(HOST, (b"x-request-id", b"r1"), (b"authorization", b"Bearer secret"))
        )
    problem, request = lines_of(stream)
    assert (
        request.items()
        >= {
            "event": "request",
            "level": "info",
            "method": "GET",
            "path": "/turn",
            "status": 500,
            "request_id": "r1",
            "turn": "turn_1",
            "conversation": "conv_1",
        }.items()
    )
    assert request["ms"] >= 0
    assert request["timestamp"].endswith("Z")
    assert (problem["request_id"], problem["exception"]) == ("r1", "LookupError")
    assert "secret" not in stream.getvalue()  # nor the query, which the driver sends


def test_log_lines_of_several_workers_carry_the_worker_number() -> None:
    stream = io.StringIO()
    configure("json", "info", stream, worker=3)
    log.info("recovered")
    logging.getLogger("elsewhere").warning("a library's")
    assert [line["worker"] for line in lines_of(stream)] == [3, 3]


@pytest.mark.parametrize("format", ["json", "console"])
async def test_log_escapes_control_characters(format: str) -> None:
    stream = io.StringIO()
    configure(format, "info", stream)
    async with run_app() as app:
        await fetch(app, '/\x1b[2J\n{"event": "forged"}\x9b\u202e')
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue()[:-1].isprintable()
    assert "x1b[2J" in stream.getvalue()


async def test_log_of_an_exception_has_its_frames_but_not_its_message() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    async with run_app(None, endpoint("/breaks", breaks)) as app:
        await fetch(app, "/breaks")
    problem = lines_of(stream)[0]
    assert (problem["event"], problem["level"], problem["exception"]) == (
        "internal_error",
        "error",
        "ValueError",
    )
    assert "asgi.py" in problem["frames"].partition(" < ")[0]
    assert "breaks" in problem["frames"]
    assert "somebody" not in stream.getvalue()


def test_log_at_debug_level_includes_the_exception_message() -> None:
    stream = io.StringIO()
    configure("json", "debug", stream)
    log_unexpected(ValueError("details"), request_id="r1")
    assert lines_of(stream)[0]["message"] == "details"


def test_log_shows_library_warnings_in_the_same_format() -> None:
    stream = io.StringIO()
    configure("json", "debug", stream)
    logging.getLogger("uvicorn.error").info("Started")
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    try:
        raise KeyError("private text")
    except KeyError:
        configure("json", "info", stream)
        logging.getLogger("asyncio").exception("Broken")
    warned, broken = lines_of(stream)
    assert (warned["event"], warned["level"]) == ("Invalid HTTP request received.", "warning")
    assert (broken["event"], broken["exception"]) == ("Broken", "KeyError")
    assert "somebody" not in stream.getvalue()


def test_log_shows_fields_of_engine_events_but_not_those_of_libraries() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    logging.getLogger("turnledger").info("chat_retired", extra={"conversation": "conv_1", "reason": "age"})
    logging.getLogger("uvicorn").warning("slow", extra={"color_message": "\x1b[1mslow"})
    retired, slow = (line | {"timestamp": ""} for line in lines_of(stream))
    named = {"event": "chat_retired", "conversation": "conv_1", "reason": "age"}
    assert retired == {**named, "level": "info", "timestamp": ""}
    assert slow == {"event": "slow", "level": "warning", "timestamp": ""}


def test_log_omits_lines_below_its_level() -> None:
    stream = io.StringIO()
    configure("json", "warning", stream)
    log.info("request")
    log.warning("signalled_again", n=1)
    assert [line["event"] for line in lines_of(stream)] == ["signalled_again"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_console_log_shows_time_request_and_remaining_fields_on_one_line(stream: io.StringIO) -> None:
    configure("console", "info", stream)
    log.info("request", method="GET", path="/healthz", status=200, ms=1.5, turn="turn_1")
    log.warning("signalled_again", n=1)
    is_colored = stream.isatty()
    begun, ended = ("\x1b[33m", "\x1b[0m") if is_colored else ("", "")
    request, warning = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in stream.getvalue().splitlines()]
    assert request == "GET /healthz 200 1.5 ms turn=turn_1"
    assert warning == f"{begun}warning signalled_again n=1{ended}"


async def test_unconfigured_log_writes_no_output(capfd: pytest.CaptureFixture[str]) -> None:
    async with run_app(None, endpoint("/breaks", breaks)) as app:
        await fetch(app, "/breaks")
    assert capfd.readouterr() == ("", "")


async def test_embedding_program_receives_log_records_through_its_own_handlers() -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    logging.getLogger("turnledger").setLevel("INFO")
    async with run_app() as app:
        await fetch(app, headers=(HOST, (b"x-request-id", b"r1")))
    (record,) = records
    assert (record.name, record.levelname, record.getMessage()) == ("turnledger.server", "INFO", "request")
    assert record.__dict__.items() >= {"request_id": "r1", "status": 200, "path": "/healthz"}.items()


def test_log_accepts_every_level_and_reports_whether_one_is_enabled() -> None:
    stream = io.StringIO()
    configure("json", "debug", stream)
    for level in ("debug", "info", "warning", "error"):
        getattr(log, level)("happened")
    assert [line["level"] for line in lines_of(stream)] == ["debug", "info", "warning", "error"]
    assert log.is_enabled_for("debug")
    configure("json", "error", stream)
    assert not log.is_enabled_for("warning")


@pytest.mark.parametrize("prefix", ["tlt_", "tls_"])
async def test_log_redacts_secrets_in_paths(prefix: str) -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    token = prefix + "aB3" * 13
    async with run_app() as app:
        await fetch(app, f"/api/{token}/x")
    logging.getLogger("uvicorn.error").warning("Odd: %s", token)
    request, warned = lines_of(stream)
    assert (request["path"], warned["event"]) == (f"/api/{prefix}…/x", f"Odd: {prefix}…")


async def test_log_records_for_an_embedding_program_have_tokens_redacted() -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    logging.getLogger("turnledger").setLevel("INFO")
    async with run_app() as app:
        await fetch(app, "/api/tlt_" + "aB3" * 13)
    assert records[0].__dict__["path"] == "/api/tlt_…"


def test_closed_log_stream_does_not_fail_requests() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    stream.close()
    log.info("request", status=200)


def test_failure_that_repeats_is_logged_once_a_minute_with_its_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("turnledger.server.ops.logs.monotonic", lambda: now)
    stream = io.StringIO()
    configure("json", "info", stream)
    for _ in range(70):
        log_repeating("store_failed", code="store_unavailable", details="db1 is gone")
        now += 1.0
    log_repeating("store_failed", code="store_unavailable", details="db2 is gone")
    logged = [(line["details"], line.get("repeated")) for line in lines_of(stream)]
    assert logged == [("db1 is gone", None), ("db1 is gone", 59), ("db2 is gone", None)]
