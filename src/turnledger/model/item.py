"""Items: the parts of a turn, in the shapes of the OpenAI Responses API, kept byte for byte as given; and
how they may follow each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from turnledger.errors import InvalidInput, MalformedItems, MissingToolResults, NoNewInput, StoreCorrupt
from turnledger.model.text.plain import plain

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
                raise StoreCorrupt(
                    f"A stored item cannot be read: {problem} Restore the store from a backup."
                ) from None
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
    def has_unknown_outcome(self) -> bool:
        """Whether this is the result of a call that was started, and whose own result was never recorded."""
        return self.is_result and self._fields.get("output") == OUTCOME_UNKNOWN

    @property
    def is_reasoning(self) -> bool:
        return self.type == "reasoning"

    @property
    def is_user_message(self) -> bool:
        return self.type == "message" and self.role == "user"

    @property
    def is_refusal(self) -> bool:
        """Whether it is a message in which the model only declines to answer."""
        content = self._fields.get("content") if self.type == "message" else None
        return isinstance(content, list) and [part.get("type") for part in content] == ["refusal"]

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
    def body(self) -> str:
        """The text that a model streams: of a message, of reasoning, or the arguments of a call."""
        if self.type == "message":
            return self.text
        if self.is_reasoning:
            parts = self._fields.get("content") or self._fields.get("summary")
            texts = (
                [part.get("text") for part in parts if isinstance(part, dict)]
                if isinstance(parts, list)
                else []
            )
            return "".join(text for text in texts if isinstance(text, str))
        body = self._fields.get(_TOOL_CALLS.get(self.type, "arguments"))
        return body if isinstance(body, str) else ""

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

    @property
    def is_empty_answer(self) -> bool:
        """Whether it is a blank message of a model. Models are not shown it: many refuse one."""
        return self.type == "message" and self.role == "assistant" and self.is_blank

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Item) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"Item({self.raw.decode(errors='replace')})"


def text_part(role: str, text: str) -> dict[str, Any]:
    """Make a part of a message; only an assistant's text is output."""
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": []}
    return {"type": "input_text", "text": text}


def message(role: str, text: str, *, status: str | None = None) -> Item:
    return _message(role, text_part(role, text), status)


def refusal(text: str, *, status: str | None = None) -> Item:
    """Make the message of a model that declines to answer."""
    return _message("assistant", {"type": "refusal", "refusal": text}, status)


def _message(role: str, part: dict[str, Any], status: str | None) -> Item:
    fields: dict[str, Any] = {"type": "message", "role": role, "content": [part]}
    if status is not None:
        fields["status"] = status
    return Item._made(fields)


def reasoning(text: str) -> Item:
    part = {"type": "reasoning_text", "text": text}
    return Item._made({"type": "reasoning", "summary": [], "content": [part]})


def call_of(type: str, call_id: Any, name: Any, arguments: str = "") -> Item:
    """Make a call. Raises MalformedItems for a type without arguments, and for an empty id or name."""
    if type not in _TOOL_CALLS:
        raise MalformedItems(f"A call of type {type!r} has no arguments: use {' or '.join(_TOOL_CALLS)}.")
    fields = {"type": type, "call_id": call_id, "name": name, _TOOL_CALLS[type]: arguments}
    _check_shape(fields)
    return Item._made(fields)


def opening_of(call: Item) -> Item:
    """Return a call as it is opened: without arguments, and without fields that are known only later."""
    return call_of(call.type, call._fields.get("call_id"), call._fields.get("name"))


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
        raise MalformedItems(f"A {plain(kind)[:80]} needs `{name}`, a text.")


def _encode(fields: dict[str, Any]) -> bytes:
    try:
        check_plain(fields)
        return msgspec.json.encode(fields)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as problem:
        raise MalformedItems(f"An item must be plain JSON: {problem}.") from None


_PLAIN = frozenset({str, int, bool, type(None)})


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
            if type(each) not in _PLAIN:  # most values: a call for each would take a second for a large item
                check_plain(each, levels - 1)


def raw_object(name: str, values: object) -> bytes:
    """A caller's values as a JSON object; raises InvalidInput with this name for what is none. It is read
    again at once: a document with anything else inside could not be."""
    try:
        raw = msgspec.json.encode(dict(values) if isinstance(values, Mapping) else values)
        decoded = _objects.decode(raw)
        if raw.count(b"{") + raw.count(b"[") > DEEPEST:
            check_plain(decoded)
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidInput(f"{name} must be a dict of JSON values: {problem}.") from None
    return raw


def object_of(raw: msgspec.Raw) -> dict[str, Any]:
    """The values of a JSON object inside a document."""
    try:
        return _objects.decode(raw)
    except (ValueError, RecursionError) as problem:
        raise StoreCorrupt(
            f"A stored object cannot be read: {problem}. Restore the store from a backup."
        ) from None


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


# Well-formed histories: each call has its result, per occurrence and in order, and reasoning stays with the
# item it belongs to. Call ids repeat in practice, so nothing here treats them as unique.

NOT_ANSWERED = "Not answered: the conversation moved on before a result was given for this call."
NOT_STARTED = "Not started: the turn ended before this call was run. It has had no effect."
OUTCOME_UNKNOWN = (
    "Started, outcome unknown: the turn ended before a result was recorded. The call may or may not have "
    "taken effect. Find out before calling it again."
)


def open_calls(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return the calls that no later item answers, in order. Raises MalformedItems for a stray result, a call
    id reused while its call is open, or reasoning without the item it belongs to."""
    waiting: dict[str, Item] = {}
    reasoning: Item | None = None
    for item in items:
        if reasoning is not None and not item.is_reasoning and not can_follow_reasoning(item):
            raise MalformedItems(
                f"A reasoning item is followed by a {plain(item.type)[:80]}, not by what it led to. "
                "Keep both together."
            )
        reasoning = item if item.is_reasoning else None
        if item.type == "message":
            continue
        call_id = item.call_id or ""
        if item.is_call:
            if call_id in waiting:
                raise MalformedItems(
                    f"The call id {plain(call_id)[:80]} is reused before its result has arrived. "
                    "Use a new id."
                )
            waiting[call_id] = item
        elif item.is_result:
            call = waiting.pop(call_id, None)
            if call is None:
                raise MalformedItems(
                    f"There is a result for {plain(call_id)[:80]}, but no such call is pending. Check its id."
                )
            if f"{call.type}_output" != item.type:
                raise MalformedItems(
                    f"The result for {plain(call_id)[:80]} is a {plain(item.type)[:80]}. "
                    f"Send a {plain(call.type)[:80]}_output."
                )
    if reasoning is not None:
        raise MalformedItems("A reasoning item at the end lacks the item it led to. Send both, or neither.")
    return tuple(waiting.values())


def calls_left_open(turn: Iterable[Item]) -> tuple[Item, ...]:
    """Return the calls that a committed turn leaves open, whatever it answered of the turn before."""
    waiting: dict[str | None, Item] = {}
    for item in turn:
        if item.type == "message":
            continue
        if item.is_call:
            waiting[item.call_id] = item
        elif item.is_result:
            waiting.pop(item.call_id, None)
    return tuple(waiting.values())


def pair_places(items: Iterable[Item]) -> list[tuple[int, int]]:
    """Return the places of each answered call and its result, per occurrence."""
    found: list[tuple[int, int]] = []
    waiting: dict[str | None, int] = {}
    for place, item in enumerate(items):
        if item.is_call:
            waiting[item.call_id] = place
        elif item.is_result and item.call_id in waiting:
            found.append((waiting.pop(item.call_id), place))
    return found


def started_calls(output: Sequence[Item]) -> tuple[int, ...]:
    """Return the places of calls with a result in the same output, except those reported as not started."""
    ran = (call for call, result in pair_places(output) if output[result].fields.get("output") != NOT_STARTED)
    return tuple(sorted(ran))


def closing_results(pending: Iterable[Item]) -> tuple[Item, ...]:
    """Return the filled-in result for each of these calls, when the conversation moves on without one."""
    return tuple(result_of(call, NOT_ANSWERED) for call in pending)


def adapt_input(pending: Iterable[Item], input: Iterable[Item]) -> tuple[Item, ...]:
    """Adapt the input of a turn to another place, where these calls wait: it closes them, and answers
    none."""
    return (*closing_results(pending), *without_answers(input))


def without_answers(input: Iterable[Item]) -> tuple[Item, ...]:
    """Return the input of a turn without results for calls of the turn before. Calls with their results, as
    in a client's copy of a history, stay."""
    open_here: set[str | None] = set()
    kept: list[Item] = []
    for item in input:
        if item.is_call:
            open_here.add(item.call_id)
        elif item.is_result:
            if item.call_id not in open_here:
                continue
            open_here.remove(item.call_id)
        kept.append(item)
    return tuple(kept)


def without_repeated_answers(earlier: Iterable[Item], new: Sequence[Item]) -> tuple[Item, ...]:
    """Return new input without results that `earlier` already gave to calls of the turn before."""
    answered = {item.call_id for item in earlier if item.is_result}
    stays = set(without_answers(new) if answered else new)
    return tuple(item for item in new if item in stays or item.call_id not in answered)


def can_follow_reasoning(item: Item) -> bool:
    """Return whether a model makes such items: results and messages of others never follow reasoning."""
    return not item.is_result and item.role in (None, "assistant")


def check_input(new: Sequence[Item]) -> None:
    """Reject input that no head could admit: nothing new, or items that only a model makes."""
    has_result = False
    for item in new:
        if item.type == "message":
            continue
        if item.is_call or item.is_reasoning:
            raise MalformedItems(
                f"A {plain(item.type)[:80]} cannot be input: only models produce it. Omit it."
            )
        has_result = has_result or item.is_result
    if not has_result and not _has_user_message(new):
        raise NoNewInput


def check_resent(new: Sequence[Item]) -> None:
    """Reject a history without new input. Unlike input, it may contain what models made, calls included."""
    if not _has_user_message(new) and not any(item.is_result for item in new):
        raise NoNewInput


def _has_user_message(new: Sequence[Item]) -> bool:
    return any(item.is_user_message and not item.is_blank for item in new)


def admit(pending: Sequence[Item], new: Sequence[Item], *, is_whole: bool = False) -> tuple[Item, ...]:
    """Return the input of a turn after a head with `pending` calls, completed if necessary. It has passed
    `check_input`, which needs no head. The items of a whole turn may end with calls left to the client.

    A user message while calls are pending closes the unanswered ones with a filled-in result. Raises
    MissingToolResults or MalformedItems before anything changed.
    """
    if not pending and all(item.type == "message" for item in new):
        return tuple(new)
    if any(item.is_call for item in new):
        return _admit_history(pending, new, may_leave_calls=is_whole)
    answered = {item.call_id for item in new if item.is_result}
    if not pending and not answered:
        open_calls(new)
        return tuple(new)
    has_user_message = _has_user_message(new)
    missing = [call for call in pending if call.call_id not in answered]
    if missing and not has_user_message:
        raise MissingToolResults(tuple(call.call_id or "" for call in missing))
    # Results come before the message: models require them directly after their calls.
    results = [item for item in new if item.is_result] + list(closing_results(missing))
    admitted = (*results, *(item for item in new if not item.is_result))
    open_calls((*pending, *admitted))
    return admitted


def _admit_history(
    pending: Sequence[Item], new: Sequence[Item], *, may_leave_calls: bool
) -> tuple[Item, ...]:
    """Admit input that has calls with their results, as a client's copy of a history does. Pending calls are
    answered or closed first. Calls that a later message moved on from are closed before it."""
    waiting = {call.call_id: call for call in pending}
    answers: list[Item] = []
    rest: list[Item] = []
    open_here: set[str | None] = set()
    lost: dict[str | None, Item] = {}
    unanswered = _unanswered(new)
    for place, item in enumerate(new):
        if item.is_result and item.call_id in waiting and item.call_id not in open_here:
            del waiting[item.call_id]
            answers.append(item)
            continue
        if item.is_call:
            open_here.add(item.call_id)
            if place in unanswered:
                lost[item.call_id] = item
            else:
                lost.pop(item.call_id, None)
        elif item.is_result:
            open_here.discard(item.call_id)
        elif lost and _has_user_message((item,)):
            rest += closing_results(lost.values())
            open_here -= lost.keys()
            lost.clear()
        rest.append(item)
    admitted = (*answers, *closing_results(waiting.values()), *rest)
    left = open_calls((*pending, *admitted))
    if left and not may_leave_calls:
        raise MissingToolResults(tuple(call.call_id or "" for call in left))
    return admitted


def answered_from(items: Sequence[Item]) -> int:
    """Return the place of the first item that a model makes: the answer of a whole turn begins there."""
    return next((place for place, item in enumerate(items) if can_follow_reasoning(item)), len(items))


def _unanswered(items: Sequence[Item]) -> set[int]:
    """Return the places of calls whose id occurs next in no result."""
    found: set[int] = set()
    is_result_next: dict[str | None, bool] = {}
    for place in range(len(items) - 1, -1, -1):
        item = items[place]
        if item.is_call and not is_result_next.get(item.call_id, False):
            found.add(place)
        if item.is_call or item.is_result:
            is_result_next[item.call_id] = item.is_result
    return found


def without_open_reasoning(draft: Sequence[Item]) -> Sequence[Item]:
    """Return the draft without reasoning at its end, whose item may still follow."""
    end = len(draft)
    while end and draft[end - 1].is_reasoning:
        end -= 1
    return draft[:end]


def without_empty_answers(items: Sequence[Item]) -> Sequence[Item]:
    """Return the items of whole turns as models accept them: without empty answers, and without reasoning
    that led to nothing else."""
    for item in items:  # a generator would cost each turn more
        if item.is_empty_answer:
            break
    else:
        return items
    kept: list[Item] = []
    for item in reversed(items):
        leads_on = not item.is_reasoning or (kept and can_follow_reasoning(kept[-1]))
        if leads_on and not item.is_empty_answer:
            kept.append(item)
    return kept[::-1]


# Stores and wires keep items as they were given: raw JSON.


def raws(items: Iterable[Item]) -> tuple[msgspec.Raw, ...]:
    return tuple([msgspec.Raw(item.raw) for item in items])


def stored_items(raw_items: Sequence[msgspec.Raw]) -> tuple[Item, ...]:
    """Return stored items, each decoded on first use."""
    return tuple([Item.stored(raw) for raw in raw_items])


def checked_items(raw_items: Sequence[msgspec.Raw]) -> tuple[Item, ...]:
    """Return stored items, all decoded now. Raises StoreCorrupt for a damaged one."""
    found = stored_items(raw_items)
    for item in found:
        _ = item.type
    return found
