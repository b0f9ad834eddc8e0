"""One key, one conversation: concurrent first requests and resets find the same one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from turnledger.engine.attempt.end import CLAIM_KEPT_MS
from turnledger.engine.conversations.resolve import resolve_now
from turnledger.engine.lifecycle.create import reset
from turnledger.engine.turn.begin import begin
from turnledger.errors import (
    ConversationDeleted,
    ConversationExpired,
    ConversationNotFound,
    IdempotencyMismatch,
    NoNewInput,
)
from turnledger.model.conversation import LOCAL
from turnledger.model.reset_policy import ResetPolicy
from turnledger.model.turn import Turn
from turnledger.testing.scripted_model import ScriptedModel
from turnledger.testing.store_contract.stage import (
    Contract,
    Stage,
    StageProcess,
    exchange,
    message_texts,
    soon,
)


class ConversationKeys(Contract):
    async def test_concurrent_first_requests_of_a_key_find_one_conversation(self, stage: Stage) -> None:
        """Both looked the key up before either wrote."""
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
        assert await message_texts(first) == ["q0", "a0", "q1", "a1"]
        assert len(await here.list_chats()) == 1

    async def test_concurrent_first_turns_of_a_key_run_in_one_conversation(self, stage: Stage) -> None:
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

    async def test_refused_first_turn_creates_no_conversation(self, stage: Stage) -> None:
        here = await stage.process()
        with pytest.raises(NoNewInput):
            await here.ledger.run(ScriptedModel(), " ", conversation_key="k")
        with pytest.raises(ConversationNotFound):
            await here.chat(conversation_key="k", create=False)
        assert await here.list_chats() == []

    async def test_expiry_keeps_the_conversation_key(self, stage: Stage) -> None:
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

    async def test_deletion_of_an_expired_conversation_frees_its_key(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(conversation_key="k", expires_after=60)
        stage.clock.advance(60)
        await here.tend()
        await chat.delete()
        assert (await here.chat(conversation_key="k")).id != chat.id


ONCE: dict[str, Any] = {"idempotency_key": "once"}


class ConversationCreation(Contract):
    async def test_repeated_creation_returns_the_same_conversation(self, stage: Stage) -> None:
        here, there = await stage.processes()
        made = await soon(here.ledger.conversation(title="T", metadata={"a": "b", "c": "d"}, **ONCE))
        again = await soon(there.ledger.conversation(title="T", metadata={"c": "d", "a": "b"}, **ONCE))
        assert (again.id, made.is_new, again.is_new) == (made.id, True, False)
        changes: list[dict[str, Any]] = [{"title": "U"}, {"tags": ["t"]}, {"internal": True}]
        for changed in changes:
            with pytest.raises(IdempotencyMismatch):
                await soon(here.ledger.conversation(**{"title": "T", **changed}, **ONCE))
        with pytest.raises(IdempotencyMismatch):
            await soon(here.ledger.for_owner(LOCAL, scope="s").conversation(title="T", **ONCE))
        assert len((await here.ledger.list()).chats) == 1

    async def test_concurrent_creations_with_one_key_create_one_conversation(self, stage: Stage) -> None:
        here, there = await stage.processes()
        creations = [each.ledger.conversation(**ONCE) for each in (here, there, here, there)]
        made = await asyncio.gather(*map(soon, creations))
        assert len({each.id for each in made}) == 1
        assert [each.is_new for each in made].count(True) == 1

    async def test_creation_that_found_a_named_conversation_still_finds_it_after_reset(
        self, stage: Stage
    ) -> None:
        here = await stage.process()
        named = await here.chat(conversation_key="k")
        found = await soon(here.ledger.conversation(conversation_key="k", **ONCE))
        assert (found.id, found.is_new) == (named.id, False)
        await here.ledger.reset("k")
        assert (await soon(here.ledger.conversation(conversation_key="k", **ONCE))).id == named.id

    async def test_repeated_creation_of_a_deleted_conversation_is_refused(self, stage: Stage) -> None:
        here = await stage.process()
        await (await soon(here.ledger.conversation(**ONCE))).delete()
        with pytest.raises(ConversationDeleted):
            await soon(here.ledger.conversation(**ONCE))

    async def test_creation_after_its_key_expired_creates_another_conversation(self, stage: Stage) -> None:
        here = await stage.process()
        made = await soon(here.ledger.conversation(**ONCE))
        assert await here.ledger.check(at_rest=True) == []
        stage.clock.advance(CLAIM_KEPT_MS / 1000 + 1)
        await here.tend()
        assert (await soon(here.ledger.conversation(**ONCE))).id != made.id


IDLE = ResetPolicy.idle(3600)
LONG = 3600.0


async def run_by_key(process: StageProcess, text: str, answer: str = "Yes.", **policies: object) -> None:
    model = ScriptedModel([answer])
    await soon(process.ledger.run(model, text, conversation_key="k", **policies))  # type: ignore[arg-type]


class ConcurrentResets(Contract):
    @pytest.mark.parametrize("is_named", [False, True])
    async def test_concurrent_resets_yield_one_conversation(self, stage: Stage, is_named: bool) -> None:
        """Both saw the old conversation under the key before either wrote."""
        here, there = await stage.processes()
        old = await here.chat(conversation_key="k")
        replaces = old.id if is_named else None
        with here.store.hold(reset) as one, there.store.hold(reset) as other:
            tasks = [stage.start(each.ledger.reset("k", replaces=replaces)) for each in (here, there)]
            await stage.reach(one, tasks[0])
            await stage.reach(other, tasks[1])
            other.release()
            one.release()
            first, second = await soon(asyncio.gather(*tasks))
        assert first.id == second.id != old.id
        assert sorted([first.is_new, second.is_new]) == [False, True]
        assert len(await here.list_chats()) == 2

    async def test_concurrent_resets_of_an_unused_key_yield_one_conversation(self, stage: Stage) -> None:
        here, there = await stage.processes()
        with here.store.hold(reset) as one, there.store.hold(resolve_now) as other:
            resetting = stage.start(here.ledger.reset("k"))
            opening = stage.start(there.chat(conversation_key="k"))
            await stage.reach(one, resetting)
            await stage.reach(other, opening)
            other.release()
            opened = await soon(opening)
            one.release()
            made = await soon(resetting)
        assert made.id == opened.id
        assert opened.is_new
        assert not made.is_new

    async def test_concurrent_requests_after_idle_reset_yield_one_conversation(self, stage: Stage) -> None:
        here, there = await stage.processes()
        old = await here.chat(conversation_key="k", reset=IDLE)
        stage.clock.advance(LONG)
        with here.store.hold(begin) as one, there.store.hold(resolve_now) as other:
            running = stage.start(run_by_key(here, "q", "a"))
            opening = stage.start(there.chat(conversation_key="k"))
            await stage.reach(one, running)
            await stage.reach(other, opening)
            other.release()
            one.release()
            opened = await soon(opening)
            await soon(running)
        assert opened.id != old.id
        assert await message_texts(opened) == ["q", "a"]
        assert len(await here.list_chats()) == 2
