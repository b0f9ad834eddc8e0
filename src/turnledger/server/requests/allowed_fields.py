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
from turnledger.server.errors import Refused
from turnledger.server.models.models import ResolvedModel
from turnledger.server.requests.body import decode_body

PASSED = frozenset(
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
LENGTHS = ("max_tokens", "max_completion_tokens")
_takes_completion_tokens = re.compile(r"(?:.*/)?(?:o[1-9]|gpt-[5-9])(?![0-9])", re.IGNORECASE).match
"""Models whose upstreams refuse `max_tokens`, also with a provider's prefix."""
_STREAM_OPTIONS = frozenset({"include_usage", "include_obfuscation"})
_SHOWN = 80
_names = msgspec.json.Decoder(dict[str, msgspec.Raw])


def passed_on(
    settings: Mapping[str, Any],
    stream_options: msgspec.Raw | None,
    token: Token,
    more: Collection[str],
    longest: int,
    found: ResolvedModel,
) -> Mapping[str, Any]:
    """Return the fields for this model and this narrowed token, within its bounds. `more` are names that the
    operator also allows; `longest` is the answer length of a token without a bound. Raises Refused (400) with
    the field."""
    for name in settings:
        if name not in PASSED and name not in more:
            raise _refused(name, "this token may not send it. Leave it out, or have the operator allow it.")
    if stream_options is not None and (options := bytes(stream_options)) != b"null":
        stray = sorted(decode_body(options, _names, "stream_options").keys() - _STREAM_OPTIONS)
        if stray:
            raise _refused(f"stream_options.{stray[0]}", "this token may not send it. Leave it out.")
    return _within_bounds(settings, token, longest, found)


def _within_bounds(
    settings: Mapping[str, Any], token: Token, longest: int, found: ResolvedModel
) -> Mapping[str, Any]:
    # Several answers need a token that allows them.
    _check(settings, "n", token.bounds.n or 1)
    most = token.bounds.max_tokens
    if most is None:
        # Not added to a request without one: a model with shorter answers would refuse it.
        for name in LENGTHS:
            _check(settings, name, longest)
        return settings
    given = [name for name in LENGTHS if _check(settings, name, most)]
    field: str | None = found.length_field or next(iter(given), None)
    if field in given:
        return settings
    if field is None:
        named = [name for name in LENGTHS if name in settings]
        usual = "max_completion_tokens" if _takes_completion_tokens(found.upstream_name) else "max_tokens"
        field = named[0] if len(named) == 1 else usual
    # Upstreams ignore unknown fields, and some refuse a request with both. A request without a length is
    # bounded all the same.
    others = {name: value for name, value in settings.items() if name not in LENGTHS}
    return {**others, field: settings[given[0]] if given else most}


def _check(settings: Mapping[str, Any], name: str, most: int) -> bool:
    """Return whether the field is set; its value must be within the bound. Raises Refused."""
    raw = settings.get(name)
    value = msgspec.json.decode(raw) if isinstance(raw, msgspec.Raw) else raw
    if value is None:
        return False
    if type(value) is not int or value < 1:
        raise _refused(name, f"{plain(repr(value)[:_SHOWN])} is no whole number above 0. Send one.")
    if value > most:
        why = f"{value} is above the {most} that this token may ask for. Ask for less."
        raise _refused(name, why, "parameter_too_large")
    return True


def _refused(name: str, why: str, code: str = "unsupported_parameter") -> Refused:
    shown = plain(name[:_SHOWN])
    return Refused(400, code, f"{shown}: {why}", param=shown)
