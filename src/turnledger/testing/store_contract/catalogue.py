"""The catalogue: lists that stay stable while chats change, and entries that each commit writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from turnledger.chat import Chat
from turnledger.engine.turn.commit import commit
from turnledger.errors import InvalidInput
from turnledger.model.catalogue import ChatEntry
from turnledger.model.ids import ConversationId
from turnledger.model.reset_policy import ResetPolicy
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.stage import Contract, Stage, StageProcess, chats_of, exchange, soon

BOOM = RuntimeError("boom")
IDLE = ResetPolicy.idle(30)


async def only(process: StageProcess, **wanted: Any) -> ChatEntry:
    [listed] = (await chats_of(process.ledger, wanted).list(**wanted)).chats
    return listed


async def titles(process: StageProcess, **wanted: Any) -> list[str]:
    return [each.title or "" for each in await process.list_chats(**wanted)]


class CatalogueEntries(Contract):
    async def test_chat_created_by_a_turn_is_listed_from_its_commit(self, stage: Stage) -> None:
        here, there = await stage.processes()
        with here.store.hold(commit) as gate:
            task = stage.start(here.ledger.run(ScriptedModel(["a"]), "q", conversation_key="k"))
            await stage.reach(gate, task)
            assert await there.list_chats() == []
            assert (await there.chat(conversation_key="k")).is_new is False
        await soon(task)
        listed = await only(there)
        assert (listed.conversation.conversation_key, listed.turns, listed.is_running) == ("k", 1, False)

    async def test_chat_of_a_failed_turn_is_listed_by_the_next_commit(self, stage: Stage) -> None:
        here, there = await stage.processes()
        with pytest.raises(RuntimeError):
            await here.ledger.run(ScriptedModel([BOOM]), "q", conversation_key="k")
        assert await there.list_chats() == []
        turn = await soon(there.ledger.run(ScriptedModel(["a"]), "q2", conversation_key="k"))
        listed = await only(here)
        assert (listed.turns, listed.preview, listed.conversation.title) == (1, turn.text, "q2")

    async def test_chat_with_a_kept_or_settled_turn_is_listed(self, stage: Stage) -> None:
        here, there = await stage.processes()
        async with here.ledger.turn("Kept.", conversation_key="kept") as turn:
            turn.emit("So f")
            turn.stop()
        assert (await only(there)).preview == "So f"
        with pytest.raises(RuntimeError):
            await here.ledger.run(ScriptedModel([Tool("pay"), BOOM]), "Pay.", conversation_key="k")
        assert len(await there.list_chats()) == 1
        with pytest.raises(RuntimeError):
            await there.ledger.run(ScriptedModel([BOOM]), "Go on.", conversation_key="k")
        settled = next(
            each for each in (await here.ledger.list()).chats if each.conversation.conversation_key == "k"
        )
        assert (settled.turns, settled.preview, settled.conversation.title) == (1, "Pay.", "Pay.")

    async def test_turn_without_interaction_lists_its_chat_with_its_old_time(self, stage: Stage) -> None:
        here, there = await stage.processes()
        began = stage.clock.now_ms()
        async with here.ledger.turn("q", conversation_key="k", interaction=False) as turn:
            stage.clock.advance(5)
            turn.emit("a")
        listed = await only(there)
        assert (listed.conversation.touched_at, listed.turns) == (began, 1)

    async def test_chat_created_without_a_turn_is_listed_at_once(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T")
        forked = await chat.fork(title="F")
        reset = await here.ledger.reset("k")
        assert {each.id for each in await there.list_chats()} == {chat.id, forked.id, reset.id}

    async def test_list_order_follows_the_last_turn_of_each_chat(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chats = [await here.chat(title=title) for title in "abcd"]
        await chats[1].update(archived=True)
        used, dice = list("abcd"), Random(4)
        for _ in range(20):
            stage.clock.advance(dice.choice((0.5, 10, 70)))
            chat = dice.choice(chats[:3])
            for _ in range(dice.choice((1, 3))):
                stage.clock.advance(0.1)
                await exchange(chat, "q")
            title = chat.as_opened.title
            assert title is not None
            used.remove(title)
            used.insert(0, title)
            assert "".join(await titles(there, archived=None)).startswith(used[0])
        assert await titles(there, archived=None) == [*used[:3], "d"]

    async def test_reset_policy_that_is_given_late_counts_from_the_last_turn(self, stage: Stage) -> None:
        here, _ = await stage.processes()
        chat = await here.chat(conversation_key="k")
        for pause in (0, 50, 20):
            stage.clock.advance(pause)
            found = await here.ledger.conversation(conversation_key="k", reset=IDLE if pause == 20 else None)
            assert found.id == chat.id
            await exchange(found, "q")
        stage.clock.advance(40)
        assert (await here.ledger.conversation(conversation_key="k")).id != chat.id


class CatalogueFilters(Contract):
    async def test_list_by_a_tag_in_any_spelling_continues_at_its_cursor(self, stage: Stage) -> None:
        here, there = await stage.processes()
        for title in "abcd":
            stage.clock.advance(1)
            await here.chat(title=title, tags=["Été"] if title != "b" else ["été"])
        page = await there.ledger.list(tag="E\u0301te\u0301", limit=2)
        assert [each.conversation.title for each in page.chats] == ["d", "c"]
        assert await titles(there, tag="Été", cursor=page.next) == ["a"]
        assert await titles(there, tag="Été", owner="eve") == []

    async def test_tags_are_replaced_as_a_whole(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T", tags=["a", "b", "a "])
        assert (await chat.info()).tags == ("a", "b")
        await (await there.chat(chat)).update(tags=["b", "c"])
        assert [await titles(here, tag=tag) for tag in "abc"] == [[], ["T"], ["T"]]
        await chat.update(tags=[])
        assert [await titles(there, tag=tag) for tag in "abc"] == [[], [], []]

    async def test_invalid_tag_is_refused(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        tags: list[Any] = [[""], [" "], ["a\nb"], ["x" * 65], [1], "work", [str(each) for each in range(17)]]
        for given in tags:
            with pytest.raises(InvalidInput):
                await chat.update(tags=given)
        with pytest.raises(InvalidInput):
            await here.ledger.list(tag="\x00")
        assert (await chat.info()).revision == 1


class CataloguePages(Contract):
    async def test_cursor_works_after_its_chat_is_deleted(self, stage: Stage) -> None:
        here, there = await stage.processes()
        for title in "abcd":
            stage.clock.advance(1)
            await here.chat(title=title)
        page = await here.ledger.list(limit=2)
        named = await here.ledger.conversation(page.chats[-1].conversation.id)
        stage.clock.advance(1)
        await exchange(named, "q")
        assert await titles(there, cursor=page.next) == ["b", "a"]
        await named.delete(purge=True)
        assert await titles(there, cursor=page.next) == ["b", "a"]

    async def test_pages_read_during_changes_show_each_unused_chat_once(self, stage: Stage) -> None:
        processes = await stage.processes()
        for seed in range(12):
            walk = Walk(stage, Random(seed), *processes)
            await walk.settle(count=14)
            await walk.go(size=walk.random.randint(1, 4))


class Walk:
    """A reader of a list, page by page, while other clients use, change, create and delete chats."""

    def __init__(self, stage: Stage, random: Random, here: StageProcess, there: StageProcess) -> None:
        self._stage, self.random, self._here, self._there = stage, random, here, there
        self._chats: dict[ConversationId, Chat] = {}
        self._used: set[ConversationId] = set()
        """Used, created or deleted since the walk began."""

    async def settle(self, count: int) -> None:
        for _ in range(count):
            await self._make()
        self._used.clear()

    async def go(self, size: int) -> None:
        seen: list[ConversationId] = []
        cursor: str | None = None
        while True:
            page = await self._here.ledger.list(limit=size, cursor=cursor, archived=None)
            seen += [each.conversation.id for each in page.chats]
            if page.next is None:
                break
            cursor = page.next
            for _ in range(self.random.randint(0, 3)):
                await self._change()
        assert len(set(seen)) == len(seen)
        assert set(self._chats) - self._used <= set(seen)

    async def _change(self) -> None:
        self._stage.clock.advance(self.random.choice([0, 0, 0.001, 1]))
        changes: tuple[Callable[[], Awaitable[None]], ...] = (self._make, self._use, self._mark, self._delete)
        await self.random.choice(changes)()

    async def _make(self) -> None:
        self._stage.clock.advance(self.random.choice([0, 0.001]))
        chat = await self._there.chat(title="T")
        self._chats[chat.id] = chat
        self._used.add(chat.id)

    def _any(self) -> Chat:
        return self.random.choice(list(self._chats.values()))

    async def _use(self) -> None:
        chat = self._any()
        await exchange(chat, "q")
        self._used.add(chat.id)

    async def _mark(self) -> None:
        yes = self.random.random() < 0.5
        await self._any().update(title=str(self.random.random()), archived=yes, pinned=not yes, tags=["a"])

    async def _delete(self) -> None:
        if len(self._chats) > 2:
            chat = self._any()
            del self._chats[chat.id]
            await chat.delete(purge=self.random.random() < 0.5)
