"""Open parts: what a draft has emitted besides text since its last item, and the items that end it.

Reasoning becomes one item before the text, a refusal a message after it, and an open call an item, unless a
given item takes its place: reasoning that of the reasoning, a refusal that of the refusal, and a call that of
the open call with its id. Several tasks may stream calls, so given items end only the calls that they name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import Struct

from turnledger.engine.events.live_log import LOOSE
from turnledger.errors import MalformedItems
from turnledger.model.event_log import CALLED, EMITTED, ITEM, MADE_OF, REASONING, REFUSAL
from turnledger.model.item import Item, call_of, is_unicode, reasoning, refusal


def whole_characters(half: str, text: str) -> tuple[str, str]:
    """Return what can be shown of a text now, and what waits: half of a surrogate pair waits for the other
    half, since models that count in UTF-16 split anywhere. If that never comes, it is replaced."""
    text, half = half + text, ""
    if is_unicode(text):
        return text, half
    if "\ud800" <= text[-1] <= "\udbff":
        text, half = text[:-1], text[-1]
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), half


class Made(NamedTuple):
    """What an item is made of, as the event log states it."""

    code: int = ITEM
    call: int = 0
    """The place of an opened call."""
    spare: tuple[int, str] | None = None
    """A kind, and its emitted text, that differs from the text of the item."""


GIVEN, OF_TEXT = Made(), Made(EMITTED)


class Addition(Struct):
    """Items to add, what each is made of, and how far they take the text and the parts of the draft."""

    items: list[Item]
    made: list[Made]
    reaches: int
    lengths: dict[int, int] = {}
    calls: tuple[str, ...] = ()


@dataclass(slots=True)
class _Part:
    pieces: list[str] = field(default_factory=list)
    half: str = ""

    def add(self, text: str) -> str:
        if self.half or not text.isascii():
            text, self.half = whole_characters(self.half, text)
        if text:
            self.pieces.append(text)
            if len(self.pieces) > LOOSE:  # a small piece costs more than its text
                self.pieces = [self.text]
        return text

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def drop(self, length: int) -> None:
        """Forget this many characters at the beginning."""
        self.pieces = [rest] if (rest := self.text[length:]) else []


@dataclass(slots=True)
class OpenCall(_Part):
    opening: Item = field(kw_only=True)
    place: int = field(kw_only=True)


class OpenParts:
    """Reasoning, a refusal, and open calls by their ids."""

    __slots__ = ("_texts", "calls", "size")

    def __init__(self) -> None:
        self.size = 0
        """Characters of everything emitted, finished or not, and of the openings of calls."""
        self._texts = {REASONING: _Part(), REFUSAL: _Part()}
        self.calls: dict[str, OpenCall] = {}

    def add(self, kind: int, text: str) -> str:
        """Add reasoning, or a part of a refusal; return what can be shown of it now."""
        shown = self._texts[kind].add(text)
        self.size += len(shown)
        return shown

    def open(self, opening: Item, place: int) -> None:
        self.size += len(opening.raw)
        self.calls[opening.call_id or ""] = OpenCall(opening=opening, place=place)

    def add_arguments(self, call_id: str, text: str) -> tuple[int, str]:
        """Add arguments; return the place of their call, and what can be shown of them now."""
        call = self.calls.get(call_id)
        if call is None:
            raise MalformedItems(f"No call {call_id[:80]!r} is open. Call begin_call() first.")
        shown = call.add(text)
        self.size += len(shown)
        return call.place, shown

    def ended_by(
        self,
        given: Sequence[Item],
        text: Item | None,
        reaches: int,
        status: str | None,
        *,
        ends_turn: bool,
    ) -> Addition:
        """Return the items that end the parts and this message of text, and then the given ones. At the end
        of the turn, or without given items, they end all calls, otherwise those that the given ones name."""
        replacing = self._replacing(given)
        thought, refused = self._texts[REASONING].text, self._texts[REFUSAL].text
        addition = Addition([], [], reaches, {REASONING: len(thought), REFUSAL: len(refused)})
        if thought and REASONING not in replacing:
            _append(addition, reasoning(thought), Made(MADE_OF[REASONING]))
        if text is not None:
            _append(addition, text, OF_TEXT)
        if refused and REFUSAL not in replacing:
            _append(addition, refusal(refused, status=status), Made(MADE_OF[REFUSAL]))
        named = {item.call_id for item in given}
        ended = [call_id for call_id in self.calls if ends_turn or not given or call_id in named]
        for call_id in ended:
            if call_id not in replacing:
                call = self.calls[call_id]
                item = call_of(call.opening.type, call_id, call.opening.fields["name"], call.text)
                _append(addition, item, Made(CALLED, call.place))
        made_of = {id(item): self._made_of(part, item) for part, item in replacing.items()}
        for item in given:
            _append(addition, item, made_of.get(id(item), GIVEN))
        addition.calls = tuple(ended)
        return addition

    def _replacing(self, given: Sequence[Item]) -> dict[int | str, Item]:
        """Return the given items that take the place of a part, by its kind or by the id of its call."""
        found: dict[int | str, Item] = {}
        for item in given:
            kind = REASONING if item.is_reasoning else REFUSAL if item.is_refusal else None
            if kind is not None and self._texts[kind].pieces:
                found.setdefault(kind, item)
            elif item.is_call and item.call_id in self.calls:
                found.setdefault(item.call_id, item)
        return found

    def _made_of(self, part: int | str, item: Item) -> Made:
        if isinstance(part, str):
            call = self.calls[part]
            is_same = item.type == call.opening.type and item.body == call.text
            return Made(CALLED, call.place) if is_same else GIVEN
        emitted = self._texts[part].text
        return Made(MADE_OF[part]) if item.body == emitted else Made(spare=(part, emitted))

    def take(self, addition: Addition) -> None:
        """Forget what these items were made of; more may have been emitted meanwhile."""
        for kind, length in addition.lengths.items():
            self._texts[kind].drop(length)


def _append(addition: Addition, item: Item, made: Made) -> None:
    addition.items.append(item)
    addition.made.append(made)
