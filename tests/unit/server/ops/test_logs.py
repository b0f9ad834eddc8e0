"""The log tells what happened to whom, and never what was said."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.server.asgi import HOST, ask, breaks, endpoint, serving
from tests.unit.server.logging_kept import kept_logging
from turnledger.server.ops.logs import configure, log, unexpected


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    with kept_logging():
        yield


def lines_of(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_a_request_is_one_line_with_its_ids() -> None:
    async def turn(request: Any) -> Any:
        request.state.turn, request.state.conversation = "turn_1", "conv_1"
        raise LookupError

    stream = io.StringIO()
    configure("json", "info", stream)
    async with serving(None, endpoint("/turn", turn)) as app:
        await ask(
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


def test_of_several_workers_each_says_who_it_is() -> None:
    stream = io.StringIO()
    configure("json", "info", stream, worker=3)
    log.info("recovered")
    logging.getLogger("elsewhere").warning("a library's")
    assert [line["worker"] for line in lines_of(stream)] == [3, 3]


@pytest.mark.parametrize("format", ["json", "console"])
async def test_control_characters_are_written_out(format: str) -> None:
    stream = io.StringIO()
    configure(format, "info", stream)
    async with serving() as app:
        await ask(app, '/\x1b[2J\n{"event": "forged"}\x9b\u202e')
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue()[:-1].isprintable()
    assert "x1b[2J" in stream.getvalue()


async def test_where_an_exception_came_from_is_told_but_not_what_it_says() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    async with serving(None, endpoint("/breaks", breaks)) as app:
        await ask(app, "/breaks")
    problem = lines_of(stream)[0]
    assert (problem["event"], problem["level"], problem["exception"]) == (
        "internal_error",
        "error",
        "ValueError",
    )
    assert "asgi.py" in problem["frames"].partition(" < ")[0]
    assert "breaks" in problem["frames"]
    assert "somebody" not in stream.getvalue()


def test_who_looks_for_a_bug_may_see_what_it_says() -> None:
    stream = io.StringIO()
    configure("json", "debug", stream)
    unexpected(ValueError("details"), request_id="r1")
    assert lines_of(stream)[0]["message"] == "details"


def test_libraries_are_heard_from_warnings_on_in_the_same_form() -> None:
    stream = io.StringIO()
    configure("json", "debug", stream)
    logging.getLogger("uvicorn.error").info("Started")
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    try:
        raise KeyError("what somebody said")
    except KeyError:
        configure("json", "info", stream)
        logging.getLogger("asyncio").exception("Broken")
    warned, broken = lines_of(stream)
    assert (warned["event"], warned["level"]) == ("Invalid HTTP request received.", "warning")
    assert (broken["event"], broken["exception"]) == ("Broken", "KeyError")
    assert "somebody" not in stream.getvalue()


def test_the_level_decides() -> None:
    stream = io.StringIO()
    configure("json", "warning", stream)
    log.info("request")
    log.warning("told_again", n=1)
    assert [line["event"] for line in lines_of(stream)] == ["told_again"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_a_console_shows_one_line_with_time_request_and_the_rest(stream: io.StringIO) -> None:
    configure("console", "info", stream)
    log.info("request", method="GET", path="/healthz", status=200, ms=1.5, turn="turn_1")
    log.warning("told_again", n=1)
    is_colored = stream.isatty()
    begun, ended = ("\x1b[33m", "\x1b[0m") if is_colored else ("", "")
    request, warning = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in stream.getvalue().splitlines()]
    assert request == "GET /healthz 200 1.5 ms turn=turn_1"
    assert warning == f"{begun}warning told_again n=1{ended}"


async def test_without_configuration_nothing_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    async with serving(None, endpoint("/breaks", breaks)) as app:
        await ask(app, "/breaks")
    assert capfd.readouterr() == ("", "")


async def test_a_program_that_embeds_the_server_stays_in_charge_of_its_log() -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    logging.getLogger("turnledger").setLevel("INFO")
    async with serving() as app:
        await ask(app, headers=(HOST, (b"x-request-id", b"r1")))
    (record,) = records
    assert (record.name, record.levelname, record.getMessage()) == ("turnledger.server", "INFO", "request")
    assert record.__dict__.items() >= {"request_id": "r1", "status": 200, "path": "/healthz"}.items()


def test_every_level_is_heard_in_its_place() -> None:
    stream = io.StringIO()
    configure("json", "debug", stream)
    for level in ("debug", "info", "warning", "error"):
        getattr(log, level)("happened")
    assert [line["level"] for line in lines_of(stream)] == ["debug", "info", "warning", "error"]
    assert log.is_enabled_for("debug")
    configure("json", "error", stream)
    assert not log.is_enabled_for("warning")


@pytest.mark.parametrize("prefix", ["tlt_", "tls_"])
async def test_a_secret_that_somebody_put_into_a_path_is_blotted_out(prefix: str) -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    token = prefix + "aB3" * 13
    async with serving() as app:
        await ask(app, f"/api/{token}/x")
    logging.getLogger("uvicorn.error").warning("Odd: %s", token)
    request, warned = lines_of(stream)
    assert (request["path"], warned["event"]) == (f"/api/{prefix}…/x", f"Odd: {prefix}…")


async def test_a_program_that_embeds_the_server_is_handed_no_token() -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    logging.getLogger("turnledger").setLevel("INFO")
    async with serving() as app:
        await ask(app, "/api/tlt_" + "aB3" * 13)
    assert records[0].__dict__["path"] == "/api/tlt_…"


def test_a_log_that_nobody_reads_any_more_costs_no_request() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    stream.close()
    log.info("request", status=200)
