"""The server's log: one event per line, with the ids of request, turn and conversation.

It never contains content of chats, nor a token: not in a field, and except at the debug level not in the
message of an exception, which may quote them. Without `configure`, nothing is written.
"""

from __future__ import annotations

import logging
import re
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from time import monotonic
from typing import Any, TextIO

import msgspec

from turnledger.model.access.share import PREFIX as CODE
from turnledger.model.access.token import PREFIX as TOKEN
from turnledger.model.text.plain import plain

REPEATED_EVERY, MOST_REPEATING = 60.0, 1_000

_NUMBERS = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error")}

Event = dict[str, Any]

current_request: ContextVar[str | None] = ContextVar("current_request", default=None)
"""The id of the request that the running task handles, added to every line it logs."""

_package_logger = logging.getLogger("turnledger")
_server_logger = logging.getLogger("turnledger.server")
_repeating: dict[tuple[str, str, str], tuple[float, int]] = {}
"""When an error was last logged, and how often it was left out since."""
_SECRET = re.compile(rf"({TOKEN}|{CODE})[0-9A-Za-z]+")


class Log:
    """The server's events. They go to the standard library's logging or, after `configure`, directly to the
    stream."""

    def __init__(self) -> None:
        self._write: Callable[[str, Event], None] = _log_to_library

    def is_enabled_for(self, level: str) -> bool:
        """Return whether such events are written, for callers that would collect costly fields."""
        return _server_logger.isEnabledFor(_NUMBERS[level])

    def debug(self, event: str, **fields: Any) -> None:
        self._write("debug", {**fields, "event": event})

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", {**fields, "event": event})

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", {**fields, "event": event})

    def error(self, event: str, **fields: Any) -> None:
        self._write("error", {**fields, "event": event})

    def write_to(self, stream: TextIO, level: str, formatter: LogFormatter) -> None:
        self._write = _StreamWriter(stream, _NUMBERS[level], formatter)


def log_unexpected(problem: BaseException, **ids: str | None) -> None:
    log.error("internal_error", exc_info=problem, **ids)


def log_repeating(event: str, *, code: str, details: str = "") -> None:
    """Log an error that may repeat with every request: the same one once a minute, with the number left
    out."""
    now, key = monotonic(), (event, code, details)
    logged_at, repeated = _repeating.get(key, (-REPEATED_EVERY, 0))
    if now - logged_at < REPEATED_EVERY:
        _repeating[key] = logged_at, repeated + 1
        return
    if len(_repeating) >= MOST_REPEATING:
        _repeating.clear()
    _repeating[key] = now, 0
    fields = {"code": code, "details": details, "repeated": repeated}
    log.error(event, **{name: value for name, value in fields.items() if value})


def configure(format: str, level: str, stream: TextIO, *, worker: int | None = None) -> None:
    """Write the log of this process to `stream`, with warnings of libraries. A worker adds its number. Only
    for the process that serves: it replaces any earlier configuration."""
    line = _json_line if format == "json" else _console_formatter(colors=stream.isatty())
    formatter = LogFormatter(line, with_message=level == "debug", worker=worker)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_LibraryFormatter(formatter))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    _package_logger.setLevel(_NUMBERS[level])
    log.write_to(stream, level, formatter)


class LogFormatter:
    """Formats events: adds time, worker and place, and removes secrets."""

    def __init__(self, line: Callable[[Event], str], *, with_message: bool, worker: int | None) -> None:
        self._line = line
        self._with_message = with_message
        self._worker = worker

    def __call__(self, level: str, event: Event) -> str:
        _add_request(event)
        event["level"] = level
        event["timestamp"] = f"{datetime.now(UTC).replace(tzinfo=None).isoformat()}Z"
        if self._worker is not None:
            event["worker"] = self._worker
        add_stack(event, with_message=self._with_message)
        _hide_tokens(event)
        _make_printable(event)
        return self._line(event)


class _StreamWriter:
    """Writes to a stream, and drops lines that cannot be written: a broken log must not cost a turn."""

    def __init__(self, stream: TextIO, min_level: int, formatter: LogFormatter) -> None:
        self._stream = stream
        self._min_level = min_level
        self._formatter = formatter
        self._lock = threading.Lock()

    def __call__(self, level: str, event: Event) -> None:
        if _NUMBERS[level] < self._min_level:
            return
        line = self._formatter(level, event) + "\n"
        with suppress(OSError, ValueError), self._lock:  # a broken pipe, a closed file
            self._stream.write(line)
            self._stream.flush()


_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({})))
"""What every record has. The engine passes the fields of its events as `extra`."""


class _LibraryFormatter(logging.Formatter):
    def __init__(self, formatter: LogFormatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        event: Event = {"event": record.getMessage(), "exc_info": record.exc_info}
        if record.name == _package_logger.name:
            event |= {name: value for name, value in vars(record).items() if name not in _RECORD_FIELDS}
        return self._formatter(record.levelname.lower(), event)


def _log_to_library(level: str, event: Event) -> None:
    if not _server_logger.isEnabledFor(_NUMBERS[level]):
        return
    problem = event.pop("exc_info", None)
    _add_request(event)
    event["level"] = level
    _hide_tokens(event)
    _server_logger.log(_NUMBERS[level], event.pop("event"), exc_info=problem, extra=event)


def _add_request(event: Event) -> None:
    request_id = current_request.get()
    if request_id is not None:
        event.setdefault("request_id", request_id)


def add_stack(event: Event, *, with_message: bool) -> None:
    """Replace the exception of an event by its stack, with its message only if requested."""
    problem = event.pop("exc_info", None)
    if isinstance(problem, tuple):
        problem = problem[1]
    if isinstance(problem, BaseException):
        frames = traceback.extract_tb(problem.__traceback__)
        event["exception"] = type(problem).__qualname__
        positions = [f"{each.filename}:{each.lineno} {each.name}" for each in reversed(frames)]
        event["frames"] = " < ".join(positions)
        if with_message:
            event["message"] = str(problem)


def _make_printable(event: Event) -> None:
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[name] = plain(value)


def _hide_tokens(event: Event) -> None:
    """Hide tokens, which clients may put into a path, or libraries into a warning."""
    for name, value in event.items():
        if isinstance(value, str) and (TOKEN in value or CODE in value):
            event[name] = _SECRET.sub(r"\1…", value)


def _json_line(event: Event) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


_RED, _YELLOW, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[0m"


def _console_formatter(*, colors: bool) -> Callable[[Event], str]:
    """One line for people: time, method, path, status and duration of a request, then the rest."""

    def line(event: Event) -> str:
        rest = dict(event)
        time, level, name = rest.pop("timestamp")[11:19], rest.pop("level"), rest.pop("event")
        head = (
            [rest.pop(each, None) for each in ("method", "path", "status")] if name == "request" else [name]
        )
        if "ms" in rest:
            head.append(f"{rest.pop('ms')} ms")
        if level != "info":
            head.insert(0, level)
        text = " ".join(
            [*(str(each) for each in head if each is not None), *map("{0[0]}={0[1]}".format, rest.items())]
        )
        color = {"error": _RED, "warning": _YELLOW}.get(level) if colors else None
        return f"{time} {text}" if color is None else f"{time} {color}{text}{_PLAIN}"

    return line


log = Log()
