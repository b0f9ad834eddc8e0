"""Convert between items and chat messages, the shape of chat-completions models and most frameworks.

An assistant message with content and calls becomes several items: a message, then its calls. Refusal and
audio become parts of the content. Facts that only the chat shape can express are kept in the field
`chat_only` of an item (see `ChatOnly`), so that they come back; facts that only items can express are left
out of messages.

messages -> items -> messages gives the same messages, except:
- known fields that are null and empty lists of calls are left out; a missing `content` of an assistant
  becomes null; a tool call without `type` is a function;
- a result apart from its call is moved directly after the message of that call, as models require;
- a part in Responses shape (`input_text`, `input_image`, `input_file`) comes back in chat shape.

items -> messages -> items gives the same items, except:
- reasoning, hosted calls, unknown items, ids, statuses and annotations are lost;
- a message or result of only text has one text, whatever its parts were; results move as above;
- calls other than function and custom come back as functions, results that are not text as text.

Messages are checked before conversion. Each error names the place, as in `messages[2].tool_calls[0].id`, and
what is valid there. A part of content is translated where the other shape has an exact equivalent (`text`
is `input_text` or `output_text`, `image_url` is `input_image`, `file` is `input_file`), and otherwise carried
verbatim.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias, TypeGuard

import msgspec

from turnledger.errors import MalformedItems
from turnledger.model.item import Item, text_part
from turnledger.model.item import message as text_item

Part: TypeAlias = dict[str, Any]


def are_parts(content: Any) -> TypeGuard[list[Part]]:
    return isinstance(content, list) and all(isinstance(part, dict) for part in content)


def chat_content(content: Any) -> Any:
    """Return the content of an item for a chat message: only text as a text, anything richer as parts."""
    if isinstance(content, str) or content is None:
        return content
    if not are_parts(content):
        return msgspec.json.encode(content).decode()
    parts = chat_parts(content)
    return "".join(part["text"] for part in parts) if all(map(_is_text, parts)) else parts


def _is_text(part: Part) -> bool:
    return part.keys() == {"type", "text"} and part["type"] == "text" and isinstance(part["text"], str)


def chat_parts(parts: Sequence[Part]) -> list[Part]:
    """Return the parts of an item in chat shape, one to one, unknown ones verbatim."""
    return [_chat_part(part) for part in parts]


def _chat_part(part: Part) -> Part:
    kind = part.get("type")
    if kind in ("input_text", "output_text") and isinstance(part.get("text", ""), str):
        return {"type": "text", "text": part.get("text", "")}
    if kind == "input_image" and part.get("image_url") is not None:
        image = {"url": part["image_url"]} | ({"detail": part["detail"]} if "detail" in part else {})
        return {"type": "image_url", "image_url": image}
    if kind == "input_file":
        return {"type": "file", "file": {name: value for name, value in part.items() if name != "type"}}
    return part


def responses_parts(place: str, role: str, parts: Sequence[Any]) -> list[Part]:
    """Return the parts of a chat message in the shape of items, one to one, unknown ones verbatim. Raises
    MalformedItems, with the place, for anything that is not a part."""
    return [_responses_part(f"{place}[{number}]", role, part) for number, part in enumerate(parts)]


def _responses_part(place: str, role: str, part: Any) -> Part:
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        example = '{"type": "text", "text": "..."}'
        raise MalformedItems(f"{place} must be a part with a `type`, for example {example}.")
    kind = part["type"]
    body = part.get(kind)
    if kind in ("text", "refusal") and not isinstance(body, str):
        raise MalformedItems(f"{place}.{kind} must be a text.")
    if part.keys() == {"type", kind}:
        if kind == "text":
            return text_part(role, part["text"])
        if (
            kind == "image_url"
            and isinstance(body, Mapping)
            and body.get("url") is not None
            and body.keys() <= {"url", "detail"}
        ):
            return {"type": "input_image", "image_url": body["url"], **_without(body, {"url"})}
        if kind == "file" and isinstance(body, Mapping) and "type" not in body:
            return {"type": "input_file", **body}
    return dict(part)


Message: TypeAlias = dict[str, Any]
MessageLike: TypeAlias = "Mapping[str, Any] | bytes | msgspec.Raw"
"""A chat message as a mapping, or as its JSON."""

CALL_BODIES = {"function": "arguments", "custom": "input"}
"""Type of tool call → its second field besides `name`; both are under a field named like the type."""

_ROLES = ("assistant", "developer", "system", "tool", "user")
# Fields that are allowed in one role only.
_OWNERS = {"tool_calls": "assistant", "refusal": "assistant", "audio": "assistant", "tool_call_id": "tool"}
_MAY_BE_NULL = (*_OWNERS, "name", "function_call")

TRANSLATED = frozenset({"role", "content", *_OWNERS})
"""The fields of a message that items can express; others are carried along."""


def validate_messages(messages: Iterable[MessageLike] | bytes | msgspec.Raw) -> list[Message]:
    """Return the messages as mappings with checked known fields, without null ones. Raises MalformedItems."""
    listed: Any = messages
    if isinstance(messages, bytes | msgspec.Raw):
        listed = _decode("messages", messages)
    if isinstance(listed, str | Mapping) or not isinstance(listed, Iterable):
        example = '[{"role": "user", "content": "..."}]'
        raise MalformedItems(f"messages must be a list, for example {example}, or its JSON as bytes.")
    return [_validate(f"messages[{number}]", each) for number, each in enumerate(listed)]


def _decode(place: str, raw: bytes | msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise MalformedItems(f"{place} must be JSON: {problem}.") from None


def _validate(place: str, like: Any) -> Message:
    given = _decode(place, like) if isinstance(like, bytes | msgspec.Raw) else like
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
    calls = _validate_calls(f"{place}.tool_calls", message.pop("tool_calls", []))
    return {**message, "tool_calls": calls} if calls else message


def _check_role(place: str, message: Message) -> None:
    role = message.get("role")
    if role == "function" or "function_call" in message:
        raise MalformedItems(
            f"{place} is a legacy function call without an id. Use `tool_calls` with ids, and "
            "results of role `tool`."
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


def _validate_calls(place: str, calls: Any) -> list[dict[str, Any]]:
    if not isinstance(calls, list | tuple):
        raise MalformedItems(f"{place} must be a list. Leave it out if there are none.")
    return [_validate_call(f"{place}[{number}]", call) for number, call in enumerate(calls)]


def _validate_call(place: str, call: Any) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise MalformedItems(f"{place} must be an object with `id`, `type` and `function`.")
    checked = {"type": "function", **call}
    kind = checked["type"]
    if not isinstance(kind, str) or kind not in CALL_BODIES:
        raise MalformedItems(f"{place}.type must be one of {', '.join(CALL_BODIES)}.")
    if not isinstance(checked.get("id"), str) or not checked["id"]:
        raise MalformedItems(f"{place}.id must be a text: the result names the call by it.")
    body, expected = checked.get(kind), CALL_BODIES[kind]
    if not isinstance(body, Mapping):
        raise MalformedItems(f"{place}.{kind} must be an object with `name` and `{expected}`.")
    if not isinstance(body.get("name"), str) or not body["name"]:
        raise MalformedItems(f"{place}.{kind}.name must be a text: the name of the tool.")
    if not isinstance(body.get(expected), str):
        raise MalformedItems(f"{place}.{kind}.{expected} must be a text: encode an object as JSON.")
    return checked


__all__ = ["CHAT_ONLY", "ChatOnly", "Message", "MessageLike", "items_of_messages", "messages_of"]

CHAT_ONLY = "chat_only"
"""The field of an item that no Responses API knows: remove it before sending items to one."""

CALL_TYPES = {"function": "function_call", "custom": "custom_tool_call"}
"""Type of tool call → type of its item."""


class ChatOnly(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts of the original chat message that the items cannot express."""

    content: Literal["parts", "null", "empty"] | None = None  # its form, if not the default
    apart: tuple[Literal["refusal", "audio"], ...] = ()  # the last parts that were fields of the message
    begins: bool = False  # this call begins a message, though it could join the previous one
    message: dict[str, Any] = {}  # other fields of the message
    call: dict[str, Any] = {}  # other fields of the tool call
    body: dict[str, Any] = {}  # other fields of its `function` or `custom`


_NOTHING = ChatOnly()


def messages_of(items: Iterable[Item]) -> list[Message]:
    """Return the items as chat messages. Calls join the assistant message before them, and results directly
    follow the message of their calls, as models require. Reasoning is left out, since the shape cannot
    express it. Pairing is not checked."""
    blocks: list[list[Message]] = []
    waiting: dict[str | None, list[list[Message]]] = {}
    for item in items:
        if item.type == "message":
            blocks.append([_message(item)])
        elif item.is_call:
            fields = item.fields
            only = _chat_only(fields)
            if only.begins or not blocks or blocks[-1][-1]["role"] != "assistant":
                content = "" if only.content == "empty" else None
                blocks.append([{**_others(only), "role": "assistant", "content": content}])
            blocks[-1][0].setdefault("tool_calls", []).append(_call(item, fields, only))
            waiting.setdefault(item.call_id, []).append(blocks[-1])
        elif item.is_result:
            answered = waiting.get(item.call_id)
            if answered:
                answered.pop().append(_result(item))
            else:
                blocks.append([_result(item)])
    return [message for block in blocks for message in block]


def items_of_messages(
    messages: Iterable[MessageLike] | bytes | msgspec.Raw, waiting: Iterable[Item] = ()
) -> tuple[Item, ...]:
    """Return chat messages, given as mappings or JSON, as items of the Responses shape. `waiting` are earlier
    calls that results may answer: a message does not contain their type.

    Pairing is not checked. Raises MalformedItems, with place and remedy, for anything that is not a chat
    message; also for `function_call` and the role `function`, which have no call ids.
    """
    if isinstance(messages, list | tuple) and all(map(_is_plain, messages)):
        with suppress(MalformedItems):  # raised again below, with its place
            return tuple(text_item(each["role"], each["content"]) for each in messages)
    builder = _ItemBuilder(waiting)
    for number, message in enumerate(validate_messages(messages)):
        builder.add(f"messages[{number}]", message)
    return tuple(builder.items)


_PLAIN_ROLES = frozenset({"user", "system", "developer"})


def _is_plain(given: Any) -> bool:
    """Return whether a message is a role and a text, as most typed ones are: a short cut applies."""
    return (
        type(given) is dict
        and len(given) == 2
        and type(given.get("content")) is str
        and given.get("role") in _PLAIN_ROLES
    )


# From items to messages.


def _chat_only(fields: Mapping[str, Any]) -> ChatOnly:
    """Return what the item remembers; ignore a field of that name with foreign content."""
    if CHAT_ONLY not in fields:
        return _NOTHING
    try:
        return msgspec.convert(fields[CHAT_ONLY], ChatOnly)
    except msgspec.ValidationError:
        return _NOTHING


def _others(only: ChatOnly) -> dict[str, Any]:
    """Return the other fields of the message, except those that the items determine."""
    return _without(only.message, TRANSLATED)


def _message(item: Item) -> Message:
    fields = item.fields
    only = _chat_only(fields)
    message: Message = {**_others(only), "role": item.role, **_content_fields(fields["content"], only)}
    if "name" in fields:
        message["name"] = fields["name"]
    return message


def _content_fields(content: Any, only: ChatOnly) -> Message:
    if isinstance(content, str):
        return {"content": content}
    beside: Message = {}
    parts, apart = list(content), only.apart
    if not apart and only.content is None and _is_refusal(parts):
        apart = ("refusal",)
    for name in reversed(apart):
        if parts and name in parts[-1]:
            beside[name] = parts.pop()[name]
    if only.content == "parts":
        return {"content": chat_parts(parts), **beside}
    if not parts and (beside or only.content == "null"):
        return {"content": None, **beside}
    return {"content": chat_content(parts), **beside}


def _is_refusal(parts: list[dict[str, Any]]) -> bool:
    return len(parts) == 1 and parts[0].get("type") == "refusal" and "refusal" in parts[0]


def _call(item: Item, fields: Mapping[str, Any], only: ChatOnly) -> dict[str, Any]:
    kind = "custom" if item.type == "custom_tool_call" else "function"
    body = {"name": fields.get("name", item.type)}
    if kind == "custom":
        body["input"] = fields["input"]
    else:
        body["arguments"] = fields.get("arguments", "{}")
    return {**only.call, "id": item.call_id, "type": kind, kind: {**only.body, **body}}


def _result(item: Item) -> Message:
    fields = item.fields
    only, output = _chat_only(fields), fields.get("output")
    if only.content == "parts" and are_parts(output):
        content = chat_parts(output)
    else:
        content = chat_content(output)
    return {**_others(only), "role": "tool", "tool_call_id": item.call_id, "content": content}


# From messages to items.


class _ItemBuilder:
    """The items of the messages so far."""

    def __init__(self, waiting: Iterable[Item]) -> None:
        self.items: list[Item] = []
        self._types: dict[str, str] = {call.call_id or "": call.type for call in waiting}
        self._waiting: dict[str, list[str]] = {}  # by id, the places of messages that await a result
        self._joinable: str | None = None  # the place of the message that the next call would join

    def add(self, place: str, message: Message) -> None:
        role = message["role"]
        if role == "assistant":
            self._add_answer(place, message)
        elif role == "tool":
            self._add_result(place, message)
        else:
            self.items.append(_message_item(place, message))
            self._joinable = None

    def _add_answer(self, place: str, message: Message) -> None:
        calls = message.get("tool_calls", [])
        content = message.get("content")
        first = _NOTHING
        if not calls or content not in (None, "") or "refusal" in message or "audio" in message:
            self.items.append(_message_item(place, message))
        else:
            others = _without(message, TRANSLATED)
            first = ChatOnly(
                content=None if content is None else "empty",
                begins=content is not None or bool(others) or self._joinable is not None,
                message=others,
            )
        for number, call in enumerate(calls):
            only = _NOTHING if number else first
            self.items.append(_call_item(f"{place}.tool_calls[{number}]", call, only))
            self._types[call["id"]] = self.items[-1].type
            self._waiting.setdefault(call["id"], []).append(place)
        self._joinable = place

    def _add_result(self, place: str, message: Message) -> None:
        call_id, content = message["tool_call_id"], message["content"]
        kind = self._types.get(call_id, "function_call")
        output, form = content, None
        if isinstance(content, list):
            output = responses_parts(f"{place}.content", "tool", content)
            form = _form_of(output)
        only = ChatOnly(content=form, message=_without(message, TRANSLATED))
        self.items.append(
            _item(place, {"type": f"{kind}_output", "call_id": call_id, "output": output}, only)
        )
        # The result of an earlier message will move to that one, so this message can still be joined.
        waiting = self._waiting.get(call_id)
        if not waiting or waiting.pop() == self._joinable:
            self._joinable = None


def _message_item(place: str, message: Message) -> Item:
    role, content = message["role"], message.get("content")
    form: Literal["parts", "null"] | None = None
    if isinstance(content, str):
        parts = [text_part(role, content)]
    else:
        parts = responses_parts(f"{place}.content", role, content or [])
        form = _form_of(parts) if content is not None else None
    apart: list[Literal["refusal", "audio"]] = []
    if "refusal" in message:
        parts.append({"type": "refusal", "refusal": message["refusal"]})
        apart.append("refusal")
    if "audio" in message:
        parts.append({"type": "output_audio", "audio": message["audio"]})
        apart.append("audio")
    if content is None and not apart:
        form = "null"
    if content is None and _is_refusal(parts):
        apart.clear()  # a refusal alone becomes a field by default
    fields = {"type": "message", "role": role, "content": parts}
    if "name" in message:
        fields["name"] = message["name"]
    others = _without(message, TRANSLATED | {"name"})
    return _item(place, fields, ChatOnly(content=form, apart=tuple(apart), message=others))


def _form_of(parts: list[dict[str, Any]]) -> Literal["parts"] | None:
    """Return "parts" if these parts would otherwise come back as a text."""
    return None if isinstance(chat_content(parts), list) and not _is_refusal(parts) else "parts"


def _call_item(place: str, call: dict[str, Any], first: ChatOnly) -> Item:
    kind = call["type"]
    body, expected = call[kind], CALL_BODIES[kind]
    fields = {
        "type": CALL_TYPES[kind],
        "call_id": call["id"],
        "name": body["name"],
        expected: body[expected],
    }
    others = _without(call, {"id", "type", kind})
    only = msgspec.structs.replace(first, call=others, body=_without(body, {"name", expected}))
    return _item(place, fields, only)


def _item(place: str, fields: dict[str, Any], only: ChatOnly) -> Item:
    words = {name: getattr(only, name) for name in only.__struct_fields__}
    remembered = {name: word for name, word in words.items() if word}
    try:
        return Item.of({**fields, CHAT_ONLY: remembered} if remembered else fields)
    except MalformedItems as problem:
        raise MalformedItems(f"{place}: {problem}") from None


def _without(mapping: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name not in names}
