"""POST /v1/embeddings and other paths of an upstream that the operator has switched on: requests and
responses pass through, and nothing is stored.

The `model` of a request selects the upstream, as for chats. Conversation headers are ignored: clients send
them with every request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from turnledger.errors import ModelError, ModelUnavailable
from turnledger.model.access.token import Token
from turnledger.model.text.plain import plain
from turnledger.server.access.auth import Principal
from turnledger.server.access.guard import FORM
from turnledger.server.config.settings import Settings
from turnledger.server.errors import RequestRefused
from turnledger.server.models.models import ResolvedModel
from turnledger.server.models.redaction import redact
from turnledger.server.requests.allowed_fields import PASSED_FIELDS, restrict_settings
from turnledger.server.requests.body import FIELDS, decode_body
from turnledger.server.turns.chat_completions import error_chunk
from turnledger.server.turns.run import TurnApi, TurnExchange

if TYPE_CHECKING:
    from turnledger.runners.upstream.streamed_answer import RawAnswer

MOST_PARTS = 100
EVENT_STREAM = b"text/event-stream"
_boundary_in = re.compile(rb'boundary="?([^";,\s]{1,70})', re.IGNORECASE).search
_has_error = re.compile(rb'"error"\s{0,9}:\s{0,9}["{]').search
_ERROR_LENGTH = 30
"""The words of an error object are not for narrowed tokens. Within a text the quotes would be escaped."""
_name_in = re.compile(rb'content-disposition:[^\r\n]*[; ]name="?([^";\r\n]*)', re.IGNORECASE).search


class _Named(msgspec.Struct):
    model: str


_named = msgspec.json.Decoder(_Named)


class PassedBody(NamedTuple):
    model: str
    fields: Mapping[str, msgspec.Raw]
    renamed: Callable[[str], bytes]
    """Returns the body for a model of another name."""


async def read(exchange: TurnExchange, body: bytes) -> None:
    """Pass a request on, and its response back as it arrives. Ends when the client leaves."""
    service, principal = exchange.service, exchange.principal
    content_type = exchange.state["head"][b"content-type"]
    is_form = content_type.lower().startswith(FORM.encode())
    _check_caller(principal, is_form=is_form)
    passed = _read_form(body, content_type) if is_form else _read_json(body)
    found = service.models.find(passed.model, principal)
    service.models.check_fields(passed.fields, principal)
    if principal.token is not None and principal.token.is_narrowed:
        _check_fields(service.settings, principal.token, passed.fields, found)
    path = exchange.scope["path"].removeprefix("/v1")
    pass_on = getattr(service.models.for_client(found.model, exchange.state["head"]), "pass_on", None)
    if pass_on is None:
        shown = plain(passed.model[:100])
        message = f"The model {shown!r} has no upstream, and answers chats only. Choose another."
        raise RequestRefused(404, "path_not_supported", message, param="model")
    # Without a begin, nothing else checks that the caller is still authorized.
    await service.authenticator.admit(exchange.state["head"])
    exchange.slot.begin()
    answer = pass_on(path, passed.renamed(found.upstream_name), content_type.decode("latin-1"))
    try:
        await _pass_back(exchange, answer)
    except ModelError as problem:
        raise redact(problem) if principal.is_narrowed else problem from None


async def _pass_back(exchange: TurnExchange, answer: RawAnswer) -> None:
    client, hides_errors = exchange.client, exchange.principal.is_narrowed
    async with client.cancel_on_disconnect(), answer:
        exchange.begin(answer.content_type)
        end = b""
        try:
            async for piece in answer:
                if hides_errors and _has_error(end + piece):
                    raise ModelUnavailable(
                        "The upstream stopped early, with an error object in its response. Try again."
                    )
                end = piece[-_ERROR_LENGTH:]
                await client.write_at_pace(piece)
        except ModelError as problem:
            if answer.content_type.startswith(EVENT_STREAM):
                raise
            # Nothing in such a body could report an error: only a cut shows that it is incomplete.
            exchange.state["code"] = problem.code
            client.cut()
        else:
            exchange.end()


def _check_caller(principal: Principal, *, is_form: bool) -> None:
    """Raise RequestRefused for a token whose restrictions cannot be checked on these paths."""
    token = principal.token
    if token is None or not token.is_narrowed:
        return
    if token.is_narrowed_beyond_models:
        message = "This token is restricted to chats or bounds, which this path does not know. Use another."
        raise RequestRefused(403, "path_not_allowed", message)
    if is_form:
        message = "A token that is restricted to some models cannot send forms. Use another token."
        raise RequestRefused(403, "path_not_allowed", message)


def _check_fields(
    server: Settings, token: Token, fields: Mapping[str, msgspec.Raw], model: ResolvedModel
) -> None:
    """Raise RequestRefused for a field, or a size, that this narrowed token may not request."""
    settings = {name: fields[name] for name in fields if name not in ("stream", "stream_options")}
    allowed = PASSED_FIELDS.union(server.passed_fields)
    most = server.limits.narrowed_max_tokens
    restrict_settings(settings, fields.get("stream_options"), token, allowed, most, model)


def _read_json(body: bytes) -> PassedBody:
    model = decode_body(body, _named).model
    # Encoded again, so that no field occurs twice: upstreams differ in which one counts.
    fields = FIELDS.decode(body)
    return PassedBody(model, fields, lambda name: msgspec.json.encode({**fields, "model": name}))


def _read_form(body: bytes, content_type: bytes) -> PassedBody:
    """Find the part that names the model. Raises RequestRefused (400) if there is none."""
    boundary = _boundary_in(content_type)
    delimiter = b"--" + boundary[1] if boundary else b""
    start = 0
    for _ in range(MOST_PARTS if boundary else 0):
        start = body.find(delimiter, start) + len(delimiter)
        value = body.find(b"\r\n\r\n", start) + 4
        end = body.find(b"\r\n" + delimiter, value)
        if start < len(delimiter) or value < 4 or end < 0:
            break
        named = _name_in(body, start, value)
        if named and named[1] == b"model":
            model = body[value:end].decode(errors="replace")
            return PassedBody(model, {}, partial(_rename, body[:value], body[end:]))
        start = end
    message = "The form has no field `model`. Send one."
    raise RequestRefused(400, "invalid_body", message, param="model")


def _rename(before: bytes, after: bytes, model: str) -> bytes:
    return b"%b%b%b" % (before, model.encode(), after)


PASSED_PATH = TurnApi(read, error_chunk)
