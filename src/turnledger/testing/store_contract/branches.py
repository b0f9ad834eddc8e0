"""Branches: origins, lines, shared turns, and the effects that a new branch copies."""

from __future__ import annotations

from dataclasses import replace as with_limits
from random import Random

import pytest

from turnledger.chat import Chat
from turnledger.engine.limits import Limits
from turnledger.engine.ports import Tables
from turnledger.errors import (
    ConversationDeleted,
    ConversationExpired,
    TurnNotFound,
)
from turnledger.model.conversation import (
    LOCAL,
)
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.turn import Turn
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.effects import BOOM, PAID, fail
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Contract,
    Stage,
    StageProcess,
    chain,
    exchange,
    input_texts,
    play,
    run_block,
    soon,
)


async def sibling_inputs(chat: Chat, turn: str) -> list[str]:
    return [each.turn.input[-1].text for each in await chat.siblings(turn)]


async def all_turns(chat: Chat) -> list[Turn]:
    return await chat.turns(limit=1_000)


class NestedEdits(Contract):
    async def test_lines_of_nested_edits_are_read_as_written(self, stage: Stage) -> None:
        """Compare with plain lists: a hundred random edits, then every branch and random pages."""
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        random = Random(7)
        line = await chain(chat, 4)
        lines: dict[BranchId, list[Turn]] = {}
        for number in range(100):
            using = (chat, same)[number % 2]
            lines[(await chat.info()).branch] = list(line)
            place = random.randrange(len(line) - 2, len(line))
            edited = await run_block(using.edit(line[place].id, f"edit {number}"), f"answer {number}")
            line = [*line[:place], edited]
            for _ in range(random.randrange(1, 3)):
                line.append(await exchange(using, "more", "yes"))
        lines[(await chat.info()).branch] = line
        assert len(line) > 70
        for limit in (1, 3, 50, 1_000):
            for before in (None, *range(1, len(line) + 3, 5)):
                end = len(line) if before is None else before - 1
                assert await chat.turns(before=before, limit=limit) == line[:end][-limit:]
        for branch, expected in random.sample(sorted(lines.items()), 12):
            await chat.switch(branch)
            assert await all_turns(same) == expected
            assert await same.turns(limit=2) == expected[-2:]
            await exchange(same, "on")
            assert (await all_turns(chat))[:-1] == expected


FEW = with_limits(LIMITS, purge_rows=2)
"""Purges in steps small enough to look at the rows in between."""


async def purge_all(process: StageProcess, *chats: Chat) -> None:
    """Purge beyond the last removal, and read these chats after each round."""
    expected = [await chat.turns(limit=1_000) for chat in chats]
    for _ in range(8):
        await process.tend()
        assert [await chat.turns(limit=1_000) for chat in chats] == expected


class SharedTurns(Contract):
    async def test_turns_of_another_owner_are_not_found(self, stage: Stage) -> None:
        here = await stage.process()
        chat, own = await here.chat(owner="ann"), await here.chat(owner="eve")
        turns = await chain(chat, 2)
        turns.append(await run_block(chat.edit(turns[1].id, "other")))
        await chain(own, 1)
        for turn in turns:
            with pytest.raises(TurnNotFound):
                await run_block(own.edit(turn.id, "q"))
            with pytest.raises(TurnNotFound):
                await soon(own.fork(turn.id))
            with pytest.raises(TurnNotFound):
                await soon(own.siblings(turn.id))

    @pytest.mark.parametrize("way", ["deleted", "expired"])
    @pytest.mark.parametrize("grown", [False, True])
    async def test_fork_outlives_its_source(self, stage: Stage, way: str, grown: bool) -> None:
        here, there = await stage.processes(limits=FEW)
        chat = await here.chat(expires_after=60.0 if way == "expired" else None)
        turns = await chain(chat, 4)
        await run_block(chat.edit(turns[3].id, "other"))
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
        await run_block(forked.edit(expected[1].id, "early"))
        assert await input_texts(forked) == ["q1", "early"]
        assert await sibling_inputs(forked, (await forked.turns())[1].id) == ["q2", "early"]

    @pytest.mark.parametrize("limits", [FEW, LIMITS], ids=["few", "many"])
    @pytest.mark.parametrize("order", ["source first", "fork first", "together"])
    async def test_deletion_of_all_forks_leaves_no_rows(
        self, stage: Stage, order: str, limits: Limits
    ) -> None:
        here = await stage.process(limits)
        chat = await here.chat()
        turns = await chain(chat, 5)
        for number in (4, 3, 1):
            turns.append(await run_block(chat.edit(turns[number].id, "other")))
            await soon(chat.switch(turns[0].branch))
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        await soon(chat.undo())
        turns += await chat.turns()
        forked = await soon(chat.fork(turns[2].id))
        turns.append(await exchange(forked, "mine"))
        again = await soon(forked.fork())
        turns.append(await run_block(again.edit(turns[1].id, "again")))
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

    async def test_branches_survive_restart(self, stage: Stage) -> None:
        if not self.capabilities.survives_restart:
            pytest.skip("the store is gone with its process")
        here = await stage.process()
        chat = await here.chat()
        turns = await chain(chat, 3)
        edited = await run_block(chat.edit(turns[1].id, "other"))
        forked = await soon(chat.fork())
        with pytest.raises(RuntimeError):
            await soon(play(forked.edit(edited.id, "third"), ScriptedModel([Tool("pay", "paid"), BOOM])))
        again = await stage.restart()
        assert await (await again.chat(chat)).turns() == [turns[0], edited]
        model = ScriptedModel(["a"])
        await soon((await again.chat(forked)).run(model, "next"))
        assert PAID in model.seen[0]
        assert await input_texts(await again.chat(forked)) == ["q1", "other", "third", "next"]


async def _turns_there(process: StageProcess, turns: list[Turn]) -> set[TurnId]:
    async def there(tables: Tables, ids: set[TurnId]) -> set[TurnId]:
        return {id for id in ids if await tables.turn(id) is not None}

    return await process.store.read(there, {turn.id for turn in turns}, LOCAL)


async def _lines_there(process: StageProcess, branches: set[BranchId]) -> list[Turn]:
    async def there(tables: Tables, ids: set[BranchId]) -> list[Turn]:
        return [turn for id in ids for turn in await tables.turns(id, 0, 1_000, 1_000)]

    return await process.store.read(there, branches, LOCAL)
