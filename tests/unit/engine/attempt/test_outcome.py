"""The outcome of a turn, and the well-formed output of a kept, settled or resumed attempt."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given

from tests.unit.engine.stage import (
    CONVERSATION,
    attempt,
    branch,
    conversation,
    drive,
    generated,
    lane_tables,
    memory_tables,
)
from tests.unit.model.shapes import (
    assistant,
    call,
    journals,
    journals_not_thinking,
    reasoning,
    result,
    some_id,
    user,
)
from turnledger import Ledger
from turnledger.chat import Chat
from turnledger.engine.attempt import unfinished_output
from turnledger.engine.attempt.end import DELETED, Outcome, is_well_formed
from turnledger.engine.attempt.outcome import OutcomeRequest, committed_turn, outcome
from turnledger.engine.attempt.sent_log import SentLog, kept_turn_log, store_attempt_log, unsent_items
from turnledger.engine.attempt.stored_events import CHUNKS, RunningTurnLog, TurnLogRequest, read_turn_log
from turnledger.engine.attempt.unfinished_output import kept_output, resume_results, settled_output
from turnledger.errors import ConversationDeleted, ConversationExpired, Superseded, TurnFailed, TurnNotFound
from turnledger.hosting import Host
from turnledger.model import codec, event_log
from turnledger.model.conversation import ConversationState
from turnledger.model.event import ItemDone
from turnledger.model.event_log import ITEM, LogChunk
from turnledger.model.ids import TurnId
from turnledger.model.item import NOT_STARTED, OUTCOME_UNKNOWN, Item, message, open_calls
from turnledger.model.journal import Journal, item_record
from turnledger.model.turn import QUEUED, AttemptState, Failure
from turnledger.stores.memory import MemoryTables
from turnledger.testing.store_contract.stage import answer_to

REQUEST = OutcomeRequest(some_id(TurnId, 1), CONVERSATION)


def tables(state: ConversationState = ConversationState.LIVE) -> MemoryTables:
    made = memory_tables()
    drive(made.add_conversation(conversation(state=state)))
    drive(made.add_branch(branch()))
    return made


def test_outcome_of_an_attempt_removed_with_its_deleted_conversation_is_deleted() -> None:
    for gone in (tables(ConversationState.DELETED), memory_tables()):
        assert drive(outcome(gone, REQUEST)) == Outcome(AttemptState.FAILED, failure=DELETED)


def test_outcome_of_an_attempt_removed_with_its_expired_conversation_raises_expired() -> None:
    with pytest.raises(ConversationExpired):
        drive(outcome(tables(ConversationState.EXPIRED), REQUEST))


def test_committed_raises_the_error_that_the_failure_records() -> None:
    with pytest.raises(ConversationDeleted):
        committed_turn(Outcome(AttemptState.FAILED, failure=DELETED))
    with pytest.raises(TurnFailed, match="it broke"):
        committed_turn(Outcome(AttemptState.FAILED, failure=Failure("boom", "it broke")))


def test_outcome_of_an_unknown_attempt_in_a_live_conversation_raises_superseded() -> None:
    with pytest.raises(Superseded):
        drive(outcome(tables(), REQUEST))


async def test_standing_of_a_committed_turn_carries_its_current_conversation(chat: Chat) -> None:
    async with chat.turn("Hello") as turn:
        turn.emit("Hi.")
    async with chat.turn("More") as later:
        later.emit("Yes.")
    found = await chat.status(turn.id)
    assert (found.state, found.turn.id, found.chat.turns) == (AttemptState.COMPLETED, turn.id, 2)


async def test_standing_of_a_running_or_queued_turn_has_no_turn_yet(ledger: Ledger, chat: Chat) -> None:
    async with chat.turn("Hello") as turn:
        queued = chat.turn("Next")

        async def wait() -> None:
            async with queued as other:
                other.emit("Now.")

        waiting = asyncio.create_task(wait())
        while not Host(ledger).at_work().waiting:
            await asyncio.sleep(0)
        first, second = await chat.status(turn.id), await chat.status(queued.id)
        turn.emit("Hi.")
    await waiting
    assert (first.state, first.turn, first.chat.is_running) == (AttemptState.RUNNING, None, True)
    assert (second.state, second.turn) == (QUEUED, None)


async def test_standing_of_a_failed_turn_has_a_failure_and_of_a_discarded_one_none(chat: Chat) -> None:
    with pytest.raises(ZeroDivisionError):
        async with chat.turn("Hello") as failed:
            raise ZeroDivisionError
    async with chat.turn("Hello") as stopped:
        stopped.stop("discard")
    one, other = await chat.status(failed.id), await chat.status(stopped.id)
    assert one.failure is not None
    assert (one.state, one.turn) == (AttemptState.FAILED, None)
    assert (other.state, other.turn, other.failure) == (AttemptState.DISCARDED, None, None)


async def test_standing_of_a_turn_of_another_conversation_raises_turn_not_found(
    ledger: Ledger, chat: Chat
) -> None:
    other = await ledger.conversation()
    async with other.turn("Hello") as turn:
        turn.emit("Hi.")
    for unknown in (turn.id, TurnId("turn_01890000000070008000000000000000")):
        with pytest.raises(TurnNotFound):
            await chat.status(unknown)


TURN = some_id(TurnId, 1)


def request(chunk: int = 0, item: int = 0) -> TurnLogRequest:
    return TurnLogRequest("ann", CONVERSATION, TURN, chunk, item, 1)


def test_look_at_a_running_turn_returns_its_log_in_bounded_steps() -> None:
    made = lane_tables()
    drive(made.add_attempt(attempt(1, journaled=2)))
    drive(made.add_records(TURN, 0, [item_record(call("a")), item_record(call("b"))]))
    for number in range(CHUNKS + 1):
        log = bytes([ITEM]) if number >= CHUNKS - 1 else bytes([4])
        chunk = LogChunk(log=log, text="" if log == bytes([ITEM]) else "x")
        drive(made.add_log_chunk(TURN, number, codec.encode(chunk)))
    first = drive(read_turn_log(made, request()))
    assert isinstance(first, RunningTurnLog)
    assert (len(first.chunks), first.has_more, first.items[0]) == (CHUNKS, True, call("a"))
    second = drive(read_turn_log(made, request(chunk=CHUNKS, item=1)))
    assert isinstance(second, RunningTurnLog)
    assert (len(second.chunks), second.has_more, second.items) == (1, False, (call("b"),))


def items_of(log: bytes, journal: Journal) -> list[bytes]:
    output = unfinished_output.kept_output(journal, ())
    events = event_log.rebuild(log, output, "", AttemptState.KEPT, None)
    return [bytes(event.item) for event in events if isinstance(event, ItemDone)]


def test_event_log_of_a_kept_turn_keeps_reasoning_that_was_sent() -> None:
    journal = Journal([assistant("so"), reasoning()])
    log = kept_turn_log(
        SentLog(bytes([ITEM, ITEM]), 2, ""), journal, unfinished_output.kept_output(journal, ()), (), None
    )
    assert items_of(log, journal) == [assistant("so").raw, reasoning().raw]


def test_attempt_without_events_leaves_no_log() -> None:
    tables = memory_tables()
    drive(tables.add_log_chunk(TURN, 0, b"chunk"))
    drive(store_attempt_log(tables, TURN, Journal(), SentLog(b"", 0, "")))
    assert drive(tables.log_chunks(TURN, 0, 9)) == []


def test_unsent_output_is_every_item_not_yet_sent_as_an_event() -> None:
    sent = [assistant("a"), reasoning(), call()]
    assert unsent_items(sent, [assistant("a"), call(), result()]) == [result()]
    assert unsent_items([], [call()]) == [call()]
    assert unsent_items([reasoning()], []) == []


FAILURE = Failure("boom", "it broke.")
STARTED, READ_ONLY = False, True
SO_FAR = (message("assistant", "so f", status="incomplete"),)


def stated_result(call_id: str, output: str) -> Item:
    return result(call_id, output=output)


def calls(items: tuple[Item, ...] | list[Item]) -> list[Item]:
    return [item for item in items if item.is_call]


def results(items: tuple[Item, ...] | list[Item]) -> list[Item]:
    return [item for item in items if item.is_result]


# Kept.


@generated
@given(journals)
def test_kept_output_is_well_formed_and_leaves_no_call_open(journal: Journal) -> None:
    assert open_calls((user(), *kept_output(journal, SO_FAR))) == ()
    assert open_calls((user(), *kept_output(journal, ()))) == ()


@generated
@given(journals)
def test_kept_output_holds_every_finished_item_in_order(journal: Journal) -> None:
    output = kept_output(journal, ())
    finished = [item for item in journal.items if not item.is_reasoning]
    assert [item for item in output if not item.is_reasoning][: len(finished)] == finished
    assert set(output) >= set(finished)


@generated
@given(journals)
def test_kept_output_adds_results_only_for_unanswered_calls(journal: Journal) -> None:
    invented = Counter(results(kept_output(journal, ()))) - Counter(results(journal.items))
    assert sorted(item.call_id or "" for item in invented.elements()) == sorted(
        journal.items[place].call_id or "" for place in journal.unanswered_calls()
    )


@generated
@given(journals)
def test_kept_output_kept_again_is_unchanged(journal: Journal) -> None:
    output = kept_output(journal, SO_FAR)
    assert kept_output(Journal(list(output), {}), ()) == output


def test_kept_output_states_unanswered_calls_as_not_started_or_of_unknown_outcome() -> None:
    journal = Journal([call("a"), call("b"), call("c")], {0: STARTED, 2: READ_ONLY})
    assert kept_output(journal, ())[3:] == (
        stated_result("a", OUTCOME_UNKNOWN),
        stated_result("b", NOT_STARTED),
        stated_result("c", OUTCOME_UNKNOWN),
    )


def test_stated_results_name_the_known_state_and_never_cancellation() -> None:
    assert NOT_STARTED.startswith("Not started")
    assert "no effect" in NOT_STARTED
    assert OUTCOME_UNKNOWN.startswith("Started, outcome unknown")
    assert "may or may not" in OUTCOME_UNKNOWN
    assert "cancel" not in (NOT_STARTED + OUTCOME_UNKNOWN).lower()


def test_kept_output_ends_with_the_partial_text_marked_incomplete() -> None:
    output = kept_output(Journal([call("a")]), SO_FAR)
    assert output[-1] == message("assistant", "so f", status="incomplete")


def test_kept_output_without_partial_text_has_no_empty_message() -> None:
    assert kept_output(Journal(), ()) == ()
    assert kept_output(Journal([assistant()]), ()) == (assistant(),)


def test_kept_output_states_each_call_of_a_repeated_id_separately() -> None:
    journal = Journal([call("a"), result("a"), call("a")], {0: STARTED})
    assert kept_output(journal, ()) == (call("a"), result("a"), call("a"), stated_result("a", NOT_STARTED))


def test_kept_output_gives_a_stated_result_the_type_of_its_call() -> None:
    output = kept_output(Journal([call("a", "custom_tool_call")]), ())
    assert output[1].type == "custom_tool_call_output"


def test_kept_output_keeps_reasoning_before_the_partial_text() -> None:
    assert kept_output(Journal([reasoning()]), SO_FAR)[0] == reasoning()


# Settled.


@generated
@given(journals)
def test_settled_output_is_well_formed_and_leaves_no_call_open(journal: Journal) -> None:
    assert open_calls((user(), *settled_output(journal, FAILURE))) == ()


@generated
@given(journals)
def test_settled_output_shows_exactly_the_calls_that_may_have_acted(journal: Journal) -> None:
    acted = [journal.items[place] for place in sorted(journal.started) if not journal.started[place]]
    assert calls(settled_output(journal, FAILURE)) == acted


@generated
@given(journals)
def test_settled_output_has_recorded_results_and_states_the_others_as_unknown(journal: Journal) -> None:
    acted = [place for place, read_only in journal.started.items() if not read_only]
    answers = [journal.answers().get(place) for place in acted]
    shown = Counter(item.fields["output"] for item in results(settled_output(journal, FAILURE)))
    assert shown == Counter(item.fields["output"] if item else OUTCOME_UNKNOWN for item in answers)


@generated
@given(journals)
def test_settled_output_keeps_no_text_of_the_draft(journal: Journal) -> None:
    output = settled_output(journal, FAILURE)
    assert [item.role for item in output if item.type == "message"] == ["developer"]
    assert output[-1].role == "developer"


@generated
@given(journals)
def test_settled_output_keeps_reasoning_only_before_a_call_it_shows(journal: Journal) -> None:
    output = settled_output(journal, FAILURE)
    for item, after in pairwise(output):
        assert not item.is_reasoning or after.is_reasoning or after.is_call


def test_settled_output_keeps_the_reasoning_that_led_to_a_call_it_shows() -> None:
    items = [reasoning(), call("a"), result("a"), reasoning(), call("b"), result("b"), reasoning()]
    assert settled_output(Journal(items, {1: READ_ONLY, 4: STARTED}), FAILURE)[:-1] == tuple(items[3:6])


def test_settled_note_gives_the_reason() -> None:
    journal = Journal([call("a"), result("a")], {0: STARTED})
    assert "did not finish: it broke. The" in settled_output(journal, FAILURE)[-1].text
    assert "did not finish: it was stopped. The" in settled_output(journal, None)[-1].text


def test_settled_note_does_not_claim_that_a_call_of_unknown_outcome_ran() -> None:
    output = settled_output(Journal([call("a")], {0: STARTED}), FAILURE)
    assert output[1] == stated_result("a", OUTCOME_UNKNOWN)
    assert "did run" not in output[-1].text


# Resumed.


@generated
@given(journals_not_thinking)
def test_resumed_journal_is_well_formed_and_leaves_only_unstarted_calls_open(journal: Journal) -> None:
    left = open_calls((user(), *journal.items, *resume_results(journal)))
    not_started = [place for place in journal.unanswered_calls() if place not in journal.started]
    assert list(left) == [journal.items[place] for place in not_started]


@generated
@given(journals)
def test_resumed_journal_states_each_started_call_once(journal: Journal) -> None:
    stated = resume_results(journal)
    started = [journal.items[place] for place in journal.unanswered_calls() if place in journal.started]
    assert [item.call_id for item in stated] == [item.call_id for item in started]
    assert all(item.fields["output"] == OUTCOME_UNKNOWN for item in stated)
    again = Journal([*journal.items, *stated], journal.started)
    assert resume_results(again) == ()


@pytest.mark.parametrize("start", [STARTED, READ_ONLY])
def test_resumed_journal_that_ends_in_reasoning_is_well_formed(start: bool) -> None:
    # A tool started while the model continued: the stated result must not follow the reasoning.
    journal = Journal.for_retry(Journal([call("a"), reasoning()], {0: start}).records)
    steps = [*journal.items, *resume_results(journal)]
    assert open_calls((user(), *steps, assistant())) == ()


def test_attempt_with_a_result_without_a_call_is_not_kept_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stranded = attempt(1, input=(answer_to("c1", "42"),))
    assert not is_well_formed((), stranded, ())
    assert [(each.message, vars(each)["turn"]) for each in caplog.records] == [("turn_not_kept", stranded.id)]
    assert is_well_formed((), attempt(1), ())
