"""The parts of content, in chat shape and in Responses shape: texts, images, audio, files, refusals.

A part is translated where the other shape has exactly the same thing, and carried verbatim where it has not:
`text` is `input_text` or `output_text`, `image_url` is `input_image`, `file` is `input_file`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

import msgspec

from turnledger.errors import MalformedItems

Part: TypeAlias = dict[str, Any]


def are_parts(content: Any) -> TypeGuard[list[Part]]:
    return isinstance(content, list) and all(isinstance(part, dict) for part in content)


def chat_content(content: Any) -> Any:
    """Return the content of an item for a chat message: text alone as a text, anything richer as parts."""
    if isinstance(content, str) or content is None:
        return content
    if not are_parts(content):
        return msgspec.json.encode(content).decode()
    parts = chat_parts(content)
    return "".join(part["text"] for part in parts) if all(map(_is_text, parts)) else parts


def _is_text(part: Part) -> bool:
    return part.keys() == {"type", "text"} and part["type"] == "text" and isinstance(part["text"], str)


def chat_parts(parts: Sequence[Part]) -> list[Part]:
    """Return the parts of an item in chat shape, one for one, unknown ones verbatim."""
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


def text_part(role: str, text: str) -> Part:
    """Return a text as an item has it: an assistant's is output, everybody else's is input."""
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": []}
    return {"type": "input_text", "text": text}


def responses_parts(place: str, role: str, parts: Sequence[Any]) -> list[Part]:
    """Return the parts of a chat message as an item has them, one for one, unknown ones verbatim; raise
    MalformedItems, which names the place, for what is not a part."""
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
        if kind == "image_url" and isinstance(body, Mapping) and _is_plain_image(body):
            return {"type": "input_image", "image_url": body["url"], **_without_url(body)}
        if kind == "file" and isinstance(body, Mapping) and "type" not in body:
            return {"type": "input_file", **body}
    return dict(part)


def _is_plain_image(body: Mapping[str, Any]) -> bool:
    return body.get("url") is not None and body.keys() <= {"url", "detail"}


def _without_url(body: Mapping[str, Any]) -> Part:
    return {name: value for name, value in body.items() if name != "url"}
