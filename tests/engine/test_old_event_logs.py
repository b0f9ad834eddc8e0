"""Logs written before events of every kind, as bytes: they rebuild the same events, and turns of text are
still stored as they were."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.test_events import ENDS
from tests.engine.views import SCRIPT, running, wire
from tests.unit.model.shapes import turn as turn_of
from turnledger.chat import Chat
from turnledger.engine.attempt.stored_events import EndedTurnLog, turn_log_of
from turnledger.engine.ports import Tables
from turnledger.model import codec
from turnledger.model.conversation import LOCAL
from turnledger.model.event import Event, TurnStarted
from turnledger.model.event_log import (
    DEFLATED,
    PLAIN,
    WHOLE,
    EventReplay,
    LogChunk,
    WholeLog,
    count_items,
    replay_chunk,
)
from turnledger.model.ids import TurnId
from turnledger.model.item import Item
from turnledger.model.journal import Journal
from turnledger.model.turn import AttemptState, Failure, TurnKind
from turnledger.testing.gates import Gate
from turnledger.testing.scripted_model import ScriptedModel, Step, Think, Tool
from turnledger.testing.store_contract.stage import Stage, call, exchange, soon

OLD: dict[str, dict[str, Any]] = {
    each["name"]: each
    for each in map(json.loads, (Path(__file__).parent / "old_event_logs.jsonl").read_text().splitlines())
}
"""By the name of an act: the rows it left, and the events that its readers received."""
TURNS = [name for name, old in OLD.items() if "log" in old]
ASIDE = [name for name, old in OLD.items() if "state" in old]


async def is_deflated(stage: Stage, chat: Chat, sink: Callable[[Event], None]) -> None:
    words = [*(f"{number} " for number in range(130)), "y" * 200]
    script: list[Step] = [*words, Tool("look"), "ünï\U0001f600", "."]
    await soon(chat.run(ScriptedModel(script), "q", on_event=sink))


async def is_carried_over(stage: Stage, chat: Chat, sink: Callable[[Event], None]) -> None:
    async def find() -> str:
        return "found"

    first = await exchange(chat, "first")
    async with chat.turn("q", on_event=sink) as turn:
        turn.emit("Let me ")
        await turn.call(call("look", "c"), find)
        turn.emit("Half")
        await turn.add({"type": "reasoning", "summary": []})
        turn.stop()
    async with chat.edit(first.id, "better") as turn:
        turn.emit("Yes.")


ACTS: dict[str, Any] = {
    act.__name__: act for act in (*(act for act, _ in ENDS), is_deflated, is_carried_over)
}


def raw_of(text: str) -> bytes:
    return base64.b64decode(text)


def sent(old: dict[str, Any]) -> list[bytes]:
    return [event.encode() for event in old["events"]]


def test_old_logs_have_every_header() -> None:
    assert {raw_of(OLD[name]["log"])[:1] for name in TURNS} == {b"", PLAIN, DEFLATED, WHOLE}


@pytest.mark.parametrize("name", TURNS)
def test_old_log_of_a_turn_rebuilds_the_events_that_were_sent(name: str) -> None:
    old = OLD[name]
    turn = turn_of(output=[Item.stored(raw.encode()) for raw in old["output"]], kind=TurnKind(old["kind"]))
    assert wire(list(turn_log_of(turn, raw_of(old["log"])).events())) == sent(old)


@pytest.mark.parametrize("name", ASIDE)
def test_old_log_of_an_attempt_set_aside_rebuilds_the_events_that_were_sent(name: str) -> None:
    old = OLD[name]
    [chunk] = [codec.decode(LogChunk, raw_of(each)) for each in old["chunks"]]
    whole = WholeLog(
        log=chunk.log,
        text=chunk.text,
        items=chunk.items,
        state=AttemptState.DISCARDED if old["is_stopped"] else AttemptState.FAILED,
        failure=Failure(*old["failure"]) if old["failure"] else None,
    )
    assert wire(list(EndedTurnLog.of(whole).events())) == sent(old)


def test_old_chunks_of_a_running_attempt_rebuild_the_events_that_were_sent() -> None:
    old = OLD["runs"]
    items = Journal.of([record.encode() for record in old["journal"]]).items
    events: list[Event] = [TurnStarted(number=1)]
    replay = EventReplay()
    for raw in old["chunks"]:
        chunk = codec.decode(LogChunk, raw_of(raw))
        count = count_items(chunk.log)
        events += replay_chunk(replay, chunk, items[:count])
        items = items[count:]
    assert wire(events) == sent(old)


async def rows_of(tables: Tables, turn: TurnId) -> tuple[bytes | None, list[bytes]]:
    found = await tables.turn(turn)
    return await tables.turn_log(turn) if found else None, await tables.log_chunks(turn, 0, 100)


def inflated(log: bytes) -> bytes:
    """Return a stored log such that it can be compared: libraries compress differently."""
    return zlib.decompress(log[1:]) if log[:1] in (DEFLATED, WHOLE) else log


# A retry now sends the text of what it takes over, too.
@pytest.mark.parametrize("name", [name for name in (*TURNS, *ASIDE) if name != "resumes"])
async def test_turn_of_text_and_items_is_stored_byte_for_byte_as_before(stage: Stage, name: str) -> None:
    old = OLD[name]
    here, _ = await stage.processes()
    chat = await here.chat()
    ids: list[TurnId] = []

    def sink(_: Event) -> None:
        ids[:] = ids or list(here.ledger._process.attempts)

    await soon(ACTS[name](stage, chat, sink))
    if name == "is_carried_over":
        ids = [turn.id for turn in await chat.turns() if turn.kind is TurnKind.SETTLED]
    log, chunks = await here.store.read(rows_of, ids[0], LOCAL)
    if log is not None:
        assert inflated(log) == inflated(raw_of(old["log"]))
    else:
        assert chunks == [raw_of(each) for each in old["chunks"]]


async def test_running_turn_of_text_and_items_flushes_the_chunks_of_before(stage: Stage) -> None:
    here = await stage.process()
    chat = await here.chat()
    gates = [Gate(), Gate(), Gate()]
    script = [
        *SCRIPT,
        gates[0],
        "More, ",
        Tool("book"),
        "and more." * 30,
        gates[1],
        " Done.",
        Think(),
        gates[2],
    ]
    task = stage.start(chat.run(ScriptedModel(script), "q"))
    for gate in gates:
        await stage.reach(gate, task)
        await here.flush()
        if gate is not gates[2]:
            gate.release()
    _, chunks = await here.store.read(rows_of, await running(chat), LOCAL)
    assert chunks == [raw_of(each) for each in OLD["runs"]["chunks"]]
