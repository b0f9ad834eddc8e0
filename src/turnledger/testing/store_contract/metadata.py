"""Title and metadata: separate writes, checked by revision, that disturb no running turn."""

from __future__ import annotations

import asyncio

import pytest

from turnledger.engine.conversations.resolve import update
from turnledger.engine.turn.commit import commit
from turnledger.errors import RevisionConflict
from turnledger.testing.gates import Fate
from turnledger.testing.scripted_model import ScriptedModel
from turnledger.testing.store_contract.stage import Contract, Stage, exchange, soon

every_fate = pytest.mark.parametrize("fate", Fate)


class Metadata(Contract):
    async def test_details_are_kept_as_given_when_a_conversation_is_created(self, stage: Stage) -> None:
        here, there = await stage.processes()
        metadata = {"": "", "ключ": "значение", "a\x00b": "\U0001f600 'quoted' \"twice\""}
        chat = await here.chat(conversation_key="k", title="Ünïcode", metadata=metadata)
        found = await (await there.chat(conversation_key="k")).info()
        assert found == await chat.info()
        assert (found.title, found.metadata, found.revision) == ("Ünïcode", metadata, 1)

    async def test_what_is_not_given_stays(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T", metadata={"a": "1"})
        await chat.update(title="U")
        updated = await (await there.chat(chat)).update(metadata={"b": "2"})
        assert updated == await chat.info()
        assert (updated.title, updated.metadata, updated.revision) == ("U", {"b": "2"}, 3)

    async def test_a_rename_while_a_turn_runs_disturbs_nothing(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T")
        with here.store.hold(commit) as gate:
            task = stage.start(chat.run(ScriptedModel(["a"]), "q"))
            await stage.reach(gate, task)
            await (await there.chat(chat)).update(title="U", metadata={"a": "1"})
        turn = await soon(task)
        assert await chat.turns() == [turn]
        found = await chat.info()
        assert (found.title, found.metadata, found.revision) == ("U", {"a": "1"}, 2)

    async def test_a_turn_does_not_change_the_revision(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        revision = (await chat.info()).revision
        await exchange(chat, "q")
        await chat.update(title="U", revision=revision)

    async def test_an_update_of_an_old_revision_is_refused_and_changes_nothing(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T")
        await (await there.chat(chat)).update(title="U", revision=1)
        before = await chat.info()
        with pytest.raises(RevisionConflict) as conflict:
            await chat.update(title="V", revision=1)
        assert conflict.value.current == 2
        assert await chat.info() == before

    @every_fate
    @pytest.mark.parametrize("revision", [None, 1])
    async def test_an_update_whose_answer_is_lost_is_made_once(
        self, stage: Stage, fate: Fate, revision: int | None
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T", metadata={"a": "1"})
        here.store.lose_answer(update, fate, fate)
        updated = await soon(chat.update(title="U", metadata={"b": "2"}, revision=revision))
        assert (updated.title, updated.metadata, updated.revision) == ("U", {"b": "2"}, 2)
        assert await (await there.chat(chat)).info() == updated

    async def test_an_update_that_changes_nothing_is_none(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T")
        before = await chat.info()
        assert await chat.update(title="T", revision=1) == before
        await (await there.chat(chat)).update(title="U", revision=1)
        await (await there.chat(chat)).update(title="T", revision=2)
        assert (await chat.update(title="T")).revision == 3
        with pytest.raises(RevisionConflict):
            await chat.update(title="T", revision=1)  # it was something else in between

    async def test_of_two_updates_of_one_revision_one_wins(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        with here.store.hold(update) as one, there.store.hold(update) as other:
            tasks = [
                stage.start(each.update(title=each_title, revision=1))
                for each, each_title in ((chat, "A"), (same, "B"))
            ]
            await stage.reach(one, tasks[0])
            await stage.reach(other, tasks[1])
            one.release()
            other.release()
            results = await soon(asyncio.gather(*tasks, return_exceptions=True))
        won = [result for result in results if not isinstance(result, BaseException)]
        assert len(won) == 1
        assert isinstance(next(result for result in results if result not in won), RevisionConflict)
        assert await chat.info() == won[0]

    async def test_reading_and_renaming_are_not_interaction(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await exchange(chat, "q")
        touched = (await chat.info()).touched_at
        stage.clock.advance(10)
        await chat.update(title="T")
        await chat.turns()
        assert (await chat.info()).touched_at == touched
        await exchange(chat, "q1")
        assert (await chat.info()).touched_at == stage.clock.now_ms()
