"""What may be a chat message: a client's messages, checked before they are converted. Every refusal names the
place, as in `messages[2].tool_calls[0].id`, and what would be right there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from turnledger.errors import MalformedItems

Message: TypeAlias = dict[str, Any]
MessageLike: TypeAlias = "Mapping[str, Any] | bytes | msgspec.Raw"
"""A chat message as a mapping, or as its JSON."""

CALL_BODIES = {"function": "arguments", "custom": "input"}
"""The types of tool calls: each has its name and this under a field called like the type."""

_ROLES = ("assistant", "developer", "system", "tool", "user")
# The one role that a field belongs to.
_OWNERS = {"tool_calls": "assistant", "refusal": "assistant", "audio": "assistant", "tool_call_id": "tool"}
_MAY_BE_NULL = (*_OWNERS, "name", "function_call")

TRANSLATED = frozenset({"role", "content", *_OWNERS})
"""The fields of a message that items have a place for; the others are carried along."""


def checked_messages(messages: Iterable[MessageLike] | bytes | msgspec.Raw) -> list[Message]:
    """Return the messages as mappings whose known fields have a known form, without those that are null: they
    say nothing. Raises MalformedItems."""
    listed: Any = messages
    if isinstance(messages, bytes | msgspec.Raw):
        listed = _decoded("messages", messages)
    if isinstance(listed, str | Mapping) or not isinstance(listed, Iterable):
        example = '[{"role": "user", "content": "..."}]'
        raise MalformedItems(f"messages must be a list, for example {example}, or its JSON as bytes.")
    return [_checked(f"messages[{number}]", each) for number, each in enumerate(listed)]


def _decoded(place: str, raw: bytes | msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise MalformedItems(f"{place} must be JSON: {problem}.") from None


def _checked(place: str, like: Any) -> Message:
    given = _decoded(place, like) if isinstance(like, bytes | msgspec.Raw) else like
    if not isinstance(given, Mapping):
        raise MalformedItems(
            f"{place} must be a mapping or its JSON, not {type(given).__name__}; "
            "give what a client library returned as its model_dump()."
        )
    message = {name: value for name, value in given.items() if value is not None or name not in _MAY_BE_NULL}
    if isinstance(message.get("content"), tuple):
        message["content"] = list(message["content"])
    _check_role(place, message)
    _check_content(place, message)
    _check_texts(place, message)
    if not isinstance(message.get("audio", {}), Mapping):
        raise MalformedItems(f'{place}.audio must be an object, for example {{"id": "..."}}.')
    calls = _checked_calls(f"{place}.tool_calls", message.pop("tool_calls", []))
    return {**message, "tool_calls": calls} if calls else message


def _check_role(place: str, message: Message) -> None:
    role = message.get("role")
    if role == "function" or "function_call" in message:
        raise MalformedItems(
            f"{place} is a function call of the old kind, without an id. Send `tool_calls` with ids in the "
            "assistant message, and each result as a message of role `tool` with its `tool_call_id`."
        )
    if role not in _ROLES:
        raise MalformedItems(f"{place}.role must be one of {', '.join(_ROLES)}.")
    for name, owner in _OWNERS.items():
        if name in message and role != owner:
            raise MalformedItems(f"{place}.{name} belongs in a message of role {owner}: take it out here.")


def _check_content(place: str, message: Message) -> None:
    content = message.get("content")
    if content is None and message["role"] == "assistant":
        return
    if not isinstance(content, str | list):
        raise MalformedItems(f'{place}.content must be a text or a list of parts; send "" if there is none.')


def _check_texts(place: str, message: Message) -> None:
    for name in ("name", "refusal"):
        if not isinstance(message.get(name, ""), str):
            raise MalformedItems(f"{place}.{name} must be a text.")
    call_id = message.get("tool_call_id")
    if message["role"] == "tool" and (not isinstance(call_id, str) or not call_id):
        raise MalformedItems(f"{place}.tool_call_id must be a text: the id of the call that this answers.")


def _checked_calls(place: str, calls: Any) -> list[dict[str, Any]]:
    if not isinstance(calls, list | tuple):
        raise MalformedItems(f"{place} must be a list. Leave it out if there are none.")
    return [_checked_call(f"{place}[{number}]", call) for number, call in enumerate(calls)]


def _checked_call(place: str, call: Any) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise MalformedItems(f"{place} must be an object with `id`, `type` and `function`.")
    checked = {"type": "function", **call}
    kind = checked["type"]
    if not isinstance(kind, str) or kind not in CALL_BODIES:
        raise MalformedItems(f"{place}.type must be one of {', '.join(CALL_BODIES)}.")
    if not isinstance(checked.get("id"), str) or not checked["id"]:
        raise MalformedItems(f"{place}.id must be a text: the result names the call by it.")
    body, wanted = checked.get(kind), CALL_BODIES[kind]
    if not isinstance(body, Mapping):
        raise MalformedItems(f"{place}.{kind} must be an object with `name` and `{wanted}`.")
    if not isinstance(body.get("name"), str) or not body["name"]:
        raise MalformedItems(f"{place}.{kind}.name must be a text: the name of the tool.")
    if not isinstance(body.get(wanted), str):
        raise MalformedItems(f"{place}.{kind}.{wanted} must be a text: encode an object as JSON.")
    return checked
