"""What a turn consists of, as a terminal shows it.

How long ago something was, as people say it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rich.text import Text

from turnledger.cli.chat.backend import SeenTurn
from turnledger.cli.chat.markdown import MarkdownBlock, blocks_of
from turnledger.cli.chat.sanitize import harmless, on_one_line
from turnledger.cli.chat.screen import Screen
from turnledger.model.item import Item
from turnledger.model.turn import TurnKind

DIM = "dim"
LONGEST = 300
"""Characters of a call or a result that are shown."""
_KINDS = {
    TurnKind.INTERRUPTED: "Stopped: this is as far as it got.",
    TurnKind.SETTLED: "It failed, after its tools had acted; that is all that is kept.",
}
_ENDS = {
    "length": "The model had no room left: the answer is cut.",
    "content_filter": "The answer was cut by a filter.",
}

_USED = (
    (("prompt_tokens", "input_tokens"), "tokens read"),
    (("completion_tokens", "output_tokens"), "tokens written"),
)
"""What a model may tell of what it used, by its names, and how it is called here."""


def told_item(item: Item) -> Text | None:
    """A call of a tool or its result, or what a model says of its thoughts, on one line; None for all
    others."""
    fields = item.fields
    if item.is_reasoning:
        thought = _parts(fields.get("summary")) or _parts(fields.get("content"))
        return Text(f"∴ {_short(thought)}", DIM) if thought.strip() else None
    if item.is_call:
        called = f"{fields.get('name')}({fields.get('arguments', fields.get('input', ''))})"
        return Text(f"⚙ {_short(called)}", DIM)
    if item.is_result:
        return Text(f"→ {_short(str(fields.get('output', '')))}", DIM)
    return None


def show_turn(screen: Screen, turn: SeenTurn) -> None:
    """Print a turn, whole."""
    screen.blank()
    screen.say(question(turn.number, turn.asked))
    screen.blank()
    for item in turn.output:
        if item.role == "assistant":
            screen.blocks(list(_blocks(item.text)))
        elif (told := told_item(item)) is not None:
            screen.say(told)
    for note in notes(turn):
        screen.say(note)


def question(number: int, asked: str) -> Text:
    """What was asked, as the prompt has shown it."""
    label = prompt_label(number)
    lines = harmless(asked or "(no message)").split("\n")
    return Text.assemble((label, DIM), (("\n" + " " * len(label)).join(lines), "bold"))


def prompt_label(number: int) -> str:
    """What stands before the input of a turn."""
    return f"{number} › "


def notes(turn: SeenTurn) -> Iterator[Text]:
    """What is to be said of how a turn ended."""
    if turn.kind in _KINDS:
        yield Text(f"■ {_KINDS[turn.kind]}", "yellow")
    reason = turn.details.get("finish_reason")
    if isinstance(reason, str) and reason in _ENDS:
        yield Text(f"■ {_ENDS[reason]}", "yellow")


def about(turn: SeenTurn) -> str:
    """Who answered, how long that took, and what was used, as far as that was told."""
    told = [f"{turn.took_ms / 1000:.1f} s"]
    model, usage = turn.details.get("model"), turn.details.get("usage")
    if isinstance(model, str):
        told.insert(0, on_one_line(model))
    used: dict[str, object] = usage if isinstance(usage, dict) else {}
    for names, done in _USED:
        told += [f"{used[name]} {done}" for name in names if isinstance(used.get(name), int)][:1]
    return ", ".join(told)


def _parts(parts: object) -> str:
    """The text of the parts of an item."""
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return " ".join(text for text in texts if isinstance(text, str))


def _blocks(text: str) -> Iterator[MarkdownBlock]:
    return iter(blocks_of(harmless(text)))


def _short(text: str) -> str:
    line = on_one_line(text)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


MINUTE, HOUR, DAY = 60, 3600, 24 * 3600


def age_of(at: int, now: float) -> str:
    """The time since `at`, in milliseconds since 1970; now is in seconds. What is long ago is a date."""
    passed = now - at / 1000
    if passed < MINUTE:
        return "just now"
    if passed < HOUR:
        return f"{int(passed / MINUTE)} min ago"
    if passed < DAY:
        return f"{int(passed / HOUR)} h ago"
    if passed < 30 * DAY:
        days = int(passed / DAY)
        return "yesterday" if days == 1 else f"{days} days ago"
    return datetime.fromtimestamp(at / 1000).astimezone().strftime("%Y-%m-%d")
