"""Yours only: outside its owner, scope or chat an id does not exist."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from turnledger.chat import Chat
from turnledger.engine.attempt.client_retries import Retry
from turnledger.errors import (
    ConversationDeleted,
    ConversationNotFound,
    IdempotencyMismatch,
    InvalidInput,
    TurnNotFound,
    TurnReplayed,
)
from turnledger.hosting import Host
from turnledger.model.conversation import Conversation, Within
from turnledger.model.ids import TurnId
from turnledger.testing.scripted_model import ScriptedModel
from turnledger.testing.store_contract.missing_conversations import UNKNOWN_TURN, USES
from turnledger.testing.store_contract.stage import (
    Contract,
    Stage,
    StageProcess,
    exchange,
    expect_refusal,
    message_texts,
    run_block,
    soon,
    user,
)

ALL_USES: dict[str, Callable[[Chat], Awaitable[Any]]] = {**USES, "delete": lambda chat: chat.delete()}


async def as_seen_by(owner: str, process: StageProcess, chat: Chat) -> Chat:
    """Open the conversation as another owner that knows its id."""
    return Chat(process.ledger._process, msgspec.structs.replace(await chat.info(), owner=owner))


class OwnerIsolation(Contract):
    async def test_conversation_of_another_owner_is_not_found_by_any_use(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann", title="T")
        await exchange(chat, "q", "a")
        before, found = await chat.turns(), await chat.info()
        for name, use in ALL_USES.items():
            await expect_refusal(name, use(await as_seen_by("eve", here, chat)), ConversationNotFound)
        assert await chat.turns() == before
        assert await chat.info() == found

    async def test_conversation_of_another_owner_is_not_found_by_id_key_or_cursor(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann", conversation_key="k")
        with pytest.raises(ConversationNotFound):
            await here.ledger.for_owner("eve").conversation(chat.id)
        with pytest.raises(ConversationNotFound):
            await here.ledger.for_owner("eve").run(ScriptedModel(), "q", conversation=chat.id)
        with pytest.raises(ConversationNotFound):
            await here.chat(owner="eve", conversation_key="k", create=False)
        await here.chat(owner="ann")
        cursor = (await here.ledger.for_owner("ann").list(limit=1)).next
        assert await here.list_chats(owner="eve", cursor=cursor) == []

    async def test_deleted_conversation_of_another_owner_is_not_found(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(owner="ann")
        await chat.delete()
        with pytest.raises(ConversationNotFound):
            await here.ledger.for_owner("eve").conversation(chat.id)

    async def test_stop_of_another_owners_turn_finds_nothing(self, stage: Stage) -> None:
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

    async def test_conversation_of_a_turn_is_found_by_its_owner_only(self, stage: Stage) -> None:
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
            found = await there.ledger.for_owner("ann").of_turn(name)
            assert (found.id, found.conversation_key, found.is_new) == (chat.id, "k", False)
            for process in (here, there):
                with pytest.raises(TurnNotFound):
                    await process.ledger.for_owner("eve").of_turn(name)
        with pytest.raises(TurnNotFound):
            await here.ledger.for_owner("ann").of_turn(UNKNOWN_TURN)
        await chat.delete()
        with pytest.raises(ConversationDeleted):
            await there.ledger.for_owner("ann").of_turn(committed.id)
        with pytest.raises(TurnNotFound):
            await there.ledger.for_owner("eve").of_turn(committed.id)

    async def test_idempotency_keys_of_two_owners_are_independent(self, stage: Stage) -> None:
        here = await stage.process()
        for owner, text in (("ann", "anns"), ("ben", "bens")):
            chat = await here.chat(owner=owner, conversation_key="k")
            await exchange(chat, text, text, idempotency_key="i")
            assert await message_texts(chat) == [text, text]
        for owner, text in (("ann", "anns"), ("ben", "bens")):
            run = here.ledger.for_owner(owner).run(
                ScriptedModel(), text, conversation_key="k", idempotency_key="i"
            )
            assert (await soon(run)).text == text


ANN: dict[str, Any] = {"owner": "ann"}
SHOP: dict[str, Any] = {"owner": "ann", "within": Within("shop")}
ANOTHER = [user("q1"), {"role": "assistant", "content": "never said"}, user("q2")]
REQUEST = b"the same request"
Use = Callable[[StageProcess, Chat, TurnId], Awaitable[Any]]


BY_ID: dict[str, Use] = {
    "conversation": lambda here, chat, turn: here.ledger.for_owner(**SHOP).conversation(chat.id),
    "turn": lambda here, chat, turn: run_block(here.ledger.for_owner(**SHOP).turn("q", conversation=chat.id)),
    "run": lambda here, chat, turn: here.ledger.for_owner(**SHOP).run(
        ScriptedModel(), "q", conversation=chat.id
    ),
    "resent": lambda here, chat, turn: run_block(
        here.ledger.for_owner(**SHOP).resent(ANOTHER, conversation=chat.id)
    ),
    "resent, refused if another": lambda here, chat, turn: run_block(
        here.ledger.for_owner(**SHOP).resent(ANOTHER, conversation=chat.id, on_divergence="reject")
    ),
    "with its idempotency_key": lambda here, chat, turn: run_block(
        here.ledger.for_owner(**SHOP).turn("q1", conversation=chat.id, idempotency_key="i")
    ),
    "as a later try": lambda here, chat, turn: run_block(
        here.ledger.for_owner(**SHOP).turn("q1", conversation=chat.id, retry=Retry(REQUEST, 1))
    ),
    "a reset that replaces it": lambda here, chat, turn: here.ledger.for_owner(**SHOP).reset(
        "k", replaces=chat.id
    ),
}


ELSEWHERE = ("", "desk")


def names_of(found: list[Conversation]) -> list[str | None]:
    return [each.title for each in found]


class ScopeIsolation(Contract):
    async def test_conversation_keys_of_two_scopes_are_independent(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chats = [await here.chat(conversation_key="k", scope=scope, **ANN) for scope in ("", "shop", "desk")]
        assert len({chat.id for chat in chats}) == 3
        assert [chat.scope for chat in chats] == ["", "shop", "desk"]
        for chat in chats:
            same = await there.chat(conversation_key="k", scope=chat.scope, create=False, **ANN)
            assert (same.id, same.scope) == (chat.id, chat.scope)
            assert (await same.info()).scope == chat.scope
        with pytest.raises(ConversationNotFound):
            await here.chat(conversation_key="k", scope="other", create=False, **ANN)

    async def test_caller_restricted_to_a_scope_creates_and_finds_there(self, stage: Stage) -> None:
        here = await stage.process()
        await here.chat(conversation_key="k", **ANN)
        made = await here.chat(conversation_key="k", **SHOP)
        assert (made.scope, made.is_new) == ("shop", True)
        assert (await here.chat(conversation_key="k", scope="shop", **ANN)).id == made.id
        turn = await soon(here.ledger.for_owner(**SHOP).run(ScriptedModel(["a"]), "q"))
        assert (await here.ledger.for_owner(**ANN).of_turn(turn.id)).scope == "shop"
        assert (await here.ledger.for_owner(**SHOP).of_turn(turn.id)).scope == "shop"

    @pytest.mark.parametrize("scope", ELSEWHERE)
    async def test_conversation_of_another_scope_is_not_found_by_any_use(
        self, stage: Stage, scope: str
    ) -> None:
        here = await stage.process()
        chat = await here.chat(conversation_key="k", scope=scope, **ANN)
        block = here.ledger.for_owner(scope=scope, **ANN).turn(
            "q1", conversation_key="k", retry=Retry(REQUEST)
        )
        turn = await run_block(block)
        Host(here.ledger).lost(block)
        await exchange(chat, "q1", idempotency_key="i")
        before, found = await chat.turns(), await chat.info()
        for deleted in (False, True):
            for name, use in BY_ID.items():
                await expect_refusal(name, use(here, chat, turn.id), ConversationNotFound)
            if not deleted:
                assert await chat.turns() == before
                assert await chat.info() == found
                await chat.delete()

    async def test_turns_of_another_scope_are_not_found(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(scope="desk", **ANN)
        committed = await exchange(chat, "q")
        with pytest.raises(RuntimeError):
            await chat.run(ScriptedModel([RuntimeError("boom")]), "q1")
        await stage.hold_lane(chat, "q2")
        await stage.queue(chat, ScriptedModel(), "q3")
        aside = [each.attempt.id for each in await chat.attempts()]
        [ticket] = await stage.tickets(chat)
        names = (committed.id, *aside, ticket.attempt)
        own = await here.chat(**SHOP)
        for name in names:
            assert (await there.ledger.for_owner("ann", within=Within("desk")).of_turn(name)).id == chat.id
            with pytest.raises(TurnNotFound):
                await there.ledger.for_owner(**SHOP).of_turn(name)
            assert await soon(own.stop(name)) is None
            with pytest.raises(TurnNotFound):
                await soon(anext(aiter(own.events(name))))
            with pytest.raises(TurnNotFound):
                await soon(own.outcome(name))
        for use in (own.flag, own.flags, own.siblings, own.fork):
            with pytest.raises(TurnNotFound):
                await use(committed.id)
        await chat.delete()
        with pytest.raises(TurnNotFound):
            await there.ledger.for_owner(**SHOP).of_turn(committed.id)
        with pytest.raises(ConversationDeleted):
            await there.ledger.for_owner(**ANN).of_turn(committed.id)

    async def test_list_shows_all_scopes_or_one(self, stage: Stage) -> None:
        here = await stage.process()
        for number, scope in enumerate(("", "shop", "desk", "shop", "", "shop")):
            stage.clock.advance(1)
            await here.chat(title=str(number), scope=scope, **ANN)
        await here.chat(title="hidden", internal=True, scope="shop", **ANN)
        await here.chat(title="eve's", scope="shop", owner="eve")
        list_chats = here.list_chats
        assert names_of(await list_chats(**ANN)) == ["5", "4", "3", "2", "1", "0"]
        assert names_of(await list_chats(scope="", **ANN)) == ["4", "0"]
        assert names_of(await list_chats(scope="shop", **ANN)) == ["5", "3", "1"]
        assert names_of(await list_chats(**SHOP)) == ["5", "3", "1"]
        assert names_of(await list_chats(owner="ann", within=Within(""))) == ["4", "0"]
        narrows: list[dict[str, Any]] = [{"scope": ""}, {"within": Within("shop")}]
        for narrow in narrows:
            chats = here.ledger.for_owner(**ANN, **narrow)
            whole, page = await chats.list(), await chats.list(limit=1)
            paged = page.chats
            while page.next:
                page = await chats.list(limit=1, cursor=page.next)
                paged += page.chats
            assert paged == whole.chats

    async def test_reset_stays_in_its_scope(self, stage: Stage) -> None:
        here, there = await stage.processes()
        plain = await here.chat(conversation_key="k", **ANN)
        shop = await here.chat(conversation_key="k", **SHOP)
        fresh = await there.ledger.for_owner(**SHOP).reset("k")
        assert (fresh.scope, fresh.is_new) == ("shop", True)
        assert (await there.ledger.for_owner(**SHOP).reset("k", replaces=shop.id)).id == fresh.id
        assert (await here.chat(conversation_key="k", **ANN)).id == plain.id
        assert (await here.chat(conversation_key="k", **SHOP)).id == fresh.id
        with pytest.raises(InvalidInput):
            await here.ledger.for_owner(scope="shop", **ANN).reset("k", replaces=plain.id)

    async def test_fork_has_the_scope_of_its_source(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(**SHOP)
        turn = await exchange(chat, "q")
        await here.chat(conversation_key="k", **ANN)
        made = await chat.fork(conversation_key="k")
        assert made.scope == "shop"
        assert (await made.info()).scope == "shop"
        assert (await here.chat(conversation_key="k", **SHOP)).id == made.id
        assert [each.id for each in await made.turns()] == [turn.id]
        with pytest.raises(InvalidInput):
            await chat.fork(conversation_key="k")
        await exchange(made, "next", idempotency_key="i")
        with pytest.raises(TurnReplayed):
            await run_block(
                here.ledger.for_owner(**SHOP).turn("next", conversation=made.id, idempotency_key="i")
            )


class ScopedIdempotency(Contract):
    async def test_idempotency_key_used_in_another_scope_is_not_replayed(self, stage: Stage) -> None:
        here, there = await stage.processes()
        others: list[dict[str, Any]] = [{}, {"within": Within("desk")}, {"scope": "shop"}]
        for narrow in others:
            chat = await here.chat(**ANN, **narrow)
            await exchange(chat, "other words", idempotency_key="i")
            turn = await soon(
                here.ledger.for_owner(**SHOP).run(ScriptedModel(["a"]), "q", idempotency_key="i")
            )
            again = await soon(there.ledger.for_owner(**SHOP).run(ScriptedModel(), "q", idempotency_key="i"))
            assert again == turn
            await chat.delete()
            await here.tend()
            assert (
                await soon(there.ledger.for_owner(**SHOP).run(ScriptedModel(), "q", idempotency_key="i"))
                == turn
            )
            await (await here.ledger.for_owner(**SHOP).of_turn(turn.id)).delete()
            with pytest.raises(ConversationDeleted):
                await soon(there.ledger.for_owner(**SHOP).run(ScriptedModel(), "q", idempotency_key="i"))
            stage.clock.advance(25 * 3600)
            await here.tend()

    async def test_idempotency_key_reused_in_another_scope_by_one_caller_is_refused(
        self, stage: Stage
    ) -> None:
        here = await stage.process()
        options: dict[str, Any] = {"idempotency_key": "i"}
        shop, desk = [here.ledger.for_owner(**ANN, scope=scope) for scope in ("shop", "desk")]
        await soon(shop.run(ScriptedModel(["a"]), "q", **options))
        names: list[dict[str, Any]] = [{}, {"conversation_key": "k"}]
        for named in names:
            with pytest.raises(IdempotencyMismatch):
                await soon(desk.run(ScriptedModel(), "q", **named, **options))
        assert len(await here.list_chats(**ANN)) == 1

    async def test_request_does_not_attach_to_a_turn_of_another_scope(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(**ANN)
        holder = await stage.hold_lane(chat, "q", idempotency_key="i", retry=Retry(REQUEST))
        own = await there.chat(**SHOP)
        await exchange(own, "q", "mine", idempotency_key="i")
        await exchange(own, "q", "mine again", retry=Retry(REQUEST, 1))
        assert await message_texts(own) == ["q", "mine", "q", "mine again"]
        await holder.finish()

    async def test_retry_finds_the_request_of_its_own_scope_only(self, stage: Stage) -> None:
        here, there = await stage.processes()
        shop, desk = [await here.chat(owner="ann", within=Within(scope)) for scope in ("shop", "desk")]
        block = shop.turn("q", retry=Retry(REQUEST))
        turn = await run_block(block, "first")
        Host(here.ledger).lost(block)
        await here.tend()
        await exchange(desk, "q", "another", retry=Retry(REQUEST, 1))
        same = await there.ledger.for_owner(**SHOP).conversation(shop.id)
        with pytest.raises(TurnReplayed) as replay:
            await run_block(same.turn("q", retry=Retry(REQUEST, 1)))
        assert replay.value.turn == turn
        assert await message_texts(desk) == ["q", "another"]


ChatUse = Callable[[StageProcess, Chat, TurnId, dict[str, Any]], Awaitable[Any]]


BEYOND: dict[str, ChatUse] = {
    "conversation": lambda here, chat, turn, one: here.ledger.for_owner(**one).conversation(chat.id),
    "conversation by key": lambda here, chat, turn, one: here.ledger.for_owner(**one).conversation(
        conversation_key="k"
    ),
    "a new conversation": lambda here, chat, turn, one: here.ledger.for_owner(**one).conversation(),
    "a new key": lambda here, chat, turn, one: here.ledger.for_owner(**one).conversation(
        conversation_key="new"
    ),
    "turn": lambda here, chat, turn, one: run_block(
        here.ledger.for_owner(**one).turn("q", conversation=chat.id)
    ),
    "turn by key": lambda here, chat, turn, one: run_block(
        here.ledger.for_owner(**one).turn("q", conversation_key="k")
    ),
    "a turn of its own": lambda here, chat, turn, one: run_block(here.ledger.for_owner(**one).turn("q")),
    "run": lambda here, chat, turn, one: here.ledger.for_owner(**one).run(
        ScriptedModel(), "q", conversation=chat.id
    ),
    "resent": lambda here, chat, turn, one: run_block(
        here.ledger.for_owner(**one).resent([user("q1")], conversation=chat.id)
    ),
    "with its idempotency_key": lambda here, chat, turn, one: run_block(
        here.ledger.for_owner(**one).turn("q1", conversation=chat.id, idempotency_key="i")
    ),
}


REFUSED: dict[str, ChatUse] = {
    "a reset": lambda here, chat, turn, one: here.ledger.for_owner(**one).reset("k"),
    "a reset that replaces": lambda here, chat, turn, one: here.ledger.for_owner(**one).reset(
        "k", replaces=chat.id
    ),
    "a fork": lambda here, chat, turn, one: fork_of(here, one),
}


async def fork_of(here: StageProcess, one: dict[str, Any]) -> Chat:
    return await (await here.ledger.for_owner(**one).conversation(one["within"].chat)).fork()


class ChatIsolation(Contract):
    async def scene(self, stage: Stage) -> tuple[StageProcess, Chat, Chat, TurnId, dict[str, Any]]:
        here = await stage.process()
        shown = await here.chat(owner="ann", scope="shop")
        await exchange(shown, "s1", "t1")
        other = await here.chat(owner="ann", scope="shop", conversation_key="k")
        turn = await run_block(other.turn("q1", idempotency_key="i"))
        return here, shown, other, turn.id, {"owner": "ann", "within": Within(chat=shown.id)}

    async def test_caller_restricted_to_a_chat_finds_no_other_chat(self, stage: Stage) -> None:
        here, shown, other, turn, one = await self.scene(stage)
        for name, use in BEYOND.items():
            await expect_refusal(name, use(here, other, turn, one), ConversationNotFound)
        assert len(await here.list_chats(owner="ann")) == 2
        assert (await message_texts(shown), len(await other.turns())) == (["s1", "t1"], 1)

    async def test_caller_restricted_to_a_chat_creates_no_chat(self, stage: Stage) -> None:
        here, _, other, turn, one = await self.scene(stage)
        for name, use in REFUSED.items():
            await expect_refusal(name, use(here, other, turn, one), InvalidInput, "restricted to one chat")
        assert len(await here.list_chats(owner="ann")) == 2

    async def test_caller_restricted_to_a_chat_finds_it_by_id_and_turn(self, stage: Stage) -> None:
        here, shown, _, turn, one = await self.scene(stage)
        found = await here.ledger.for_owner(**one).conversation(shown.id)
        [turn_of_chat] = await found.turns()
        assert (await here.ledger.for_owner(**one).of_turn(turn_of_chat.id)).id == shown.id
        assert [each.id for each in await here.list_chats(**one)] == [shown.id]
        with pytest.raises(TurnNotFound):
            await here.ledger.for_owner(**one).of_turn(turn)
        nowhere: dict[str, Any] = {"owner": "ann", "within": Within("desk", shown.id)}
        with pytest.raises(ConversationNotFound):
            await here.ledger.for_owner(**nowhere).conversation(shown.id)
        with pytest.raises(ConversationNotFound):
            await here.ledger.for_owner("eve", within=Within(chat=shown.id)).conversation(shown.id)

    async def test_caller_restricted_to_a_chat_finds_it_by_its_key_only(self, stage: Stage) -> None:
        here, _, other, _, _ = await self.scene(stage)
        one: dict[str, Any] = {"owner": "ann", "scope": "shop", "within": Within(chat=other.id)}
        assert (await here.ledger.for_owner(**one).conversation(conversation_key="k")).id == other.id
        with pytest.raises(ConversationNotFound):
            await here.ledger.for_owner("ann", within=one["within"]).conversation(conversation_key="k")
        await run_block(here.ledger.for_owner(**one).turn("q2", conversation_key="k"), "a2")
        assert len(await other.turns()) == 2

    async def test_caller_restricted_to_a_chat_has_its_own_idempotency_keys(self, stage: Stage) -> None:
        here, _, other, turn, _ = await self.scene(stage)
        alone = await here.ledger.for_owner("ann", within=Within(chat=other.id)).conversation(other.id)
        first = await run_block(alone.turn("q1", idempotency_key="i"))
        assert first.id != turn
        with pytest.raises(TurnReplayed) as replay:
            await run_block(alone.turn("q1", idempotency_key="i"))
        assert replay.value.turn.id == first.id
        block = other.turn("q", retry=Retry(b"the same"))
        await run_block(block)
        Host(here.ledger).lost(block)
        await here.tend()
        assert (await run_block(alone.turn("q", retry=Retry(b"the same", 1)))).number == 4
