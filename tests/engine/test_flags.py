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
from turnledger.model.flags import Flags
from turnledger.model.ids import TurnId
from turnledger.model.item import Item
from turnledger.model.messages.messages import messages_of
from turnledger.testing.gates import When
from turnledger.testing.scripted_model import Ask, ScriptedModel, Step, Think, Tool
from turnledger.testing.store_contract.stage import LIMITS, Stage, answer_to, exchange, play, soon

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
    async def test_what_is_hidden_from_the_model_is_not_shown_to_the_next_turn(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        turn = await exchange(chat, "q", "a")
        await same.flag(turn.id, 1, to_model=False)
        assert await shown(chat, "q2") == ["q"]
        assert await shown(same, "q3") == ["q", "q2", "ok"]
        await chat.flag(turn.id, to_model=True)
        assert await shown(same, "q4") == ["q", "a", "q2", "ok", "q3", "ok"]

    @pytest.mark.parametrize("by", ["regenerate", "resent"])
    async def test_what_is_hidden_of_a_question_stays_hidden_when_it_is_asked_again(
        self, stage: Stage, by: str
    ) -> None:
        chat, same = await stage.shared_chat()
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
    async def test_so_it_does_when_that_fails(self, stage: Stage, how: str) -> None:
        chat, same = await stage.shared_chat()
        parts = [{"role": "user", "content": text} for text in ("secret", "q")]
        turn = await soon(chat.run(ScriptedModel(["a"]), parts))
        await same.flag(turn.id, 0, to_model=False, to_user=False)
        model = ScriptedModel([Tool("pay"), RuntimeError("broken")])
        with pytest.raises(RuntimeError):
            await play(chat.regenerate(on_failure="keep" if how == "kept" else "settle"), model)
        assert "secret" not in await shown(chat)
        assert "secret" not in [item.text for item in await chat.history()]

    async def test_it_stays_in_the_turn_and_before_the_user(self, chat: Chat) -> None:
        turn = await exchange(chat, "q", "a")
        await chat.flag(turn.id, 1, to_model=False)
        assert await chat.turns() == [turn]
        assert [item.text for item in await chat.history()] == ["q", "a"]
        assert await chat.flags(turn.id) == {turn.id: {1: Flags(to_model=False)}}

    async def test_turns_as_they_were_read_tell_what_is_hidden_of_them(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        first, second = await played(chat), await played(chat, ["a"])
        assert await chat.hidden(await chat.turns()) == [(), ()]
        await chat.flag(first, 3, to_user=False)  # a result: its call goes with it
        await chat.flag(first, 0, to_model=False)
        await chat.flag(second, to_user=False)
        fork = await same.fork(second)
        read = await fork.turns()
        await fork.undo()
        assert await fork.hidden(read) == await chat.hidden(read) == [(1, 2, 3), (0, 1)]
        assert await chat.hidden([]) == []

    async def test_what_is_hidden_from_the_user_is_not_in_the_history(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        turn = await exchange(chat, "q", "a")
        await chat.flag(turn.id, 0, to_user=False)
        assert [item.text for item in await same.history()] == ["a"]
        assert await shown(chat) == ["q", "a"]

    async def test_a_client_that_resends_what_it_sees_goes_on_from_there(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
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

    async def test_a_running_turn_is_neither_disturbed_nor_changed(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        turn = await exchange(chat, "q", "a")
        async with chat.turn("q2") as running:
            before = running.items
            await same.flag(turn.id, to_model=False, to_user=False)
            assert running.items == before
            running.emit("b")
        assert [item.text for item in await chat.history()] == ["q2", "b"]
        assert await chat.flags(turn.id) == {turn.id: {0: Flags(False, False), 1: Flags(False, False)}}

    async def test_a_commit_that_was_under_way_clobbers_nothing(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        turn = await exchange(chat, "q", "a")
        with here.store.hold(commit) as gate:
            task = stage.start(chat.run(ScriptedModel(["b"]), "q2"))
            await stage.reach(gate, task)
            await (await there.chat(chat)).flag(turn.id, 0, to_model=False)
        await soon(task)
        assert await shown(chat) == ["a", "q2", "b"]

    async def test_a_flag_set_between_begin_and_snapshot_is_seen_by_later_turns(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        turn = await exchange(chat, "q", "a")
        await chat.flag(turn.id, 0, to_user=False)
        with here.store.hold(begin, When.AFTER) as gate:
            task = stage.start(chat.run(ScriptedModel(["b"]), "q2"))
            await stage.reach(gate, task)
            await (await there.chat(chat)).flag(turn.id, 0, to_model=False)
        await soon(task)
        assert await shown(chat) == ["a", "q2", "b"]

    async def test_flags_are_set_one_by_one(self, chat: Chat) -> None:
        turn = await exchange(chat, "q", "a")
        await chat.flag(turn.id, 0, to_model=False)
        await chat.flag(turn.id, 0, to_user=False)
        await chat.flag(turn.id, 0, to_model=True)
        assert await chat.flags(turn.id) == {turn.id: {0: Flags(to_user=False)}}
        await chat.flag(turn.id, 0, to_user=True)
        assert await chat.flags(turn.id) == {}

    async def test_flagging_does_not_touch_the_conversation(self, stage: Stage, chat: Chat) -> None:
        turn = await exchange(chat, "q", "a")
        before = await chat.info()
        stage.clock.advance(10)
        await chat.flag(turn.id, to_model=False)
        assert await chat.info() == before

    @pytest.mark.parametrize("place", [-1, 2])
    async def test_a_place_that_is_not_there_is_refused(self, chat: Chat, place: int) -> None:
        turn = await exchange(chat, "q", "a")
        with pytest.raises(InvalidInput, match="2 items"):
            await chat.flag(turn.id, (0, place), to_model=False)
        assert await chat.flags(turn.id) == {}

    async def test_no_turn_has_more_flags_than_allowed(self, stage: Stage) -> None:
        limits = Limits(lease_time=LIMITS.lease_time, turn_flags=2)
        chat = await (await stage.process(limits)).chat()
        id = await played(chat)
        await chat.flag(id, (0, 7), to_model=False)
        with pytest.raises(InvalidInput, match="At most 2"):
            await chat.flag(id, 2, to_model=False)
        await chat.flag(id, 7, to_user=False)
        assert set((await chat.flags(id))[id]) == {0, 7}

    async def test_only_turns_of_the_conversation_can_be_flagged(self, stage: Stage) -> None:
        here = await stage.process()
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

    async def test_a_turn_that_is_shared_is_hidden_wherever_it_is_shown(self, stage: Stage) -> None:
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

    async def test_what_is_hidden_stays_hidden_from_an_edit(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        turns = [await exchange(chat, f"q{number}", f"a{number}") for number in range(3)]
        await chat.flag(turns[0].id, 1, to_model=False)
        async with same.edit(turns[2].id, "q") as turn:
            assert [item.text for item in turn.items] == ["q0", "q1", "a1", "q"]
            turn.emit("a")
        await chat.flag(turns[2].id, 0, to_user=False)
        assert await shown(chat) == ["q0", "q1", "a1", "q", "a"]

    async def test_what_an_edit_saw_of_the_flags_does_not_pass_for_all(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        turns = [await exchange(chat, f"q{number}", f"a{number}") for number in range(3)]
        await chat.flag(turns[2].id, 0, to_model=False)
        async with same.edit(turns[1].id, "q") as turn:
            turn.stop("discard")
        assert await shown(same) == ["q0", "a0", "q1", "a1", "a2"]

    @pytest.mark.parametrize("context", [Context.all(), Context.last(9), Context.budget(9_000)])
    async def test_a_settled_turn_takes_its_flags_to_the_branch_of_an_edit(
        self, stage: Stage, context: Context
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await exchange(chat, "hello")
        first = (await soon(chat.run(ScriptedModel([Ask("locate", call_id="c")]), "q"))).id
        with pytest.raises(RuntimeError):
            await soon(
                chat.run(ScriptedModel([Tool("pay"), RuntimeError()]), [answer_to("c", "here"), "pay"])
            )
        await exchange(chat, "next")
        settled = (await chat.turns())[2]
        assert [item.type for item in settled.items][:3] == [
            "function_call_output",
            "message",
            "function_call",
        ]
        await (await there.chat(chat)).flag(settled.id, (0, 1, 2), to_model=False)
        await chat.flag(settled.id, 1, to_user=False)
        async with (await there.chat(chat)).edit(first, "q again", context=context) as turn:
            assert not {"pay", "function_call"} & {item.text or item.type for item in turn.items}
            turn.emit("a")
        copy = (await chat.turns())[1]
        assert copy.id != settled.id
        # The answer is not there: nobody asked on this branch.
        hidden = {0: Flags(to_model=False, to_user=False), 1: Flags(to_model=False)}
        assert await chat.flags(copy.id) == {copy.id: hidden}
        for process in (here, there):
            assert "function_call" not in await shown(await process.chat(chat))

    async def test_a_deleted_conversation_takes_no_flags(self, chat: Chat) -> None:
        turn = await exchange(chat, "q", "a")
        await chat.delete()
        with pytest.raises(ConversationDeleted):
            await chat.flag(turn.id, to_model=False)
