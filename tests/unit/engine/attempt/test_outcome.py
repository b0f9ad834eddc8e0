"""What became of a turn: its outcome and its stored events, whenever and wherever somebody asks."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tests.unit.engine.stage import BRANCH, CONVERSATION, attempt, branch, conversation, drive, ticket
from tests.unit.model.shapes import assistant, call, reasoning, result, some_id
from tests.unit.model.shapes import turn as a_turn
from turnledger import Ledger
from turnledger.engine.attempt import unfinished
from turnledger.engine.attempt.end import DELETED, Ended
from turnledger.engine.attempt.outcome import OutcomeRequest, Running, committed, outcome
from turnledger.engine.attempt.stored_events import CHUNKS, LookRequest, Over, Runs, Waits, look
from turnledger.engine.attempt.told import Told, flushed, left_of, log_of_kept, set_aside, untold
from turnledger.errors import ConversationDeleted, ConversationExpired, Superseded, TurnFailed, TurnNotFound
from turnledger.model import codec, event_log
from turnledger.model.conversation import ConversationState, Origin, Stretch
from turnledger.model.event import ItemDone, TurnFinished
from turnledger.model.event_log import DELTA, EMITTED, ITEM, LogChunk
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import message
from turnledger.model.journal import Journal, finished
from turnledger.model.turn import QUEUED, AttemptState, Failure, OnStop, TurnKind
from turnledger.stores.memory import Database, MemoryTables

REQUEST = OutcomeRequest("ann", some_id(TurnId, 1), CONVERSATION)


def tables(state: ConversationState = ConversationState.LIVE) -> MemoryTables:
    made = MemoryTables(Database())
    drive(made.add_conversation(conversation(state=state)))
    drive(made.add_branch(branch()))
    return made


def test_what_runs_names_who_runs_it() -> None:
    made = tables()
    drive(made.add_attempt(attempt(1)))
    found = drive(outcome(made, REQUEST))
    assert isinstance(found, Running)
    assert found.left.attempt == REQUEST.attempt


def test_what_failed_tells_why() -> None:
    made, failure = tables(), Failure("boom", "it broke")
    drive(made.add_attempt(attempt(1, AttemptState.FAILED, failure=failure)))
    assert drive(outcome(made, REQUEST)) == Ended(AttemptState.FAILED, failure=failure)


def test_an_attempt_that_was_removed_with_its_conversation_was_deleted() -> None:
    for gone in (tables(ConversationState.DELETED), MemoryTables(Database())):
        assert drive(outcome(gone, REQUEST)) == Ended(AttemptState.FAILED, failure=DELETED)


def test_an_attempt_that_was_removed_with_its_conversation_may_have_expired() -> None:
    with pytest.raises(ConversationExpired):
        drive(outcome(tables(ConversationState.EXPIRED), REQUEST))


def test_who_waited_for_it_is_told_as_who_ran_it() -> None:
    with pytest.raises(ConversationDeleted):
        committed(Ended(AttemptState.FAILED, failure=DELETED))
    with pytest.raises(TurnFailed, match="it broke"):
        committed(Ended(AttemptState.FAILED, failure=Failure("boom", "it broke")))


def test_of_a_live_conversation_nobody_can_tell() -> None:
    with pytest.raises(Superseded):
        drive(outcome(tables(), REQUEST))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_committed_turn_comes_with_its_chat_as_it_is_then() -> None:
    async with await Ledger.open() as ledger:
        chat = await ledger.conversation()
        async with chat.turn("Hello") as turn:
            turn.emit("Hi.")
        async with chat.turn("More") as later:
            later.emit("Yes.")
        found = await chat.standing(turn.id)
        assert found.turn is not None
        assert (found.state, found.turn.id, found.chat.turns) == (AttemptState.COMPLETED, turn.id, 2)


async def test_one_that_runs_and_one_that_waits_have_no_turn_yet() -> None:
    async with await Ledger.open() as ledger:
        chat = await ledger.conversation()
        async with chat.turn("Hello") as turn:
            queued = chat.turn("Next")

            async def wait() -> None:
                async with queued as other:
                    other.emit("Now.")

            waiting = asyncio.create_task(wait())
            while not ledger.at_work().waiting:
                await asyncio.sleep(0)
            first, second = await chat.standing(turn.id), await chat.standing(queued.id)
            turn.emit("Hi.")
        await waiting
        assert (first.state, first.turn, first.chat.is_running) == (AttemptState.RUNNING, None, True)
        assert (second.state, second.turn) == (QUEUED, None)


async def test_one_that_failed_says_why_and_one_that_was_discarded_does_not() -> None:
    async with await Ledger.open() as ledger:
        chat = await ledger.conversation()
        with pytest.raises(ZeroDivisionError):
            async with chat.turn("Hello") as failed:
                raise ZeroDivisionError
        async with chat.turn("Hello") as stopped:
            stopped.stop("discard")
        one, other = await chat.standing(failed.id), await chat.standing(stopped.id)
        assert one.failure is not None
        assert (one.state, one.turn) == (AttemptState.FAILED, None)
        assert (other.state, other.turn, other.failure) == (AttemptState.DISCARDED, None, None)


async def test_one_that_was_kept_is_a_turn() -> None:
    async with await Ledger.open() as ledger:
        chat = await ledger.conversation()
        async with chat.turn("Hello") as turn:
            turn.emit("Hi th")
            turn.stop()
        found = await chat.standing(turn.id)
        assert found.turn is not None
        assert (found.state, found.turn.kind) == (AttemptState.KEPT, TurnKind.INTERRUPTED)


async def test_a_turn_of_another_chat_is_not_there() -> None:
    async with await Ledger.open() as ledger:
        chat, other = await ledger.conversation(), await ledger.conversation()
        async with other.turn("Hello") as turn:
            turn.emit("Hi.")
        for unknown in (turn.id, TurnId("turn_01890000000070008000000000000000")):
            with pytest.raises(TurnNotFound):
                await chat.standing(unknown)


TURN = some_id(TurnId, 1)


def told_tables() -> MemoryTables:
    made = MemoryTables(Database())
    drive(made.add_conversation(conversation()))
    drive(made.add_branch(branch()))
    return made


def request(owner: str = "ann", chunk: int = 0, item: int = 0) -> LookRequest:
    return LookRequest(owner, CONVERSATION, TURN, chunk, item, 1)


def test_there_may_be_no_such_turn() -> None:
    assert drive(look(told_tables(), request())) is None


def test_a_queued_turn_waits() -> None:
    made = told_tables()
    drive(made.add_ticket(ticket(1)))
    assert drive(look(made, request())) == Waits()


def test_a_running_turn_is_read_in_steps() -> None:
    made = told_tables()
    drive(made.add_attempt(attempt(1, journaled=2)))
    drive(made.add_records(TURN, 0, [finished(call("a")), finished(call("b"))]))
    for number in range(CHUNKS + 1):
        log = bytes([ITEM]) if number >= CHUNKS - 1 else bytes([4])
        chunk = LogChunk(log=log, text="" if log == bytes([ITEM]) else "x")
        drive(made.add_log_chunk(TURN, number, codec.encode(chunk)))
    first = drive(look(made, request()))
    assert isinstance(first, Runs)
    assert (len(first.chunks), first.has_more, first.items[0]) == (CHUNKS, True, call("a"))
    second = drive(look(made, request(chunk=CHUNKS, item=1)))
    assert isinstance(second, Runs)
    assert (len(second.chunks), second.has_more, second.items) == (1, False, (call("b"),))


def test_a_turn_stopped_in_the_queue_has_only_an_end() -> None:
    made = told_tables()
    drive(made.add_attempt(attempt(1, AttemptState.DISCARDED, fence=0, stop=OnStop.DISCARD)))
    over = drive(look(made, request()))
    assert isinstance(over, Over)
    assert list(over.events()) == [TurnFinished(number=1, state=AttemptState.DISCARDED)]


def test_what_became_of_an_attempt_later_is_no_part_of_its_events() -> None:
    failure = Failure("boom", "it broke")
    for state, stop, told in (
        (AttemptState.FAILED, None, AttemptState.FAILED),
        (AttemptState.SETTLED, None, AttemptState.FAILED),
        (AttemptState.RESUMED, None, AttemptState.FAILED),
        (AttemptState.DISCARDED, OnStop.DISCARD, AttemptState.DISCARDED),
        (AttemptState.SETTLED, OnStop.DISCARD, AttemptState.DISCARDED),
    ):
        made = told_tables()
        drive(made.add_attempt(attempt(1, state, stop=stop, failure=failure)))
        over = drive(look(made, request()))
        assert isinstance(over, Over)
        assert (over.state, over.failure) == (told, failure)


def test_a_committed_turn_is_told_by_its_log() -> None:
    made = told_tables()
    committed = a_turn(1, output=[assistant("Hi")])
    drive(made.add_turn(committed, event_log.stored(bytes([ITEM]), committed.output)))
    over = drive(look(made, request()))
    assert isinstance(over, Over)
    assert over.log == bytes([ITEM])
    assert [event.number for event in over.events()] == [1, 2, 3]


def test_a_turn_of_another_conversation_is_not_there() -> None:
    made = told_tables()
    other = some_id(ConversationId, 9)
    drive(made.add_attempt(attempt(1, conversation=other)))
    assert drive(look(made, request())) is None


def test_a_fork_has_the_turns_that_it_shares_and_no_later_ones() -> None:
    source, other = some_id(BranchId, 9), some_id(ConversationId, 9)
    for through, is_there in ((1, True), (0, False)):
        made = told_tables()
        drive(made.add_conversation(conversation(id=other, branch=source)))
        drive(made.add_branch(branch(id=source, conversation=other)))
        drive(made.add_turn(replace(a_turn(1, output=[assistant("Hi")]), branch=source)))
        shared = (Stretch(source, 0, through),) if through else ()
        drive(made.add_origin(Origin(branch=BRANCH, conversation=CONVERSATION, base=None, line=shared)))
        assert isinstance(drive(look(made, request())), Over) is is_there


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
