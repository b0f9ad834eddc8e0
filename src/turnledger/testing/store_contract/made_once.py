"""A conversation that is asked for under an idempotency_key is made once, by whomever and however often."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from turnledger.engine.attempt.end import CLAIM_KEPT_MS
from turnledger.engine.lifecycle.create import make
from turnledger.errors import ConversationDeleted, IdempotencyMismatch
from turnledger.testing.gates import Fate
from turnledger.testing.store_contract.stage import Contract, Stage, soon

ONCE: dict[str, Any] = {"idempotency_key": "once"}


class MadeOnce(Contract):
    async def test_what_is_asked_for_again_is_the_same_one(self, stage: Stage) -> None:
        here, there = await stage.processes()
        made = await soon(here.ledger.conversation(title="T", metadata={"a": "b", "c": "d"}, **ONCE))
        again = await soon(there.ledger.conversation(title="T", metadata={"c": "d", "a": "b"}, **ONCE))
        assert (again.id, made.is_new, again.is_new) == (made.id, True, False)
        changes: list[dict[str, Any]] = [{"title": "U"}, {"tags": ["t"]}, {"scope": "s"}, {"internal": True}]
        for changed in changes:
            with pytest.raises(IdempotencyMismatch):
                await soon(here.ledger.conversation(**{"title": "T", **changed}, **ONCE))
        assert len((await here.ledger.catalogue.list()).chats) == 1

    async def test_many_at_once_are_one(self, stage: Stage) -> None:
        here, there = await stage.processes()
        asking = [each.ledger.conversation(**ONCE) for each in (here, there, here, there)]
        made = await asyncio.gather(*map(soon, asking))
        assert len({each.id for each in made}) == 1
        assert [each.is_new for each in made].count(True) == 1

    @pytest.mark.parametrize("fate", Fate)
    async def test_one_whose_answer_is_lost_is_made_once(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process()
        here.store.lose_answer(make, fate, fate)
        made = await soon(here.ledger.conversation(**ONCE))
        again = await soon(here.ledger.conversation(**ONCE))
        assert (again.id, made.is_new) == (made.id, True)
        assert len((await here.ledger.catalogue.list()).chats) == 1

    async def test_one_that_a_conversation_key_names_is_found_and_stays_so(self, stage: Stage) -> None:
        here = await stage.process()
        named = await here.chat(conversation_key="k")
        found = await soon(here.ledger.conversation(conversation_key="k", **ONCE))
        assert (found.id, found.is_new) == (named.id, False)
        await here.ledger.reset("k")
        assert (await soon(here.ledger.conversation(conversation_key="k", **ONCE))).id == named.id

    async def test_one_that_was_deleted_is_not_made_again(self, stage: Stage) -> None:
        here = await stage.process()
        await (await soon(here.ledger.conversation(**ONCE))).delete()
        with pytest.raises(ConversationDeleted):
            await soon(here.ledger.conversation(**ONCE))

    async def test_the_key_is_forgotten_after_its_time_and_all_is_as_it_should_be(self, stage: Stage) -> None:
        here = await stage.process()
        made = await soon(here.ledger.conversation(**ONCE))
        assert await here.ledger.check(at_rest=True) == []
        stage.clock.advance(CLAIM_KEPT_MS / 1000 + 1)
        await here.tend()
        assert (await soon(here.ledger.conversation(**ONCE))).id != made.id
