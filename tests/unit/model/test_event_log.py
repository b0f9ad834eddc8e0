"""Events and their log survive storage exactly, at about a byte each; damage is reported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import any_items, assistant, call, repeatable, result
from turnledger.errors import StoreCorrupt
from turnledger.model import codec, event, event_log
from turnledger.model.event import (
    ArgumentsDelta,
    Event,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TurnFinished,
    TurnResumed,
    TurnStarted,
)
from turnledger.model.event_log import (
    EMITTED,
    FAILURE,
    INLINE,
    ITEM,
    KINDS,
    WholeLog,
    decode_log,
    decode_whole,
    encode_log,
    encode_whole,
    failure_of,
    rebuild,
)
from turnledger.model.item import Item, call_of, message, raws
from turnledger.model.turn import AttemptState, Failure

EVENTS: list[tuple[Event, str]] = [
    (TurnStarted(number=1), "turn.started"),
    (TextDelta(number=2, text="ünï\n"), "text.delta"),
    (ItemDone(number=3, item=msgspec.Raw(call().raw)), "item.done"),
    (ReasoningDelta(number=2, text="ünï\n"), "reasoning.delta"),
    (RefusalDelta(number=2, text="no"), "refusal.delta"),
    (ItemAdded(number=3, item=msgspec.Raw(call_of("function_call", "c", "look").raw)), "item.added"),
    (ArgumentsDelta(number=2, call_id="c", text="{"), "arguments.delta"),
    (TurnResumed(number=2), "turn.resumed"),
    (TurnFinished(number=4, state=AttemptState.COMPLETED), "turn.finished"),
    (TurnFinished(number=4, state=AttemptState.FAILED, failure=Failure("boom", "it broke")), "turn.finished"),
]


@pytest.mark.parametrize(("given", "tag"), EVENTS)
def test_event_survives_a_round_trip_under_its_tag(given: Event, tag: str) -> None:
    written = codec.encode(given)
    found = event.decode(written)
    assert type(found) is type(given)
    assert codec.encode(found) == written
    assert msgspec.json.decode(written)["type"] == tag


@pytest.mark.parametrize(
    "raw",
    [b"{}", b'{"v":1,"number":1}', b'{"type":"no.such","v":1,"number":1}', b'{"type":"turn.started","v":1}'],
)
def test_event_with_an_invalid_document_is_corrupt(raw: bytes) -> None:
    with pytest.raises(StoreCorrupt):
        event.decode(raw)


FAILED = Failure("boom", "it bröke")


@dataclass
class RecordedTurn:
    """Records a turn as a draft does: the sent events, and the log to rebuild them from."""

    events: list[Event] = field(default_factory=lambda: [TurnStarted(number=1)])
    log: bytearray = field(default_factory=bytearray)
    items: list[Item] = field(default_factory=list)
    text: str = ""
    taken: int = 0

    def _add_item(self, item: Item) -> None:
        self.events.append(ItemDone(number=len(self.events) + 1, item=msgspec.Raw(item.raw)))

    def delta(self, text: str) -> None:
        self.text += text
        self.events.append(TextDelta(number=len(self.events) + 1, text=text))
        event_log.pack_delta(self.log, len(text))

    def item(self, item: Item, *, code: int = ITEM) -> None:
        if code == INLINE:
            event_log.pack_inline(self.log, INLINE, item.raw)
        else:
            event_log.pack(self.log, code)
            self.items.append(item)
        self._add_item(item)

    def take(self, but: int) -> None:
        """Make an item of the text, except the last characters, which arrived while it was recorded."""
        until = max(self.taken, len(self.text) - but)
        if until > self.taken:
            made = message("assistant", self.text[self.taken : until], status="completed")
            self.item(made, code=EMITTED)
            self.taken = until

    def end(self, state: AttemptState, failure: Failure | None) -> list[Event]:
        return [*self.events, TurnFinished(number=len(self.events) + 1, state=state, failure=failure)]


steps = st.one_of(
    st.tuples(st.just("delta"), st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)),
    st.tuples(st.just("item"), any_items),
    st.tuples(st.just("inline"), any_items),
    st.tuples(st.just("take"), st.integers(0, 5)),
)


def record(taken: list[tuple[str, Any]]) -> RecordedTurn:
    recorded = RecordedTurn()
    for step, given_ in taken:
        if step == "delta":
            recorded.delta(given_)
        elif step == "take":
            recorded.take(given_)
        else:
            recorded.item(given_, code=INLINE if step == "inline" else ITEM)
    return recorded


def wire(events: list[Event]) -> list[bytes]:
    return [codec.encode(event) for event in events]


@repeatable
@given(
    st.lists(steps, max_size=30),
    st.lists(any_items, max_size=3),
    st.sampled_from(AttemptState),
    st.none() | st.just(FAILED),
)
def test_event_log_rebuilds_the_events_that_were_sent(
    taken: list[tuple[str, Any]], resumed: list[Item], state: AttemptState, failure: Failure | None
) -> None:
    recorded = record([*(("item", item) for item in resumed), *taken])
    expected = recorded.end(state, failure)
    rebuilt = rebuild(bytes(recorded.log), recorded.items, recorded.text[recorded.taken :], state, failure)
    assert wire(list(rebuilt)) == wire(expected)
    assert [event.number for event in expected] == list(range(1, len(expected) + 1))
    assert event_log.count_items(bytes(recorded.log)) == len(recorded.items)


@repeatable
@given(st.lists(steps, max_size=60))
def test_event_log_survives_storage(taken: list[tuple[str, Any]]) -> None:
    recorded = record(taken)
    assert decode_log(encode_log(bytes(recorded.log), recorded.items), recorded.items) == bytes(recorded.log)


def test_event_log_takes_one_byte_per_short_delta_and_less_when_long() -> None:
    recorded = record([("delta", "x" * (1 + place % 9)) for place in range(4_000)])
    assert len(recorded.log) == 4_000
    recorded.take(0)
    assert len(encode_log(bytes(recorded.log), recorded.items)) < 2_000


@pytest.mark.parametrize(
    "steps", [[("delta", "Hello " * 100), ("take", 0)], [("item", call()), ("item", result())]]
)
def test_event_log_of_a_single_delta_or_of_items_alone_takes_no_bytes(steps: list[tuple[str, Any]]) -> None:
    recorded = record(steps)
    assert encode_log(bytes(recorded.log), recorded.items) == b""


def test_event_log_distinguishes_an_added_message_from_emitted_text() -> None:
    recorded = record([("item", assistant("Hello"))])
    kept = encode_log(bytes(recorded.log), recorded.items)
    assert kept != b""
    rebuilt = list(
        rebuild(decode_log(kept, recorded.items), recorded.items, "", AttemptState.COMPLETED, None)
    )
    assert [type(event) for event in rebuilt] == [TurnStarted, ItemDone, TurnFinished]


def test_event_log_holds_a_failure_that_is_not_an_event() -> None:
    recorded = record([("delta", "Half"), ("take", 0)])
    event_log.pack_inline(recorded.log, FAILURE, msgspec.json.encode(FAILED))
    log = bytes(recorded.log)
    assert failure_of(log) == FAILED
    assert failure_of(log[:2]) is None
    assert len(list(rebuild(log, recorded.items, "", AttemptState.KEPT, failure_of(log)))) == 4


@pytest.mark.parametrize(
    ("log", "items", "tail"),
    [
        (b"\x80", (), ""),  # a number without an end
        (b"\x02\x05{}", (), ""),  # an item that is cut off
        (b"\x03", (), ""),  # a failure without a length
        (b"\x00", (), ""),  # an item that is not there
        (b"\x01", (), ""),
        (b"\x08", (), "four"),  # a delta longer than its text
        (KINDS + b"\x11", (), "text"),  # reasoning that is not there
        (KINDS + b"\x04", (), ""),  # an item of reasoning that is not there
        (KINDS + b"\x13", (), "text"),  # arguments of no call
        (KINDS + b"\x08", (), ""),  # an opened call of which no item is made
        (KINDS + b"\x08\x06\x00", (message("assistant", "no call"),), ""),
        (KINDS + b"\x07\x02{}", (), ""),  # an opened call that is not an item
        (KINDS + b"\x09", (), ""),  # another call, without its place
        (KINDS + b"\x0a\x01\x02\xff\xff", (), ""),  # spare text that is not UTF-8
    ],
)
def test_damaged_event_log_raises_store_corrupt(log: bytes, items: tuple[Item, ...], tail: str) -> None:
    with pytest.raises(StoreCorrupt):
        list(rebuild(log, items, tail, AttemptState.FAILED, None))


def test_damaged_storage_of_an_event_log_raises_store_corrupt() -> None:
    with pytest.raises(StoreCorrupt):
        decode_log(b"\x01not deflated", ())
    with pytest.raises(StoreCorrupt):
        failure_of(b"\x03\x02{}")


def test_whole_log_survives_storage_and_is_distinct_from_a_turns_log() -> None:
    whole = WholeLog(
        log=bytes([ITEM, 5]),
        text="Hi",
        items=raws([call("a")]),
        state=AttemptState.FAILED,
        failure=FAILED,
    )
    assert decode_whole(encode_whole(whole)) == whole
    output = [assistant("Hi")]
    for log in (b"", bytes([ITEM]), bytes([4] * 1_000)):
        assert decode_whole(encode_log(log, output)) is None
    with pytest.raises(StoreCorrupt):
        decode_whole(encode_whole(whole)[:-1])
