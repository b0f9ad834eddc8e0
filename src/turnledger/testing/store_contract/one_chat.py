"""One chat: callers who may see a single conversation, and nothing else of its owner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from turnledger.chat import Chat
from turnledger.engine.attempt.client_retries import Retry
from turnledger.errors import ConversationNotFound, InvalidInput, TurnNotFound, TurnReplayed
from turnledger.model.conversation import Within
from turnledger.model.ids import TurnId
from turnledger.testing.scripted_model import ScriptedModel
from turnledger.testing.store_contract.stage import Contract, Stage, StageProcess, exchange, said, tell, user

Use = Callable[[StageProcess, Chat, TurnId, dict[str, Any]], Awaitable[Any]]

BEYOND: dict[str, Use] = {
    "conversation": lambda here, chat, turn, one: here.ledger.conversation(chat.id, **one),
    "conversation by key": lambda here, chat, turn, one: here.ledger.conversation(
        conversation_key="k", **one
    ),
    "a new conversation": lambda here, chat, turn, one: here.ledger.conversation(**one),
    "a new key": lambda here, chat, turn, one: here.ledger.conversation(conversation_key="new", **one),
    "turn": lambda here, chat, turn, one: tell(here.ledger.turn("q", conversation=chat.id, **one)),
    "turn by key": lambda here, chat, turn, one: tell(here.ledger.turn("q", conversation_key="k", **one)),
    "a turn of its own": lambda here, chat, turn, one: tell(here.ledger.turn("q", **one)),
    "run": lambda here, chat, turn, one: here.ledger.run(ScriptedModel(), "q", conversation=chat.id, **one),
    "resent": lambda here, chat, turn, one: tell(
        here.ledger.resent([user("q1")], conversation=chat.id, **one)
    ),
    "with its idempotency_key": lambda here, chat, turn, one: tell(
        here.ledger.turn("q1", conversation=chat.id, idempotency_key="i", **one)
    ),
}
REFUSED: dict[str, Use] = {
    "a reset": lambda here, chat, turn, one: here.ledger.reset("k", **one),
    "a reset that replaces": lambda here, chat, turn, one: here.ledger.reset("k", replaces=chat.id, **one),
    "a fork": lambda here, chat, turn, one: fork_of(here, one),
}


async def fork_of(here: StageProcess, one: dict[str, Any]) -> Chat:
    return await (await here.ledger.conversation(one["within"].chat, **one)).fork()


class OneChat(Contract):
    """What lies beside the conversation does not exist."""

    async def scene(self, stage: Stage) -> tuple[StageProcess, Chat, Chat, TurnId, dict[str, Any]]:
        here = await stage.process()
        shown = await here.chat(owner="ann", scope="shop")
        await exchange(shown, "s1", "t1")
        other = await here.chat(owner="ann", scope="shop", conversation_key="k")
        turn = await tell(other.turn("q1", idempotency_key="i"))
        return here, shown, other, turn.id, {"owner": "ann", "within": Within(chat=shown.id)}

    @pytest.mark.parametrize("use", BEYOND)
    async def test_what_is_beside_it_does_not_exist(self, stage: Stage, use: str) -> None:
        here, shown, other, turn, one = await self.scene(stage)
        with pytest.raises(ConversationNotFound):
            await BEYOND[use](here, other, turn, one)
        assert len(await here.listed(owner="ann")) == 2
        assert (await said(shown), len(await other.turns())) == (["s1", "t1"], 1)

    @pytest.mark.parametrize("use", REFUSED)
    async def test_nothing_is_made_beside_it(self, stage: Stage, use: str) -> None:
        here, _, other, turn, one = await self.scene(stage)
        with pytest.raises(InvalidInput, match="Only one conversation is open here"):
            await REFUSED[use](here, other, turn, one)
        assert len(await here.listed(owner="ann")) == 2

    async def test_it_is_found_by_its_id_and_its_turns_and_alone(self, stage: Stage) -> None:
        here, shown, _, turn, one = await self.scene(stage)
        found = await here.ledger.conversation(shown.id, **one)
        [told] = await found.turns()
        assert (await here.ledger.chat_of(told.id, **one)).id == shown.id
        assert [each.id for each in await here.listed(**one)] == [shown.id]
        with pytest.raises(TurnNotFound):
            await here.ledger.chat_of(turn, **one)
        nowhere: dict[str, Any] = {"owner": "ann", "within": Within("desk", shown.id)}
        with pytest.raises(ConversationNotFound):
            await here.ledger.conversation(shown.id, **nowhere)
        with pytest.raises(ConversationNotFound):
            await here.ledger.conversation(shown.id, owner="eve", within=Within(chat=shown.id))

    async def test_its_key_names_it_and_no_other(self, stage: Stage) -> None:
        here, _, other, _, _ = await self.scene(stage)
        one: dict[str, Any] = {"owner": "ann", "scope": "shop", "within": Within(chat=other.id)}
        assert (await here.ledger.conversation(conversation_key="k", **one)).id == other.id
        with pytest.raises(ConversationNotFound):
            await here.ledger.conversation(conversation_key="k", owner="ann", within=one["within"])
        await tell(here.ledger.turn("q2", conversation_key="k", **one), "a2")
        assert len(await other.turns()) == 2

    async def test_keys_of_requests_are_its_own(self, stage: Stage) -> None:
        here, _, other, turn, _ = await self.scene(stage)
        alone = await here.ledger.conversation(other.id, owner="ann", within=Within(chat=other.id))
        first = await tell(alone.turn("q1", idempotency_key="i"))
        assert first.id != turn
        with pytest.raises(TurnReplayed) as replay:
            await tell(alone.turn("q1", idempotency_key="i"))
        assert replay.value.turn.id == first.id
        asked = other.turn("q", retry=Retry(b"the same"))
        await tell(asked)
        here.ledger.lost(asked)
        await here.tend()
        assert (await tell(alone.turn("q", retry=Retry(b"the same", 1)))).number == 4
