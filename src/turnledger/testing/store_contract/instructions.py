"""Instructions: recorded with their turn, in force until replaced, whatever becomes of the turn."""

from __future__ import annotations

import pytest

from turnledger.chat import Chat
from turnledger.engine.turn.begin import begin
from turnledger.errors import IdempotencyMismatch, TurnReplayed
from turnledger.model.messages.messages import messages_of
from turnledger.model.turn import Turn, TurnKind
from turnledger.testing.gates import Fate
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.stage import Contract, Stage, exchange, said, soon


async def told(chat: Chat, text: str = "q", **options: object) -> str | None:
    """Run a turn; return the instructions that its model saw first, if any."""
    model = ScriptedModel(["a"])
    await soon(chat.run(model, text, **options))  # type: ignore[arg-type]
    [seen] = model.seen
    assert [message["role"] for message in seen].count("system") <= 1
    return seen[0]["content"] if seen[0]["role"] == "system" else None


async def _edited(chat: Chat, place: Turn, instructions: str | None) -> str | None:
    """Put a turn in the place of another; return the instructions that it is under."""
    async with chat.edit(place.id, "edited", instructions=instructions) as turn:
        turn.emit("a")
    return turn.instructions[0].text if turn.instructions else None


class InstructionsInForce(Contract):
    async def test_they_are_in_force_until_replaced_in_every_process(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        assert await told(chat) is None
        assert await told(chat, instructions="Be brief.") == "Be brief."
        assert await told(same) == "Be brief."
        assert await told(same, instructions="Be kind.") == "Be kind."
        assert await told(chat) == "Be kind."
        assert await told(chat, instructions="") is None
        assert await told(same) is None

    async def test_those_for_one_turn_leave_the_others_in_force(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        assert await told(chat, instructions_once="Sing.") == "Sing."
        assert await told(same) is None
        await told(chat, instructions="Be brief.")
        assert await told(same, instructions_once="Sing.") == "Sing."
        assert await told(same, instructions_once="") is None
        assert await told(chat) == "Be brief."

    async def test_they_are_recorded_with_the_turn_and_no_part_of_its_items(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        developer = {"role": "developer", "content": "Be brief."}
        await told(chat, "q1")
        await told(chat, "q2", instructions=[developer])
        await told(chat, "q3", instructions_once="Sing.")
        await told(chat, "q4", instructions=())
        assert await said(chat) == ["q1", "a", "q2", "a", "q3", "a", "q4", "a"]
        turns = await chat.turns()
        recorded = [each.instructions and messages_of(each.instructions) for each in turns]
        assert recorded == [None, [developer], [{"role": "system", "content": "Sing."}], ()]
        assert [each.instructed for each in turns] == [0, 2, 2, 0]

    async def test_they_can_be_read(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        assert await chat.instructions() == ()
        await exchange(chat, "q", instructions="Be brief.")
        [item] = await (await there.chat(chat)).instructions()
        assert (item.role, item.text) == ("system", "Be brief.")

    async def test_a_failed_turn_sets_none(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await told(chat, instructions="Be brief.")
        with pytest.raises(ValueError, match="broken"):
            await soon(chat.run(ScriptedModel([ValueError("broken")]), "q", instructions="Be kind."))
        assert await told(chat) == "Be brief."

    async def test_a_kept_turn_keeps_its_own(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        model = ScriptedModel(["Let me see", ValueError("broken")])
        with pytest.raises(ValueError, match="broken"):
            await soon(chat.run(model, "q", instructions="Be kind.", on_failure="keep"))
        [kept] = await chat.turns()
        assert (kept.kind, kept.instructed) == (TurnKind.INTERRUPTED, 1)
        assert await told(chat) == "Be kind."

    async def test_a_turn_whose_process_died_keeps_its_own(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await stage.hold_lane(chat, instructions="Be kind.", on_failure="keep")
        await stage.bury_others(there)
        same = await there.chat(chat)
        assert [each.instructed for each in await same.turns()] == [1]
        assert await told(same) == "Be kind."

    async def test_a_settled_turn_keeps_its_own_and_the_next_one_is_under_them(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await told(chat, instructions="Be brief.")
        model = ScriptedModel([Tool("pay"), ValueError("broken")])
        with pytest.raises(ValueError, match="broken"):
            await soon(chat.run(model, "q", instructions="Be kind."))
        assert await told(chat, "q1") == "Be kind."
        assert [each.instructed for each in await chat.turns()] == [1, 2, 2]

    async def test_a_retry_that_resumes_goes_on_under_those_it_began_with(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        model = ScriptedModel([Tool("pay"), ValueError("broken")], [Tool("pay"), "Paid."])
        with pytest.raises(ValueError, match="broken"):
            await soon(chat.run(model, "q", instructions_once="Be kind.", idempotency_key="i"))
        turn = await soon(chat.run(model, "q", instructions_once="Be kind.", idempotency_key="i"))
        assert model.seen[1][0] == {"role": "system", "content": "Be kind."}
        assert [item.text for item in turn.instructions or ()] == ["Be kind."]
        assert await chat.instructions() == ()

    @pytest.mark.parametrize("fate", Fate)
    async def test_a_begin_whose_answer_is_lost_keeps_them(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process()
        chat = await here.chat()
        here.store.lose_answer(begin, fate)
        assert await told(chat, instructions="Be kind.") == "Be kind."
        assert await told(chat) == "Be kind."

    async def test_other_instructions_are_another_request(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await told(chat, instructions="Be kind.", idempotency_key="i")
        for other in ({}, {"instructions": "Be"}, {"instructions_once": "Be kind."}):
            with pytest.raises(IdempotencyMismatch):
                await told(chat, idempotency_key="i", **other)
        with pytest.raises(TurnReplayed):
            async with chat.turn("q", instructions="Be kind.", idempotency_key="i"):
                pass

    async def test_a_turn_in_the_place_of_another_takes_over_its_instructions(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await told(chat, "q1", instructions="One.")
        await told(chat, "q2", instructions="Two.")
        await told(chat, "q3", instructions_once="Three.")
        first, second, third = await chat.turns()
        same = await there.chat(chat)
        assert await _edited(same, third, None) == "Three."
        assert await told(same) == "Two."
        assert await _edited(same, second, "Other.") == "Other."
        assert await told(chat) == "Other."
        assert await _edited(chat, first, None) == "One."
        assert await told(same) == "One."

    async def test_a_branch_goes_on_under_those_of_the_turn_it_was_made_from(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        for number, text in enumerate(("One.", None, "Two."), 1):
            await told(chat, f"q{number}", instructions=text)
        turns = await chat.turns()
        forked = await (await there.chat(chat)).fork(turns[1].id)
        assert await told(forked) == "One."
        await chat.undo()
        assert await told(chat) == "One."
        assert [item.text for item in await chat.instructions()] == ["One."]

    async def test_an_edit_goes_on_under_those_before_its_place(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        for number, text in enumerate(("One.", None, "Two."), 1):
            await told(chat, f"q{number}", instructions=text)
        assert await _edited(chat, (await chat.turns())[1], None) == "One."
        assert [each.instructed for each in await chat.turns()] == [1, 1]
        assert await told(chat) == "One."

    async def test_what_is_settled_of_an_edit_leaves_the_instructions_as_they_are(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await told(chat, "q1", instructions="One.")
        await told(chat, "q2", instructions="Two.")
        first = (await chat.turns())[0]
        with pytest.raises(ValueError, match="broken"):
            async with chat.edit(first.id, "q") as turn:
                await ScriptedModel([Tool("pay"), ValueError("broken")])(turn)
        assert await told(chat) == "Two."
        assert [each.instructed for each in await chat.turns()] == [1, 2, 2, 2]
        assert await _edited(chat, first, None) == "One."
        carried = (await chat.turns())[0]
        assert (carried.kind, carried.instructions, carried.instructed) == (TurnKind.SETTLED, None, 0)

    async def test_they_survive_a_restart(self, stage: Stage) -> None:
        if not self.capabilities.survives_restart:
            pytest.skip("the store does not survive a restart")
        chat = await (await stage.process()).chat()
        await told(chat, instructions="Be kind.")
        again = await (await stage.restart()).chat(chat)
        assert await told(again) == "Be kind."

    async def test_long_ones_are_kept_too(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        text = "Be kind. " * 500
        await stage.hold_lane(chat, script=["Hm"], instructions=text, on_failure="keep")
        await stage.bury_others(there)
        assert await told(await there.chat(chat)) == text
