"""Items as chat messages: the shape that chat-completions models and most frameworks take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from turnledger.model.item import Item

Message: TypeAlias = dict[str, Any]


def messages_of(items: Iterable[Item]) -> list[Message]:
    """Return the items as chat messages. Calls become part of the assistant message before them, and results
    stand directly behind the message of their calls, as models demand; reasoning has no place in this shape
    and is left out."""
    blocks: list[list[Message]] = []
    block_of_call: dict[str | None, list[Message]] = {}
    for item in items:
        if item.type == "message":
            blocks.append([_message(item)])
        elif item.is_call:
            if not blocks or blocks[-1][-1]["role"] != "assistant":
                blocks.append([{"role": "assistant", "content": None}])
            blocks[-1][0].setdefault("tool_calls", []).append(_call(item))
            block_of_call[item.call_id] = blocks[-1]
        elif item.is_result and item.call_id in block_of_call:
            output = _content(item.fields.get("output"))
            block_of_call[item.call_id].append(
                {"role": "tool", "tool_call_id": item.call_id, "content": output}
            )
    return [message for block in blocks for message in block]


def _message(item: Item) -> Message:
    content = item.fields.get("content")
    message: Message = {"role": item.role, "content": _content(content)}
    if isinstance(content, list) and len(content) == 1 and content[0].get("type") == "refusal":
        message["content"], message["refusal"] = None, content[0].get("refusal")
    if "name" in item.fields:
        message["name"] = item.fields["name"]
    return message


def _call(item: Item) -> dict[str, Any]:
    fields = item.fields
    if item.type == "custom_tool_call":
        custom = {"name": fields.get("name"), "input": fields.get("input")}
        return {"id": item.call_id, "type": "custom", "custom": custom}
    function = {"name": fields.get("name", item.type), "arguments": fields.get("arguments", "{}")}
    return {"id": item.call_id, "type": "function", "function": function}


def _content(content: Any) -> Any:
    """Text alone is sent as a text; anything richer as parts, unknown ones verbatim."""
    if isinstance(content, str) or content is None:
        return content
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        return msgspec.json.encode(content).decode()
    parts = [_part(part) for part in content]
    if all(part.get("type") == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _part(part: dict[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text"):
        return {"type": "text", "text": part.get("text", "")}
    if kind == "input_image" and part.get("image_url") is not None:
        image = {"url": part["image_url"]} | ({"detail": part["detail"]} if "detail" in part else {})
        return {"type": "image_url", "image_url": image}
    if kind == "input_file":
        return {"type": "file", "file": {name: value for name, value in part.items() if name != "type"}}
    return dict(part)
