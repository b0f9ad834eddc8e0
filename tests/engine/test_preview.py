"""Snapshots: what a model would be shown now, without a lane and without a write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from turnledger.chat import Chat
from turnledger.engine.history.context import Context
from turnledger.errors import ConversationDeleted, MissingToolResults, TurnNotFound
from turnledger.testing.scripted_model import Ask, ScriptedModel, Tool
from turnledger.testing.store_contract.effects import BOOM, PAID, fail
from turnledger.testing.store_contract.stage import Stage, StageProcess, answer_to, chain, exchange, soon

Scene = Callable[[Chat], Awaitable[Any]]


async def _nothing(chat: Chat) -> None:
    pass


async def _some_turns(chat: Chat) -> None:
    await chain(chat, 3)


async def _instructions(chat: Chat) -> None:
    await exchange(chat, "q1", instructions="Be brief.")
    await exchange(chat, "q2")


async def _hidden_items(chat: Chat) -> None:
    [first, _] = await chain(chat, 2)
    await chat.flag(first.id, 0, to_model=False)


async def _effects_that_wait(chat: Chat) -> None:
    await chain(chat, 2)
    await fail(chat, ScriptedModel([Tool("pay", PAID), BOOM]), "q3")


async def _effects_with_instructions(chat: Chat) -> None:
    await exchange(chat, "q1", instructions="Be brief.")
    await fail(chat, ScriptedModel([Tool("pay", PAID), BOOM]), "q2", instructions="Be loud.")


async def _effects_that_end_instructions(chat: Chat) -> None:
    await exchange(chat, "q1", instructions="Be brief.")
    await fail(chat, ScriptedModel([Tool("pay", PAID), BOOM]), "q2", instructions="")


async def _effects_of_an_edit(chat: Chat) -> None:
    [first, _] = await chain(chat, 2)
    with pytest.raises(RuntimeError):
        await soon(chat.edit(first.id, "other").run(ScriptedModel([Tool("pay", PAID), BOOM])))


async def _effects_left_behind(chat: Chat) -> None:
    await fail(chat, ScriptedModel([Tool("pay", PAID), BOOM]), "q1")
    await chain(chat, 2)
    await soon(chat.undo())


async def _forgotten_effects(chat: Chat) -> None:
    await chain(chat, 1)
    await fail(chat, ScriptedModel([Tool("pay", PAID), BOOM]), "q2")
    await exchange(chat, "q3")
    await soon(chat.undo(forget=True))


SCENES: list[Scene] = [
    _nothing,
    _some_turns,
    _instructions,
    _hidden_items,
    _effects_that_wait,
    _effects_with_instructions,
    _effects_that_end_instructions,
    _effects_of_an_edit,
    _effects_left_behind,
    _forgotten_effects,
]
every_scene = pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__.strip("_"))


async def seen(chat: Chat, **options: Any) -> list[Any]:
    """Run a turn, and return what its model was shown."""
    model = ScriptedModel(["ok"])
    await soon(chat.run(model, "next", **options))
    return list(model.seen[0])


class TestPreview:
    @every_scene
    @pytest.mark.parametrize(
        "options",
        [{}, {"context": Context.last(1)}, {"context": Context.budget(60)}, {"instructions_once": "Now."}],
        ids=["all", "last", "budget", "instructed"],
    )
    async def test_a_snapshot_is_what_the_next_model_sees(
        self, chat: Chat, scene: Scene, options: dict[str, Any]
    ) -> None:
        await scene(chat)
        shown = await soon(chat.snapshot("next", **options))
        assert shown.messages == await seen(chat, **options)

    @every_scene
    async def test_a_snapshot_after_a_turn_is_what_a_model_sees_there(self, chat: Chat, scene: Scene) -> None:
        await scene(chat)
        for turn in await chat.turns():
            shown = await soon(chat.snapshot("next", after=turn.id))
            assert shown.messages == await seen(chat, after=turn.id)

    async def test_after_a_turn_of_another_branch(self, chat: Chat) -> None:
        first, second = await chain(chat, 2)
        await exchange(chat, "aside", after=first.id)
        await soon(chat.edit(first.id, "other").run(ScriptedModel(["o"])))
        await fail(chat, ScriptedModel([Tool("pay", PAID), BOOM]), "q")
        shown = await soon(chat.snapshot("next", after=second.id))
        assert shown.messages == await seen(chat, after=second.id)

    async def test_after_the_end_of_a_side_branch(self, chat: Chat) -> None:
        """A turn there continues that branch, without effects of the shown one."""
        [first, _] = await chain(chat, 2)
        side = await exchange(chat, "side", after=first.id)
        await fail(chat, ScriptedModel([Tool("pay", PAID), BOOM]), "q3")
        shown = await soon(chat.snapshot("next", after=side.id))
        assert shown.messages == await seen(chat, after=side.id)

    async def test_effects_that_wait_on_two_branches_come_in_the_order_of_a_turn(self, chat: Chat) -> None:
        [first, _] = await chain(chat, 2)
        side = await exchange(chat, "side", after=first.id)
        more = await exchange(chat, "more", after=side.id)
        await fail(chat, ScriptedModel([Tool("refund", PAID), BOOM]), "last", after=more.id)
        await fail(chat, ScriptedModel([Tool("pay", PAID), BOOM]), "q3")
        await exchange(chat, "q4")
        shown = await soon(chat.snapshot("next", after=side.id))
        assert shown.messages == await seen(chat, after=side.id)

    async def test_hidden_question_of_effects_that_wait_stays_hidden(self, chat: Chat) -> None:
        [first, second] = await chain(chat, 2)
        await chat.flag(second.id, 0, to_model=False)
        with pytest.raises(RuntimeError):
            await soon(chat.regenerate(second.id).run(ScriptedModel([Tool("pay", PAID), BOOM])))
        shown = await soon(chat.snapshot("next", after=first.id))
        assert shown.messages == await seen(chat, after=first.id)

    async def test_after_an_earlier_turn_it_shows_no_hidden_items_to_later_turns(self, chat: Chat) -> None:
        [first, second] = await chain(chat, 2)
        await chat.flag(second.id, 0, to_model=False)
        await soon(chat.snapshot("next", after=first.id))
        assert "q2" not in str(await seen(chat))

    async def test_it_neither_waits_nor_writes(self, stage: Stage, here: StageProcess, chat: Chat) -> None:
        await chain(chat, 1)
        holder = await stage.hold_lane(chat, "q2")
        here.store.operations.clear()
        shown = await soon(chat.snapshot("next"))
        assert [message["content"] for message in shown.messages] == ["q1", "a1", "next"]
        assert set(here.store.operations) <= {"begin_unwritten", "read_turns"}
        await holder.finish()

    async def test_the_input_is_checked_as_that_of_a_turn(self, chat: Chat) -> None:
        await soon(chat.run(ScriptedModel([Ask("one", call_id="c1"), Ask("two", call_id="c2")]), "q"))
        with pytest.raises(MissingToolResults):
            await soon(chat.snapshot([answer_to("c1", "1")]))
        with pytest.raises(TurnNotFound):
            await soon(chat.snapshot("q", after="turn_01890a5d000070008000000000000000"))

    async def test_a_deleted_chat_has_none(self, chat: Chat) -> None:
        await chat.delete()
        with pytest.raises(ConversationDeleted):
            await soon(chat.snapshot())


class TestBudget:
    async def test_used_and_left_tokens_are_those_of_the_items(self, chat: Chat) -> None:
        await chain(chat, 5)
        whole = await soon(chat.snapshot())
        assert (whole.turns, whole.budget, whole.left) == (5, None, None)
        part = await soon(chat.snapshot(context=Context.budget(whole.tokens - 1)))
        assert 0 < len(part.items) < len(whole.items)
        assert part.left == whole.tokens - 1 - part.tokens >= 0

    async def test_own_counters_count(self, chat: Chat) -> None:
        await chain(chat, 2)
        assert (await soon(chat.snapshot(context=Context.budget(9, count=lambda item: 2)))).left == 1
