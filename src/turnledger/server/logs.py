"""The server's log: one event a line, with the ids of request, turn and conversation.

What people and models said is never in it, nor a token: not in a field, and at the usual levels not in the
message of an exception either, which may quote them. Without `configure`, nothing is written.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TextIO

import msgspec
import structlog
from structlog.stdlib import ProcessorFormatter, add_log_level
from structlog.typing import Processor

from turnledger.model.printable import plain
from turnledger.model.share_code import PREFIX as CODE
from turnledger.model.token_text import PREFIX as TOKEN

_NUMBERS = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error")}

Event = MutableMapping[str, Any]

current_request: ContextVar[str | None] = ContextVar("current_request", default=None)
"""The id of the request that the running task answers: every line that it logs has it."""

_ours = logging.getLogger("turnledger")
_server = logging.getLogger("turnledger.server")
_SECRET = re.compile(rf"({TOKEN}|{CODE})[0-9A-Za-z]+")
_stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)


class Log:
    """Takes the server's events. They go to the standard library's logging, whose user decides; or, once
    `configure` was called, straight to the stream."""

    def __init__(self) -> None:
        self._to: Any = structlog.wrap_logger(
            _server,
            processors=[
                _with_request,
                add_log_level,
                _without_tokens,
                structlog.stdlib.render_to_log_kwargs,
            ],
            wrapper_class=structlog.stdlib.BoundLogger,
        ).bind()

    def is_enabled_for(self, level: str) -> bool:
        """Whether such events go anywhere; for callers to whom it is costly to gather them."""
        return _server.isEnabledFor(_NUMBERS[level])

    def debug(self, event: str, **fields: Any) -> None:
        """Something happened that only helps who looks for a bug."""
        self._to.debug(event, **fields)

    def info(self, event: str, **fields: Any) -> None:
        """Something happened that is as it should be."""
        self._to.info(event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Something happened that somebody should know."""
        self._to.warning(event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        """Something happened that must not."""
        self._to.error(event, **fields)

    def write_to(self, stream: TextIO, level: str, processors: Sequence[Processor]) -> None:
        """From now on write to this stream, in the form that the processors make."""
        self._to = structlog.wrap_logger(
            _Steadfast(stream),
            processors=[_with_request, add_log_level, _stamp, *processors],
            wrapper_class=structlog.make_filtering_bound_logger(_NUMBERS[level]),
        ).bind()


def unexpected(problem: BaseException, **ids: str | None) -> None:
    """Log an exception that nobody foresaw, with where it came from."""
    log.error("internal_error", exc_info=problem, **ids)


def configure(format: str, level: str, stream: TextIO, *, worker: int | None = None) -> None:
    """Write the log of this process to `stream`, that of libraries included from warnings on. Of several
    workers that write to the same, each says who it is.

    For the process that serves only: it replaces what was configured before.
    """
    form: Processor = _as_json if format == "json" else structlog.dev.ConsoleRenderer(colors=stream.isatty())
    processors: list[Processor] = [
        _Where(with_message=level == "debug"),
        _without_tokens,
        _printable,
        form,
    ]
    if worker is not None:
        processors.insert(0, _From(worker))
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[_with_request, add_log_level, _stamp],
            processors=[ProcessorFormatter.remove_processors_meta, *processors],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    _ours.setLevel(_NUMBERS[level])
    log.write_to(stream, level, processors)


def _with_request(_logger: Any, _method: str, event: Event) -> Event:
    request_id = current_request.get()
    if request_id is not None:
        event.setdefault("request_id", request_id)
    return event


class _Steadfast(structlog.WriteLogger):
    """Writes to a stream for as long as there is somebody who reads it: a log that cannot be written must not
    cost a turn."""

    def msg(self, message: str) -> None:
        with suppress(OSError, ValueError):  # a pipe that broke, a file that was closed
            super().msg(message)

    log = debug = info = warn = warning = error = critical = msg


class _From:
    """Tells which worker wrote it."""

    def __init__(self, worker: int) -> None:
        self._worker = worker

    def __call__(self, _logger: Any, _method: str, event: Event) -> Event:
        event["worker"] = self._worker
        return event


class _Where:
    """Tells where an exception came from; what it says, only where that was asked for."""

    def __init__(self, *, with_message: bool) -> None:
        self._with_message = with_message

    def __call__(self, _logger: Any, _method: str, event: Event) -> Event:
        problem = event.pop("exc_info", None)
        if isinstance(problem, tuple):
            problem = problem[1]
        if isinstance(problem, BaseException):
            frames = traceback.extract_tb(problem.__traceback__)
            event["exception"] = type(problem).__qualname__
            places = [f"{each.filename}:{each.lineno} {each.name}" for each in reversed(frames)]
            event["frames"] = " < ".join(places)
            if self._with_message:
                event["message"] = str(problem)
        return event


def _printable(_logger: Any, _method: str, event: Event) -> Event:
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[name] = plain(value)
    return event


def _without_tokens(_logger: Any, _method: str, event: Event) -> Event:
    """Blot out what somebody has put into a path, or a library into its warning."""
    for name, value in event.items():
        if isinstance(value, str) and (TOKEN in value or CODE in value):
            event[name] = _SECRET.sub(r"\1…", value)
    return event


def _as_json(_logger: Any, _method: str, event: Event) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


log = Log()
