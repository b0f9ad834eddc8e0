"""A look finds whatever there is of a turn, in steps, and only where it belongs."""

from __future__ import annotations

from msgspec.structs import replace

from tests.unit.engine.stage import BRANCH, CONVERSATION, attempt, branch, conversation, drive, ticket
from tests.unit.model.shapes import assistant, call, some_id
from tests.unit.model.shapes import turn as a_turn
from turnledger.engine.attempt.stored_events import CHUNKS, LookRequest, Over, Runs, Waits, look
from turnledger.model import codec, event_log
from turnledger.model.attempt import AttemptState, Failure, OnStop
from turnledger.model.conversation import Origin, Stretch
from turnledger.model.event import TurnFinished
from turnledger.model.event_log import ITEM, LogChunk
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.journal import finished
from turnledger.stores.memory import Database, MemoryTables

TURN = some_id(TurnId, 1)


def tables() -> MemoryTables:
    made = MemoryTables(Database())
    drive(made.add_conversation(conversation()))
    drive(made.add_branch(branch()))
    return made


def request(owner: str = "ann", chunk: int = 0, item: int = 0) -> LookRequest:
    return LookRequest(owner, CONVERSATION, TURN, chunk, item, 1)


def test_there_may_be_no_such_turn() -> None:
    assert drive(look(tables(), request())) is None


def test_a_queued_turn_waits() -> None:
    made = tables()
    drive(made.add_ticket(ticket(1)))
    assert drive(look(made, request())) == Waits()


def test_a_running_turn_is_read_in_steps() -> None:
    made = tables()
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
    made = tables()
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
        made = tables()
        drive(made.add_attempt(attempt(1, state, stop=stop, failure=failure)))
        over = drive(look(made, request()))
        assert isinstance(over, Over)
        assert (over.state, over.failure) == (told, failure)


def test_a_committed_turn_is_told_by_its_log() -> None:
    made = tables()
    committed = a_turn(1, output=[assistant("Hi")])
    drive(made.add_turn(committed, event_log.stored(bytes([ITEM]), committed.output)))
    over = drive(look(made, request()))
    assert isinstance(over, Over)
    assert over.log == bytes([ITEM])
    assert [event.number for event in over.events()] == [1, 2, 3]


def test_a_turn_of_another_conversation_is_not_there() -> None:
    made = tables()
    other = some_id(ConversationId, 9)
    drive(made.add_attempt(attempt(1, conversation=other)))
    assert drive(look(made, request())) is None


def test_a_fork_has_the_turns_that_it_shares_and_no_later_ones() -> None:
    source, other = some_id(BranchId, 9), some_id(ConversationId, 9)
    for through, is_there in ((1, True), (0, False)):
        made = tables()
        drive(made.add_conversation(conversation(id=other, branch=source)))
        drive(made.add_branch(branch(id=source, conversation=other)))
        drive(made.add_turn(replace(a_turn(1, output=[assistant("Hi")]), branch=source)))
        shared = (Stretch(source, 0, through),) if through else ()
        drive(made.add_origin(Origin(branch=BRANCH, conversation=CONVERSATION, base=None, line=shared)))
        assert isinstance(drive(look(made, request())), Over) is is_there
