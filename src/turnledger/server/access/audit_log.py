"""The audit log: for each request the caller, the action, its target and the outcome; never content.

It is separate from the server's log: the logger `turnledger.audit` of the standard library, which does not
propagate, and the file in the settings. Each line is written in one call, so workers can share the file.
After a rotation, the next line creates a new file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from starlette.types import Scope

from turnledger.engine.ports import Clock
from turnledger.server.access.auth import Principal
from turnledger.server.config.file import InvalidSettings
from turnledger.server.openapi.endpoint import Endpoint
from turnledger.server.ops.logs import current_request, log

logger = logging.getLogger("turnledger.audit")
logger.propagate = False  # audit lines must not reach other logs

UNKNOWN_CALLERS = 60
"""Lines per minute for requests of unknown callers, who could send any number."""
LEFT_OUT = "requests of unknown callers"
ID_LENGTH = 100
"""Characters logged of an id in a path; real ids are shorter."""
TARGETS = ("chat", "turn", "share", "token")
"""Path parameters that are ids; others may be anything."""


def add_audit_fields(scope: Scope, **targets: Any) -> None:
    """Add the ids and counts of an endpoint's results to the audit line of its request."""
    scope["state"].setdefault("audit", {}).update(targets)


class AuditLog:
    """Writes lines to the logger and, if configured, a file. For the event loop's thread only."""

    def __init__(self, path: str | None, clock: Clock) -> None:
        """Open the file. Raises InvalidSettings if that fails."""
        self._clock = clock
        self._minute = 0.0
        self._unknown_callers = 0
        self._path = None if path is None else Path(path).expanduser()
        self._file: int | None = None
        self._is_broken = False
        if self._path is not None:
            try:
                self._file = _open(self._path)
            except OSError as problem:
                message = f"audit_log: {self._path} cannot be opened ({problem.strerror}). Use another file."
                raise InvalidSettings(message) from None

    @property
    def is_enabled(self) -> bool:
        return self._path is not None or (logger.isEnabledFor(logging.INFO) and logger.hasHandlers())

    def log_request(self, endpoint: Endpoint, scope: Scope, status: int | None) -> None:
        """Log a request; without a status, the beginning of its stream."""
        state = scope["state"]
        principal: Principal | None = state.get("principal")
        self._next_minute()
        if principal is None and "audit" not in state:
            self._unknown_callers += 1
            if self._unknown_callers > UNKNOWN_CALLERS:
                return
        params = scope.get("path_params", {})
        path_ids = {name: str(params[name])[:ID_LENGTH] if name in params else None for name in TARGETS}
        result_ids = {"chat": state.get("conversation"), "turn": state.get("turn")}
        self._write(
            {
                "request_id": current_request.get(),
                "action": endpoint.route,
                "owner": None if principal is None else principal.owner,
                "token": None if principal is None else principal.token_id,
                "link": None if principal is None or principal.token is None else principal.token.share,
                **{f"target_{name}": id or result_ids.get(name) for name, id in path_ids.items()},
                **state.get("audit", {}),
                "status": status,
                "code": state.get("code"),
            }
        )

    def close(self) -> None:
        self._write_left_out()
        self._close_file()

    def _next_minute(self) -> None:
        now = self._clock.monotonic()
        if now - self._minute >= 60:
            self._write_left_out()
            self._minute, self._unknown_callers = now, 0

    def _write_left_out(self) -> None:
        left_out = self._unknown_callers - UNKNOWN_CALLERS
        if left_out > 0:
            self._unknown_callers = UNKNOWN_CALLERS
            self._write({"action": LEFT_OUT, "left_out": left_out})

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, event: Mapping[str, Any]) -> None:
        line = {
            "timestamp": f"{datetime.now(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z",
            **{name: value for name, value in event.items() if value is not None},
        }
        raw = msgspec.json.encode(line, enc_hook=str)
        logger.info(raw.decode())
        if self._path is None:
            return
        try:
            os.write(self._current_file(self._path), raw + b"\n")
            self._is_broken = False
        except OSError as problem:
            # The request has been carried out and cannot be undone, but the operator has to know.
            if not self._is_broken:
                log.error("audit_log_failed", path=str(self._path), reason=problem.strerror)
            self._is_broken = True

    def _current_file(self, path: Path) -> int:
        """Return the open file if it is still the one at the path; otherwise open that one."""
        try:
            current = os.stat(path)
            is_same = self._file is not None and os.path.samestat(current, os.fstat(self._file))
        except FileNotFoundError:
            is_same = False
        if self._file is None or not is_same:
            self._close_file()
            self._file = _open(path)
        return self._file


def _open(path: Path) -> int:
    """Open a file to append to; a new one is readable by its owner only. Raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC  # never block on a pipe
    return os.open(path, flags, 0o600)
