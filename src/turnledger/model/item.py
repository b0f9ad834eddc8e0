"""Items: the parts of a turn, in the shapes of the OpenAI Responses API, kept byte for byte as given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from turnledger.errors import MalformedItems, StoreCorrupt

_CALL, _RESULT = "_call", "_call_output"
# Hosted calls carry their result in themselves, so no result item ever follows.
_SELF_CONTAINED = frozenset(
    {
        "web_search_call",
        "file_search_call",
        "image_generation_call",
        "code_interpreter_call",
        "local_shell_call",
        "mcp_call",
    }
)
_TOOL_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_TEXT_PARTS = ("input_text", "output_text")
_ROLES = frozenset({"user", "assistant", "system", "developer"})

DEEPEST = 100
"""Nesting of lists and objects that is accepted: readers must be able to decode every stored item, however
deep their own stack is."""

_objects = msgspec.json.Decoder(dict[str, Any])

ItemLike: TypeAlias = "str | Mapping[str, Any] | Item"
"""A text (a user message), a mapping of the Responses or chat-message shape, or an item."""


class Item:
    """One immutable item. `raw` is its JSON; unknown fields and types are kept and passed on."""

    __slots__ = ("_fields", "raw", "type")
    raw: bytes
    type: str
    _fields: dict[str, Any]

    def __init__(self, raw: bytes | msgspec.Raw) -> None:
        """Parse the JSON of one object. Raises MalformedItems when it is not an item."""
        self.raw = bytes(raw).strip()
        self._fields = _decode(self.raw)
        self.type = self._fields["type"]

    @classmethod
    def stored(cls, raw: bytes | msgspec.Raw) -> Item:
        """Make an item of a store's JSON, decoded on first use: most items of a history are only passed on.
        Using one that is damaged raises StoreCorrupt."""
        item = cls.__new__(cls)
        item.raw = bytes(raw)
        return item

    if not TYPE_CHECKING:  # the slots are declared above

        def __getattr__(self, name: str) -> Any:
            # Called only for a slot that is not set yet.
            if name not in ("_fields", "type"):
                raise AttributeError(name)
            try:
                self._fields = _decode(self.raw)
            except MalformedItems as problem:
                raise StoreCorrupt(f"A stored item cannot be read: {problem}") from None
            self.type = self._fields["type"]
            return getattr(self, name)

    @classmethod
    def _made(cls, fields: dict[str, Any]) -> Item:
        """Make an item of trusted fields, unchecked."""
        item = cls.__new__(cls)
        try:
            item.raw = msgspec.json.encode(fields)
        except UnicodeEncodeError as problem:
            raise MalformedItems(f"A text must be Unicode: {problem}.") from None
        item._fields = fields
        item.type = fields["type"]
        return item

    @classmethod
    def of(cls, like: ItemLike) -> Item:
        """Make an item from a caller's value: a text is a user message."""
        if isinstance(like, Item):
            return like
        if isinstance(like, str):
            return message("user", like)
        if not isinstance(like, Mapping):
            raise MalformedItems(f"An item is a text or a mapping, not {type(like).__name__}.")
        fields = dict(like)
        if "type" not in fields and "role" in fields:
            fields = {"type": "message", **fields}
        return cls(_encode(fields))

    @property
    def fields(self) -> Mapping[str, Any]:
        """The decoded object; a fresh copy each time, so that callers cannot change the item."""
        fields: dict[str, Any] = msgspec.json.decode(self.raw)
        return fields

    @property
    def role(self) -> str | None:
        return self._fields.get("role")

    @property
    def call_id(self) -> str | None:
        return self._fields.get("call_id")

    @property
    def is_call(self) -> bool:
        """Whether a result item has to follow: a function call, a custom tool call and the like."""
        kind = self.type
        return kind.endswith(_CALL) and kind not in _SELF_CONTAINED and self.call_id is not None

    @property
    def is_result(self) -> bool:
        return self.type.endswith(_RESULT) and self.call_id is not None

    @property
    def is_reasoning(self) -> bool:
        return self.type == "reasoning"

    @property
    def is_user_message(self) -> bool:
        return self.type == "message" and self.role == "user"

    @property
    def text(self) -> str:
        """The visible text of a message, its parts joined; empty for other types."""
        content = self._fields.get("content")
        if self.type != "message" or content is None:
            return ""
        if isinstance(content, str):
            return content
        return "".join(part.get("text") or part.get("refusal") or "" for part in content)

    @property
    def only_text(self) -> str | None:
        """The text of a message that has only a role and one text; None for any other item."""
        fields = self._fields
        if self.type != "message" or len(fields) != 3:
            return None
        content = fields["content"]
        if isinstance(content, str):
            return content
        if len(content) == 1 and content[0].get("type") in _TEXT_PARTS and len(content[0]) <= 3:
            part = content[0]
            if len(part) == 2 or part.get("annotations") == []:
                text = part.get("text")
                return text if isinstance(text, str) else None
        return None

    @property
    def is_blank(self) -> bool:
        """Whether a message is empty: only white space, and no image, audio or file."""
        content = self._fields.get("content")
        if isinstance(content, str):
            return not content.strip()
        for part in content or ():
            text = part.get("text") or part.get("refusal") or ""
            if text.strip() or ("text" not in part and "refusal" not in part):
                return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Item) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"Item({self.raw.decode(errors='replace')})"


def message(role: str, text: str, *, status: str | None = None) -> Item:
    """Make a message item; only an assistant's text is output."""
    part: dict[str, Any] = {"type": "output_text" if role == "assistant" else "input_text", "text": text}
    if role == "assistant":
        part["annotations"] = []
    fields: dict[str, Any] = {"type": "message", "role": role, "content": [part]}
    if status is not None:
        fields["status"] = status
    return Item._made(fields)


def result_of(call: Item, output: str) -> Item:
    return Item._made({"type": f"{call.type}_output", "call_id": call.call_id, "output": output})


def is_unicode(text: str) -> bool:
    """Return whether the text can be encoded: a Python str may hold lone surrogates."""
    try:
        text.encode()
    except (UnicodeEncodeError, AttributeError):
        return False
    return True


def items_of(like: ItemLike | Iterable[ItemLike]) -> tuple[Item, ...]:
    if isinstance(like, str):
        return (message("user", like),)
    if isinstance(like, Mapping | Item):
        return (Item.of(like),)
    return tuple(Item.of(each) for each in like)


def _decode(raw: bytes) -> dict[str, Any]:
    try:
        fields = _objects.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise MalformedItems(f"An item must be a JSON object: {problem}.") from None
    _check_shape(fields)
    return fields


def _check_shape(fields: dict[str, Any]) -> None:
    """Reject fields that no reader could place in a history; the caller answers for all others."""
    kind = fields.get("type")
    if not isinstance(kind, str) or not kind:
        raise MalformedItems("An item needs a `type`, for example `message` or `function_call`.")
    if kind == "message":
        _check_message(fields)
    elif kind in _TOOL_CALLS:
        _check_text(fields, kind, "call_id")
        _check_text(fields, kind, "name")
        _check_text(fields, kind, _TOOL_CALLS[kind], empty=True)
    elif kind.removesuffix("_output") in _TOOL_CALLS:
        _check_text(fields, kind, "call_id")
        if "output" not in fields:
            raise MalformedItems(f"A {kind} needs an `output`.")
    elif kind.endswith((_CALL, _RESULT)) and kind not in _SELF_CONTAINED and "call_id" in fields:
        _check_text(fields, kind, "call_id")


def _check_text(fields: dict[str, Any], kind: str, name: str, *, empty: bool = False) -> None:
    value = fields.get(name)
    if not isinstance(value, str) or not (value or empty):
        raise MalformedItems(f"A {kind} needs `{name}`, a text.")


def _encode(fields: dict[str, Any]) -> bytes:
    try:
        check_plain(fields)
        return msgspec.json.encode(fields)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as problem:
        raise MalformedItems(f"An item must be plain JSON: {problem}.") from None


def check_plain(value: Any, levels: int = DEEPEST) -> None:
    """Raise ValueError for a value that JSON cannot keep: the encoder would turn NaN and infinities into
    null, and deep nesting could not be decoded again."""
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{value} is not a number in JSON")
    elif isinstance(value, Mapping | list | tuple):
        if not levels:
            raise ValueError(f"it is nested more than {DEEPEST} levels deep")
        for each in value.values() if isinstance(value, Mapping) else value:
            check_plain(each, levels - 1)


def _check_message(fields: dict[str, Any]) -> None:
    role = fields.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise MalformedItems(f"A message needs a `role`, one of {', '.join(sorted(_ROLES))}.")
    content = fields.get("content")
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise MalformedItems("A message needs `content`: a text, or a list of parts.")
    for part in content:
        if not isinstance(part.get("text", ""), str) or not isinstance(part.get("refusal", ""), str):
            raise MalformedItems("The `text` of a message part must be a text.")
