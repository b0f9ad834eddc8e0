"""The server's log: one event a line, with the ids of request, turn and conversation.

What people and models said is never in it, nor a token: not in a field, and at the usual levels not in the
message of an exception either, which may quote them. Without `configure`, nothing is written.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import MutableMapping
from typing import Any, TextIO

import msgspec
import structlog
from structlog.contextvars import merge_contextvars
from structlog.stdlib import BoundLogger, ProcessorFormatter, add_log_level, filter_by_level

from turnledger.model.printable import plain

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("console", "json")

Event = MutableMapping[str, Any]

_stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
_server = logging.getLogger("turnledger.server")
log: BoundLogger = structlog.wrap_logger(
    _server,
    processors=[
        filter_by_level,
        merge_contextvars,
        add_log_level,
        _stamp,
        ProcessorFormatter.wrap_for_formatter,
    ],
    wrapper_class=BoundLogger,
    cache_logger_on_first_use=True,
)


def unexpected(problem: BaseException, **ids: str | None) -> None:
    """Log an exception that nobody foresaw, with where it came from."""
    log.error("internal_error", exc_info=problem, **ids)


def configure(format: str, level: str, stream: TextIO) -> None:
    """Write the log of this process to `stream`, that of libraries included from warnings on.

    For the process that serves only: it replaces what was configured before.
    """
    renderer = _as_json if format == "json" else structlog.dev.ConsoleRenderer(colors=stream.isatty())
    formatter = ProcessorFormatter(
        foreign_pre_chain=[merge_contextvars, add_log_level, _stamp],
        processors=[
            ProcessorFormatter.remove_processors_meta,
            _Where(with_message=level == "debug"),
            _printable,
            renderer,
        ],
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("turnledger").setLevel(level.upper())


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
        if isinstance(value, str):
            event[name] = plain(value)
    return event


def _as_json(_logger: Any, _method: str, event: Event) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()
