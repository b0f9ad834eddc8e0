"""Yours only: an id belongs to an owner; to anyone else it does not exist."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from turnledger.chat import Chat
from turnledger.errors import ConversationDeleted, ConversationNotFound, TurnNotFound
from turnledger.model.ids import TurnId
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.forgotten import USES
from turnledger.testing.store_contract.stage import Contract, Stage, StageProcess, exchange, said, soon

ALL_USES: dict[str, Callable[[Chat], Awaitable[Any]]] = {**USES, "delete": lambda chat: chat.delete()}

UNKNOWN_TURN = TurnId("turn_01890a5d000070008000000000000000")


async def as_seen_by(owner: str, process: StageProcess, chat: Chat) -> Chat:
    """The conversation in the hands of somebody who knows its id."""
    return Chat(process.ledger._process, msgspec.structs.replace(await chat.info(), owner=owner))


class YoursOnly(Contract):
    @pytest.mark.parametrize("use", ALL_USES.values(), ids=ALL_USES)
    async def test_to_another_owner_it_does_not_exist(
        self, stage: Stage, use: Callable[[Chat], Awaitable[Any]]
    ) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann", title="T")
        await exchange(chat, "q", "a")
        before, found = await chat.turns(), await chat.info()
        with pytest.raises(ConversationNotFound):
            await soon(use(await as_seen_by("eve", here, chat)))
        assert await chat.turns() == before
        assert await chat.info() == found

    async def test_neither_by_id_nor_by_key_nor_as_a_cursor(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann", conversation_key="k")
        with pytest.raises(ConversationNotFound):
            await here.ledger.conversation(chat.id, owner="eve")
        with pytest.raises(ConversationNotFound):
            await here.ledger.run(ScriptedModel(), "q", conversation=chat.id, owner="eve")
        with pytest.raises(ConversationNotFound):
            await here.chat(owner="eve", conversation_key="k", create=False)
        await here.chat(owner="ann")
        cursor = (await here.ledger.catalogue.list(owner="ann", limit=1)).next
        assert await here.listed(owner="eve", cursor=cursor) == []

    async def test_a_deleted_conversation_does_not_exist_to_others_either(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann")
        await chat.delete()
        with pytest.raises(ConversationNotFound):
            await here.ledger.conversation(chat.id, owner="eve")

    async def test_a_listing_shows_only_the_owners_conversations(self, stage: Stage) -> None:
        here = await stage.process()
        mine = [(await here.chat(owner="ann")).id for _ in range(2)]
        await here.chat(owner="eve")
        assert {each.id for each in await here.listed(owner="ann")} == set(mine)

    async def test_a_stop_of_another_owners_turn_finds_nothing(self, stage: Stage) -> None:
        here = await stage.process()
        chat, other = await here.chat(owner="ann"), await here.chat(owner="eve")
        turn = await exchange(chat, "q")
        holder = await stage.hold_lane(chat, "q1")
        waiting = await stage.queue(chat, ScriptedModel(["a2"]), "q2")
        [running] = await chat.attempts()
        [ticket] = await stage.tickets(chat)
        for name in (turn.id, running.attempt.id, ticket.attempt):
            assert await soon(other.stop(name)) is None
        await holder.finish()
        await soon(waiting)
        assert len(await chat.turns()) == 3

    async def test_the_conversation_of_a_turn_is_found_by_its_owner_alone(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(owner="ann", conversation_key="k")
        committed = await exchange(chat, "q")
        with pytest.raises(RuntimeError):
            await chat.run(ScriptedModel([RuntimeError("boom")]), "q1")
        await stage.hold_lane(chat, "q2")
        await stage.queue(chat, ScriptedModel(), "q3")
        aside = [each.attempt.id for each in await chat.attempts()]
        [ticket] = await stage.tickets(chat)
        for name in (committed.id, *aside, ticket.attempt):
            found = await there.ledger.chat_of(name, owner="ann")
            assert (found.id, found.conversation_key, found.is_new) == (chat.id, "k", False)
            for process in (here, there):
                with pytest.raises(TurnNotFound):
                    await process.ledger.chat_of(name, owner="eve")
        with pytest.raises(TurnNotFound):
            await here.ledger.chat_of(UNKNOWN_TURN, owner="ann")
        await chat.delete()
        with pytest.raises(ConversationDeleted):
            await there.ledger.chat_of(committed.id, owner="ann")
        with pytest.raises(TurnNotFound):
            await there.ledger.chat_of(committed.id, owner="eve")

    async def test_idempotency_keys_of_different_owners_are_different_keys(self, stage: Stage) -> None:
        here = await stage.process()
        for owner, text in (("ann", "hers"), ("ben", "his")):
            chat = await here.chat(owner=owner, conversation_key="k")
            await exchange(chat, text, text, idempotency_key="i")
            assert await said(chat) == [text, text]
        for owner, text in (("ann", "hers"), ("ben", "his")):
            run = here.ledger.run(
                ScriptedModel(), text, owner=owner, conversation_key="k", idempotency_key="i"
            )
            assert (await soon(run)).text == text

    async def test_a_failed_turn_is_not_resumed_by_another_owner(self, stage: Stage) -> None:
        here = await stage.process()
        model = ScriptedModel([Tool("pay", "paid"), RuntimeError("boom")], [Tool("pay", "paid"), "Done."])
        with pytest.raises(RuntimeError):
            await here.ledger.run(model, "q", owner="ann", idempotency_key="i")
        await soon(here.ledger.run(model, "q", owner="ben", idempotency_key="i"))
        assert model.executed == {"pay": 2}
