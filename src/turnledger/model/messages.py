"""Items as chat messages: the shape that chat-completions models and most frameworks take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from turnledger.model.item import Item

Message = dict[str, Any]


def messages_of(items: Iterable[Item]) -> list[Message]:
    """Return the items as chat messages. Calls that follow one another become one assistant message,
    joined to the text before them; reasoning has no place in this shape and is left out."""
    messages: list[Message] = []
    for item in items:
        if item.type == "message":
            messages.append(_message(item))
        elif item.is_call:
            _join_call(messages, item)
        elif item.is_result:
            output = item.fields["output"]
            messages.append({"role": "tool", "tool_call_id": item.call_id, "content": _content(output)})
    return messages


def _message(item: Item) -> Message:
    content = item.fields.get("content")
    message: Message = {"role": item.role, "content": _content(content)}
    if isinstance(content, list) and len(content) == 1 and content[0].get("type") == "refusal":
        message["content"], message["refusal"] = None, content[0].get("refusal")
    if "name" in item.fields:
        message["name"] = item.fields["name"]
    return message


def _join_call(messages: list[Message], item: Item) -> None:
    fields = item.fields
    if item.type == "custom_tool_call":
        body = {"type": "custom", "custom": {"name": fields.get("name"), "input": fields.get("input")}}
    else:
        function = {"name": fields.get("name", item.type), "arguments": fields.get("arguments", "{}")}
        body = {"type": "function", "function": function}
    call = {"id": item.call_id, **body}
    if messages and messages[-1]["role"] == "assistant":
        messages[-1].setdefault("tool_calls", []).append(call)
    else:
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})


def _content(content: Any) -> Any:
    """Text alone is sent as a text; anything richer as parts, unknown ones verbatim."""
    if not isinstance(content, list):
        return content
    parts = [_part(part) for part in content]
    if all(part.get("type") == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _part(part: dict[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text"):
        return {"type": "text", "text": part.get("text", "")}
    if kind == "input_image" and "image_url" in part:
        image = {"url": part["image_url"]} | ({"detail": part["detail"]} if "detail" in part else {})
        return {"type": "image_url", "image_url": image}
    if kind == "input_file":
        return {"type": "file", "file": {name: value for name, value in part.items() if name != "type"}}
    return dict(part)
