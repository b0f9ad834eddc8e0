"""Ids of responses and items, and items as the Responses and Conversations APIs show them.

A response is a turn under another prefix. The id of an item is derived from its turn, so that a stream can
announce it before the turn is committed: it counts items of one kind, since the reasoning of an answer is
stored before text that may have been streamed first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from turnledger.errors import InvalidId, TurnNotFound
from turnledger.model.event_log import VOIDED
from turnledger.model.ids import TurnId
from turnledger.model.item import Item
from turnledger.model.messages.messages import CHAT_ONLY
from turnledger.model.turn import Turn

RESPONSE = "resp_"
PREFIXES: Mapping[str, str] = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "custom_tool_call": "ctc_",
    "custom_tool_call_output": "ctco_",
}
OTHER = "item_"

_HEX, _SUFFIX = 32, 7
_INPUT, _OUTPUT, _REFUSAL = "0", "1", "2"


def response_id(turn: TurnId) -> str:
    return RESPONSE + turn[len(TurnId.prefix) :]


def turn_of(response: str) -> TurnId:
    """Return the turn of a response; its own id is accepted, too. Raises InvalidId."""
    return TurnId(
        TurnId.prefix + response.removeprefix(RESPONSE) if response.startswith(RESPONSE) else response
    )


def output_id(turn: TurnId, type: str, ordinal: int, *, is_refusal: bool = False, voids: int = 0) -> str:
    """Return the id of an item of an answer: `ordinal` counts the items of its kind before it, `voids` how
    often the process of the turn had died."""
    return _id(turn, type, _REFUSAL if is_refusal else _OUTPUT, ordinal, voids)


def _id(turn: TurnId, type: str, place: str, ordinal: int, voids: int = 0) -> str:
    return f"{PREFIXES.get(type, OTHER)}{turn[-_HEX:]}{place}{voids:02x}{ordinal:04x}"


def turn_of_item(id: str) -> TurnId:
    """Return the turn that an item belongs to. Raises InvalidId."""
    prefix, _, rest = id.partition("_")
    if f"{prefix}_" not in (*PREFIXES.values(), OTHER) or len(rest) != _HEX + _SUFFIX:
        raise InvalidId(f"{id[:80]!r} is not the id of an item. Copy it from a response.")
    return TurnId(TurnId.prefix + rest[:_HEX])


class PlacedItem(NamedTuple):
    """An item of a committed turn: its id, and its place among all items of the turn."""

    id: str
    place: int
    item: Item


def placed_items(turn: Turn) -> Iterator[PlacedItem]:
    """Yield all items of a turn with their ids, hidden ones included."""
    counts: Counter[tuple[str, str]] = Counter()
    for place, item in enumerate(turn.items):
        voids = 0
        if place < len(turn.input):
            where = _INPUT
        else:
            where = _REFUSAL if item.is_refusal else _OUTPUT
            voids = voids_before(turn, place)
        kind = PREFIXES.get(item.type, OTHER), where
        yield PlacedItem(_id(turn.id, item.type, where, counts[kind], voids), place, item)
        counts[kind] += 1


def voids_before(turn: Turn, place: int) -> int:
    """Return how often the process of a turn had died before the item at this place was done."""
    return sum(place - len(turn.input) >= finished for finished in turn.details.get(VOIDED) or ())


def is_output(item: Item) -> bool:
    """Return whether an answer may have such an item in the API: notes of the ledger, for the models of later
    turns, are items of the conversation only."""
    return item.type != "message" or item.role == "assistant"


def find_item(turn: Turn, id: str) -> PlacedItem:
    """Return an item of a turn by its id. Raises TurnNotFound."""
    for placed in placed_items(turn):
        if placed.id == id:
            return placed
    raise TurnNotFound


def show_item(item: Item, id: str, *, as_summary: bool = False) -> dict[str, Any]:
    """Return an item in the shape that clients expect. With `as_summary`, reasoning is shown as a summary."""
    fields = {**item.fields, "id": id}
    fields.pop(CHAT_ONLY, None)
    if item.type == "message":
        fields["content"] = [_show_part(item.role, part) for part in _parts(item.role, fields["content"])]
    elif item.is_reasoning:
        fields.setdefault("summary", [])
        if as_summary and not fields["summary"] and item.body:
            fields["summary"] = [{"type": "summary_text", "text": item.body}]
            fields.pop("content", None)
        return fields
    if fields.get("status") is None:
        fields["status"] = "completed"
    return fields


def _parts(role: str | None, content: Any) -> Sequence[Any]:
    if isinstance(content, str):
        return [{"type": "output_text" if role == "assistant" else "input_text", "text": content}]
    return content if isinstance(content, list) else []


def _show_part(role: str | None, part: Any) -> Any:
    if role == "assistant" and isinstance(part, dict) and part.get("type") == "output_text":
        return {"annotations": [], **part}
    if isinstance(part, dict) and part.get("type") == "input_image":
        return {"detail": "auto", **part}
    return part
