"""Settings of a model, from the Responses API to chat completions and back.

Turns record the settings of chat completions, which every upstream understands. A response shows them in the
words of its own API, whichever API the turn was requested with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from turnledger.model.text.plain import plain
from turnledger.server.errors import RequestRefused

SAME_NAME = ("temperature", "top_p", "parallel_tool_calls")
"""Fields of both APIs."""
_FORMAT_FIELDS = ("name", "description", "schema", "strict")
_FUNCTION_FIELDS = ("name", "description", "parameters", "strict")
_CUSTOM_FIELDS = ("name", "description", "format")
_GRAMMAR_FIELDS = ("type", "definition", "syntax")
_TYPES: Mapping[str, type] = {"description": str, "parameters": dict, "strict": bool, "format": dict}
"""Types of fields of tools and formats."""
_TYPE_NAMES: Mapping[type, str] = {str: "a text", dict: "an object", bool: "true or false"}
_DEFAULTS: Mapping[str, tuple[Any, ...]] = {"defer_loading": (False,), "allowed_callers": (["direct"],)}
"""Values of further fields of tools that are the same as none."""
_CHOICES = ("none", "auto", "required")
_FORMATS = ("text", "json_object")


def unsupported(name: str, reason: str, code: str = "unsupported_field") -> RequestRefused:
    shown = plain(name[:80])
    return RequestRefused(400, code, f"{shown}: {reason}", param=shown)


def invalid(name: str, reason: str) -> RequestRefused:
    return unsupported(name, reason, "invalid_body")


def check_known(place: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise RequestRefused for a field that is not known here, unless it says nothing."""
    for name, value in given.items():
        if name not in known and value not in (None, [], {}):
            raise unsupported(f"{place}.{name}", "not supported here. Omit it.")


# To chat completions.


def chat_tools(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the tools of a request. Raises RequestRefused for those that the client does not run itself."""
    return [_chat_tool(f"tools[{number}]", tool) for number, tool in enumerate(tools)]


def _chat_tool(place: str, tool: Any) -> dict[str, Any]:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind not in ("function", "custom"):
        reason = f"{plain(str(kind)[:40])!r} is not available here. Send tools of type function or custom."
        raise unsupported(place, reason, "unsupported_tool")
    if not isinstance(tool.get("name"), str) or not tool["name"]:
        raise invalid(f"{place}.name", "must be a text: the name of the tool.")
    _check_types(place, tool)
    others = {name: value for name, value in tool.items() if value not in _DEFAULTS.get(name, ())}
    check_known(place, others, ("type", *(_FUNCTION_FIELDS if kind == "function" else _CUSTOM_FIELDS)))
    if kind == "function":
        return {
            "type": kind,
            kind: {name: tool[name] for name in _FUNCTION_FIELDS if tool.get(name) is not None},
        }
    body = {name: tool[name] for name in ("name", "description") if tool.get(name) is not None}
    given = tool.get("format")
    if isinstance(given, dict):
        check_known(f"{place}.format", given, _GRAMMAR_FIELDS)
    if isinstance(given, dict) and given.get("type") == "grammar":
        grammar = {name: given[name] for name in ("definition", "syntax") if name in given}
        body["format"] = {"type": "grammar", "grammar": grammar}
    elif given is not None:
        body["format"] = given
    return {"type": kind, kind: body}


def _check_types(place: str, given: Mapping[str, Any]) -> None:
    for name, type in _TYPES.items():
        if given.get(name) is not None and not isinstance(given[name], type):
            raise invalid(f"{place}.{name}", f"must be {_TYPE_NAMES[type]}.")


def chat_tool_choice(choice: Any, tools: Sequence[Mapping[str, Any]]) -> Any:
    """Return which of the tools the model is to call. Raises RequestRefused, also if none of them is it."""
    if choice in ("none", "auto"):
        return choice
    if choice == "required":
        if not tools:
            raise invalid("tool_choice", "'required' needs tools. Send `tools`, or omit it.")
        return choice
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind in ("function", "custom") and isinstance(choice.get("name"), str):
        return _named_tool("tool_choice", choice, tools)
    if kind == "allowed_tools" and isinstance(choice.get("tools"), list):
        check_known("tool_choice", choice, ("type", "mode", "tools"))
        mode = choice.get("mode", "auto")
        if mode not in ("auto", "required"):
            raise invalid("tool_choice.mode", "must be auto or required.")
        allowed = [
            _named_tool(f"tool_choice.tools[{number}]", tool, tools)
            for number, tool in enumerate(choice["tools"])
        ]
        return {"type": kind, kind: {"mode": mode, "tools": allowed}}
    reason = f"Send {', '.join(_CHOICES)}, or a tool of type function or custom with its name."
    raise unsupported("tool_choice", f"not available here. {reason}")


def _named_tool(place: str, choice: Any, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in ("function", "custom") or not isinstance(choice.get("name"), str):
        raise unsupported(place, "not available here. Send a tool of type function or custom with its name.")
    check_known(place, choice, ("type", "name"))
    if not any(tool["type"] == kind and tool[kind]["name"] == choice["name"] for tool in tools):
        name = plain(choice["name"][:40])
        raise invalid(place, f"no {kind} {name!r} is in `tools`. Add it, or choose another.")
    return {"type": kind, kind: {"name": choice["name"]}}


def chat_format(given: Any) -> dict[str, Any] | None:
    """Return the `response_format` for `text.format`; None for plain text. Raises RequestRefused."""
    kind = given.get("type") if isinstance(given, dict) else None
    if isinstance(given, dict) and kind in (*_FORMATS, "json_schema"):
        check_known("text.format", given, ("type", *(_FORMAT_FIELDS if kind == "json_schema" else ())))
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": kind}
    if kind == "json_schema" and isinstance(given.get("name"), str) and isinstance(given.get("schema"), dict):
        _check_types("text.format", given)
        fields = {name: given[name] for name in _FORMAT_FIELDS if given.get(name) is not None}
        return {"type": kind, kind: fields}
    reason = f"must be {', '.join(_FORMATS)}, or json_schema with a `name` and a `schema`."
    raise unsupported("text.format", reason)


# From chat completions.


def response_tools(tools: Any) -> list[Any]:
    """Return recorded tools as a response shows them; unknown ones as they are."""
    return [_response_tool(tool) for tool in tools] if isinstance(tools, list) else []


def _response_tool(tool: Any) -> Any:
    kind = tool.get("type", "function") if isinstance(tool, dict) else None
    body = tool.get(kind) if isinstance(kind, str) else None
    if kind not in ("function", "custom") or not isinstance(body, dict):
        return tool
    shown = {"type": kind, **body}
    if kind == "function":
        return {"parameters": None, "strict": None, **shown}
    given = body.get("format")
    if isinstance(given, dict) and isinstance(given.get("grammar"), dict):
        shown["format"] = {"type": "grammar", **given["grammar"]}
    return shown


def response_tool_choice(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice if isinstance(choice, str) else "auto"
    kind = choice.get("type")
    body = choice.get(kind) if isinstance(kind, str) else None
    if not isinstance(body, dict):
        return choice
    if kind == "allowed_tools":
        tools = [response_tool_choice(tool) for tool in body.get("tools") or ()]
        return {"type": kind, "mode": body.get("mode", "auto"), "tools": tools}
    return {"type": kind, **body}


def response_format(given: Any) -> dict[str, Any]:
    kind = given.get("type") if isinstance(given, dict) else None
    if kind == "json_schema" and isinstance(given.get(kind), dict):
        return {"type": kind, **given[kind]}
    return {"type": kind if isinstance(kind, str) else "text"}


def response_usage(usage: Any) -> dict[str, Any] | None:
    """Return the tokens that a chat completion reported; None if it did not."""
    if not isinstance(usage, Mapping):
        return None
    read, written = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    details = usage.get("prompt_tokens_details")
    thoughts = usage.get("completion_tokens_details")
    return {
        "input_tokens": read,
        "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": _count(details, "cached_tokens")},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": _count(thoughts, "reasoning_tokens")},
        "total_tokens": _count(usage, "total_tokens") or read + written,
    }


def _count(usage: Any, name: str) -> int:
    value = usage.get(name) if isinstance(usage, Mapping) else None
    return value if isinstance(value, int) else 0
