"""Events of a turn, while it runs and after."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.simulation.broken.registry import Patch, broken
from turnledger.engine import process as process_module
from turnledger.engine.attempt import end
from turnledger.engine.events.live_log import LiveLog
from turnledger.engine.events.reader import EventReader
from turnledger.engine.turn.open_parts import OpenParts
from turnledger.engine.turn.running_turn import OpenTurn
from turnledger.model import event_log
from turnledger.model.event import TextDelta
from turnledger.model.event_log import ARGUMENTS, REASONING, EventReplay
from turnledger.model.item import call_of

# Rule 14: the fence on every write.


@broken
def writes_events_without_the_fence() -> list[Patch]:
    return [(process_module, "holds_lane", lambda branch, attempt, fence: True)]


# The stored events of a turn are those it emitted.


@broken
def numbers_the_events_of_a_resumed_turn_anew() -> list[Patch]:
    true = OpenTurn.__init__

    def start(self: OpenTurn, process: Any, begun: Any, snapshot: Any, on_event: Any, **how: Any) -> None:
        taken_up = len(begun.journal.items)

        def emit(event: Any) -> None:
            if event.number == 1 or event.number > 1 + taken_up:
                on_event(replace(event, number=event.number - taken_up * (event.number > 1)))

        true(self, process, begun, snapshot, emit if on_event else None, **how)

    return [(OpenTurn, "__init__", start)]


@broken
def forgets_the_deltas_when_it_commits() -> list[Patch]:
    return [(OpenTurn, "_log_of", lambda self, *_: b"")]


# The deltas of a turn add up to its text, also of what it takes over.


@broken
def reports_what_it_takes_over_without_deltas() -> list[Patch]:
    return [(OpenTurn, "_report_taken_over", lambda self, item: self.live.record_item(item))]


# A reader receives all events and the end, in any process and after any reconnect.


@broken
def listens_from_now_on_only() -> list[Patch]:
    true = EventReader._attach_here

    def runs_here(self: EventReader) -> bool:
        is_here = true(self)
        if is_here and self._live is not None and self._after:
            self._after = max(self._after, self._live.count)
        return is_here

    return [(EventReader, "_attach_here", runs_here)]


@broken
def resumes_reading_by_chunk_number() -> list[Patch]:
    true = EventReader.__init__

    def start(self: EventReader, process: Any, owner: Any, conversation: Any, turn: Any, after: int) -> None:
        true(self, process, owner, conversation, turn, after)
        self._chunks, self._replay = (1, EventReplay(after)) if after else (0, None)

    return [(EventReader, "__init__", start)]


@broken
def withholds_the_end_from_readers_past_it() -> list[Patch]:
    def unread(self: EventReader, found: Any) -> Any:
        return (event for event in found.events() if event.number > self._after)

    return [(EventReader, "_unread", unread)]


@broken
def counts_no_items_of_read_events() -> list[Patch]:
    true = EventReader._events_in

    def events_in(self: EventReader, found: Any) -> Any:
        events = true(self, found)
        self._items = 0
        return events

    return [(EventReader, "_events_in", events_in)]


# Deltas of every kind are read as they were sent, and no half call is kept.


@broken
def reads_reasoning_as_text() -> list[Patch]:
    true = EventReplay._delta

    def delta(self: EventReplay, kind: int, text: str) -> Any:
        return TextDelta(number=self.number, text=text) if kind == REASONING else true(self, kind, text)

    return [(EventReplay, "_delta", delta)]


@broken
def adds_all_arguments_to_the_last_call() -> list[Patch]:
    true = LiveLog.record_arguments

    def record(self: LiveLog, call: int, text: str) -> None:
        self._chosen = call
        true(self, call, text)

    return [(LiveLog, "record_arguments", record)]


@broken
def keeps_half_a_call() -> list[Patch]:
    true = end.unfinished_items

    def items(sent: Any, journal: Any) -> Any:
        rest = event_log.unfinished(sent.log, journal.items[: sent.items], sent.more)
        half = [
            call_of("function_call", call_id, "act", rest.get(event_log.spare_source(ARGUMENTS, place), ""))
            for call_id, place in event_log.open_calls(sent.log).items()
        ]
        return (*true(sent, journal), *half)

    return [(end, "unfinished_items", items)]


@broken
def ends_every_open_call_with_any_item() -> list[Patch]:
    true = OpenParts.ended_by

    def ended_by(self: OpenParts, *given: Any, ends_turn: bool) -> Any:
        return true(self, *given, ends_turn=True)

    return [(OpenParts, "ended_by", ended_by)]


@broken
def flushes_the_wrong_reasoning() -> list[Patch]:
    true = LiveLog.next_chunk

    def next_chunk(self: LiveLog) -> Any:
        chunk = true(self)
        return chunk and replace(chunk, more="x" * len(chunk.more or "") if chunk.more else chunk.more)

    return [(LiveLog, "next_chunk", next_chunk)]
