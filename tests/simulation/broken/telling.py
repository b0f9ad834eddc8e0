"""Telling: the events of a turn, as they are heard while it runs and read ever after."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.simulation.broken.registry import Patch, broken
from turnledger.engine import flushing
from turnledger.engine.transaction import RunningTurn

# Rule 14: the fence on every write.


@broken
def writes_down_events_without_the_fence() -> list[Patch]:
    return [(flushing, "holds_lane", lambda branch, attempt, fence: True)]


# What is read of a turn is what was told.


@broken
def numbers_the_events_of_a_resumed_turn_anew() -> list[Patch]:
    true = RunningTurn.__init__

    def start(self: RunningTurn, process: Any, begun: Any, snapshot: Any, on_event: Any) -> None:
        taken_up = len(begun.journal.items)

        def tell(event: Any) -> None:
            if event.number == 1 or event.number > 1 + taken_up:
                on_event(replace(event, number=event.number - taken_up * (event.number > 1)))

        true(self, process, begun, snapshot, tell if on_event else None)

    return [(RunningTurn, "__init__", start)]


@broken
def forgets_the_deltas_when_it_commits() -> list[Patch]:
    return [(RunningTurn, "_log_of", lambda self, output: b"")]
