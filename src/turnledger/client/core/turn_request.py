"""The options of a turn, and its request."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypedDict, cast
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from turnledger.api.json import encode
from turnledger.client.core.steps import JSON_TYPE, Request
from turnledger.errors import InvalidInput
from turnledger.model.ids import TurnId
from turnledger.model.item import Item
from turnledger.model.turn import OnBusy, OnFailure, OnStop

Input: TypeAlias = str | Sequence[str | Mapping[str, Any] | Item]
"""A text, or items of the Responses shape, or chat messages."""


class TurnOptions(TypedDict, total=False):
    model: str | None
    """By default that of the client, or the only one of the server."""
    instructions: Input | None
    """Apply from this turn on; an empty text ends the current ones."""
    primer: Input | None
    """History shown to the model before the stored one, in this turn only. It is never stored."""
    context: Mapping[str, int] | None
    """How much of the history the model is shown: `{"last": 10}` turns, `{"budget": 8000}` tokens, or `{}`
    for all of it. By default as the server is set."""
    settings: Mapping[str, Any] | None
    """Further fields for the model: `temperature`, `tools`, …"""
    on_busy: str | None
    """While another turn runs: `queue`, `reject`, `interrupt` or `rollback`."""
    on_stop: str | None
    """When the turn is stopped: `keep` or `discard`."""
    on_failure: str | None
    """When it fails: `settle`, `keep` or `forget`."""
    on_disconnect: str | None
    """When no client follows it: `continue`, `yield` (to the next message), `keep` or `discard`."""
    must_exist: bool
    """Raise an error instead of creating a chat for an unknown conversation_key."""
    reset: str | None
    """The policy of the conversation_key: `never`, `idle 1800`, `daily 4 Europe/Berlin`."""
    after: str | None
    """For `send`: the turn to follow, on any branch. It never waits, and runs on a side branch if need be."""
    interaction: bool
    """False for turns that a program runs by itself: they postpone neither expiry nor a reset."""
    idempotency_key: str | None
    """Names the request, so that it is carried out once however often it is sent; by default a fresh one."""


_DISCONNECTS = frozenset({"yield", "continue", "keep", "discard"})
_POLICIES: Mapping[str, tuple[str, frozenset[str]]] = {
    "on_busy": ("x-turn-on-busy", frozenset(OnBusy)),
    "on_stop": ("x-turn-on-stop", frozenset(OnStop)),
    "on_failure": ("x-turn-on-failure", frozenset(OnFailure)),
    "on_disconnect": ("x-turn-on-disconnect", _DISCONNECTS),
}
_IN_BODY = ("after", "reset", "interaction", "instructions", "primer", "context", "settings")
_OPTIONS = frozenset(TurnOptions.__annotations__)


def idempotency_key_of(options: TurnOptions) -> str:
    idempotency_key = options.get("idempotency_key")
    if idempotency_key is None:
        return str(uuid.uuid4())
    if not idempotency_key.strip():
        raise InvalidInput("idempotency_key must not be blank. Omit it to have one generated.")
    return check_text(idempotency_key)


def check(options: TurnOptions) -> None:
    """Refuse options that no server understands before sending. Raises TypeError or InvalidInput."""
    if unexpected := options.keys() - _OPTIONS:
        raise TypeError(f"unexpected keyword argument {min(unexpected)!r}")
    for name, (_, values) in _POLICIES.items():
        value = cast(str | None, options.get(name))
        if value is not None and value not in values:
            raise InvalidInput(f"{name} is {value!r}; it must be one of {', '.join(sorted(values))}.")
    if (after := options.get("after")) is not None:
        TurnId(after)  # raises InvalidId


def turn_request(
    model: str,
    fields: Mapping[str, Any],
    target: Mapping[str, Any],
    options: TurnOptions,
    idempotency_key: str,
    *,
    background: bool = False,
) -> Request:
    """Return the request for a turn. Its bytes are encoded once and sent unchanged each time."""
    body = {"model": model, **target, **fields, **({"background": True} if background else {"stream": True})}
    body |= {name: value for name in _IN_BODY if (value := options.get(name)) is not None}
    accepted = JSON_TYPE if background else "text/event-stream"
    headers = {"accept": accepted, **headers_of(options, idempotency_key)}
    if options.get("must_exist"):
        headers["x-conversation-expect"] = "continued"
    return Request(method="POST", path="/api/turns", headers=headers, body=body_of(body))


def headers_of(options: TurnOptions, idempotency_key: str) -> dict[str, str]:
    headers = {"content-type": JSON_TYPE, "idempotency-key": quote(idempotency_key, safe="")}
    for name, (header, _) in _POLICIES.items():
        if (value := cast(str | None, options.get(name))) is not None:
            headers[header] = str(value)
    return headers


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def without_stream(request: Request) -> Request:
    """Return the same request for a complete answer instead of events. The rest stays byte for byte the same,
    so that the server recognises it."""
    assert request.body is not None  # noqa: S101 - it requests a turn
    body = {**_fields.decode(request.body), "stream": False}
    return replace(request, headers={**request.headers, "accept": JSON_TYPE}, body=msgspec.json.encode(body))


def check_text(text: str) -> str:
    """Return the text. Raises InvalidInput if neither URL nor header can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise InvalidInput(
            f"A text cannot be sent as UTF-8: {problem.reason}. Replace the invalid characters."
        ) from None
    return text


def body_of(values: Mapping[str, Any]) -> bytes:
    try:
        return encode(values)
    except (TypeError, ValueError, NotImplementedError, RecursionError, msgspec.MsgspecError) as problem:
        raise InvalidInput(f"That cannot be sent as JSON: {problem}. Pass plain JSON values.") from None
