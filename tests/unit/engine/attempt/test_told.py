"""What was told stays told, whatever the end makes of it."""

from __future__ import annotations

from tests.unit.engine.stage import drive
from tests.unit.model.shapes import assistant, call, reasoning, result, some_id
from turnledger.engine.attempt import unfinished
from turnledger.engine.attempt.told import Told, flushed, left_of, log_of_kept, set_aside, untold
from turnledger.model import codec, event_log
from turnledger.model.attempt import AttemptState, Failure
from turnledger.model.event import ItemDone
from turnledger.model.event_log import DELTA, EMITTED, ITEM, LogChunk
from turnledger.model.ids import TurnId
from turnledger.model.item import message
from turnledger.model.journal import Journal
from turnledger.stores.memory import Database, MemoryTables

TURN = some_id(TurnId, 1)


def deltas(*texts: str) -> bytes:
    return bytes(len(text) + DELTA for text in texts)


def items_of(log: bytes, journal: Journal, partial: str) -> list[bytes]:
    output = unfinished.kept(journal, partial)
    events = event_log.rebuild(log, output, "", AttemptState.KEPT, None)
    return [bytes(event.item) for event in events if isinstance(event, ItemDone)]


def test_flushed_text_that_an_item_took_is_no_tail() -> None:
    tables = MemoryTables(Database())
    journal = Journal([message("assistant", "Hello", status="completed")], emitted={0})
    for number, chunk in enumerate(
        (LogChunk(log=deltas("Hel", "lo"), text="Hello"), LogChunk(log=bytes([EMITTED, 5]), text="So"))
    ):
        drive(tables.add_log_chunk(TURN, number, codec.encode(chunk)))
    told = drive(flushed(tables, TURN, journal))
    assert told == Told(deltas("Hel", "lo") + bytes([EMITTED, 5]), 1, "So")
    assert left_of(told, journal) == "So"


def test_text_that_was_recorded_and_not_told_is_not_left() -> None:
    journal = Journal([message("assistant", "Hello", status="completed"), call()], emitted={0})
    assert left_of(Told(deltas("Hel"), 0, "Hel"), journal) == ""
    assert left_of(Told(deltas("Hello", "!"), 0, "Hello!"), journal) == "!"


def test_what_was_not_told_comes_at_the_end_of_a_kept_turn() -> None:
    journal = Journal([call("a"), call("b")])
    log = log_of_kept(
        Told(bytes([ITEM]) + deltas("Hm"), 1, "Hm"), journal, unfinished.kept(journal, "Hm"), None
    )
    assert log == bytes([ITEM, *deltas("Hm"), ITEM, ITEM, ITEM, EMITTED])
    assert items_of(log, journal, "Hm") == [item.raw for item in unfinished.kept(journal, "Hm")]


def test_reasoning_that_was_told_and_is_not_kept_stays_told() -> None:
    journal = Journal([assistant("so"), reasoning()])
    log = log_of_kept(Told(bytes([ITEM, ITEM]), 2, ""), journal, unfinished.kept(journal, ""), None)
    assert items_of(log, journal, "") == [assistant("so").raw, reasoning().raw]


def test_why_it_was_kept_stands_in_its_log() -> None:
    failure = Failure("boom", "it broke")
    log = log_of_kept(Told(b"", 0, ""), Journal([assistant()]), (assistant(),), failure)
    assert event_log.failure_of(log) == failure


def test_what_is_set_aside_needs_no_journal() -> None:
    tables = MemoryTables(Database())
    for number in range(3):
        drive(tables.add_log_chunk(TURN, number, b"chunk"))
    told = Told(bytes([ITEM]) + deltas("Half"), 1, "Half")
    drive(set_aside(tables, TURN, Journal([call(), result()]), told))
    [chunk] = [codec.decode(LogChunk, raw) for raw in drive(tables.log_chunks(TURN, 0, 9))]
    assert (chunk.log, chunk.text, codec.items(chunk.items)) == (told.log, "Half", (call(),))


def test_an_attempt_that_told_nothing_leaves_no_log() -> None:
    tables = MemoryTables(Database())
    drive(tables.add_log_chunk(TURN, 0, b"chunk"))
    drive(set_aside(tables, TURN, Journal(), Told(b"", 0, "")))
    assert drive(tables.log_chunks(TURN, 0, 9)) == []


def test_untold_is_the_rest_of_the_output() -> None:
    told = [assistant("a"), reasoning(), call()]
    assert untold(told, [assistant("a"), call(), result()]) == [result()]
    assert untold([], [call()]) == [call()]
    assert untold([reasoning()], []) == []
