"""One key, one conversation: concurrent first requests converge, and settled keys pay nothing for it."""

from __future__ import annotations

import asyncio

import pytest

from turnledger.engine.conversations.resolve import resolve_now
from turnledger.engine.turn.begin import begin
from turnledger.errors import ConversationExpired, ConversationNotFound, NoNewInput
from turnledger.model.turn import Turn
from turnledger.testing.scripted_model import ScriptedModel
from turnledger.testing.store_contract.stage import Contract, Stage, StageProcess, exchange, said, soon


class OneKey(Contract):
    async def test_concurrent_first_requests_converge(self, stage: Stage) -> None:
        """Both have found nothing under the key before either has written."""
        here, there = await stage.processes()
        with here.store.hold(resolve_now) as one, there.store.hold(resolve_now) as other:
            tasks = [stage.start(each.chat(conversation_key="k")) for each in (here, there)]
            await stage.reach(one, tasks[0])
            await stage.reach(other, tasks[1])
            one.release()
            other.release()
            first, second = await soon(asyncio.gather(*tasks))
        assert first.id == second.id
        await exchange(first, "q0", "a0")
        await exchange(second, "q1", "a1")
        assert await said(first) == ["q0", "a0", "q1", "a1"]
        assert len(await here.listed()) == 1

    async def test_concurrent_first_turns_converge(self, stage: Stage) -> None:
        here, there = await stage.processes()

        def run(process: StageProcess, text: str) -> asyncio.Task[Turn]:
            return stage.start(process.ledger.run(ScriptedModel(["a"]), text, conversation_key="k"))

        with here.store.hold(begin) as one, there.store.hold(begin) as other:
            tasks = [run(here, "q0"), run(there, "q1")]
            await stage.reach(one, tasks[0])
            await stage.reach(other, tasks[1])
            other.release()
            one.release()
            await soon(asyncio.gather(*tasks))
        chat = await here.chat(conversation_key="k", create=False)
        turns = await chat.turns()
        assert {turn.input[0].text for turn in turns} == {"q0", "q1"}
        assert turns[1].parent == turns[0].id

    async def test_the_keys_of_different_owners_are_different_keys(self, stage: Stage) -> None:
        here, there = await stage.processes()
        with here.store.hold(resolve_now) as one, there.store.hold(resolve_now) as other:
            tasks = [
                stage.start(each.chat(conversation_key="k", owner=owner))
                for owner in ("ann", "ben")
                for each in (here, there)
            ]
            await soon(one.arrived(2))
            await soon(other.arrived(2))
            one.release()
            other.release()
            chats = await soon(asyncio.gather(*tasks))
        assert chats[0].id == chats[1].id
        assert chats[2].id == chats[3].id
        assert chats[0].id != chats[2].id

    async def test_a_settled_key_pays_no_write(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(conversation_key="k")
        assert (await there.chat(conversation_key="k")).id == chat.id
        assert there.store.trips == ["resolve_settled"]

    async def test_a_turn_on_a_settled_key_is_one_begin_and_one_commit(self, stage: Stage) -> None:
        here = await stage.process()
        await here.chat(conversation_key="k")
        here.store.trips.clear()
        await here.ledger.run(ScriptedModel(["a"]), "q", conversation_key="k")
        assert here.store.trips == ["begin", "commit"]

    async def test_a_new_key_with_a_turn_is_one_begin_and_one_commit(self, stage: Stage) -> None:
        here = await stage.process()
        await here.ledger.run(ScriptedModel(["a"]), "q", conversation_key="k")
        assert here.store.trips == ["begin", "commit"]

    async def test_a_refused_first_turn_creates_no_conversation(self, stage: Stage) -> None:
        here = await stage.process()
        with pytest.raises(NoNewInput):
            await here.ledger.run(ScriptedModel(), " ", conversation_key="k")
        with pytest.raises(ConversationNotFound):
            await here.chat(conversation_key="k", create=False)
        assert await here.listed() == []

    async def test_deletion_frees_the_key(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(conversation_key="k")
        await exchange(chat, "q0")
        await chat.delete()
        with pytest.raises(ConversationNotFound):
            await there.chat(conversation_key="k", create=False)
        fresh = await there.chat(conversation_key="k")
        assert fresh.id != chat.id
        assert await fresh.turns() == []

    async def test_expiry_keeps_the_key(self, stage: Stage) -> None:
        here, there = await stage.processes()
        await here.chat(conversation_key="k", expires_after=60)
        stage.clock.advance(60)
        for marked in (False, True):
            if marked:
                await here.tend()
            for process in (here, there):
                with pytest.raises(ConversationExpired):
                    await process.chat(conversation_key="k")
                with pytest.raises(ConversationExpired):
                    await process.ledger.run(ScriptedModel(), "q", conversation_key="k")

    async def test_an_expired_conversation_can_be_deleted_to_free_its_key(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(conversation_key="k", expires_after=60)
        stage.clock.advance(60)
        await here.tend()
        await chat.delete()
        assert (await here.chat(conversation_key="k")).id != chat.id
