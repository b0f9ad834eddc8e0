"""Events of a turn, while it runs and after."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.simulation.broken.registry import Patch, broken
from turnledger.engine import process as process_module
from turnledger.engine.events.reader import EventReader
from turnledger.engine.turn.running_turn import OpenTurn

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
    return [(OpenTurn, "_log_of", lambda self, output: b"")]


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
        self._chunks, self._number = (1, after) if after else (0, 0)

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
