"""A log of every kind of delta is rebuilt exactly: while it grows, from its chunks, and after every end."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import repeatable, result
from turnledger.engine.attempt import unfinished_output
from turnledger.engine.attempt.sent_log import SentLog, kept_turn_log
from turnledger.engine.attempt.unfinished_output import unfinished_items
from turnledger.engine.events.live_log import STRIDE, EmittedText, LiveLog
from turnledger.engine.limits import Limits
from turnledger.engine.turn.open_parts import Addition, OpenParts
from turnledger.engine.turn.running_turn import Draft
from turnledger.errors import MalformedItems
from turnledger.model import codec, event_log
from turnledger.model.event import Event, TurnFinished, TurnStarted
from turnledger.model.event_log import (
    ITEM,
    REASONING,
    REFUSAL,
    EventReplay,
    LogChunk,
    decode_log,
    encode_log,
    rebuild,
    replay_chunk,
    spare_entries,
)
from turnledger.model.item import Item, call_of, reasoning
from turnledger.model.journal import Journal
from turnledger.model.turn import AttemptState

CALLS = ("a", "b", "c")
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40) | st.just("x" * 200)
steps = st.one_of(
    st.tuples(st.just("text"), texts),
    st.tuples(st.just("reasoning"), texts),
    st.tuples(st.just("refusal"), texts),
    st.tuples(st.just("open"), st.sampled_from(CALLS)),
    st.tuples(st.just("arguments"), st.tuples(st.sampled_from(CALLS), texts)),
    st.tuples(st.just("add"), st.sampled_from(["nothing", "reasoning", "call", "result"])),
    st.tuples(st.just("void"), st.none()),
    st.tuples(st.just("flush"), st.none()),
)


class Played:
    """A draft and its log, without a store: the sent events, and the chunks that were flushed."""

    def __init__(self, steps: list[tuple[str, Any]]) -> None:
        self.events: list[Event] = []
        self.journal = Journal()
        self.draft = Draft((), (), self.journal, 1_000_000)
        self.live = LiveLog(self.draft.emitted, Limits(), self.events.append)
        self.chunks: list[LogChunk] = []
        for step, given_ in steps:
            getattr(self, f"_{step}")(given_)

    def _text(self, text: str) -> None:
        self.live.record_text(self.draft.emit(text))

    def _reasoning(self, text: str) -> None:
        self.live.record_part(REASONING, self.draft.parts(0).add(REASONING, text))

    def _refusal(self, text: str) -> None:
        self.live.record_part(REFUSAL, self.draft.parts(0).add(REFUSAL, text))

    def _open(self, call_id: str) -> None:
        parts = self.draft.parts(0)
        is_waiting = any(self.journal.items[place].call_id == call_id for place in self._unanswered)
        if call_id not in parts.calls and not is_waiting:
            opening = call_of("function_call", call_id, "look")
            parts.open(opening, self.live.record_opening(opening))

    @property
    def _unanswered(self) -> list[int]:
        return self.journal.unanswered_calls()

    def _arguments(self, given_: tuple[str, str]) -> None:
        parts = self.draft.parts(0)
        if given_[0] in parts.calls:
            self.live.record_arguments(*parts.add_arguments(*given_))

    def _add(self, what: str) -> None:
        given_: list[Item] = []
        if what == "reasoning":
            given_ = [reasoning("not what was emitted")]
        elif what == "call":
            given_ = [call_of("function_call", "a", "look", "not what was emitted")]
        elif what == "result" and self._unanswered:
            given_ = [result(self.journal.items[self._unanswered[0]].call_id or "")]
        try:
            addition = self.draft.next_items(given_)
        except MalformedItems:
            return
        self.draft.close_calls(addition)
        self.draft.take(addition)
        for place, (item, made) in enumerate(zip(addition.items, addition.made, strict=True)):
            if made.code != ITEM:
                self.journal.emitted |= {len(self.journal.items) - len(addition.items) + place}
            if made.spare is not None:
                self.live.record_spare(*made.spare)
            self.live.record_item(item, code=made.code, call=made.call)

    def _void(self, _: None) -> None:
        self.live.record_resumed(self.draft.void())

    def _flush(self, _: None) -> None:
        if chunk := self.live.next_chunk():
            self.chunks.append(codec.decode(LogChunk, codec.encode(chunk)))

    @property
    def more(self) -> str:
        return self.live.more.between(0, self.live.more.length) if self.live.more is not None else ""

    @property
    def sent(self) -> SentLog:
        return SentLog(bytes(self.live.packed), len(self.live.items), self.draft.text, self.more)


def wire(events: list[Event]) -> list[bytes]:
    return [codec.encode(event) for event in events]


plays = st.lists(steps, max_size=40).map(Played)


@repeatable
@given(plays)
def test_live_log_reads_the_events_that_were_sent_from_any_number(played: Played) -> None:
    for after in range(len(played.events) + 1):
        assert wire(played.live.since(after, 100)) == wire(played.events[after:])


@repeatable
@given(plays)
def test_chunks_rebuild_the_events_that_were_sent(played: Played) -> None:
    played._flush(None)
    items = list(played.journal.items)
    events: list[Event] = [TurnStarted(number=1)]
    replay = EventReplay()
    for chunk in played.chunks:
        count = event_log.count_items(chunk.log)
        events += replay_chunk(replay, chunk, items[:count])
        items = items[count:]
    assert wire(events) == wire(played.events)
    joined = event_log.join_logs([chunk.log for chunk in played.chunks])
    assert list(event_log.entries(joined)) == list(event_log.entries(played.live.packed))


@repeatable
@given(plays)
def test_log_of_an_attempt_set_aside_rebuilds_the_events_that_were_sent(played: Played) -> None:
    log = played.sent.log + spare_entries(played.sent.log, played.journal.items, played.more)
    rebuilt = list(rebuild(log, played.journal.items, played.draft.text, AttemptState.FAILED, None))
    assert wire(rebuilt[:-1]) == wire(played.events)


@repeatable
@given(plays)
def test_log_of_a_kept_turn_rebuilds_the_events_that_were_sent_and_then_its_rest(played: Played) -> None:
    partial = unfinished_items(played.sent, played.journal)
    output = unfinished_output.kept_output(played.journal, partial)
    log = encode_log(kept_turn_log(played.sent, played.journal, output, partial, None), output)
    rebuilt = list(rebuild(decode_log(log, output), output, "", AttemptState.KEPT, None))
    count = len(played.events)
    assert wire(rebuilt[:count]) == wire(played.events)
    assert [event.number for event in rebuilt] == list(range(1, len(rebuilt) + 1))
    assert isinstance(rebuilt[-1], TurnFinished)
    done = [bytes(event.item) for event in rebuilt if isinstance(event, event_log.ItemDone)]
    stranded = [item.raw for item in played.live.items if item.is_reasoning and item not in output]
    assert [raw for raw in done if raw not in stranded] == [
        item.raw for item in output if item.raw not in stranded
    ]


def ended(addition: Addition) -> list[str]:
    return [item.body for item in addition.items]


def test_items_of_all_parts_are_ordered_reasoning_text_refusal_calls() -> None:
    parts = OpenParts()
    parts.open(call_of("function_call", "c", "look"), 0)
    parts.add_arguments("c", "{}")
    parts.add(REFUSAL, "No.")
    parts.add(REASONING, "Hm.")
    text = Item.of({"role": "assistant", "content": "Well."})
    assert ended(parts.ended_by((), text, 5, None, ends_turn=True)) == ["Hm.", "Well.", "No.", "{}"]


def test_text_emitted_before_another_kind_keeps_its_numbers_and_costs_a_byte_each() -> None:
    live = LiveLog(EmittedText(), Limits(), None)
    for _ in range(100):
        live.text.append("text")
        live.record_text("text")
    for _ in range(100):
        live.record_part(REASONING, "thought")
    assert len(live.packed) == len(event_log.KINDS) + 200
    assert [event.number for event in live.since(0, 300)] == list(range(1, 202))


def test_places_known_in_a_log_of_text_are_found_again_after_another_kind() -> None:
    live = LiveLog(EmittedText(), Limits(), None)
    for number in range(3 * STRIDE):
        live.text.append(str(number % 10) * 30)
        live.record_text(str(number % 10) * 30)
    assert len(live.since(2 * STRIDE, 10)) == 10
    live.record_part(REASONING, "thought")
    found = live.since(2 * STRIDE, 2 * STRIDE)
    assert [getattr(event, "text", "")[:7] for event in found[-2:]] == ["7" * 7, "thought"]
    assert [event.number for event in found] == list(range(2 * STRIDE + 1, 3 * STRIDE + 3))
