"""The fields of a request that a narrowed token or a visitor may send to an upstream, and their bounds.

Upstreams that route or proxy accept fields of their own: other models, other servers, keys, plugins. The
bearer of a narrowed token must not choose those, so the fields are an allow-list.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from turnledger.model.access.token import Token
from turnledger.model.text.plain import plain
from turnledger.server.config.settings import LENGTH_FIELDS, LengthField
from turnledger.server.errors import RequestRefused
from turnledger.server.models.models import ResolvedModel
from turnledger.server.requests.body import FIELDS, decode_body

ALLOWED_FIELDS = frozenset(
    {
        "model",
        "audio",
        "frequency_penalty",
        "function_call",
        "functions",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "min_p",
        "modalities",
        "n",
        "parallel_tool_calls",
        "prediction",
        "presence_penalty",
        "prompt_cache_key",
        "reasoning_effort",
        "repetition_penalty",
        "response_format",
        "safety_identifier",
        "seed",
        "stop",
        "temperature",
        "tool_choice",
        "tools",
        "top_k",
        "top_logprobs",
        "top_p",
        "user",
        "verbosity",
    }
)
"""Fields of the chat-completions API about an answer and its sampling. Not `metadata`, `store` and
`service_tier`: they file, keep or price the request in the operator's account."""
PASSED_FIELDS = frozenset(
    {
        *("input", "instructions", "prompt", "suffix", "echo", "query", "documents", "top_n"),
        *("return_documents", "dimensions", "encoding_format", "voice", "speed", "stream_format"),
        *("background", "moderation", "output_compression", "output_format", "partial_images"),
        *("quality", "size", "style"),
    }
)
"""Further fields of the other paths that may be passed through. Not `best_of`, which multiplies the cost."""
_takes_completion_tokens = re.compile(r"(?:.*/)?(?:o[1-9]|gpt-[5-9])(?![0-9])", re.IGNORECASE).match
"""Models whose upstreams refuse `max_tokens`, also with a provider's prefix."""
_STREAM_OPTIONS = frozenset({"include_usage", "include_obfuscation"})
_QUOTED_LENGTH = 80


def restrict_settings(
    settings: Mapping[str, Any],
    stream_options: msgspec.Raw | None,
    token: Token,
    extra_fields: Collection[str],
    max_length: int,
    model: ResolvedModel,
) -> Mapping[str, Any]:
    """Return the fields for this model and this narrowed token, within its bounds. The operator also allows
    `extra_fields`; `max_length` is the answer length of a token without a bound. Raises RequestRefused (400)
    with the field."""
    for name in settings:
        if name not in ALLOWED_FIELDS and name not in extra_fields:
            raise _refusal_error(
                name, "not allowed for this token. Omit it, or ask the operator to allow it."
            )
    if stream_options is not None and (options := bytes(stream_options)) != b"null":
        stray = sorted(decode_body(options, FIELDS, "stream_options").keys() - _STREAM_OPTIONS)
        if stray:
            raise _refusal_error(f"stream_options.{stray[0]}", "not allowed for this token. Omit it.")
    return _within_bounds(settings, token, max_length, model)


def length_field_of(model: ResolvedModel) -> LengthField:
    """Return the field that bounds the answer of a model: as it is set, or else guessed from its name."""
    if model.length_field is not None:
        return model.length_field
    return "max_completion_tokens" if _takes_completion_tokens(model.upstream_name) else "max_tokens"


def _within_bounds(
    settings: Mapping[str, Any], token: Token, max_length: int, model: ResolvedModel
) -> Mapping[str, Any]:
    # Several answers need a token that allows them.
    _check(settings, "n", token.bounds.n or 1)
    limit = token.bounds.max_tokens
    if limit is None:
        # Not added to a request without one: a model with shorter answers would refuse it.
        for name in LENGTH_FIELDS:
            _check(settings, name, max_length)
        return settings
    set_fields = [name for name in LENGTH_FIELDS if _check(settings, name, limit)]
    field: str | None = model.length_field or next(iter(set_fields), None)
    if field in set_fields:
        return settings
    if field is None:
        present = [name for name in LENGTH_FIELDS if name in settings]
        field = present[0] if len(present) == 1 else length_field_of(model)
    # Upstreams ignore unknown fields, and some refuse a request with both. A request without a length is
    # bounded all the same.
    others = {name: value for name, value in settings.items() if name not in LENGTH_FIELDS}
    return {**others, field: settings[set_fields[0]] if set_fields else limit}


def _check(settings: Mapping[str, Any], name: str, limit: int) -> bool:
    """Return whether the field is set; its value must be within the bound. Raises RequestRefused."""
    raw = settings.get(name)
    value = msgspec.json.decode(raw) if isinstance(raw, msgspec.Raw) else raw
    if value is None:
        return False
    if type(value) is not int or value < 1:
        raise _refusal_error(
            name, f"{plain(repr(value)[:_QUOTED_LENGTH])} is not a positive integer. Send one."
        )
    if value > limit:
        reason = f"{value} exceeds the limit of {limit} for this token. Request less."
        raise _refusal_error(name, reason, "parameter_too_large")
    return True


def _refusal_error(name: str, reason: str, code: str = "unsupported_parameter") -> RequestRefused:
    shown = plain(name[:_QUOTED_LENGTH])
    return RequestRefused(400, code, f"{shown}: {reason}", param=shown)
