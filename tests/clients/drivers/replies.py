"""Replies of the drivers in this process, as the README has them."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import Any

import msgspec

from tests.clients.drivers.driver import ClientError
from turnledger.api.json import encode
from turnledger.errors import TurnledgerError
from turnledger.model.event import ArgumentsDelta, ReasoningDelta, RefusalDelta, TextDelta, TurnFinished


def turn(value: Any) -> dict[str, Any]:
    return {
        "id": str(value.id),
        "number": value.number,
        "kind": str(value.kind),
        "input": "\n".join(item.text for item in value.input if item.role == "user"),
        "text": value.text,
    }


def event(value: Any) -> list[Any]:
    kind = str(value.__struct_config__.tag)
    if kind == "turn.restarted":
        return [kind, 0]
    shown: list[Any] = [kind, value.number]
    if isinstance(value, TextDelta | ReasoningDelta | RefusalDelta | ArgumentsDelta):
        shown.append(value.text)
    elif isinstance(value, TurnFinished):
        shown.append(str(value.state))
    return shown


def page(chat: Any, turns: Iterable[Any], before: int | None, attempts: Iterable[Any]) -> dict[str, Any]:
    return {
        "chat": plain(chat),
        "turns": list(map(turn, turns)),
        "before": before,
        "attempts": [
            {
                "id": str(each.id),
                "state": str(each.state),
                "replaces": each.replaces,
                "failure": each.failure.code if each.failure else None,
            }
            for each in attempts
        ],
    }


def context(value: Any) -> dict[str, Any]:
    counts = {name: getattr(value, name) for name in ("turns", "tokens", "budget", "left")}
    return counts | {"items": [item.text for item in value.items]}


def plain(value: Any) -> Any:
    """Convert to plain JSON values."""
    return msgspec.json.decode(encode(value))


def refusal(problem: TurnledgerError, events: list[Any] | None = None) -> ClientError:
    status, request_id = getattr(problem, "status", None), getattr(problem, "request_id", None)
    return failure(problem.code, str(problem), events, status=status, request_id=request_id)


def driver_failure(problem: BaseException) -> ClientError:
    """Report an error of the driver itself."""
    return failure("driver_broke", "".join(traceback.format_exception(problem)))


def failure(code: str, message: str, events: list[Any] | None = None, **facts: Any) -> ClientError:
    return ClientError(
        {"code": code, "message": message, "status": None, "request_id": None, **facts}, events
    )
