"""Effects go along: whichever branch is shown, its model knows what the tools of unfinished turns did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from turnledger.chat import Chat
from turnledger.engine.history.line import STRETCHES_KEPT
from turnledger.engine.ports import Store
from turnledger.engine.turn.begin import begin
from turnledger.model.conversation import Stretch
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.turn import Turn, TurnKind
from turnledger.testing.gates import Fate
from turnledger.testing.scripted_model import Ask, ScriptedModel, Step, Tool
from turnledger.testing.store_contract.moving import shown
from turnledger.testing.store_contract.readers import check_shape, read_all
from turnledger.testing.store_contract.rows import IDS, begun, conversation, do, read, write
from turnledger.testing.store_contract.stage import (
    Contract,
    Stage,
    answer_to,
    call,
    chain,
    exchange,
    play,
    soon,
    tell,
    user,
)
from turnledger.testing.store_contract.what_happened import BOOM, PAID, fail, kinds, results

ways_to_leave_out = pytest.mark.parametrize(
    "way", ["undo", "regenerate", "edit", "early edit", "early fork", "prefix", "divergence", "switch"]
)


PAYING = (Tool("pay", "paid"), "Half")


async def interrupt(stage: Stage, chat: Chat, script: Sequence[Step] = PAYING) -> Turn:
    """Stop a turn after this script has run, and keep it."""
    await stage.hold_lane(chat, "Pay.", script)
    ended = await soon(chat.stop(policy="keep"))
    assert ended is not None
    assert ended.turn is not None
    return ended.turn


async def seen_next(chat: Chat) -> list[dict[str, Any]]:
    """What the model of the next turn is shown."""
    model = ScriptedModel(["a"])
    await soon(chat.run(model, "next"))
    return model.seen[0]


async def left_out(chat: Chat, way: str, first: Turn, last: Turn, other: BranchId) -> Chat:
    """Show a line without the last turn of [first, last], by one of the ways there are."""
    q1, a1 = user("q1"), {"role": "assistant", "content": "a1"}
    match way:
        case "undo":
            await soon(chat.undo())
        case "regenerate":
            await tell(chat.regenerate())
        case "edit":
            await tell(chat.edit(last.id, "other"))
        case "early edit":
            await tell(chat.edit(first.id, "other"))
        case "early fork":
            return await soon(chat.fork(first.id))
        case "prefix":
            await tell(chat.resent([q1, a1, user("Pay.")]))
        case "divergence":
            await tell(chat.resent([user("other"), a1, user("next")]))
        case "switch":
            await soon(chat.switch(other))
    return chat


class EffectsGoAlong(Contract):
    @ways_to_leave_out
    async def test_the_effect_of_an_interrupted_turn_is_told_wherever_the_turn_is_left_out(
        self, stage: Stage, way: str
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        [first] = await chain(chat, 1)
        await tell(chat.edit(first.id, "q1"), "a1")
        other = await shown(chat)
        await soon(chat.switch(first.branch))
        stopped = await interrupt(stage, chat)
        assert kinds(await chat.turns()) == ["completed", "interrupted"]
        left = await left_out(await there.chat(chat), way, first, stopped, other)
        turns = await left.turns()
        assert "interrupted" not in kinds(turns)
        [told] = [turn for turn in turns if turn.kind is TurnKind.SETTLED]
        assert results(told) == {"call_0": "paid"}
        assert told.input == stopped.input
        assert "Half" not in [each.text for each in told.output]
        assert told.output[-1].role == "developer"
        messages = await seen_next(left)
        assert messages.count(PAID) == 1
        check_shape(await read_all(left, told.id))

    @ways_to_leave_out
    async def test_an_interrupted_turn_without_effects_goes_without_a_trace(
        self, stage: Stage, way: str
    ) -> None:
        chat = await (await stage.process()).chat()
        [first] = await chain(chat, 1)
        await tell(chat.edit(first.id, "q1"), "a1")
        other = await shown(chat)
        await soon(chat.switch(first.branch))
        stopped = await interrupt(stage, chat, [Tool("look", "seen", read_only=True), "Half"])
        left = await left_out(chat, way, first, stopped, other)
        assert set(kinds(await left.turns())) == {"completed"}

    async def test_undo_leaves_the_effect_of_an_interrupted_turn_behind_if_told_to_forget(
        self, stage: Stage
    ) -> None:
        chat = await (await stage.process()).chat()
        before = await chain(chat, 1)
        await interrupt(stage, chat)
        await soon(chat.undo(forget=True))
        assert await chat.turns() == before
        assert PAID not in await seen_next(chat)

    @pytest.mark.parametrize("is_kept", [True, False])
    async def test_a_forgotten_effect_is_not_carried_along_by_any_later_switch(
        self, stage: Stage, *, is_kept: bool
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        [first] = await chain(chat, 1)
        await tell(chat.edit(first.id, "q1"), "a1")
        third = await shown(chat)
        await soon(chat.switch(first.branch))
        if is_kept:
            await interrupt(stage, chat)
            await soon(chat.undo(forget=True))
        else:
            await exchange(chat, "q2")
            await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
            await soon(chat.undo(forget=True))
        made = await shown(chat)
        assert await chat.turns() == [first]
        other = await there.chat(chat)
        await soon(other.switch(first.branch))
        assert set(kinds(await other.turns())) & {"interrupted", "settled"}
        await interrupt(stage, other, [Tool("pay", "again"), "Half"])
        for branch in (third, made):
            await soon(other.switch(branch))
            [told] = [turn for turn in await other.turns() if turn.kind is TurnKind.SETTLED]
            assert results(told) == {"call_0": "again"}

    async def test_only_the_calls_that_may_have_acted_are_told_of_an_interrupted_turn(
        self, stage: Stage
    ) -> None:
        chat = await (await stage.process()).chat()
        await interrupt(stage, chat, [Tool("look", "seen", read_only=True), Tool("pay", "paid"), "Half"])
        await soon(chat.undo())
        [told] = await chat.turns()
        assert [item.fields["name"] for item in told.output if item.is_call] == ["pay"]

    async def test_a_turn_kept_after_a_failure_is_carried_like_a_stopped_one(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]), on_failure="keep")
        assert kinds(await chat.turns()) == ["interrupted"]
        await tell(chat.regenerate())
        assert kinds(await chat.turns()) == ["settled", "completed"]

    async def test_a_completed_turn_that_is_edited_away_is_gone_with_what_its_tools_did(
        self, stage: Stage
    ) -> None:
        chat = await (await stage.process()).chat()
        paid = await soon(chat.run(ScriptedModel([Tool("pay", "paid"), "Paid."]), "Pay."))
        model = ScriptedModel(["a"])
        await soon(play(chat.edit(paid.id, "other"), model))
        assert model.seen == [[user("other")]]

    # Switch.

    @pytest.mark.parametrize("waits", [True, False])
    async def test_a_switch_tells_the_branch_it_shows_what_a_failed_turn_did(
        self, stage: Stage, waits: bool
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        before, old = await chain(chat, 2), await shown(chat)
        await tell(chat.edit(before[1].id, "other"))
        new = await shown(chat)
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        if not waits:
            await exchange(chat, "q3")
        await soon((await there.chat(chat)).switch(old))
        turns = await chat.turns()
        assert await shown(chat) == old
        assert kinds(turns) == ["completed", "completed", "settled"]
        assert (turns[:2], turns[2].parent, turns[2].number) == (before, before[1].id, 3)
        check_shape(await read_all(chat, turns[2].id))
        for branch in (new, old, new):
            await soon(chat.switch(branch))
            told = [turn for turn in await chat.turns() if turn.kind is TurnKind.SETTLED]
            assert len(told) == 1
        assert (await seen_next(chat)).count(PAID) == 1

    async def test_a_switch_tells_two_alike_effects_twice_and_in_order(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        [first] = await chain(chat, 1)
        await tell(chat.edit(first.id, "other"))
        for result in ("paid", "paid", "again"):
            await fail(chat, ScriptedModel([Tool("pay", result), BOOM]))
        await soon(chat.switch(first.branch))
        told = [results(turn)["call_0"] for turn in (await chat.turns())[1:]]
        assert told == ["paid", "paid", "again"]

    async def test_a_switch_does_not_tell_again_what_was_carried_before(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        [first] = await chain(chat, 1)
        stopped = await interrupt(stage, chat)
        await tell(chat.edit(first.id, "one"))
        one = await shown(chat)
        await tell(chat.edit((await chat.turns())[-1].id, "two"))
        two = await shown(chat)
        for branch in (stopped.branch, one, two, stopped.branch, two):
            await soon(chat.switch(branch))
            assert (await seen_next(chat)).count(PAID) == 1
            await soon(chat.undo())

    async def test_a_switch_closes_the_calls_that_wait_where_it_tells_of_effects(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        asking = await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1")]), "q1"))
        await tell(chat.edit(asking.id, "other"))
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        await soon(chat.switch(asking.branch))
        told = (await chat.turns())[-1]
        assert set(results(told)) == {"c1", "call_0"}
        assert PAID in await seen_next(chat)

    @pytest.mark.parametrize("fate", Fate)
    async def test_a_switch_whose_answer_is_lost_tells_of_effects_once(
        self, stage: Stage, fate: Fate
    ) -> None:
        here = await stage.process()
        chat = await here.chat()
        [first] = await chain(chat, 1)
        await tell(chat.edit(first.id, "other"))
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        here.store.lose_answer(begin, fate, fate)
        await soon(chat.switch(first.branch))
        assert kinds(await chat.turns()) == ["completed", "settled"]

    async def test_a_switch_finds_what_lines_share_behind_many_edits(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await chain(chat, 2)
        await fail(chat, ScriptedModel([Tool("pay", "early"), BOOM]))
        last = await exchange(chat, "q3")
        old = await shown(chat)
        for number in range(STRETCHES_KEPT + 5):
            last = await tell(chat.edit(last.id, f"edit {number}"))
            last = await exchange(chat, "more")
        await fail(chat, ScriptedModel([Tool("pay", "late"), BOOM]))
        await soon(chat.switch(old))
        told = [results(turn)["call_0"] for turn in await chat.turns() if turn.kind is TurnKind.SETTLED]
        assert told == ["early", "late"]

    # Forks.

    async def test_a_fork_takes_along_the_effects_that_come_after_its_turn(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        before = await chain(chat, 2)
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        await exchange(chat, "q3")
        forked = await soon(chat.fork(before[0].id))
        turns = await forked.turns()
        assert kinds(turns) == ["completed", "settled"]
        assert (turns[0], turns[1].parent) == (before[0], before[0].id)
        await chat.delete(purge=True)
        assert PAID in await seen_next(forked)

    # Resent histories.

    async def test_results_resent_behind_an_interrupted_turn_are_asked_anew_with_their_calls(
        self, stage: Stage
    ) -> None:
        chat = await (await stage.process()).chat()
        asking = await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1")]), "q1"))
        await stage.hold_lane(chat, [answer_to("c1", "one")], [Tool("pay", "paid")])  # type: ignore[arg-type]
        await soon(chat.stop(policy="keep"))
        call = {"id": "c1", "type": "function", "function": {"name": "ask", "arguments": "{}"}}
        calling = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": "c1", "content": "one"}
        model = ScriptedModel(["a"])
        await soon(play(chat.resent([user("q1"), calling, result]), model))
        assert PAID in model.seen[0]
        assert result in model.seen[0]
        assert asking.id not in [turn.id for turn in await chat.turns()]

    # Rows.

    async def test_stores_find_the_turns_whose_effects_go_along(self, stores: list[Store]) -> None:
        here, there = stores
        home = await begun(here, conversation())
        made: list[Turn] = []
        for kind, effects in (
            (TurnKind.COMPLETED, None),
            (TurnKind.INTERRUPTED, (0,)),
            (TurnKind.INTERRUPTED, ()),
            (TurnKind.SETTLED, None),
            (TurnKind.INTERRUPTED, None),
        ):
            turn = Turn.of(
                id=IDS.new(TurnId),
                branch=home.branch,
                number=len(made) + 1,
                parent=made[-1].id if made else None,
                kind=kind,
                created_at=1,
                committed_at=1,
                input=(),
                output=(call("pay", "c"), answer_to("c", "paid")),
                effects=effects,
            )
            made.append(turn)
        await write(here, *[do("add_turn", turn) for turn in made])
        found = await read(there, do("effects_in", [Stretch(home.branch, 0, len(made))]))
        assert found == [made[1], made[3], made[4]]
        assert [turn.effects for turn in found] == [(0,), (0,), (0,)]
