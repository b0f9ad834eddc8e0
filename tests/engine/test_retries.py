"""Retries without a key: a lost answer is returned to the next try, never to a second message.

A client numbers its own tries. After delivery, an equal request is a new message.
"""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import nullcontext
from typing import Any

import pytest
from msgspec.structs import force_setattr, replace

from tests.engine.views import BOOM, BrokenEngine, BrokenEngines, check_fails, running
from turnledger.chat import Chat
from turnledger.engine.attempt import client_retries
from turnledger.engine.attempt.client_retries import LOST_KEPT_MS, Retry, record_deliveries
from turnledger.engine.attempt.commit_in_doubt import resolve_doubt
from turnledger.engine.attempt.end import CLAIM_KEPT_MS
from turnledger.engine.attempt.idempotency import SharedOutcome
from turnledger.engine.ports import Inspection
from turnledger.engine.turn import begin as begin_module
from turnledger.engine.turn import block
from turnledger.engine.turn import commit as commit_module
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.block import TurnBlock
from turnledger.engine.turn.commit import commit
from turnledger.errors import (
    CommitOutcomeUnknown,
    ConversationBusy,
    TurnAttached,
    TurnFailed,
    TurnStopped,
)
from turnledger.hosting import Host, Within
from turnledger.model.conversation import Claim
from turnledger.model.turn import AttemptState, Turn, TurnKind
from turnledger.testing.gates import Fate, When
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.effects import fail
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Holder,
    Stage,
    StageProcess,
    exchange,
    input_texts,
    soon,
)

IMPATIENT = dataclasses.replace(LIMITS, doubt_patience=0.0)
NEVER = ScriptedModel()
"""A model that must not be run: it has no script."""


def request_turn(chat: Chat, count: int, text: str = "q", **options: Any) -> TurnBlock:
    """Request a turn as a client does that retries by itself."""
    return chat.turn(text, retry=Retry(text.encode(), count), **options)


async def answered(chat: Chat, count: int, answer: str = "a") -> tuple[TurnBlock, Turn]:
    """A try that is committed; nothing is known of its delivery."""
    block = request_turn(chat, count)
    return block, await soon(block.run(ScriptedModel([answer])))


async def lost(process: StageProcess, chat: Chat) -> tuple[TurnBlock, Turn]:
    """A first try that is committed, and whose answer was lost."""
    block, turn = await answered(chat, 0)
    Host(process.ledger).lost(block)
    await noted(process)
    return block, turn


async def runs(stage: Stage, chat: Chat, count: int, **options: Any) -> tuple[TurnBlock, Holder]:
    """A try whose model waits at a gate."""
    block = request_turn(chat, count, **options)
    return block, await stage.hold(block.run)


async def noted(process: StageProcess) -> None:
    """Wait until the delivery notes are written."""
    await soon(process.ledger._process.deliveries.flush())


async def claims(process: StageProcess) -> list[Claim]:
    return await process.store.inspect(_claims, None)


async def _claims(inspection: Inspection, _: None) -> list[Claim]:
    return await inspection.all_claims(None, 100)


async def has_paid(chat: Chat) -> bool:
    return any(item.is_result for each in await chat.attempts() for item in each.journal.items)


async def fall_silent(stage: Stage, other: StageProcess, waiting: asyncio.Task[Turn]) -> Turn:
    """Let the holder of the lane be dead to who waits for it in another process."""
    stage.clock.advance(LIMITS.lease_time)
    other.store.announce()
    return await soon(waiting)


class TestKeylessRetries:
    async def test_lost_answer_is_returned_to_the_next_try(
        self, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        _, turn = await lost(here, chat)
        again = request_turn(same, 1)
        assert await soon(again.run(NEVER)) == turn
        Host(there.ledger).lost(again)
        assert await soon(request_turn(same, 2).run(NEVER)) == turn
        assert await chat.turns() == [turn]

    async def test_answer_of_unknown_delivery_is_not_returned_to_the_next_try(
        self, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        """It is still being sent, or its process died before or after the last byte. The same words may be a
        second message, so the turn runs again."""
        first, turn = await answered(chat, 0)
        second_block, second = await answered(same, 1, "another")
        Host(here.ledger).delivered(first)
        Host(there.ledger).lost(second_block)
        await noted(here)
        await noted(there)
        assert await soon(request_turn(chat, 2).run(NEVER)) == second
        assert await chat.turns() == [turn, second]

    async def test_lost_answer_followed_by_another_turn_is_not_returned_to_a_later_try(
        self, here: StageProcess, chat: Chat
    ) -> None:
        """Its client gave up, the conversation continued, and the same text was sent again."""
        first, turn = await answered(chat, 0)
        Host(here.ledger).lost(first)
        between = await exchange(chat, "something else")
        _, second = await answered(chat, 1, "another")
        assert await chat.turns() == [turn, between, second]

    async def test_delivered_answer_is_not_returned_to_a_second_message(
        self, here: StageProcess, chat: Chat, same: Chat
    ) -> None:
        """The first try of the second message was lost on its way, so the server never saw it."""
        first, turn = await answered(chat, 0)
        Host(here.ledger).delivered(first)
        await noted(here)
        _, second = await answered(same, 1, "another")
        assert await chat.turns() == [turn, second]

    async def test_lost_answer_not_yet_written_is_returned_by_the_same_process(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        first, turn = await answered(chat, 0)
        Host(here.ledger).lost(first)
        assert await soon(request_turn(chat, 1).run(NEVER)) == turn

    async def test_first_try_always_runs_a_turn_of_its_own(self, here: StageProcess, chat: Chat) -> None:
        _, turn = await lost(here, chat)
        block, second = await answered(chat, 0, "another")
        Host(here.ledger).lost(block)
        assert await soon(request_turn(chat, 1).run(NEVER)) == second
        assert await chat.turns() == [turn, second]

    async def test_try_with_an_equal_or_lower_count_runs_a_turn_of_its_own(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        block, first = await answered(chat, 2)
        Host(here.ledger).lost(block)
        turns = [first]
        for count in (1, 1):
            turns.append((await answered(chat, count))[1])
        assert await chat.turns() == turns

    async def test_delivery_note_of_an_earlier_try_does_not_change_the_claim_of_a_later_one(
        self, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        first, turn = await lost(here, chat)
        again = request_turn(same, 1)
        assert await soon(again.run(NEVER)) == turn
        for note_of_first in (Host(here.ledger).delivered, Host(here.ledger).lost):
            note_of_first(first)
            await noted(here)
            assert [(claim.retries, claim.is_lost) for claim in await claims(here)] == [(1, False)]
        Host(there.ledger).lost(again)
        await noted(there)
        assert await soon(request_turn(chat, 2).run(NEVER)) == turn
        assert await chat.turns() == [turn]

    async def test_running_turn_whose_client_was_lost_is_attached_to_by_the_next_try(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat
    ) -> None:
        block, holder = await runs(stage, chat, 0)
        Host(here.ledger).lost(block)
        await noted(here)
        again = request_turn(await there.chat(chat), 1, attach=True)
        with pytest.raises(TurnAttached) as attached:
            await soon(again.run(NEVER))
        assert attached.value.turn == await running(chat)
        # A client is connected now: the same text from elsewhere waits for its own answer.
        other = await stage.line_up(chat, request_turn(chat, 2).run(ScriptedModel(["another"])))
        with here.store.hold(begin) as gate:
            turn = await holder.finish()
            Host(there.ledger).delivered(again)
            await stage.reach(gate, other)
            await noted(there)
        assert [turn, await soon(other)] == await chat.turns()

    async def test_running_turn_whose_client_is_connected_is_not_shared(
        self, stage: Stage, here: StageProcess, chat: Chat, same: Chat
    ) -> None:
        block, holder = await runs(stage, chat, 0)
        with pytest.raises(ConversationBusy):
            await soon(request_turn(same, 1, on_busy="reject", attach=True).run(NEVER))
        second = await stage.line_up(chat, request_turn(chat, 1).run(ScriptedModel(["another"])))
        with here.store.hold(begin) as gate:
            turn = await holder.finish()
            Host(here.ledger).delivered(block)
            await stage.reach(gate, second)
            await noted(here)
        assert [turn, await soon(second)] == await chat.turns()

    @pytest.mark.parametrize("is_late", [False, True])
    async def test_try_queued_behind_its_lost_first_try_receives_that_answer(
        self, stage: Stage, here: StageProcess, chat: Chat, same: Chat, is_late: bool
    ) -> None:
        """The client gave up and tried again before the server saw that it was gone. A loss not written
        yet is recorded by the commit: a try that waits looks before anything else can be written."""
        block, holder = await runs(stage, chat, 0)
        again = await stage.line_up(chat, request_turn(same, 1).run(NEVER))
        with here.store.hold(record_deliveries) if is_late else nullcontext():
            Host(here.ledger).lost(block)
            turn = await holder.finish()
            assert await soon(again) == turn
        assert await chat.turns() == [turn]
        assert await stage.tickets(chat) == []

    async def test_loss_of_a_client_wakes_the_queued_try_of_the_same_request(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        block, holder = await runs(stage, chat, 0)
        again = await stage.line_up(chat, request_turn(chat, 1, attach=True).run(NEVER))
        Host(here.ledger).lost(block)
        with pytest.raises(TurnAttached):
            await soon(again)
        await holder.finish()

    async def test_try_queued_behind_its_queued_first_try_receives_that_answer(
        self, stage: Stage, here: StageProcess, chat: Chat, same: Chat
    ) -> None:
        """The client gave up while its request still waited: nothing was claimed, and nothing lost."""
        holder = await stage.hold_lane(chat, "before")
        block = request_turn(chat, 0)
        first = await stage.line_up(chat, block.run(ScriptedModel(["a"])))
        Host(here.ledger).lost(block)
        again = await stage.line_up(chat, request_turn(same, 1).run(NEVER))
        await holder.finish()
        assert await soon(again) == await soon(first)
        assert await input_texts(chat) == ["before", "q"]

    @pytest.mark.parametrize("finds_it", [False, True])
    async def test_later_try_resumes_the_turn_of_a_dead_process(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat, finds_it: bool
    ) -> None:
        model = ScriptedModel([Tool("pay", "paid"), "never said"], [Tool("pay", "paid"), "Done."])
        with here.store.hold(commit):
            stage.start(request_turn(chat, 0).run(model))
            await stage.until(lambda: has_paid(chat))
            if finds_it:
                again = await stage.line_up(chat, request_turn(same, 1).run(model))
                turn = await fall_silent(stage, there, again)
            else:
                await stage.bury_others(there)
                turn = await soon(request_turn(same, 1).run(model))
        assert (turn.text, model.executed) == ("Done.", {"pay": 1})
        assert await chat.turns() == [turn]

    async def test_later_try_receives_the_kept_turn_of_a_dead_process(
        self, stage: Stage, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        await runs(stage, chat, 0, on_failure="keep")
        again = await stage.line_up(chat, request_turn(same, 1).run(NEVER))
        turn = await fall_silent(stage, there, again)
        assert turn.kind is TurnKind.INTERRUPTED
        assert await chat.turns() == [turn]

    async def test_later_try_after_fifteen_minutes_does_not_receive_the_kept_turn(
        self, stage: Stage, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        """No process was left to note the loss, so its claim is kept for a day: begin looks at the commit."""
        await runs(stage, chat, 0, on_failure="keep")
        await stage.bury_others(there)
        stage.clock.advance(LOST_KEPT_MS / 1000 + 1)
        _, second = await answered(same, 1)
        assert [turn.kind for turn in await chat.turns()] == [TurnKind.INTERRUPTED, TurnKind.COMPLETED]
        assert (await chat.turns())[-1] == second

    async def test_later_try_receives_a_kept_turn_whose_loss_was_noted_late(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        """Its process was only slow: it notes the loss, and the fifteen minutes run from there."""
        block, _ = await runs(stage, chat, 0, on_failure="keep")
        await stage.bury_others(there)
        stage.clock.advance(LOST_KEPT_MS / 1000 + 1)
        Host(here.ledger).lost(block)
        await noted(here)
        _, turn = await answered(same, 1)
        assert turn.kind is TurnKind.INTERRUPTED
        assert await chat.turns() == [turn]

    async def test_later_try_resumes_a_failed_turn_only_if_its_error_was_lost(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        for is_lost, kinds in ((True, ["completed"]), (False, ["settled", "completed"])):
            model = ScriptedModel([Tool("pay", "paid"), BOOM], [Tool("pay", "paid"), "Done."])
            before, first = len(await chat.turns()), request_turn(chat, 0)
            with pytest.raises(RuntimeError):
                await soon(first.run(model))
            if is_lost:
                Host(here.ledger).lost(first)
            await soon(request_turn(chat, 1).run(model))
            assert [turn.kind for turn in (await chat.turns())[before:]] == kinds
            assert model.executed == {"pay": len(kinds)}

    async def test_later_try_of_a_discarded_turn_runs_again(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        block, _ = await runs(stage, chat, 0, on_stop="discard")
        Host(here.ledger).lost(block)
        stopped = await soon(chat.stop())
        assert stopped.state is AttemptState.DISCARDED
        _, turn = await answered(chat, 1)
        assert await chat.turns() == [turn]

    @pytest.mark.parametrize("fate", Fate)
    async def test_try_whose_begin_answer_is_lost_counts_once(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process()
        chat = await here.chat()
        _, turn = await lost(here, chat)
        here.store.lose_answer(begin, fate, fate)  # the first one only finds that it has to reach the disk
        assert await soon(request_turn(chat, 1).run(NEVER)) == turn
        here.store.lose_answer(begin, fate)
        _, second = await answered(chat, 0)
        assert await chat.turns() == [turn, second]

    @pytest.mark.parametrize("when", When)
    @pytest.mark.parametrize("is_noted", [True, False])
    async def test_try_that_overtakes_a_commit_shares_it_only_if_the_client_was_lost(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, when: When, is_noted: bool
    ) -> None:
        block, holder = await runs(stage, chat, 0)
        if is_noted:
            Host(here.ledger).lost(block)
            await noted(here)
        with here.store.hold(commit, when) as gate:
            holder.gate.release()
            await stage.reach(gate, holder.task)
            again = stage.start(request_turn(await there.chat(chat), 1).run(ScriptedModel(["another"])))
            await stage.until_run(there, begin, 1)
        turn = await soon(holder.task)
        second = await soon(again)
        assert (second == turn) is is_noted
        assert len(await chat.turns()) == 2 - is_noted

    @pytest.mark.parametrize("fate", Fate)
    async def test_commit_of_unknown_outcome_is_not_repeated_by_a_later_try(
        self, stage: Stage, fate: Fate
    ) -> None:
        here = await stage.process(IMPATIENT)
        chat = await here.chat()
        here.store.lose_answer(commit, fate)
        here.store.refuse(resolve_doubt)
        block, model = request_turn(chat, 0), ScriptedModel(["a"], ["b"])
        with pytest.raises(CommitOutcomeUnknown):
            await soon(block.run(model))
        Host(here.ledger).lost(block)
        again = request_turn(chat, 1)
        second = stage.start(again.run(model))
        await stage.until_run(here, begin, 2)
        await here.tend()
        try:
            turn = await soon(second)
        except TurnFailed:
            Host(here.ledger).lost(again)
            turn = await soon(request_turn(chat, 2).run(model))
        assert await chat.turns() == [turn]

    async def test_delivered_answer_leaves_no_claim(self, here: StageProcess, chat: Chat) -> None:
        for number in range(3):
            block = request_turn(chat, 0, f"q{number}")
            await soon(block.run(ScriptedModel(["a"])))
            Host(here.ledger).delivered(block)
        await noted(here)
        assert await claims(here) == []

    async def test_lost_answer_is_not_returned_after_fifteen_minutes(self, stage: Stage) -> None:
        process = await stage.process()
        chat = await process.chat()
        first, turn = await answered(chat, 0)
        Host(process.ledger).lost(first)
        await noted(process)
        stage.clock.advance(LOST_KEPT_MS / 1000 + 1)
        # Nothing was purged yet: begin looks at the time itself.
        _, second = await answered(chat, 1)
        assert await chat.turns() == [turn, second]

    async def test_lost_turn_that_runs_longer_than_fifteen_minutes_is_returned_to_the_next_try(
        self, stage: Stage, here: StageProcess, chat: Chat
    ) -> None:
        """The time is counted from its end: until then, the retry of its client follows it."""
        first, holder = await runs(stage, chat, 0)
        Host(here.ledger).lost(first)
        await noted(here)
        for _ in range(4):
            stage.clock.advance(LOST_KEPT_MS / 2000)
            await here.tend()
        turn = await holder.finish()
        assert await soon(request_turn(chat, 1).run(NEVER)) == turn

    async def test_claim_of_a_request_is_removed_after_a_day(self, stage: Stage, here: StageProcess) -> None:
        await answered(await here.chat(), 0)
        await runs(stage, await here.chat(), 0, text="other")
        stage.clock.advance(CLAIM_KEPT_MS / 1000 - 1)
        await here.tend()
        assert len(await claims(here)) == 2
        stage.clock.advance(2)
        await here.tend()
        assert await claims(here) == []

    async def test_idempotency_key_replays_a_delivered_answer_without_a_retry_count(
        self, here: StageProcess, chat: Chat
    ) -> None:
        block = request_turn(chat, 0, idempotency_key="i")
        turn = await soon(block.run(ScriptedModel(["a"])))
        Host(here.ledger).delivered(block)
        await noted(here)
        assert await soon(request_turn(chat, 0, idempotency_key="i").run(NEVER)) == turn

    @pytest.mark.parametrize("is_failed", [True, False])
    @pytest.mark.parametrize("is_deleted", [True, False])
    async def test_later_try_runs_in_the_conversation_that_its_key_names_now(
        self, here: StageProcess, is_failed: bool, is_deleted: bool
    ) -> None:
        """Its client gave up, and the same words after a deletion or a reset are for another conversation."""

        def send(count: int) -> TurnBlock:
            return here.ledger.turn("q", conversation_key="k", retry=Retry(b"q", count))

        first = send(0)
        try:
            await soon(first.run(ScriptedModel([BOOM] if is_failed else ["a"])))
        except RuntimeError:
            assert is_failed
        Host(here.ledger).lost(first)
        old = await here.ledger.conversation(conversation_key="k")
        await (old.delete() if is_deleted else here.ledger.reset("k"))
        second = await soon(send(1).run(ScriptedModel(["b"])))
        assert await (await here.ledger.conversation(conversation_key="k")).turns() == [second]

    async def test_resent_history_of_a_later_try_returns_the_lost_answer_and_does_not_regenerate(
        self, here: StageProcess, there: StageProcess, chat: Chat
    ) -> None:
        await exchange(chat, "q1", "a1")
        history = [{"role": "user", "content": "q1"}, {"role": "assistant", "content": "a1"}]
        history.append({"role": "user", "content": "q2"})

        def send(process: StageProcess, count: int) -> TurnBlock:
            return process.ledger.resent(history, conversation=chat.id, retry=Retry(b"h", count))

        block = send(here, 0)
        turn = await soon(block.run(ScriptedModel(["a2"])))
        Host(here.ledger).lost(block)
        await noted(here)
        assert await soon(send(there, 1).run(NEVER)) == turn
        assert await input_texts(chat) == ["q1", "q2"]

    async def test_request_without_a_retry_leaves_no_claim_and_a_first_try_adds_no_store_trip(
        self, here: StageProcess, chat: Chat
    ) -> None:
        before = len(here.store.operations)
        await exchange(chat, "q")
        plain = here.store.operations[before:]
        assert await claims(here) == []
        before = len(here.store.operations)
        await answered(chat, 0)
        assert here.store.operations[before:] == plain


# Engines with one rule left out.


UNDELIVERED, LOOK_UP, NOTE, FREE_OF_DEAD = (
    client_retries.is_undelivered,
    client_retries.look_up,
    client_retries.record_deliveries,
    begin_module._free_of_dead,
)
BROKEN = BrokenEngines()
Rules = TestKeylessRetries


@BROKEN.caught_by(Rules.test_delivered_answer_leaves_no_claim, client_retries, "record_deliveries")
async def keeps_what_was_delivered(tables: Any, notes: Any) -> Any:
    return await NOTE(tables, [each for each in notes if not each.is_delivered])


@BROKEN.caught_by(
    Rules.test_delivery_note_of_an_earlier_try_does_not_change_the_claim_of_a_later_one,
    client_retries,
    "record_deliveries",
)
async def believes_any_sender(tables: Any, notes: Any) -> Any:
    claims = [await tables.claim(each.name) for each in notes]
    senders = [claim.sender if claim else None for claim in claims]
    return await NOTE(
        tables,
        [dataclasses.replace(each, sender=sender) for each, sender in zip(notes, senders, strict=True)],
    )


@BROKEN.caught_by(
    Rules.test_try_with_an_equal_or_lower_count_runs_a_turn_of_its_own, client_retries, "is_earlier_try"
)
def accepts_any_try(claim: Any, retry: Any, sender: Any) -> bool:
    return True


@BROKEN.caught_by(
    Rules.test_try_whose_begin_answer_is_lost_counts_once, client_retries, "is_earlier_try", Fate.WRITTEN
)
def forgets_who_took_it_up(claim: Any, retry: Any, sender: Any) -> bool:
    return bool(claim.retries < retry.count)


@BROKEN.caught_by(
    Rules.test_running_turn_whose_client_is_connected_is_not_shared, client_retries, "is_undelivered"
)
def shares_connected_turns(claim: Any, attempt: Any, sender: Any) -> bool:
    return UNDELIVERED(replace(claim, is_lost=True), attempt, sender)


@BROKEN.caught_by(
    Rules.test_later_try_resumes_the_turn_of_a_dead_process, client_retries, "is_undelivered", False
)
def forgets_the_dead(claim: Any, attempt: Any, sender: Any) -> bool:
    return UNDELIVERED(claim, replace(attempt, failure=None), sender)


@BROKEN.caught_by(
    Rules.test_answer_of_unknown_delivery_is_not_returned_to_the_next_try, client_retries, "is_answer_lost"
)
def gives_what_may_have_been_delivered(claim: Any, failure: Any, sender: Any) -> bool:
    return True


@BROKEN.caught_by(
    Rules.test_lost_answer_followed_by_another_turn_is_not_returned_to_a_later_try, client_retries, "is_head"
)
async def gives_what_others_built_on(tables: Any, branch: Any, turn: Any) -> bool:
    return True


@BROKEN.caught_by(
    Rules.test_try_queued_behind_its_lost_first_try_receives_that_answer,
    commit_module,
    "record_deliveries",
    True,
)
async def forgets_that_the_client_has_left(tables: Any, notes: Any) -> list[Any]:
    return []


@BROKEN.caught_by(Rules.test_lost_answer_is_not_returned_after_fifteen_minutes, client_retries, "is_over")
def never_lets_a_claim_lapse(claim: Any, now: int) -> bool:
    return False


@BROKEN.caught_by(
    Rules.test_delivery_note_of_an_earlier_try_does_not_change_the_claim_of_a_later_one,
    client_retries,
    "look_up",
)
async def looks_and_does_not_claim(tables: Any, target: Any, retry: Any, *others: Any, **place: Any) -> Any:
    claim = await tables.claim(retry.name)
    found = await LOOK_UP(tables, target, retry, *others, **place)
    if isinstance(found, SharedOutcome):
        await tables.save_claim(claim)
    return found


@BROKEN.caught_by(Rules.test_first_try_always_runs_a_turn_of_its_own, client_retries, "look_up")
async def takes_up_for_a_first_try(tables: Any, target: Any, retry: Any, *others: Any, **place: Any) -> Any:
    return await LOOK_UP(tables, target, Retry(retry.request, retry.count + 1), *others, **place)


NAMED_NOW = Rules.test_later_try_runs_in_the_conversation_that_its_key_names_now


@BROKEN.caught_by(NAMED_NOW, client_retries, "is_target", True, False)
@BROKEN.caught_by(NAMED_NOW, client_retries, "is_target", False, False)
def follows_the_claim_elsewhere(target: Any, conversation: Any) -> Any:
    return target.may_repeat(conversation)


@BROKEN.caught_by(
    Rules.test_lost_answer_not_yet_written_is_returned_by_the_same_process, block, "_may_be_later_try"
)
def ignores_unwritten_deliveries(request: Any) -> bool:
    return False


@BROKEN.caught_by(
    Rules.test_later_try_resumes_the_turn_of_a_dead_process, begin_module, "_free_of_dead", True
)
async def skips_the_retry_after_a_dead_holder(tables: Any, branch: Any, request: Any) -> Any:
    freed = await FREE_OF_DEAD(tables, branch, request)
    if freed is not branch:
        force_setattr(request, "retry", None)
    return freed


@BROKEN.each
async def test_engine_without_one_of_its_retry_rules_fails_a_test(
    engine: BrokenEngine, fixtures: dict[str, Any]
) -> None:
    await check_fails(engine, fixtures)


class TestKeysOfOthers:
    """Owners, and callers who see one scope only, have idempotency keys of their own."""

    async def test_idempotency_key_of_a_failed_turn_is_not_shared_with_another_owner(
        self, here: StageProcess
    ) -> None:
        model = ScriptedModel([Tool("pay", "paid"), RuntimeError("boom")], [Tool("pay", "paid"), "Done."])
        with pytest.raises(RuntimeError):
            await here.ledger.for_owner("ann").run(model, "q", idempotency_key="i")
        await soon(here.ledger.for_owner("ben").run(model, "q", idempotency_key="i"))
        assert model.executed == {"pay": 2}

    async def test_idempotency_key_of_a_failed_turn_is_resumed_only_within_its_scope(
        self, here: StageProcess
    ) -> None:
        model = ScriptedModel([Tool("pay", "paid"), RuntimeError("boom")], [Tool("pay", "paid"), "Done."])
        chat = await here.chat(owner="ann", within=Within("shop"))
        await fail(chat, model, "q", idempotency_key="i")
        await soon(here.ledger.for_owner("ann").run(model, "q", idempotency_key="i"))
        assert model.executed == {"pay": 2}
        again = ScriptedModel([Tool("pay", "paid"), "Paid."])
        await soon(chat.run(again, "q", idempotency_key="i"))
        assert again.executed == {}
        kinds = [item.type for item in (await chat.turns())[-1].output]
        assert kinds == ["function_call", "function_call_output", "message"]

    async def test_idempotency_key_of_a_turn_stopped_in_the_queue_is_known_only_within_its_scope(
        self, stage: Stage, here: StageProcess
    ) -> None:
        chat = await here.chat(owner="ann", within=Within("shop"))
        holder = await stage.hold_lane(chat)
        waiting = await stage.queue(chat, ScriptedModel(), "q", idempotency_key="i")
        [ticket] = await stage.tickets(chat)
        await soon(chat.stop(ticket.attempt))
        with pytest.raises(TurnStopped):
            await soon(waiting)
        await holder.finish()
        with pytest.raises(TurnStopped):
            await soon(chat.run(ScriptedModel(), "q", idempotency_key="i"))
        wide = await here.ledger.for_owner("ann").conversation(chat.id)
        await exchange(wide, "q", idempotency_key="i")
