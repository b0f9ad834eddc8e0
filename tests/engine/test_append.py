"""Append: a completed turn without a model, in the transaction that takes the lane."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.views import read_all, results
from turnledger.chat import Chat
from turnledger.engine.limits import Limits
from turnledger.engine.process import TRIES
from turnledger.engine.turn.begin import begin
from turnledger.errors import (
    CommitOutcomeUnknown,
    ConversationBusy,
    IdempotencyMismatch,
    InvalidInput,
    MalformedItems,
    MissingToolResults,
    NoNewInput,
    StorageFull,
    StoreUnavailable,
    TurnStopped,
)
from turnledger.model.event import ItemDone, TurnFinished, TurnStarted
from turnledger.model.turn import AttemptState, TurnKind
from turnledger.testing.gates import Fate
from turnledger.testing.scripted_model import Ask, ScriptedModel, Tool
from turnledger.testing.store_contract.effects import BOOM, PAID, fail, kinds
from turnledger.testing.store_contract.stage import Stage, answer_to, chain, exchange, soon

every_fate = pytest.mark.parametrize("fate", Fate)

ASSISTANT = {"type": "message", "role": "assistant", "content": "It is in Lyon."}
CALL = {"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "Lyon"}
REASONING = {"type": "reasoning", "id": "r1", "summary": []}


async def model_view(chat: Chat, input: Any = "next") -> list[Any]:
    """Run a turn, and return what its model was shown."""
    model = ScriptedModel(["ok"])
    await soon(chat.run(model, input))
    return [message["content"] for message in model.seen[0]]


class TestAppend:
    async def test_an_appended_turn_is_history_for_the_next_one(self, chat: Chat, same: Chat) -> None:
        await chain(chat, 1)
        turn = await soon(chat.append(["Where is it?", ASSISTANT], details={"from": "mail"}))
        assert turn.details == {"from": "mail"}
        assert (turn.kind, turn.number, turn.text) == (TurnKind.COMPLETED, 2, "It is in Lyon.")
        assert [item.text for item in turn.input] == ["Where is it?"]
        assert (await same.turns())[-1] == turn
        assert await model_view(same) == ["q1", "a1", "Where is it?", "It is in Lyon.", "next"]

    @pytest.mark.parametrize("items", ["a question alone", [ASSISTANT], [REASONING, ASSISTANT]])
    async def test_either_half_may_be_missing(self, chat: Chat, items: Any) -> None:
        turn = await soon(chat.append(items))
        assert bool(turn.input) is isinstance(items, str)
        assert bool(turn.output) is not isinstance(items, str)
        assert await chat.history() == list(turn.items)
        await exchange(chat, "next")

    async def test_it_is_one_write(self, stage: Stage) -> None:
        process = await stage.process()
        chat = await process.chat()
        process.store.operations.clear()
        await chat.append("once")
        assert [name for name in process.store.operations if name != "read"] == ["begin"]

    async def test_readers_receive_its_items_and_its_end(self, chat: Chat) -> None:
        turn = await soon(chat.append(["q", CALL, RESULT, ASSISTANT]))
        events = await read_all(chat, turn.id)
        assert [type(event) for event in events] == [TurnStarted, *[ItemDone] * 3, TurnFinished]
        assert [bytes(each.item) for each in events if isinstance(each, ItemDone)] == [
            item.raw for item in turn.output
        ]

    async def test_a_text_alone_names_the_chat_and_lists_it(self, chat: Chat) -> None:
        await soon(chat.append("A tale of two tabs"))
        entry = await chat.summary()
        assert (entry.conversation.title, entry.turns) == ("A tale of two tabs", 1)

    async def test_nothing_is_refused(self, chat: Chat) -> None:
        with pytest.raises(NoNewInput, match="at least one item"):
            await chat.append([])
        assert await chat.turns() == []


class TestPairs:
    async def test_calls_at_its_end_are_left_to_the_client(self, chat: Chat) -> None:
        await soon(chat.append(["q", CALL]))
        with pytest.raises(MissingToolResults):
            await soon(chat.append([ASSISTANT]))
        turn = await exchange(chat, [answer_to("c1", "Lyon")])  # type: ignore[arg-type]
        assert results(turn) == {"c1": "Lyon"}

    async def test_results_answer_the_pending_calls(self, chat: Chat) -> None:
        await soon(chat.run(ScriptedModel([Ask("find", call_id="c1")]), "q"))
        turn = await soon(chat.append([RESULT, ASSISTANT]))
        assert (len(turn.input), turn.text) == (1, "It is in Lyon.")
        await exchange(chat, "next")

    async def test_a_message_closes_pending_calls(self, chat: Chat) -> None:
        await soon(chat.run(ScriptedModel([Ask("find", call_id="c1")]), "q"))
        turn = await soon(chat.append("never mind"))
        assert "Not answered" in results(turn)["c1"]

    @pytest.mark.parametrize("items", [[RESULT], [CALL, CALL], ["q", REASONING], [REASONING, "q"]])
    async def test_broken_pairs_are_refused_and_change_nothing(self, chat: Chat, items: Any) -> None:
        with pytest.raises(MalformedItems):
            await soon(chat.append(items))
        assert await chat.turns() == []
        await exchange(chat, "next")


class TestLane:
    async def test_it_waits_for_the_running_turn(self, stage: Stage, chat: Chat, same: Chat) -> None:
        holder = await stage.hold_lane(chat)
        waiting = await stage.line_up(same, same.append("second"))
        await holder.finish()
        assert (await soon(waiting)).number == 2

    async def test_it_is_refused_at_once_if_it_may_not_wait(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        await stage.hold_lane(chat)
        with pytest.raises(ConversationBusy):
            await soon(same.append("second", on_busy="reject"))

    async def test_a_refused_one_stops_no_turn(self, stage: Stage, chat: Chat, same: Chat) -> None:
        holder = await stage.hold_lane(chat)
        with pytest.raises(MalformedItems):
            await soon(same.append([RESULT], on_busy="interrupt"))
        assert (await holder.finish()).kind is TurnKind.COMPLETED

    async def test_it_interrupts_and_comes_next(self, stage: Stage, chat: Chat, same: Chat) -> None:
        holder = await stage.hold_lane(chat)
        turn = await soon(same.append("second", on_busy="interrupt"))
        with pytest.raises(TurnStopped):
            await soon(holder.task)
        assert [kinds(await chat.turns()), turn.number] == [["interrupted", "completed"], 2]

    async def test_one_stopped_in_the_queue_is_not_appended(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        holder = await stage.hold_lane(chat)
        waiting = await stage.line_up(same, same.append("second"))
        [ticket] = await stage.tickets(chat)
        await soon(chat.stop(ticket.attempt))
        with pytest.raises(TurnStopped):
            await soon(waiting)
        await holder.finish()
        assert len(await chat.turns()) == 1

    async def test_effects_of_a_failed_turn_are_settled_before_it(self, chat: Chat) -> None:
        await fail(chat, ScriptedModel([Tool("pay", PAID), BOOM]), "q1")
        await soon(chat.append("from elsewhere"))
        assert kinds(await chat.turns()) == ["settled", "completed"]

    async def test_a_full_owner_appends_nothing(self, stage: Stage) -> None:
        process = await stage.process(Limits(owner_bytes=1))
        chat = await process.chat()
        with pytest.raises(StorageFull):
            await soon(chat.append("one"))


class TestOnce:
    @every_fate
    async def test_a_lost_result_appends_it_once(self, stage: Stage, fate: Fate) -> None:
        process = await stage.process()
        chat = await process.chat()
        process.store.lose_answer(begin, fate)
        turn = await soon(chat.append("once"))
        assert await chat.turns() == [turn]

    async def test_an_append_whose_outcome_stays_unknown_is_not_reported_as_failed(
        self, stage: Stage
    ) -> None:
        process = await stage.process()
        chat = await process.chat()
        process.store.lose_answer(begin, Fate.WRITTEN)
        process.store.refuse(begin, StoreUnavailable(), times=TRIES)
        with pytest.raises(CommitOutcomeUnknown):
            await soon(chat.append("once"))
        assert len(await chat.turns()) == 1

    async def test_one_key_appends_one_turn(self, chat: Chat, same: Chat) -> None:
        turns = await soon(
            asyncio.gather(*(each.append("once", idempotency_key="k") for each in (chat, same, chat)))
        )
        assert turns == [turns[0]] * 3
        assert await chat.turns() == [turns[0]]
        assert (await soon(same.append("once", idempotency_key="k"))) == turns[0]

    @pytest.mark.parametrize("other", ["another text", "a turn with the same text"])
    async def test_another_request_under_its_key_is_refused(self, chat: Chat, other: str) -> None:
        await soon(chat.append("once", idempotency_key="k"))
        with pytest.raises(IdempotencyMismatch):
            if other == "another text":
                await soon(chat.append("twice", idempotency_key="k"))
            else:
                await soon(chat.run(ScriptedModel(["a"]), "once", idempotency_key="k"))

    async def test_regenerating_one_without_a_question_is_refused(self, chat: Chat) -> None:
        turn = await soon(chat.append([ASSISTANT]))
        with pytest.raises(InvalidInput, match="no question"):
            await soon(chat.regenerate(turn.id).run(ScriptedModel(["a"])))

    async def test_its_state_is_completed(self, chat: Chat) -> None:
        turn = await soon(chat.append("once"))
        assert (await soon(chat.outcome(turn.id))).state is AttemptState.COMPLETED
