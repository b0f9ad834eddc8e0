"""A request and its progress through the engine's operations, as its process would track it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.unit.model.shapes import assistant, call, reasoning
from turnledger.engine.attempt.end import EndRequest
from turnledger.engine.attempt.sent_log import SentLog
from turnledger.engine.lifecycle.moves import MoveResult
from turnledger.engine.turn.begin import (
    BeginBounds,
    BeginRequest,
    Begun,
    Round,
    TurnContent,
    TurnPolicy,
)
from turnledger.engine.turn.commit import CommitRequest
from turnledger.engine.turn.queue import Queued
from turnledger.engine.turn.running_turn import RecordRequest
from turnledger.model import event_log
from turnledger.model.item import Item, open_calls, result_of
from turnledger.model.journal import Journal, item_record, start_record
from turnledger.model.turn import Failure, OnStop, Turn, TurnKind, instructed_after

PARTS = {"content": TurnContent, "policy": TurnPolicy, "bounds": BeginBounds, "round": Round}


def _request(**fields: Any) -> BeginRequest:
    """Build a request from flat fields."""
    parts = {
        name: kind(**{field: fields.pop(field) for field in kind.__struct_fields__ if field in fields})
        for name, kind in PARTS.items()
    }
    return BeginRequest(**fields, **parts)


@dataclass
class TrackedRequest:
    fields: dict[str, Any]
    queued: Queued | None = None
    begun: Begun | None = None
    fence: int = 0
    journal: Journal = field(default_factory=Journal)
    journaled: int = 0

    def first(self) -> BeginRequest:
        return _request(due=self.fields["now"], **self.fields)

    def again(self, now: int, *, sees_death: bool, is_durable: bool) -> BeginRequest:
        """Return the repeated request: its answer was lost, it waits, or it must reach the disk."""
        queued = self.queued
        changes: dict[str, Any] = {"now": now, "is_repeated": True, "is_durable": is_durable}
        if queued is not None:
            changes["ticket"] = queued.ticket
            changes["dead"] = dict(queued.in_the_way) if sees_death else {}
        return _request(due=now, **{**self.fields, **changes})

    @property
    def owner(self) -> str:
        owner: str = self.fields["target"].owner
        return owner

    def take_answer(self, answer: object) -> None:
        if isinstance(answer, Queued):
            self.queued = answer
        elif isinstance(answer, MoveResult):
            self.queued = None
        elif isinstance(answer, Begun) and self.begun is None:
            self.begun, self.fence = answer, answer.branch.fence
            self.journal = Journal(list(answer.journal.items), dict(answer.journal.started))
            self.journaled = answer.attempt.journaled

    def step(self, what: str) -> tuple[list[bytes], Journal]:
        """Return the records of another step, and the journal after it; a text if the step does not fit."""
        journal = Journal(list(self.journal.items), dict(self.journal.started))
        ends_thinking = bool(journal.items) and journal.items[-1].is_reasoning
        waiting = journal.unanswered_calls()
        if what.startswith("start"):
            place = next((each for each in waiting if each not in journal.started), None)
            if place is not None:
                journal.started[place] = what == "start reading"
                return [start_record(place, read_only=what == "start reading")], journal
        item = assistant(f"text {len(journal.items)}")
        if what == "result" and waiting and not ends_thinking:
            item = result_of(journal.items[waiting[0]], "found")
        elif what == "call":
            item = call(f"{self.fields['attempt'][-2:]}-{len(journal.items)}")
        elif what == "think":
            item = reasoning()
        journal.items.append(item)
        return [item_record(item)], journal

    def record(self, records: list[bytes], late: int) -> RecordRequest:
        begun = self._lane()
        return RecordRequest(
            branch=begun.branch.id,
            attempt=begun.attempt.id,
            fence=self.fence - late,
            first=self.journaled,
            records=records,
        )

    def commit(self, now: int, late: int) -> CommitRequest:
        begun = self._lane()
        output = self._output()
        place, lane = begun.place, begun.branch
        pending = place.pending if place else lane.pending
        given = begun.attempt.instructions
        before = place.instructed if place else lane.instructed
        instructed = instructed_after(given, before, (place.length if place else lane.length) + 1)
        turn = Turn.of(
            id=begun.attempt.id,
            branch=place.fork.branch if place else lane.id,
            number=(place.length if place else lane.length) + 1,
            parent=place.head if place else lane.head,
            kind=TurnKind.COMPLETED,
            created_at=begun.attempt.created_at,
            committed_at=now,
            input=begun.attempt.input,
            output=output,
            instructions=given.items if given else None,
            instructed=instructed,
        )
        return CommitRequest(
            attempt=begun.attempt,
            lane=lane.id,
            head=lane.head,
            turn=turn,
            fence=self.fence - late,
            instructed=instructed,
            fork=place.fork if place else None,
            pending=open_calls((*pending, *begun.attempt.input, *output)),
            journaled=self.journaled,
            home=begun.conversation,
            now=now,
        )

    def _output(self) -> tuple[Item, ...]:
        """Return the steps so far, a result for each started call, and an answer."""
        journal = self.journal
        left = [place for place in journal.unanswered_calls() if place in journal.started]
        results = [result_of(journal.items[place], "found") for place in left]
        thought = [assistant("so")] if results and journal.items[-1].is_reasoning else []
        return (*journal.items, *thought, *results, assistant("done"))

    def end(self, now: int, late: int, failure: Failure | None, on_stop: OnStop | None) -> EndRequest:
        begun = self._lane()
        return EndRequest(
            owner=begun.attempt.owner,
            conversation=begun.conversation.id,
            branch=begun.branch.id,
            attempt=begun.attempt.id,
            fence=self.fence - late,
            failure=failure,
            on_stop=on_stop,
            sent=SentLog(bytes([event_log.DELTA + 6]), 0, "so far") if failure else SentLog(b"", 0, ""),
            now=now,
        )

    def _lane(self) -> Begun:
        assert self.begun is not None
        return self.begun
