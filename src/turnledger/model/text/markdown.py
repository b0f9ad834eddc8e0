"""A chat as Markdown, for people.

No message is read as Markdown or HTML: each is in a fence that it cannot close. So it cannot inject a
heading, link, image or tag, and code can be copied unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from turnledger.model.conversation import Conversation
from turnledger.model.flags import with_counterparts
from turnledger.model.item import Item
from turnledger.model.text.plain import plain
from turnledger.model.turn import Turn, TurnKind

NO_TITLE = "Untitled chat"
_SPECIAL = re.compile(r"([!-/:-@\[-`{-~])")
"""Every character with a meaning in Markdown or HTML."""
_TICKS = re.compile(r"`+")
_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
"""Characters that some readers treat as line ends."""
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
"""Characters that move a cursor or change the reading direction."""
_ROLES = {"user": "User", "assistant": "Assistant", "system": "System", "developer": "Developer"}
_KINDS = {
    TurnKind.INTERRUPTED: "This turn was interrupted.",
    TurnKind.SETTLED: "This turn failed; these are the effects of its tools.",
}


def markdown_head(conversation: Conversation) -> str:
    title = escape(conversation.title or NO_TITLE) or escape(NO_TITLE)
    began, last = _format_day(conversation.created_at), _format_day(conversation.touched_at)
    return f"# {title}\n\nBegun {began}, last used {last}.\n"


def markdown_turn(turn: Turn, hidden: Collection[int] = ()) -> str:
    """Return a turn without the hidden items and their counterparts."""
    hidden_places = with_counterparts(turn.items, hidden)
    parts = [_item(item) for place, item in enumerate(turn.items) if place not in hidden_places]
    if turn.kind in _KINDS:
        parts.append(f"_{_KINDS[turn.kind]}_\n")
    return "".join(f"\n{part}" for part in parts if part)


def escape(text: str) -> str:
    """Escape a text to one line without markup."""
    return _SPECIAL.sub(r"\\\1", plain(" ".join(text.split())))


def fence_text(text: str) -> str:
    """Put a text in a fence longer than any in it, without control characters."""
    text = _CONTROL.sub("\ufffd", _ENDS.sub("\n", text))
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}\n"


def _item(item: Item) -> str:
    if item.type == "message":
        return _message(item)
    if item.is_call:
        arguments = item.fields.get("arguments", item.fields.get("input", ""))
        name = escape(str(item.fields.get("name", item.type)))
        return f"**Tool call** {name}\n\n{fence_text(str(arguments))}"
    if item.is_result:
        return f"**Tool result**\n\n{fence_text(_text_of(item.fields.get('output')))}"
    return ""  # reasoning and other items that only models read


def _message(item: Item) -> str:
    parts = item.fields.get("content")
    others = [] if isinstance(parts, str) else [part for part in parts or () if not _is_text(part)]
    attached = [f"_[{escape(str(part.get('type', 'part')))}]_\n" for part in others]
    text = fence_text(item.text) if item.text else ""
    return f"## {_ROLES[item.role or 'user']}\n\n" + "\n".join([*([text] if text else []), *attached])


def _is_text(part: dict[str, object]) -> bool:
    return "text" in part or "refusal" in part


def _text_of(output: object) -> str:
    if isinstance(output, str):
        return output
    if isinstance(output, Sequence):
        return "\n".join(str(part.get("text", "")) for part in output if isinstance(part, dict))
    return str(output)


def _format_day(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
