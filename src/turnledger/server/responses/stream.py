"""The events of a response, made from the events of its turn.

Both come in the same order whenever they are read, so a `sequence_number` always means the same event. The
last event has the whole response, and comes after the commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from turnledger.api.errors import ErrorDetails
from turnledger.api.json import encode
from turnledger.engine.attempt.end import DELETED, DIED
from turnledger.model.event import (
    ArgumentsDelta,
    Event,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TurnResumed,
    TurnStarted,
)
from turnledger.model.item import Item
from turnledger.model.turn import Turn
from turnledger.server.responses.items import PREFIXES, is_output, output_id, show_item, voids_before
from turnledger.server.responses.response import SETTLED, ResponseFields

ENDS = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "cancelled": "response.incomplete",  # the API has no event of its own for it
    "failed": "response.failed",
}

ENDED_BY_OTHERS = (DIED.code, DELETED.code, SETTLED.code)
"""Failures of turns whose log may lack events that were sent. That of a settled turn is not recorded."""


class _Text:
    """How the text of an item is streamed: the part that it belongs to, and its events."""

    def __init__(self, part: str, field: str, event: str, *, index: str, opened: str, closed: str) -> None:
        self.part, self.field, self.event = part, field, event
        self.index, self.opened, self.closed = index, opened, closed

    def piece(self, text: str) -> dict[str, Any]:
        part: dict[str, Any] = {"type": self.part, self.field: text}
        return part | {"annotations": []} if self.part == "output_text" else part


_CONTENT = {
    "index": "content_index",
    "opened": "response.content_part.added",
    "closed": "response.content_part.done",
}
_TEXT = _Text("output_text", "text", "response.output_text", **_CONTENT)
_REFUSAL = _Text("refusal", "refusal", "response.refusal", **_CONTENT)
_REASONING = _Text("reasoning_text", "text", "response.reasoning_text", **_CONTENT)
_SUMMARY = _Text(
    "summary_text",
    "text",
    "response.reasoning_summary_text",
    index="summary_index",
    opened="response.reasoning_summary_part.added",
    closed="response.reasoning_summary_part.done",
)
_ARGUMENTS = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
}
_DELTA = b',"delta":'
_KIND = tuple[str, bool]
"""A kind of items that is numbered separately: the type, and whether it is a refusal."""


class _OpenItem:
    """An item that was announced and is not done yet."""

    __slots__ = ("body", "id", "index", "pieces")

    def __init__(self, id: str, index: int) -> None:
        self.id = id
        self.index = index
        self.pieces: list[str] = []
        self.body = b""
        """The constant part of its deltas, up to their number."""


class ResponseStream:
    """The events of one response. Used once, from the first event of its turn on."""

    def __init__(self, fields: ResponseFields, after: int = -1) -> None:
        self.fields = fields
        self._after = after
        """Events up to this number are left out: the client has received them."""
        self.number = 0
        """The `sequence_number` of the next event."""
        self._reasoning_style = _SUMMARY if fields.shows_summaries else _REASONING
        self._items = 0
        self._voids = 0
        self._opened: dict[_KIND, int] = {}
        self._done: dict[_KIND, int] = {}
        self._text: _OpenItem | None = None
        self._refusal: _OpenItem | None = None
        self._reasoning: _OpenItem | None = None
        self._is_reasoning_closed = False
        """Whether its item was ended when the answer began: later reasoning is in the last event only."""
        self._held: tuple[_OpenItem, Mapping[str, Any]] | None = None
        """The end of an item that may be the last: only the end of the turn tells whether it was cut."""
        self._calls: dict[str | None, tuple[_OpenItem, Item]] = {}

    def queued(self) -> bytes:
        """Return the events of a background response before its turn begins."""
        shown = msgspec.Raw(encode(self.fields.show("queued")))
        return self._response("response.created", shown) + self._response("response.queued", shown)

    def from_events(self, events: Iterable[Event]) -> bytes:
        """Return the events that events of the turn lead to."""
        sent: list[bytes] = []
        for event in events:
            text = self._text
            is_settled = self._reasoning is None and self._held is None
            if text is not None and is_settled and isinstance(event, TextDelta):
                # As by `from_event`: most events are these.
                number, self.number = self.number, self.number + 1
                if number > self._after:
                    sent.append(b"%b%d%b%b}\n\n" % (text.body, number, _DELTA, encode(event.text)))
            else:
                sent.append(self.from_event(event))
        return b"".join(sent)

    def from_event(self, event: Event) -> bytes:
        """Return the events that an event of the turn leads to. Its end leads to none: see `last`."""
        if isinstance(event, TextDelta):
            return self._end_reasoning() + self._delta(_TEXT, event.text)
        if isinstance(event, ReasoningDelta):
            return b"" if self._is_reasoning_closed else self._delta(self._reasoning_style, event.text)
        if isinstance(event, RefusalDelta):
            return self._end_reasoning() + self._delta(_REFUSAL, event.text)
        return b"".join(self._others(event))

    def _others(self, event: Event) -> Iterator[bytes]:
        if isinstance(event, TurnStarted):
            yield from self._start()
        elif isinstance(event, ItemAdded):
            yield self._end_reasoning()
            yield self._open_call(Item(event.item))
        elif isinstance(event, ArgumentsDelta):
            opened, call = self._calls[event.call_id]
            yield self._arguments(opened, call, event.text)
        elif isinstance(event, ItemDone):
            yield from self._item(Item(event.item))
        elif isinstance(event, TurnResumed):
            yield from self._void()

    def last(self, response: Mapping[str, Any]) -> bytes:
        """Return the event that ends the stream, with the final response. If others ended the turn, a client
        that has received events up to this number or beyond receives it, too, under the next number: the
        process that sent them may have died before it stored them."""
        status, output = response["status"], response["output"]
        if self._held is not None and status == "incomplete" and output:
            opened, _ = self._held
            if output[-1]["id"] == opened.id:
                self._held = opened, output[-1]
        before = self._release()
        error = response["error"]
        if self._after >= self.number and error is not None and error["type"] in ENDED_BY_OTHERS:
            self.number = self._after + 1
        return before + self._response(ENDS[status], response)

    def from_turn(self, turn: Turn, hidden: Collection[int]) -> Iterator[bytes]:
        """Yield the events of a committed turn without those of hidden items, which its log still has."""
        yield from self._start()
        for place, item in enumerate(turn.output, len(turn.input)):
            while self._voids < voids_before(turn, place):
                yield from self._void()
            if place in hidden:
                self._skip(item)
            else:
                yield from self._item(item)

    def _start(self) -> Iterator[bytes]:
        shown = msgspec.Raw(encode(self.fields.show("in_progress")))
        if self.fields.is_background:
            yield self.queued() if not self.number else b""
        else:
            yield self._response("response.created", shown)
        yield self._response("response.in_progress", shown)

    # Items.

    def _skip(self, item: Item) -> None:
        self._next_id(item.type, is_refusal=item.is_refusal)
        self._count_done(item.type, is_refusal=item.is_refusal)

    def _item(self, item: Item) -> Iterator[bytes]:
        if not is_output(item):
            self._skip(item)
        elif item.is_reasoning:
            if self._is_reasoning_closed:
                self._is_reasoning_closed = False
                self._count_done("reasoning", is_refusal=False)
                return
            opened, self._reasoning = self._reasoning, None
            yield from self._text_item(self._reasoning_style, opened, item, [item.body])
        elif item.is_refusal:
            opened, self._refusal = self._refusal, None
            yield from self._text_item(_REFUSAL, opened, item, [item.text])
        elif item.type == "message":
            opened, self._text = self._text, None
            parts = item.fields["content"]
            texts = [parts] if isinstance(parts, str) else [str(part.get("text") or "") for part in parts]
            yield from self._text_item(_TEXT, opened, item, texts)
        elif item.type in _ARGUMENTS:
            yield self._call(item)
        else:
            opened = self._open(item)
            yield self._added(opened, show_item(item, opened.id))
            yield self._item_done(opened, item)

    def _text_item(
        self, style: _Text, opened: _OpenItem | None, item: Item, texts: Iterable[str]
    ) -> Iterator[bytes]:
        """Send what is left of an item of text: all of it, if nothing was streamed."""
        for place, text in enumerate(texts):
            if opened is None or place:
                if opened is None:
                    opened = self._open(item)
                    yield self._added(opened, self._opening(style, opened.id))
                yield self._part(style, style.opened, opened, "", place)
                if text:
                    yield self._text_event(style, f"{style.event}.delta", opened, {"delta": text}, place)
            yield self._text_event(style, f"{style.event}.done", opened, {style.field: text}, place)
            yield self._part(style, style.closed, opened, text, place)
        if opened is None:  # a message without content
            opened = self._open(item)
            yield self._added(opened, self._opening(style, opened.id))
        yield self._item_done(opened, item)

    def _delta(self, style: _Text, text: str) -> bytes:
        name = "_text" if style is _TEXT else "_refusal" if style is _REFUSAL else "_reasoning"
        opened: _OpenItem | None = getattr(self, name)
        before = b""
        if opened is None:
            kind = "reasoning" if name == "_reasoning" else "message"
            opened = self._open_kind(kind, is_refusal=style is _REFUSAL)
            setattr(self, name, opened)
            before = self._added(opened, self._opening(style, opened.id))
            before += self._part(style, style.opened, opened, "", 0)
            event = f"{style.event}.delta"
            constant = {"type": event, "item_id": opened.id, "output_index": opened.index, style.index: 0}
            if style is _TEXT:
                constant["logprobs"] = []
            opened.body = b'event: %b\ndata: %b,"sequence_number":' % (event.encode(), encode(constant)[:-1])
        if style is self._reasoning_style:
            opened.pieces.append(text)
        before += self._release()
        number, self.number = self.number, self.number + 1
        if number <= self._after:
            return b""
        return b"%b%b%d%b%b}\n\n" % (before, opened.body, number, _DELTA, encode(text))

    def _end_reasoning(self) -> bytes:
        """End streamed reasoning when the answer begins, and not with the turn."""
        opened = self._reasoning
        if opened is None:
            return b""
        self._reasoning, self._is_reasoning_closed = None, True
        style, text = self._reasoning_style, "".join(opened.pieces)
        part = style.piece(text)
        shown = self._opening(style, opened.id)
        shown["summary" if style is _SUMMARY else "content"] = [part]
        return b"".join(
            (
                self._text_event(style, f"{style.event}.done", opened, {style.field: text}, 0),
                self._part(style, style.closed, opened, text, 0),
                self._item_event("response.output_item.done", opened, shown),
            )
        )

    def _open_call(self, opening: Item) -> bytes:
        opened = self._open(opening)
        self._calls[opening.call_id] = opened, opening
        return self._added(opened, {**show_item(opening, opened.id), "status": "in_progress"})

    def _arguments(self, opened: _OpenItem, call: Item, text: str) -> bytes:
        event, _ = _ARGUMENTS[call.type]
        return self._event(
            f"{event}.delta", {"item_id": opened.id, "output_index": opened.index, "delta": text}
        )

    def _call(self, item: Item) -> bytes:
        """Send what is left of a call: all of it, if it was not streamed."""
        event, field = _ARGUMENTS[item.type]
        known, before = self._calls.pop(item.call_id, None), b""
        if known is None:
            before = self._end_reasoning()
            before += self._open_call(Item.of({**item.fields, field: ""}))
            known = self._calls.pop(item.call_id)
            if item.body:
                before += self._arguments(known[0], item, item.body)
        opened = known[0]
        place = {"item_id": opened.id, "output_index": opened.index}
        name = {"name": item.fields["name"]} if item.type == "function_call" else {}
        done = self._event(f"{event}.done", {**place, **name, field: item.body})
        return before + done + self._item_done(opened, item)

    def _void(self) -> Iterator[bytes]:
        """End what was open when the process of the turn died: it is not part of the answer."""
        texts = ((self._reasoning, self._reasoning_style), (self._text, _TEXT), (self._refusal, _REFUSAL))
        for opened, style in texts:
            if opened is not None:
                shown = {**self._opening(style, opened.id), "status": "incomplete"}
                yield self._item_event("response.output_item.done", opened, shown)
        for opened, call in self._calls.values():
            shown = {**show_item(call, opened.id), "status": "incomplete"}
            yield self._item_event("response.output_item.done", opened, shown)
        self._reasoning = self._text = self._refusal = None
        self._is_reasoning_closed = False
        self._calls.clear()
        self._voids += 1
        self._opened = dict(self._done)

    # Events.

    def _open(self, item: Item) -> _OpenItem:
        return self._open_kind(item.type, is_refusal=item.is_refusal)

    def _open_kind(self, kind: str, *, is_refusal: bool) -> _OpenItem:
        opened = _OpenItem(self._next_id(kind, is_refusal=is_refusal), self._items)
        self._items += 1
        return opened

    def _next_id(self, kind: str, *, is_refusal: bool) -> str:
        counted = kind if kind in PREFIXES else "", is_refusal
        ordinal = self._opened.get(counted, 0)
        self._opened[counted] = ordinal + 1
        return output_id(self.fields.turn, kind, ordinal, is_refusal=is_refusal, voids=self._voids)

    def _opening(self, style: _Text, id: str) -> dict[str, Any]:
        if style in (_REASONING, _SUMMARY):
            content: dict[str, Any] = {"content": []} if style is _REASONING else {}
            return {"id": id, "type": "reasoning", "summary": [], **content}
        return {"id": id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}

    def _added(self, opened: _OpenItem, shown: Mapping[str, Any]) -> bytes:
        return self._item_event("response.output_item.added", opened, shown)

    def _item_done(self, opened: _OpenItem, item: Item) -> bytes:
        self._count_done(item.type, is_refusal=item.is_refusal)
        before = self._release()
        self._held = opened, show_item(item, opened.id, as_summary=self.fields.shows_summaries)
        return before

    def _release(self) -> bytes:
        """Send the end of the item that was held back."""
        held, self._held = self._held, None
        return b"" if held is None else self._item_event("response.output_item.done", *held)

    def _count_done(self, kind: str, *, is_refusal: bool) -> None:
        counted = kind if kind in PREFIXES else "", is_refusal
        self._done[counted] = self._done.get(counted, 0) + 1

    def _item_event(self, event: str, opened: _OpenItem, shown: Mapping[str, Any]) -> bytes:
        return self._event(event, {"output_index": opened.index, "item": shown})

    def _part(self, style: _Text, event: str, opened: _OpenItem, text: str, place: int) -> bytes:
        fields = {"item_id": opened.id, "output_index": opened.index, style.index: place}
        return self._event(event, {**fields, "part": style.piece(text)})

    def _text_event(
        self, style: _Text, event: str, opened: _OpenItem, fields: Mapping[str, Any], place: int
    ) -> bytes:
        shown = {"item_id": opened.id, "output_index": opened.index, style.index: place, **fields}
        return self._event(event, shown | {"logprobs": []} if style is _TEXT else shown)

    def _response(self, event: str, response: Mapping[str, Any] | msgspec.Raw) -> bytes:
        return self._event(event, {"response": response})

    def _event(self, event: str, fields: Mapping[str, Any]) -> bytes:
        before = self._release()
        number, self.number = self.number, self.number + 1
        if number <= self._after:
            return b""
        body = encode({"type": event, "sequence_number": number, **fields})
        return b"%bevent: %b\ndata: %b\n\n" % (before, event.encode(), body)


def error_event(details: ErrorDetails, number: int = 0) -> bytes:
    fields = {"code": details.code, "message": details.message, "param": details.param}
    return b"event: error\ndata: %b\n\n" % encode({"type": "error", "sequence_number": number, **fields})
