"""Forks: a conversation that begins as another one does, shares its turns, and outlives it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnledger.chat import Chat
from turnledger.engine.lifecycle.moves import fork
from turnledger.engine.limits import Limits
from turnledger.engine.ports import Tables
from turnledger.errors import (
    ConversationDeleted,
    ConversationExpired,
    ConversationNotFound,
    InvalidInput,
    TurnNotFound,
)
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.turn import Turn
from turnledger.testing.gates import Fate
from turnledger.testing.scripted_model import Ask, ScriptedModel, Tool
from turnledger.testing.store_contract.moving import places_of, shown
from turnledger.testing.store_contract.readers import SCRIPT, check_shape, read_all, spoken, wire
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Contract,
    Stage,
    StageProcess,
    answer_to,
    asked,
    chain,
    exchange,
    play,
    soon,
    tell,
)
from turnledger.testing.store_contract.what_happened import BOOM, PAID, fail, kinds, results
from turnledger.testing.store_contract.yours_only import as_seen_by

FEW = replace(LIMITS, purge_rows=2)
"""Purges so little at a time that what is half removed can be looked at."""


async def purge_all(process: StageProcess, *chats: Chat) -> None:
    """Purge until long after nothing is left to remove, and look at these each time."""
    expected = [await chat.turns(limit=1_000) for chat in chats]
    for _ in range(40):
        await process.tend()
        assert [await chat.turns(limit=1_000) for chat in chats] == expected


class Forks(Contract):
    @pytest.mark.parametrize("place", [None, 0, 1, 2])
    async def test_a_fork_begins_as_its_source_does_and_goes_its_own_way(
        self, stage: Stage, place: int | None
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T")
        before = await chain(chat, 3)
        forked = await soon(
            chat.fork(None if place is None else before[place].id, conversation_key="k", metadata={"a": "b"})
        )
        expected = before if place is None else before[: place + 1]
        assert forked.id != chat.id
        assert (await forked.info()).metadata == {"a": "b"}
        same = await there.ledger.conversation(conversation_key="k")
        assert same.id == forked.id
        assert await same.turns() == expected
        model = ScriptedModel(["a"])
        turn = await soon(same.run(model, "mine"))
        assert len(model.seen[0]) == 2 * len(expected) + 1
        assert turn.parent == expected[-1].id
        await exchange(chat, "theirs")
        assert await forked.turns() == [*expected, turn]
        assert await asked(chat) == ["q1", "q2", "q3", "theirs"]
        for limit in (1, 2, 3):
            assert await forked.turns(limit=limit) == [*expected, turn][-limit:]

    async def test_the_details_of_a_fork_are_its_own(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T", internal=True, expires_after=600)
        await chain(chat, 1)
        plain = await soon(chat.fork())
        found = await plain.info()
        assert (found.title, found.internal, found.expires_after) == (None, False, None)
        aside = await soon(chat.fork(title="U", internal=True, expires_after=60))
        assert [each.id for each in await there.listed()] == [plain.id]
        assert (await (await there.chat(aside)).info()).title == "U"
        stage.clock.advance(60)
        with pytest.raises(ConversationExpired):
            await aside.turns()
        assert len(await chat.turns()) == 1

    async def test_an_empty_conversation_can_be_forked(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        forked = await soon(chat.fork())
        assert await forked.turns() == []
        first = await exchange(forked, "q1")
        assert (first.number, first.parent) == (1, None)
        assert await chat.turns() == []
        await soon(forked.undo())
        assert await forked.turns() == []

    async def test_a_running_turn_goes_on_and_is_no_part_of_the_fork(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        before = await chain(chat, 2)
        holder = await stage.hold_lane(chat, "running", [Tool("pay", "paid")])
        forked = await soon((await there.chat(chat)).fork())
        assert await forked.turns() == before
        turn = await holder.finish()
        assert await chat.turns() == [*before, turn]
        await exchange(forked, "mine", on_busy="reject")
        assert await asked(forked) == ["q1", "q2", "mine"]

    async def test_effects_that_wait_are_settled_first(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await chain(chat, 2)
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        forked = await soon(chat.fork())
        assert kinds(await forked.turns()) == ["completed", "completed", "settled"]
        assert await forked.turns() == await chat.turns()
        for each in (chat, forked):
            model = ScriptedModel(["a"])
            await soon(each.run(model, "q"))
            assert PAID in model.seen[0]
            assert kinds(await each.turns()) == ["completed", "completed", "settled", "completed"]

    async def test_a_fork_at_a_turn_takes_the_settled_turns_that_directly_follow(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        [first] = await chain(chat, 1)
        for text in ("one", "two"):
            await fail(chat, ScriptedModel([Tool("pay", text), BOOM]))
        await exchange(chat, "q2")
        forked = await soon(chat.fork(first.id))
        assert await forked.turns() == (await chat.turns())[:3]

    async def test_calls_that_wait_at_the_fork_can_be_answered_in_both(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        asking = await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1")]), "q1"))
        await exchange(chat, [answer_to("c1", "one")])  # type: ignore[arg-type]
        forked = await soon(chat.fork(asking.id))
        told = await exchange(forked, [answer_to("c1", "two")])  # type: ignore[arg-type]
        assert results(told) == {"c1": "two"}

    async def test_a_fork_of_a_fork_of_an_edited_line_reads_whole(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        line = await chain(chat, 3)
        for number in range(70):
            line[-1:] = [await tell(chat.edit(line[-1].id, f"edit {number}")), await exchange(chat, "more")]
        chats = [chat]
        for number in range(5):
            forked = await soon(chats[-1].fork(line[-2].id))
            line = [*line[:-1], await exchange(forked, f"fork {number}")]
            assert await (await there.chat(forked)).turns(limit=1_000) == line
            assert await (await there.chat(forked)).turns(before=9, limit=3) == line[5:8]
            chats.append(forked)
        edited = await tell(chats[-1].edit(line[4].id, "early"))
        assert await (await there.chat(chats[-1])).turns() == [*line[:4], edited]

    @pytest.mark.parametrize("fate", Fate)
    async def test_a_fork_whose_answer_is_lost_is_made_once(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 1)
        here.store.lose_answer(fork, fate, fate)
        forked = await soon(chat.fork())
        assert {each.id for each in await here.listed()} == {chat.id, forked.id}
        assert await asked(forked) == ["q1"]

    async def test_a_conversation_key_that_is_taken_is_refused(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(conversation_key="k")
        await chain(chat, 1)
        with pytest.raises(InvalidInput):
            await soon(chat.fork(conversation_key="k"))
        assert [each.id for each in await here.listed()] == [chat.id]
        await exchange(chat, "q2", on_busy="reject")

    # Siblings.

    async def test_siblings_in_a_fork_are_its_own_and_what_came_with_it(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        turns = await chain(chat, 3)
        other = await tell(chat.edit(turns[1].id, "source only"))
        await soon(chat.switch((await chat.siblings(other.id))[0].branch))
        forked = await soon(chat.fork(turns[1].id))
        first = await shown(forked)
        for turn in turns[:2]:
            assert await places_of(forked, turn.id) == [turn.input[0].text]
        mine = await exchange(forked, "mine")
        assert await places_of(forked, mine.id) == ["mine"]
        assert [each.turn for each in await forked.siblings(mine.id)] == [mine]
        at_point = await tell(forked.edit(mine.id, "at the point"))
        assert await places_of(forked, at_point.id) == ["mine", "at the point"]
        before_point = await tell(forked.edit(turns[1].id, "before the point"))
        found = await forked.siblings(before_point.id)
        assert [each.turn for each in found] == [turns[1], before_point]
        assert found[0].branch == first
        at_start = await tell(forked.edit(turns[0].id, "at the start"))
        assert await places_of(forked, at_start.id) == ["q1", "at the start"]
        await soon(forked.switch(first))
        assert await forked.turns() == [*turns[:2], mine]
        assert await places_of(chat, turns[1].id) == ["q2", "source only"]

    # Whose it is.

    async def test_only_its_owner_can_do_any_of_it(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann")
        turns = await chain(chat, 2)
        await tell(chat.edit(turns[1].id, "other"))
        before, found = await chat.turns(), await chat.info()
        eve = await as_seen_by("eve", here, chat)
        for attempt in (
            lambda: tell(eve.edit(turns[0].id, "q")),
            lambda: tell(eve.regenerate()),
            lambda: eve.undo(),
            lambda: eve.switch(turns[0].branch),
            lambda: eve.fork(),
            lambda: eve.siblings(turns[0].id),
        ):
            with pytest.raises(ConversationNotFound):
                await soon(attempt())
        assert await chat.turns() == before
        assert await chat.info() == found
        own = await here.chat(owner="eve")
        await chain(own, 1)
        for id in (turns[0].id, before[1].id):
            with pytest.raises(TurnNotFound):
                await tell(own.edit(id, "q"))
            with pytest.raises(TurnNotFound):
                await soon(own.fork(id))
            with pytest.raises(TurnNotFound):
                await soon(own.siblings(id))

    async def test_a_fork_tells_the_events_of_what_it_shares_and_of_nothing_else(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        shared = await soon(chat.run(ScriptedModel(SCRIPT), "q1"))
        forked = await there.chat(await soon(chat.fork()))
        later, own = await exchange(chat, "q2"), await exchange(forked, "mine")
        whole = await read_all(chat, shared.id)
        assert spoken(whole)
        assert wire(await read_all(forked, shared.id)) == wire(whole)
        check_shape(await read_all(forked, own.id))
        for each, elsewhere in ((forked, later), (chat, own)):
            with pytest.raises(TurnNotFound):
                await read_all(each, elsewhere.id)
        await chat.delete(purge=True)
        await purge_all(there, forked)
        assert wire(await read_all(forked, shared.id)) == wire(whole)

    async def test_a_fork_tells_of_settled_turns_that_it_shares(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        forked = await soon(chat.fork())
        [settled] = await forked.turns()
        check_shape(await read_all(forked, settled.id))

    # What is left when one of them goes.

    @pytest.mark.parametrize("way", ["deleted", "expired"])
    @pytest.mark.parametrize("grown", [False, True])
    async def test_a_fork_outlives_its_source(self, stage: Stage, way: str, grown: bool) -> None:
        here, there = await stage.processes(limits=FEW)
        chat = await here.chat(expires_after=60.0 if way == "expired" else None)
        turns = await chain(chat, 4)
        await tell(chat.edit(turns[3].id, "other"))
        await exchange(chat, "more")
        line = await chat.turns()
        forked = await soon(chat.fork(line[3].id))
        if grown:
            await exchange(forked, "mine")
        expected = await forked.turns()
        if way == "deleted":
            await chat.delete(purge=True)
        else:
            stage.clock.advance(61)
        await purge_all(there, forked)
        with pytest.raises(ConversationDeleted if way == "deleted" else ConversationExpired):
            await chat.turns()
        assert await _turns_there(here, [*turns, *line, *expected]) == {turn.id for turn in expected}
        model = ScriptedModel(["a"])
        await soon((await there.chat(forked)).run(model, "on"))
        assert len(model.seen[0]) == 2 * len(expected) + 1
        await tell(forked.edit(expected[1].id, "early"))
        assert await asked(forked) == ["q1", "early"]
        assert await places_of(forked, (await forked.turns())[1].id) == ["q2", "early"]

    @pytest.mark.parametrize("limits", [FEW, LIMITS], ids=["few", "many"])
    @pytest.mark.parametrize("order", ["source first", "fork first", "together"])
    async def test_nothing_is_left_when_all_are_gone(self, stage: Stage, order: str, limits: Limits) -> None:
        here = await stage.process(limits)
        chat = await here.chat()
        turns = await chain(chat, 5)
        for number in (4, 3, 1):
            turns.append(await tell(chat.edit(turns[number].id, "other")))
            await soon(chat.switch(turns[0].branch))
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        await soon(chat.undo())
        turns += await chat.turns()
        forked = await soon(chat.fork(turns[2].id))
        turns.append(await exchange(forked, "mine"))
        again = await soon(forked.fork())
        turns.append(await tell(again.edit(turns[1].id, "again")))
        turns.append(await exchange(again, "more"))
        chats = {"source first": [chat, forked, again], "fork first": [again, forked, chat]}
        for number, each in enumerate(chats.get(order, [forked, chat, again])):
            left = chats.get(order, [forked, chat, again])[number + 1 :]
            await each.delete(purge=True)
            if order != "together":
                await purge_all(here, *left)
        await purge_all(here)
        assert await _turns_there(here, turns) == set()
        assert await _lines_there(here, {turn.branch for turn in turns}) == []

    async def test_a_purged_conversation_with_edits_leaves_no_turn(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        turns = await chain(chat, 3)
        for _ in range(4):
            turns.append(await tell(chat.edit(turns[-1].id, "other")))
            turns.append(await exchange(chat, "more"))
        await chat.delete(purge=True)
        for _ in range(12):
            await here.tend()
        assert await _turns_there(here, turns) == set()

    async def test_a_fork_is_made_of_what_is_live_only(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(expires_after=60.0)
        [first] = await chain(chat, 1)
        gone = await here.chat()
        await gone.delete()
        with pytest.raises(ConversationDeleted):
            await soon(gone.fork())
        stage.clock.advance(61)
        with pytest.raises(ConversationExpired):
            await soon(chat.fork(first.id))
        for use in (lambda: chat.undo(), lambda: chat.siblings(first.id), lambda: tell(chat.regenerate())):
            with pytest.raises(ConversationExpired):
                await soon(use())

    async def test_it_is_all_there_after_a_restart(self, stage: Stage) -> None:
        if not self.capabilities.survives_restart:
            pytest.skip("the store is gone with its process")
        here = await stage.process()
        chat = await here.chat()
        turns = await chain(chat, 3)
        edited = await tell(chat.edit(turns[1].id, "other"))
        forked = await soon(chat.fork())
        with pytest.raises(RuntimeError):
            await soon(play(forked.edit(edited.id, "third"), ScriptedModel([Tool("pay", "paid"), BOOM])))
        again = await stage.restart()
        assert await (await again.chat(chat)).turns() == [turns[0], edited]
        model = ScriptedModel(["a"])
        await soon((await again.chat(forked)).run(model, "next"))
        assert PAID in model.seen[0]
        assert await asked(await again.chat(forked)) == ["q1", "other", "third", "next"]


async def _turns_there(process: StageProcess, turns: list[Turn]) -> set[TurnId]:
    async def there(tables: Tables, ids: set[TurnId]) -> set[TurnId]:
        return {id for id in ids if await tables.turn("local", id) is not None}

    return await process.store.read(there, {turn.id for turn in turns})


async def _lines_there(process: StageProcess, branches: set[BranchId]) -> list[Turn]:
    async def there(tables: Tables, ids: set[BranchId]) -> list[Turn]:
        return [turn for id in ids for turn in await tables.turns(id, 0, 1_000, 1_000)]

    return await process.store.read(there, branches)
