"""A request for a response, checked, and translated to what a turn and a chat-completions model need.

A field that cannot be honoured is refused by its name. Hints that do not change the answer are accepted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf, isfinite
from typing import Any, Literal, TypeAlias

import msgspec

from turnledger.engine.conversations.details import check_details
from turnledger.errors import ConversationUnavailable, InvalidId, InvalidInput
from turnledger.model.ids import ConversationId
from turnledger.server.config.settings import LengthField
from turnledger.server.errors import Fields, RequestRefused
from turnledger.server.requests.body import FIELDS, decode_body
from turnledger.server.requests.conversation_names import ConversationNames
from turnledger.server.requests.turn import (
    CONVERSATION,
    KEY,
    RESENT_HEADER_NAMES,
    SCOPE,
    RawHeaders,
    TurnTerms,
    conversation_of,
    digest_of,
    fingerprint_of,
    must_exist,
    policies_of,
    read_headers,
    requested_context,
    retry_count_of,
    text_of,
    unsupported_headers_error,
)
from turnledger.server.responses.response import RESPONSE
from turnledger.server.responses.translation import (
    SAME_NAME,
    chat_format,
    chat_tool_choice,
    chat_tools,
    check_known,
    invalid,
    unsupported,
)

_Options: TypeAlias = Mapping[str, tuple[str, ...] | None]
_SUMMARIES = ("auto", "concise", "detailed")
_TEXT_OPTIONS: _Options = {"format": None, "verbosity": ("low", "medium", "high")}
_REASONING_OPTIONS: _Options = {"effort": None, "summary": _SUMMARIES, "generate_summary": _SUMMARIES}
"""The options of a field, with their values; None for any."""
PASSED = frozenset(
    {
        *("frequency_penalty", "presence_penalty", "logit_bias", "seed", "stop"),
        *("min_p", "repetition_penalty", "top_k"),
    }
)
"""Fields of chat completions that the Responses API lacks: clients add them for local models."""
_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "top_logprobs": (0, 20),
    "max_output_tokens": (1, inf),
    "max_tool_calls": (1, inf),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "min_p": (0, 1),
}
_STREAM_OPTIONS = ("include_obfuscation", "include_usage")
"""The usage is always in the last event, and nothing is obfuscated."""
_SAID = (
    "max_tool_calls",
    "prompt_cache_key",
    "safety_identifier",
    "user",
    "truncation",
    "metadata",
    "background",
)


class _ConversationName(msgspec.Struct):
    id: str


class ResponseBody(msgspec.Struct, kw_only=True):
    """The fields that are understood. Others are refused, unless they are null."""

    model: str = ""
    input: msgspec.Raw = msgspec.Raw(b"[]")
    conversation: str | _ConversationName | None = None
    previous_response_id: str | None = None
    instructions: str | None = None
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    tools: list[Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    include: list[str] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    user: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None


BODY_FIELDS = frozenset(ResponseBody.__struct_fields__)


class ResponseRequest(TurnTerms, frozen=True, kw_only=True):
    body: ResponseBody
    settings: Mapping[str, Any]
    """Fields for the model, in the names of chat completions; the length is added by `with_length`."""
    conversation: str | None = None
    conversation_key: str | None = None
    scope: str | None = None
    names_busy: bool = False
    """Whether the request itself, not a default, says what to do while another turn runs."""
    is_auxiliary: bool = False
    """Whether the operator's rules leave it out of conversations: nothing of it is stored."""

    @property
    def model(self) -> str:
        return self.body.model

    @property
    def stream(self) -> bool:
        return bool(self.body.stream)

    @property
    def is_named(self) -> bool:
        """Whether it continues something that is stored."""
        return (self.conversation or self.conversation_key or self.body.previous_response_id) is not None

    @property
    def fields(self) -> Fields:
        """The fields that name what it continues, by the errors about that."""
        name = "previous_response_id" if self.body.previous_response_id is not None else "conversation"
        is_named = getattr(self.body, name) is not None
        return dict.fromkeys((ConversationUnavailable, InvalidId), name) if is_named else {}

    @property
    def said(self) -> dict[str, Any]:
        """What is recorded of the request beside the settings of its model."""
        said = {name: value for name in _SAID if (value := getattr(self.body, name)) is not None}
        said |= {"model": self.body.model}
        if self.body.previous_response_id is not None:
            said["previous_response_id"] = self.body.previous_response_id
        reasoning = self.body.reasoning or {}
        if summary := reasoning.get("summary") or reasoning.get("generate_summary"):
            said["summary"] = summary
        return {RESPONSE: said}

    def with_length(self, settings: Mapping[str, Any], field: LengthField) -> Mapping[str, Any]:
        """Return the settings with the length of the answer, in the field of the model's upstream."""
        length = self.body.max_output_tokens
        return settings if length is None else {**settings, field: length}


_bodies = msgspec.json.Decoder(ResponseBody)


def response_request(
    path: str,
    headers: RawHeaders,
    raw: bytes,
    names: ConversationNames | None,
    base_url_name: str | None,
    passed_fields: Collection[str],
) -> ResponseRequest:
    """Check a request. Raises InvalidInput or RequestRefused, with the field and the remedy."""
    body = decode_body(raw, _bodies)
    fields = FIELDS.decode(raw)
    _check_fields(body, fields, passed_fields)
    other_headers = names.headers if names else frozenset[bytes]()
    is_auxiliary = names is not None and names.skips(headers)
    # Clients send the same headers with all requests, also for turns only.
    values = {} if is_auxiliary else read_headers(headers, other_headers)
    if is_auxiliary and body.background:
        reason = "nothing of this request is stored, by `skip_when_header`. Omit it."
        raise unsupported("background", reason)
    if strange := values.keys() & RESENT_HEADER_NAMES:
        raise unsupported_headers_error(strange)
    name = text_of(values, CONVERSATION)
    is_unnamed = name is None and body.conversation is None and body.previous_response_id is None
    if is_unnamed and names is not None and not is_auxiliary:
        name = names.find(values, base_url_name, fields)
    conversation, conversation_key = _conversation(body, name)
    named = conversation or conversation_key or ""
    keyed = KEY in values
    return ResponseRequest(
        body=body,
        settings={"model": body.model, **_settings(body, fields, passed_fields)},
        conversation=conversation,
        conversation_key=conversation_key,
        scope=text_of(values, SCOPE),
        must_exist=must_exist(values),
        names_busy=b"x-turn-on-busy" in values,
        is_auxiliary=is_auxiliary,
        policies=policies_of(values),
        context=requested_context(values),
        idempotency_key=text_of(values, KEY),
        retry=retry_count_of(values),
        fingerprint=fingerprint_of(path, "", fields) if keyed else digest_of(path, named, raw),
    )


def _check_fields(body: ResponseBody, fields: Mapping[str, msgspec.Raw], passed: Collection[str]) -> None:
    for name, value in fields.items():
        if name not in BODY_FIELDS and name not in PASSED and name not in passed and bytes(value) != b"null":
            raise unsupported(name, "not supported here. Omit it.")
    for name in _RANGES.keys() & fields.keys():
        _check_range(name, msgspec.json.decode(fields[name]))
    if body.top_logprobs:
        raise unsupported("top_logprobs", "probabilities are not stored. Omit it.")
    check_known("stream_options", body.stream_options or {}, _STREAM_OPTIONS)
    if body.store is False and body.background:
        raise unsupported("background", "needs `store: true`, to be read later. Omit one of them.")
    check_details(None, body.metadata)
    if body.previous_response_id is not None and body.conversation is not None:
        message = "Send `conversation` or `previous_response_id`, not both."
        raise RequestRefused(400, "mutually_exclusive", message, param="previous_response_id")


def _check_range(name: str, value: Any) -> None:
    least, most = _RANGES[name]
    if value is None:
        return
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise invalid(name, "must be a number.")
    if not least <= value <= most:
        range = f"from {least:g} to {most:g}" if isfinite(most) else f"at least {least:g}"
        raise invalid(name, f"must be {range}.")


def _conversation(body: ResponseBody, name: str | None) -> tuple[str | None, str | None]:
    """Return the id and the conversation_key that a request names, in its body or by another name."""
    given = body.conversation.id if isinstance(body.conversation, _ConversationName) else body.conversation
    if given is not None:
        if not given.startswith(ConversationId.prefix):
            message = "conversation must be an id (conv_…). Send your own name in X-Conversation-Id."
            raise RequestRefused(400, "invalid_body", message, param="conversation")
        if name not in (None, given):
            raise InvalidInput("Send X-Conversation-Id or `conversation`, not both.", param="conversation")
        return given, None
    if name is not None and body.previous_response_id is not None:
        message = "Send X-Conversation-Id or `previous_response_id`, not both."
        raise InvalidInput(message, param="previous_response_id")
    return conversation_of(name)


def _settings(
    body: ResponseBody, fields: Mapping[str, msgspec.Raw], passed: Collection[str]
) -> dict[str, Any]:
    """Return the fields for the model as chat completions name them, except the length of the answer."""
    others = (PASSED | frozenset(passed)) - BODY_FIELDS
    settings: dict[str, Any] = {name: fields[name] for name in fields if name in others}
    settings |= {name: value for name in SAME_NAME if (value := getattr(body, name)) is not None}
    if body.tools:
        settings["tools"] = chat_tools(body.tools)
    else:
        settings.pop("parallel_tool_calls", None)  # many upstreams refuse it without tools
    if body.tool_choice is not None:
        choice = chat_tool_choice(body.tool_choice, settings.get("tools", ()))
        if body.tools:
            settings["tool_choice"] = choice
    text = _options("text", body.text, _TEXT_OPTIONS)
    if "format" in text and (given := chat_format(text["format"])) is not None:
        settings["response_format"] = given
    if "verbosity" in text:
        settings["verbosity"] = text["verbosity"]
    reasoning = _options("reasoning", body.reasoning, _REASONING_OPTIONS)
    if "effort" in reasoning:
        settings["reasoning_effort"] = reasoning["effort"]
    return settings


def _options(field: str, given: Mapping[str, Any] | None, known: _Options) -> dict[str, Any]:
    """Return the options in a field of the body that are not null. Raises RequestRefused."""
    options = {name: value for name, value in (given or {}).items() if value is not None}
    check_known(field, options, known)
    for name, value in options.items():
        values = known.get(name)
        if name != "format" and not isinstance(value, str):
            raise invalid(f"{field}.{name}", "must be a text.")
        if values is not None and value not in values:
            raise invalid(f"{field}.{name}", f"must be one of {', '.join(values)}.")
    return options
