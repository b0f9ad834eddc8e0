"""The input of a request: items of the client, also those that earlier responses returned.

Clients send output items back as they received them, with all their fields. What only repeats the state of an
item is accepted. A field that a chat-completions model cannot be shown is refused by its name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from turnledger.errors import MalformedItems
from turnledger.model.item import Item, items_of
from turnledger.model.text.plain import plain
from turnledger.server.errors import RequestRefused
from turnledger.server.responses.translation import check_known, invalid, unsupported

REFERENCE = "item_reference"
_STATE = ("type", "id", "status", "created_by")
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "message": (*_STATE, "role", "content", "name", "phase"),
    "reasoning": (*_STATE, "summary", "content", "encrypted_content"),
    "function_call": (*_STATE, "call_id", "name", "arguments"),
    "function_call_output": (*_STATE, "call_id", "name", "output"),
    "custom_tool_call": (*_STATE, "call_id", "name", "input"),
    "custom_tool_call_output": (*_STATE, "call_id", "name", "output"),
}
# Not sets: clients send values that have no hash.
_TYPES = (*_FIELDS, REFERENCE)
_TEXTS = ("id", "status", "created_by", "name", "phase", "encrypted_content")
_STATUSES = ("completed", "in_progress", "incomplete")
_PARTS: Mapping[str, tuple[str, ...]] = {
    "input_text": ("type", "text"),
    "output_text": ("type", "text", "annotations", "logprobs"),
    "refusal": ("type", "refusal"),
    "input_image": ("type", "image_url", "detail"),
    "input_file": ("type", "file_data", "file_id", "filename"),
    "input_audio": ("type", "input_audio"),
}
_SUMMARY: Mapping[str, tuple[str, ...]] = {"summary_text": ("type", "text")}
_REASONING: Mapping[str, tuple[str, ...]] = {"reasoning_text": ("type", "text")}
_CONTENT: Mapping[str, tuple[str, ...]] = {
    "input_text": ("text",),
    "output_text": ("text",),
    "refusal": ("refusal",),
    "input_image": ("image_url",),
    "input_file": ("file_data", "file_id"),
    "summary_text": ("text",),
    "reasoning_text": ("text",),
}
"""The fields one of which holds the content of a part."""
_LISTS = ("annotations", "logprobs")
_MAY_BE_EMPTY = ("text", "refusal")
_WITHOUT_EFFECT: Mapping[str, tuple[Any, ...]] = {
    "async": (False,),
    "async_": (False,),
    "caller": ({"type": "direct"},),
    "detail": ("auto",),
}
"""Values of fields that are the same as none."""
_DROPPED = ("parsed", "parsed_arguments", "prompt_cache_breakpoint")
"""Fields of the client libraries' own objects, and hints about the cost."""


def input_items(raw: msgspec.Raw, most: int, field: str = "input") -> list[Item | str]:
    """Return the items of a request; a text stands for a reference to a stored item. Raises RequestRefused
    with the place of an item that no model here understands."""
    given: Any = msgspec.json.decode(raw)
    if given in (None, ""):
        return []
    if isinstance(given, str):
        return list(items_of(given))
    if not isinstance(given, list):
        raise invalid(field, "must be a text or a list of items.")
    if len(given) > most:
        raise invalid(field, f"has more than {most} items. Send fewer.")
    return [_input_item(f"{field}[{number}]", each) for number, each in enumerate(given)]


def _input_item(place: str, given: Any) -> Item | str:
    if not isinstance(given, dict):
        raise invalid(place, "must be an object.")
    fields = {name: value for name, value in given.items() if value is not None}
    kind = fields.setdefault("type", "message" if "role" in fields else None)
    if kind == REFERENCE or (kind is None and isinstance(fields.get("id"), str)):
        return _reference(place, fields)
    if kind not in _TYPES:
        raise _unknown_type(place, kind, _TYPES)
    fields = _known(place, fields, _FIELDS[kind])
    for name in _TEXTS:
        if not isinstance(fields.get(name, ""), str):
            raise invalid(f"{place}.{name}", "must be a text.")
    if fields.get("status", "completed") not in _STATUSES:
        raise invalid(f"{place}.status", f"must be one of {', '.join(_STATUSES)}.")
    if kind == "reasoning":
        for name, parts in (("summary", _SUMMARY), ("content", _REASONING)):
            if name in fields:
                fields[name] = _parts(f"{place}.{name}", fields[name], parts)
    else:
        name = "content" if kind == "message" else "output"
        if name in fields and not isinstance(fields[name], str):
            fields[name] = _parts(f"{place}.{name}", fields[name], _PARTS)
    try:
        return Item.of(fields)
    except MalformedItems as problem:
        raise RequestRefused(400, MalformedItems.code, f"{place}: {problem}", param=place) from None


def _reference(place: str, fields: Mapping[str, Any]) -> str:
    check_known(place, fields, ("type", "id"))
    id = fields.get("id")
    if not isinstance(id, str):
        raise invalid(f"{place}.id", "must be the id of an item.")
    return id


def _parts(place: str, given: Any, known: Mapping[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    if not isinstance(given, list):
        raise invalid(place, "must be a list of parts.")
    return [_part(f"{place}[{number}]", part, known) for number, part in enumerate(given)]


def _part(place: str, given: Any, known: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    kind = given.get("type") if isinstance(given, dict) else None
    if kind not in tuple(known):
        raise _unknown_type(place, kind, known)
    if kind == "input_file" and given.get("file_url") is not None:
        raise unsupported(f"{place}.file_url", "nothing is fetched from URLs. Send `file_data`.")
    if kind == "input_image" and given.get("file_id") is not None:
        raise unsupported(f"{place}.file_id", "files are not stored here. Send an `image_url`.")
    part = _known(place, given, known[kind])
    if kind == "input_audio":
        _check_audio(f"{place}.input_audio", part.get("input_audio"))
        return part
    for name, value in part.items():
        if not isinstance(value, list if name in _LISTS else str):
            raise invalid(f"{place}.{name}", f"must be a {'list' if name in _LISTS else 'text'}.")
    present = [name for name in _CONTENT[kind] if name in part]
    name = present[0] if present else _CONTENT[kind][0]
    if not present or not (part[name] or name in _MAY_BE_EMPTY):
        raise invalid(f"{place}.{name}", f"a part of type {kind} needs it, as a text.")
    return part


def _check_audio(place: str, given: Any) -> None:
    audio = given if isinstance(given, dict) else {}
    check_known(place, audio, ("data", "format"))
    for name in ("data", "format"):
        if not isinstance(audio.get(name), str) or not audio[name]:
            raise invalid(f"{place}.{name}", "a part of type input_audio needs it, as a text.")


def _known(place: str, given: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return the known fields that are not null. Raises RequestRefused for others that say something."""
    fields = {name: value for name, value in given.items() if value is not None and name not in _DROPPED}
    unknown = {name: value for name, value in fields.items() if name not in known}
    rest = {name: value for name, value in unknown.items() if value not in _WITHOUT_EFFECT.get(name, ())}
    check_known(place, rest, ())
    return {name: value for name, value in fields.items() if name not in unknown}


def _unknown_type(place: str, kind: Any, known: Collection[str]) -> RequestRefused:
    reason = f"{plain(str(kind)[:40])!r} is not supported here. Known: {', '.join(known)}."
    return unsupported(f"{place}.type", reason)
