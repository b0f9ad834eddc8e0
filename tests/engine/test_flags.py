"""Flags hide items from the model or the user; no commit overwrites them, and no running turn sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.engine.test_resent import talk
from turnledger.chat import Chat
from turnledger.engine.history.context import Context
from turnledger.engine.limits import Limits
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.commit import commit
from turnledger.errors import ConversationDeleted, InvalidInput, TurnNotFound
from turnledger.hosting import Host
from turnledger.model.flags import Flags, HiddenItems
from turnledger.model.ids import TurnId
from turnledger.model.item import Item
from turnledger.model.messages.messages import messages_of
from turnledger.testing.gates import When
from turnledger.testing.scripted_model import Ask, ScriptedModel, Step, Think, Tool
from turnledger.testing.store_contract.effects import fail
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Stage,
    StageProcess,
    answer_to,
    exchange,
    play,
    soon,
)

STEPS = (Think(), Tool("look"), Tool("pay"), Think(), "Done.")
"""In the turn these are: input, reasoning, call, result, call, result, reasoning, text."""


async def shown(chat: Chat, text: str = "next") -> list[str]:
    """Run a turn; return the types of what its model saw, without the input."""
    seen: list[Item] = []

    async def look(turn: Any) -> None:
        seen.extend(turn.items)
        turn.emit("ok")

    await soon(chat.run(look, text))
    assert seen.pop().text == text
    return [item.text or item.type for item in seen]


async def played(chat: Chat, script: Sequence[Step] = STEPS) -> TurnId:
    return (await soon(chat.run(ScriptedModel(script), "q"))).id


class TestFlags:
    async def test_item_hidden_from_the_model_is_left_out_of_later_turns(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        turn = await exchange(chat, "q", "a")
        await same.flag(turn.id, 1, to_model=False)
        assert await shown(chat, "q2") == ["q"]
        assert await shown(same, "q3") == ["q", "q2", "ok"]
        await chat.flag(turn.id, to_model=True)
        assert await shown(same, "q4") == ["q", "a", "q2", "ok", "q3", "ok"]

    @pytest.mark.parametrize("by", ["regenerate", "resent"])
    async def test_hidden_parts_of_a_question_stay_hidden_when_it_is_asked_again(
        self, chat: Chat, same: Chat, by: str
    ) -> None:
        parts = [{"role": "user", "content": text} for text in ("secret", "aside", "q")]
        turn = await soon(chat.run(ScriptedModel(["a"]), parts))
        await same.flag(turn.id, 0, to_model=False)
        await same.flag(turn.id, 1, to_user=False)
        model = ScriptedModel(["b"])
        copy = [message for message in parts if message["content"] != "aside"]
        again = await play(chat.regenerate() if by == "regenerate" else same.resent(copy, sent="full"), model)
        assert [message["content"] for message in model.seen[0]] == ["aside", "q"]
        assert await chat.turns() == [again]
        assert [item.text for item in await chat.history()] == ["secret", "q", "b"]
        assert await shown(same) == ["aside", "q", "b"]

    @pytest.mark.parametrize("how", ["kept", "settled"])
    async def test_hidden_parts_of_a_question_stay_hidden_when_asking_it_again_fails(
        self, chat: Chat, same: Chat, how: str
    ) -> None:
        parts = [{"role": "user", "content": text} for text in ("secret", "q")]
        turn = await soon(chat.run(ScriptedModel(["a"]), parts))
        await same.flag(turn.id, 0, to_model=False, to_user=False)
        model = ScriptedModel([Tool("pay"), RuntimeError("broken")])
        with pytest.raises(RuntimeError):
            await play(chat.regenerate(on_failure="keep" if how == "kept" else "settle"), model)
        assert "secret" not in await shown(chat)
        assert "secret" not in [item.text for item in await chat.history()]

    async def test_item_hidden_from_the_model_stays_in_the_turn_and_the_history(self, chat: Chat) -> None:
        turn = await exchange(chat, "q", "a")
        await chat.flag(turn.id, 1, to_model=False)
        assert await chat.turns() == [turn]
        assert [item.text for item in await chat.history()] == ["q", "a"]
        assert await chat.flags(turn.id) == {turn.id: {1: Flags(to_model=False)}}

    async def test_hidden_lists_the_item_numbers_hidden_from_the_user_for_each_turn(
        self, chat: Chat, same: Chat
    ) -> None:
        first, second = await played(chat), await played(chat, ["a"])
        assert await chat.hidden(await chat.turns()) == [HiddenItems(), HiddenItems()]
        await chat.flag(first, 3, to_user=False)  # a result: its call is hidden with it
        await chat.flag(first, 0, to_model=False)
        await chat.flag(second, to_user=False)
        fork = await same.fork(second)
        read = await fork.turns()
        await fork.undo()
        assert await fork.hidden(read) == await chat.hidden(read)
        assert await chat.hidden(read) == [HiddenItems((1, 2, 3), (0,)), HiddenItems((0, 1))]
        assert await chat.flag(first, 2, to_model=False) == HiddenItems((1, 2, 3), (0, 1, 2, 3))
        assert await chat.flag(first) == HiddenItems((1, 2, 3), (0, 1, 2, 3))
        assert await chat.hidden([]) == []

    async def test_item_hidden_from_the_user_is_left_out_of_the_history(self, chat: Chat, same: Chat) -> None:
        turn = await exchange(chat, "q", "a")
        await chat.flag(turn.id, 0, to_user=False)
        assert [item.text for item in await same.history()] == ["a"]
        assert await shown(chat) == ["q", "a"]

    async def test_resent_history_with_or_without_hidden_items_continues_the_conversation(
        self, chat: Chat, same: Chat
    ) -> None:
        first = await exchange(chat, "q", "a")
        await exchange(chat, "q2", "a2")
        texts = ["q", "a", "q2", "a2"]
        for place in (1, 0):
            await same.flag(first.id, place, to_user=False)
            for has_it_still in (False, True):
                items = [item for turn in await chat.turns() for item in turn.items]
                mine = messages_of(items if has_it_still else await chat.history())
                await soon(play(chat.resent([*mine, *talk("and?")]), ScriptedModel(["yes"])))
                texts += ["and?", "yes"]
                assert [item.text for turn in await chat.turns() for item in turn.items] == texts

    async def test_running_turn_is_unaffected_by_flags_set_meanwhile(self, chat: Chat, same: Chat) -> None:
        turn = await exchange(chat, "q", "a")
        async with chat.turn("q2") as running:
            before = running.items
            await same.flag(turn.id, to_model=False, to_user=False)
            assert running.items == before
            running.emit("b")
        assert [item.text for item in await chat.history()] == ["q2", "b"]
        assert await chat.flags(turn.id) == {turn.id: {0: Flags(False, False), 1: Flags(False, False)}}

    @pytest.mark.parametrize("after_begin", [False, True])
    async def test_flag_set_between_begin_and_snapshot_or_during_the_commit_applies_to_later_turns(
        self, stage: Stage, here: StageProcess, chat: Chat, same: Chat, after_begin: bool
    ) -> None:
        turn = await exchange(chat, "q", "a")
        if after_begin:
            await chat.flag(turn.id, 0, to_user=False)
        held = here.store.hold(begin, When.AFTER) if after_begin else here.store.hold(commit)
        with held as gate:
            task = stage.start(chat.run(ScriptedModel(["b"]), "q2"))
            await stage.reach(gate, task)
            await same.flag(turn.id, 0, to_model=False)
        await soon(task)
        assert await shown(chat) == ["a", "q2", "b"]

    async def test_flags_for_model_and_user_are_set_independently(self, chat: Chat) -> None:
        turn = await exchange(chat, "q", "a")
        await chat.flag(turn.id, 0, to_model=False)
        await chat.flag(turn.id, 0, to_user=False)
        await chat.flag(turn.id, 0, to_model=True)
        assert await chat.flags(turn.id) == {turn.id: {0: Flags(to_user=False)}}
        await chat.flag(turn.id, 0, to_user=True)
        assert await chat.flags(turn.id) == {}

    async def test_flag_leaves_the_conversation_row_unchanged(self, stage: Stage, chat: Chat) -> None:
        turn = await exchange(chat, "q", "a")
        before = await chat.info()
        stage.clock.advance(10)
        await chat.flag(turn.id, to_model=False)
        assert await chat.info() == before

    @pytest.mark.parametrize("place", [-1, 2])
    async def test_flag_on_an_item_number_out_of_range_is_refused(self, chat: Chat, place: int) -> None:
        turn = await exchange(chat, "q", "a")
        with pytest.raises(InvalidInput, match="2 items"):
            await chat.flag(turn.id, (0, place), to_model=False)
        assert await chat.flags(turn.id) == {}

    async def test_flags_beyond_the_limit_per_turn_are_refused(self, stage: Stage) -> None:
        limits = Limits(lease_time=LIMITS.lease_time, turn_flags=2)
        chat = await (await stage.process(limits)).chat()
        id = await played(chat)
        await chat.flag(id, (0, 7), to_model=False)
        with pytest.raises(InvalidInput, match="At most 2"):
            await chat.flag(id, 2, to_model=False)
        await chat.flag(id, 7, to_user=False)
        assert set((await chat.flags(id))[id]) == {0, 7}

    async def test_flag_on_a_turn_of_another_conversation_or_owner_raises_turn_not_found(
        self, here: StageProcess
    ) -> None:
        chat, other = await here.chat(), await here.chat()
        foreign = await here.chat(owner="eve")
        turn = await exchange(chat, "q", "a")
        for each in (other, foreign):
            with pytest.raises(TurnNotFound):
                await each.flag(turn.id, to_model=False)
            await exchange(each, "q", "a")
            with pytest.raises(TurnNotFound):
                await each.flag(turn.id, to_model=False)
        await chat.flag(turn.id, 0, to_model=False)
        assert set(await chat.flags(turn.id)) == {turn.id}
        for each in (other, foreign):
            with pytest.raises(TurnNotFound):
                await each.flags(turn.id)
        assert await shown(foreign) == ["q", "a"]

    async def test_flag_on_a_shared_turn_applies_in_the_conversation_and_its_fork(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        first, second = await exchange(chat, "q1", "a1"), await exchange(chat, "q2", "a2")
        forked = await same.fork(first.id)
        assert await shown(forked, "q3") == ["q1", "a1"]
        await forked.flag(first.id, 0, to_model=False)
        assert await shown(chat, "q4") == ["a1", "q2", "a2"]
        with pytest.raises(TurnNotFound):
            await forked.flag(second.id, to_model=False)
        await chat.flag(first.id, 1, to_model=False)
        assert await shown(forked, "q5") == ["q3", "ok"]

    async def test_hidden_items_are_left_out_of_the_context_of_an_edit(self, chat: Chat, same: Chat) -> None:
        turns = [await exchange(chat, f"q{number}", f"a{number}") for number in range(3)]
        await chat.flag(turns[0].id, 1, to_model=False)
        async with same.edit(turns[2].id, "q") as turn:
            assert [item.text for item in turn.items] == ["q0", "q1", "a1", "q"]
            turn.emit("a")
        await chat.flag(turns[2].id, 0, to_user=False)
        assert await shown(chat) == ["q0", "q1", "a1", "q", "a"]

    async def test_flags_cached_by_an_edit_do_not_hide_the_flags_of_later_turns(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        turns = [await exchange(chat, f"q{number}", f"a{number}") for number in range(3)]
        await chat.flag(turns[2].id, 0, to_model=False)
        async with same.edit(turns[1].id, "q") as turn:
            turn.stop("discard")
        assert await shown(same) == ["q0", "a0", "q1", "a1", "a2"]

    @pytest.mark.parametrize("context", [Context.all(), Context.last(9), Context.budget(9_000)])
    async def test_settled_turn_keeps_its_flags_on_the_branch_of_an_edit(
        self, here: StageProcess, there: StageProcess, chat: Chat, same: Chat, context: Context
    ) -> None:
        await exchange(chat, "hello")
        first = (await soon(chat.run(ScriptedModel([Ask("locate", call_id="c")]), "q"))).id
        await fail(chat, ScriptedModel([Tool("pay"), RuntimeError()]), [answer_to("c", "here"), "pay"])
        await exchange(chat, "next")
        settled = (await chat.turns())[2]
        assert [item.type for item in settled.items][:3] == [
            "function_call_output",
            "message",
            "function_call",
        ]
        await same.flag(settled.id, (0, 1, 2), to_model=False)
        await chat.flag(settled.id, 1, to_user=False)
        async with same.edit(first, "q again", context=context) as turn:
            assert not {"pay", "function_call"} & {item.text or item.type for item in turn.items}
            turn.emit("a")
        copy = (await chat.turns())[1]
        assert copy.id != settled.id
        # The answer is absent: this branch lacks its question.
        hidden = {0: Flags(to_model=False, to_user=False), 1: Flags(to_model=False)}
        assert await chat.flags(copy.id) == {copy.id: hidden}
        for process in (here, there):
            assert "function_call" not in await shown(await process.chat(chat))

    async def test_flag_on_a_deleted_conversation_is_refused(self, chat: Chat) -> None:
        turn = await exchange(chat, "q", "a")
        await chat.delete()
        with pytest.raises(ConversationDeleted):
            await chat.flag(turn.id, to_model=False)

    async def test_deleted_response_is_marked_and_its_items_stay_as_they_were(self, stage: Stage) -> None:
        here = await stage.process()
        chat, host = await here.chat(), Host(here.ledger)
        turn = await exchange(chat, "q", "a")
        await chat.flag(turn.id, 1, to_model=False)
        await host.delete_response(chat, turn.id)
        await host.delete_response(chat, turn.id)
        assert (await chat.status(turn.id)).is_deleted_response
        assert await chat.flags(turn.id) == {turn.id: {1: Flags(to_model=False)}}
        assert await chat.hidden([turn]) == [HiddenItems((), (1,))]
        assert [item.text for item in await chat.history()] == ["q", "a"]
        await chat.flag(turn.id, to_model=True)
        assert (await chat.status(turn.id)).is_deleted_response
        assert await chat.flags(turn.id) == {}
        assert await shown(chat) == ["q", "a"]
        fork = await chat.fork()
        assert (await fork.status(turn.id)).is_deleted_response
        assert await here.ledger.check(at_rest=True) == []

    async def test_response_of_another_conversation_or_owner_cannot_be_deleted(self, stage: Stage) -> None:
        here = await stage.process()
        chat, host = await here.chat(), Host(here.ledger)
        turn = await exchange(chat, "q", "a")
        others = [await here.chat(), await here.ledger.for_owner("eve").conversation()]
        for other in others:
            with pytest.raises(TurnNotFound):
                await host.delete_response(other, turn.id)
        assert not (await chat.status(turn.id)).is_deleted_response
