"""Turns and messages as a chat-completions client sees them, to find one in the other.

Both are reduced to a role, visible text, tool calls and images; ids, names, nulls and reasoning do not count.
The stored side is computed once per turn. The client's side must be fast, since clients send all of it each
time. Texts are compared, not hashed: fresh from JSON they have no hash yet, and comparing is faster.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import cached_property, reduce
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias
from unicodedata import normalize

import msgspec

from turnledger.errors import MalformedItems
from turnledger.model.item import NOT_ANSWERED, Item, calls_left_open, pair_places

Call: TypeAlias = tuple[str, str]
"""The name of a tool and its arguments, as written."""
UNMATCHED = ""
"""The role of messages that are never matched: instructions, notes and empty ones."""
MOST_HIDDEN = 4
"""Up to this many hidden items of a turn, a client may have any subset; beyond, all or none."""
_ROLES = {"system": UNMATCHED, "developer": UNMATCHED, "function": "tool"}


class ReducedMessage(NamedTuple):
    """The content of one chat message."""

    role: str
    text: str
    calls: tuple[Call, ...] = ()
    media: tuple[str, ...] = ()
    call_id: str | None = None


class Entry(msgspec.Struct, frozen=True, dict=True):
    """Consecutive messages of one role within a turn: texts, then calls; or the results of calls."""

    role: str
    pieces: tuple[str, ...]
    calls: tuple[Call, ...] = ()
    media: tuple[str, ...] = ()
    call_ids: tuple[str | None, ...] = ()

    @cached_property
    def compact_text(self) -> str:
        """The text without white space, since clients join pieces in different ways."""
        return remove_spaces("".join(self.pieces))

    @cached_property
    def may_be_absent(self) -> bool:
        """Whether a client's copy may lack it: only images, only thoughts, or results that the server filled
        in."""
        if self.calls:
            return False
        if self.role == "assistant":
            return not remove_thoughts("".join(self.pieces)).strip()
        return all(piece == NOT_ANSWERED for piece in self.pieces)

    @property
    def parts(self) -> list[Entry]:
        """One entry per message; an answer, whose messages are shown as one, stays whole."""
        if self.role == "assistant" or len(self.pieces) < 2:
            return [self]
        call_ids = self.call_ids or (None,) * len(self.pieces)
        return [
            Entry(self.role, (piece,), (), (), (call_id,))
            for piece, call_id in zip(self.pieces, call_ids, strict=True)
        ]


class ClientForm(Enum):
    """The form in which a client has a turn."""

    SEEN = auto()  # as this API shows it
    WHOLE = auto()  # with calls that the server answered, and their results
    HELD = auto()  # as it was shown before some of it was hidden


class ShownTurn(msgspec.Struct, frozen=True, dict=True):
    """A turn in every form that clients may have."""

    input: tuple[Entry, ...]
    output: tuple[Entry, ...]
    whole: tuple[Entry, ...] | None
    """All of it, with server-executed calls and their results; None when there are none."""
    echo: list[dict[str, Any]] | None
    """The messages that most clients send back verbatim; None when there are several ways to write them."""
    held: tuple[ShownTurn, ...] = ()
    """The turn with all or some of the hidden items, which a client may have received earlier."""
    hidden: frozenset[int] = frozenset()

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self.input + self.output

    @property
    def variants(self) -> tuple[ShownTurn, ...]:
        return (self, *self.held)

    @cached_property
    def forms(self) -> tuple[tuple[Entry, ...], ...]:
        """Every form that a client may have of the whole turn."""
        forms = (form for way in self.variants for form in (way.entries, way.whole) if form is not None)
        return tuple(dict.fromkeys(forms))

    def input_in(self, form: ClientForm) -> tuple[Entry, ...]:
        return self.held[0].input if form is ClientForm.HELD and self.held else self.input

    def entries_in(self, form: ClientForm) -> tuple[Entry, ...]:
        if form is ClientForm.WHOLE and self.whole is not None:
            return self.whole
        return self.held[0].entries if form is ClientForm.HELD and self.held else self.entries

    @cached_property
    def plain(self) -> tuple[str, str] | None:
        """Question and answer, when the turn has nothing else."""
        texts = [entry.pieces for entry in (*self.input, *self.output) if not entry.calls and not entry.media]
        if self.echo is None or len(self.echo) != 2 or [len(each) for each in texts] != [1, 1]:
            return None
        if self.input[0].role != "user":
            return None
        return texts[0][0], texts[1][0]

    @cached_property
    def bare_answer(self) -> str | None:
        """The plain answer without inline reasoning, as clients send it back; None if it has none."""
        answer = self.plain[1] if self.plain is not None else ""
        bare = remove_thoughts(answer).strip()
        return bare if bare and bare != answer and remove_thoughts(bare) == bare else None


def normalize_text(text: str) -> str:
    """Normalize to NFC and trim: clients trim, and keyboards encode umlauts differently."""
    return text.strip() if text.isascii() else normalize("NFC", text).strip()


def remove_spaces(text: str) -> str:
    return "".join(text.split())


def remove_thoughts(text: str) -> str:
    """Remove the reasoning that some models write into their answers, in pairs of tags; or in one before all
    text, if the answer was cut within its thoughts."""
    if "think>" not in text:
        return text
    *closed, rest = text.split("</think>")
    cut = [part.partition("<think>") for part in closed]
    shown = "".join(before if tag else before + "</think>" for before, tag, _ in cut)
    return shown if _begins_with_thoughts(rest) and not shown.strip() else shown + rest


_begins_with_thoughts = re.compile(r"\s*<think>").match


def without_thoughts(one: str, other: str) -> tuple[str, str] | None:
    """Return two answers without thoughts if one of them has none: clients strip thoughts, or add those that
    were sent apart. None if both have some, which must be equal, or neither has."""
    bare, other_bare = remove_thoughts(one), remove_thoughts(other)
    return None if (bare == one) is (other_bare == other) else (bare, other_bare)


def canonicalize(arguments: str) -> str:
    """Normalize the JSON of arguments, whatever its spelling; trim anything that is not JSON."""
    try:
        value = _whole_numbers(msgspec.json.decode(arguments.strip() or "{}"))
        return normalize("NFC", msgspec.json.encode(value, order="deterministic").decode())
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError):
        return normalize_text(arguments)


def same_calls(ones: Sequence[Call], others: Sequence[Call]) -> bool:
    """Return whether these are the same calls in the same order, by name and value of arguments."""
    return len(ones) == len(others) and all(
        one == other or (one[0] == other[0] and canonicalize(one[1]) == canonicalize(other[1]))
        for one, other in zip(ones, others, strict=True)
    )


def reduce_message(message: Mapping[str, Any]) -> ReducedMessage:
    """Reduce a chat message. Raises MalformedItems when it is not one."""
    role = message.get("role")
    if not isinstance(role, str):
        raise MalformedItems("A message needs a `role`, one of assistant, developer, system, tool, user.")
    role = _ROLES.get(role, role)
    content = message.get("content")
    if role == "tool":
        call_id = message.get("tool_call_id")
        text, media = _result(content)
        return ReducedMessage(role, text, (), media, call_id if isinstance(call_id, str) else None)
    text, media = (content, ()) if isinstance(content, str) else _parts(content)
    calls: tuple[Call, ...] = ()
    if role == "assistant":
        if isinstance(refusal := message.get("refusal"), str):
            text += refusal
        calls = _calls(message)
    text = normalize_text(text)
    return ReducedMessage(role if text or calls or media else UNMATCHED, text, calls, media)


def plain_text(message: Mapping[str, Any], role: str) -> str | None:
    """Return the text of a message of this role, if it has nothing else."""
    content = message.get("content")
    if type(content) is list and len(content) == 1 and type(content[0]) is dict:
        content = content[0].get("text")
    if type(content) is not str or message.get("role") != role:
        return None
    if len(message) > 2 and any(message.get(name) for name in ("tool_calls", "function_call", "refusal")):
        return None
    return normalize_text(content)


def project_turn(
    input: Sequence[Item],
    output: Sequence[Item],
    *,
    is_complete: bool = True,
    hidden: frozenset[int] = frozenset(),
) -> ShownTurn:
    """Return the forms of a committed turn. Clients have several of a turn that did not complete, or that has
    hidden items."""
    # The client sent the input itself, with its calls.
    seen_input, seen_output = _in_form(input, output, hidden, ClientForm.SEEN)
    whole = _in_form(input, output, hidden, ClientForm.WHOLE)[1]
    echoed = [*_echo(seen_input), *_echo(seen_output)] if is_complete and not hidden else []
    echo = [each for each in echoed if each is not None]
    return ShownTurn(
        _entries(seen_input),
        _entries(seen_output),
        _entries(seen_input) + _entries(whole) if len(whole) > len(seen_output) else None,
        echo if echo and len(echo) == len(echoed) else None,
        tuple(_held_variants(input, output, hidden)) if hidden else (),
        hidden,
    )


def _held_variants(
    input: Sequence[Item], output: Sequence[Item], hidden: frozenset[int]
) -> Iterable[ShownTurn]:
    """Yield the turn with all hidden items, then with each subset: a client may have read it in between."""
    yield project_turn(input, output, is_complete=False)
    here = {len(input) + place for place in _answered_in_turn(output)}
    items = (*input, *output)
    seen = [place for place in sorted(hidden - here) if _entry(items[place]) is not None]
    if len(seen) > MOST_HIDDEN:
        return
    for count in range(1, len(seen)):
        for still in map(set, combinations(seen, count)):
            seen_input, seen_output = (
                [item for place, item in enumerate(part, first) if place in still or place not in hidden]
                for first, part in ((0, input), (len(input), output))
            )
            yield project_turn(seen_input, seen_output, is_complete=False)


def items_before(
    input: Sequence[Item], output: Sequence[Item], hidden: Collection[int], at: tuple[ClientForm, int, int]
) -> tuple[Item, ...]:
    """Return the items of a turn before a piece of an entry, both counted in this form. Hidden items are left
    out, except calls whose results the client has from there on."""
    items = (*input, *output)
    before = count_before(input, output, hidden, at)
    held = calls_left_open(items[:before]) if at[0] is ClientForm.HELD else ()
    return tuple(item for place, item in enumerate(items[:before]) if place not in hidden or item in held)


def count_before(
    input: Sequence[Item], output: Sequence[Item], hidden: Collection[int], at: tuple[ClientForm, int, int]
) -> int:
    """Return how many items of a turn stand before a piece of an entry; see items_before."""
    form, place, piece = at
    seen_input, seen_output = _in_form(input, output, hidden, form)
    row = [item for item, _ in [*_rows(seen_input), *_rows(seen_output)][place]]
    pieces = [
        item for item in row if item.is_result or (item.type == "message" and normalize_text(item.text))
    ]
    # The calls come after all pieces.
    first = row[0] if not piece else [*pieces, *(item for item in row if item.is_call)][piece]
    return next(place for place, item in enumerate((*input, *output)) if item is first)


def _in_form(
    input: Sequence[Item], output: Sequence[Item], hidden: Collection[int], form: ClientForm
) -> tuple[Sequence[Item], Sequence[Item]]:
    if hidden and form is not ClientForm.HELD:
        count = len(input)
        input = [item for place, item in enumerate(input) if place not in hidden]
        output = [item for place, item in enumerate(output, count) if place not in hidden]
    if form is not ClientForm.WHOLE and (here := _answered_in_turn(output)):
        output = [item for place, item in enumerate(output) if place not in here]
    return input, output


def _echo(items: Iterable[Item]) -> list[dict[str, Any] | None]:
    """Return the messages of these items as the API shows them; None for one with several spellings."""
    echo: list[dict[str, Any] | None] = []
    for item in items:
        fields = item.fields
        answer = echo[-1] if echo and echo[-1] and echo[-1]["role"] == "assistant" else None
        if item.type == "message":
            is_text = item.role in ("user", "assistant") and not _parts(fields["content"])[1]
            if answer is None or item.role != "assistant":
                echo.append({"role": item.role, "content": item.text} if is_text else None)
            elif is_text and "tool_calls" not in answer:
                answer["content"] += item.text
            else:
                echo.append(None)
        elif item.type == "function_call":
            if answer is None:
                echo.append(answer := {"role": "assistant", "content": None})
            function = {"name": fields["name"], "arguments": fields["arguments"]}
            call = {"id": item.call_id, "type": "function", "function": function}
            answer.setdefault("tool_calls", []).append(call)
        elif item.type == "function_call_output" and isinstance(fields["output"], str):
            echo.append({"role": "tool", "tool_call_id": item.call_id, "content": fields["output"]})
        elif item.is_call or item.is_result:
            echo.append(None)
    return echo


def _answered_in_turn(items: Sequence[Item]) -> set[int]:
    """Return the places of calls that were answered within their turn, and of the results."""
    return {place for pair in pair_places(items) for place in pair}


def _entries(items: Iterable[Item]) -> tuple[Entry, ...]:
    return tuple([reduce(_join_entries, [entry for _, entry in row]) for row in _rows(items)])


def _rows(items: Iterable[Item]) -> list[list[tuple[Item, Entry]]]:
    """Return consecutive items of one role, each with what it adds to their entry."""
    rows: list[list[tuple[Item, Entry]]] = []
    for item in items:
        entry = _entry(item)
        if entry is None:
            continue
        if not rows or rows[-1][0][1].role != entry.role:
            rows.append([])
        rows[-1].append((item, entry))
    return rows


def _entry(item: Item) -> Entry | None:
    fields = item.fields
    if item.type == "message":
        role = _ROLES.get(item.role or UNMATCHED, item.role or UNMATCHED)
        text, media = normalize_text(item.text), _parts(fields.get("content"))[1]
        return Entry(role, (text,) if text else (), (), media) if role and (text or media) else None
    if item.is_call:
        arguments = fields.get("input") if item.type == "custom_tool_call" else fields.get("arguments", "{}")
        return Entry("assistant", (), ((str(fields.get("name", item.type)), str(arguments)),))
    if item.is_result:
        text, media = _result(fields.get("output"))
        return Entry("tool", (text,), (), media, (item.call_id,))
    return None


def _join_entries(one: Entry, other: Entry) -> Entry:
    return Entry(
        one.role,
        one.pieces + other.pieces,
        one.calls + other.calls,
        one.media + other.media,
        one.call_ids + other.call_ids,
    )


def _calls(message: Mapping[str, Any]) -> tuple[Call, ...]:
    calls = message.get("tool_calls")
    if not calls:
        old = message.get("function_call")
        return (_call(old, "arguments"),) if isinstance(old, Mapping) else ()
    if not isinstance(calls, list) or not all(isinstance(call, Mapping) for call in calls):
        raise MalformedItems("The `tool_calls` of a message must be a list of objects.")
    return tuple(
        _call(call["custom"], "input") if "custom" in call else _call(call.get("function"), "arguments")
        for call in calls
    )


def _call(body: Any, arguments: str) -> Call:
    if not isinstance(body, Mapping):
        raise MalformedItems("A tool call needs a `function` with `name` and `arguments`.")
    return str(body.get("name")), str(body.get(arguments, ""))


def _result(output: Any) -> tuple[str, tuple[str, ...]]:
    if isinstance(output, str):
        return normalize_text(output), ()
    if output is None:
        return "", ()
    if isinstance(output, list) and all(isinstance(part, Mapping) for part in output):
        text, media = _parts(output)
        return normalize_text(text), media
    return normalize_text(msgspec.json.encode(output).decode()), ()


def _parts(content: Any) -> tuple[str, tuple[str, ...]]:
    """Return the joined text of parts, and the other media in them."""
    if not isinstance(content, list):
        return "", ()
    texts: list[str] = []
    media: list[str] = []
    for part in content:
        if not isinstance(part, Mapping):
            continue
        text = part.get("text") or part.get("refusal")
        if isinstance(text, str):
            texts.append(text)
        else:
            media += _medium(part)
    return "".join(texts), tuple(media)


def _medium(part: Mapping[str, Any]) -> list[str]:
    """Return the address or the bytes of an image, a file or a sound: at most one."""
    for name in ("image_url", "file", "input_audio"):
        part = inner if isinstance(inner := part.get(name), Mapping) else part
    found = [part.get(name) for name in ("image_url", "url", "file_id", "file_url", "file_data", "data")]
    return [each for each in found if isinstance(each, str)][:1]


def _whole_numbers(value: Any) -> Any:
    """Make integers of whole floats, since JavaScript writes 1.0 as 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _whole_numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(each) for each in value]
    return value
