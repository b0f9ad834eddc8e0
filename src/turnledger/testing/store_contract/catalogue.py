"""The catalogue: lists that stay stable while chats change, and entries that each commit has written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from turnledger.chat import Chat
from turnledger.engine.conversations.catalogue import name_by_model
from turnledger.engine.conversations.resolve import update
from turnledger.engine.turn.commit import commit
from turnledger.errors import InvalidInput, RevisionConflict
from turnledger.model.catalogue import Listed
from turnledger.model.conversation import NamedBy
from turnledger.model.ids import ConversationId
from turnledger.testing.gates import Fate
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.stage import Contract, Stage, StageProcess, chain, exchange, soon, user

BOOM = RuntimeError("boom")
PICTURE = {"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}


async def only(process: StageProcess, **wanted: Any) -> Listed:
    """The one chat that is listed."""
    [listed] = (await process.ledger.catalogue.list(**wanted)).chats
    return listed


async def preview(process: StageProcess, chat: Chat) -> tuple[int, str]:
    """What the list says of a chat: how many turns, and what was said last."""
    page = await process.ledger.catalogue.list()
    [listed] = [each for each in page.chats if each.conversation.id == chat.id]
    assert await (await process.chat(chat)).summary() == listed
    return listed.turns, listed.preview


async def titles(process: StageProcess, **wanted: Any) -> list[str]:
    return [each.title or "" for each in await process.listed(**wanted)]


class ListedWhenCommitted(Contract):
    async def test_a_chat_that_a_turn_makes_is_listed_from_its_commit_on(self, stage: Stage) -> None:
        here, there = await stage.processes()
        with here.store.hold(commit) as gate:
            task = stage.start(here.ledger.run(ScriptedModel(["a"]), "q", conversation_key="k"))
            await stage.reach(gate, task)
            assert await there.listed() == []
            assert (await there.chat(conversation_key="k")).is_new is False
        await soon(task)
        listed = await only(there)
        assert (listed.conversation.conversation_key, listed.turns, listed.is_running) == ("k", 1, False)

    async def test_a_turn_that_fails_lists_nothing_and_the_next_one_does(self, stage: Stage) -> None:
        here, there = await stage.processes()
        with pytest.raises(RuntimeError):
            await here.ledger.run(ScriptedModel([BOOM]), "q", conversation_key="k")
        assert await there.listed() == []
        turn = await soon(there.ledger.run(ScriptedModel(["a"]), "q2", conversation_key="k"))
        listed = await only(here)
        assert (listed.turns, listed.preview, listed.conversation.title) == (1, turn.text, "q2")

    async def test_what_is_kept_or_settled_lists_it_too(self, stage: Stage) -> None:
        here, there = await stage.processes()
        async with here.ledger.turn("Kept.", conversation_key="kept") as turn:
            turn.emit("So f")
            turn.stop()
        assert (await only(there)).preview == "So f"
        with pytest.raises(RuntimeError):
            await here.ledger.run(ScriptedModel([Tool("pay"), BOOM]), "Pay.", conversation_key="k")
        assert len(await there.listed()) == 1
        with pytest.raises(RuntimeError):
            await there.ledger.run(ScriptedModel([BOOM]), "Go on.", conversation_key="k")
        settled = next(
            each
            for each in (await here.ledger.catalogue.list()).chats
            if each.conversation.conversation_key == "k"
        )
        assert (settled.turns, settled.preview, settled.conversation.title) == (1, "Pay.", "Pay.")

    async def test_a_turn_that_is_no_interaction_lists_it_and_leaves_the_time(self, stage: Stage) -> None:
        here, there = await stage.processes()
        began = stage.clock.now_ms()
        async with here.ledger.turn("q", conversation_key="k", interaction=False) as turn:
            stage.clock.advance(5)
            turn.emit("a")
        listed = await only(there)
        assert (listed.conversation.touched_at, listed.turns) == (began, 1)

    async def test_a_chat_that_is_tried_again_is_kept_for_the_next_try(self, stage: Stage) -> None:
        here, there = await stage.processes()
        for _ in range(2):
            with pytest.raises(RuntimeError):
                await here.ledger.run(ScriptedModel([BOOM]), "q", conversation_key="k", idempotency_key="i")
            stage.clock.advance(20 * 3600)
            await there.tend()
        turn = await soon(
            there.ledger.run(ScriptedModel(["a"]), "q", conversation_key="k", idempotency_key="i")
        )
        assert turn.text == "a"
        assert (await only(here)).turns == 1

    async def test_what_is_made_by_itself_is_listed_at_once(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T")
        forked = await chat.fork(title="F")
        reset = await here.ledger.reset("k")
        assert {each.id for each in await there.listed()} == {chat.id, forked.id, reset.id}

    async def test_a_running_turn_shows(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat)
        assert (await only(there)).is_running
        await holder.finish()
        assert not (await only(there)).is_running


class NamedByWords(Contract):
    async def test_the_first_commit_names_a_chat_and_no_later_one(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await exchange(chat, "  Where is\nmy order of today? " + "x" * 100)
        found = await (await there.chat(chat)).info()
        assert (found.title, found.named_by) == ("Where is my order of today?…", NamedBy.WORDS)
        await exchange(await there.chat(chat), "Another question")
        assert await chat.info() == await (await there.chat(chat)).info()
        assert (await chat.info()).title == found.title

    async def test_a_name_that_a_person_gave_stays(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="Mine")
        await exchange(chat, "q")
        found = await (await there.chat(chat)).info()
        assert (found.title, found.named_by, found.revision) == ("Mine", NamedBy.PERSON, 1)

    async def test_a_rename_between_begin_and_commit_stays(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        with here.store.hold(commit) as gate:
            task = stage.start(chat.run(ScriptedModel(["a"]), "q"))
            await stage.reach(gate, task)
            await (await there.chat(chat)).update(title="Mine", tags=["a"], pinned=True, revision=1)
        await soon(task)
        found = await chat.info()
        assert (found.title, found.named_by, found.revision) == ("Mine", NamedBy.PERSON, 2)
        assert (found.tags, found.pinned) == (("a",), True)

    async def test_a_name_that_nobody_gave_is_no_conflict_for_a_person(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        read = (await chat.info()).revision
        await exchange(chat, "q")
        await here.ledger.catalogue.name_by_model(chat.id, "By a model")
        found = await (await there.chat(chat)).update(title="Mine", revision=read)
        assert (found.title, found.revision) == ("Mine", read + 1)

    async def test_a_chat_without_words_is_named_by_the_first_that_come(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await soon(chat.run(ScriptedModel(["Nice."]), PICTURE))
        assert (await chat.info()).title is None
        await exchange(await there.chat(chat), "What is it?")
        assert (await chat.info()).title == "What is it?"

    async def test_a_name_that_is_taken_back_gives_way_to_the_first_words(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="Mine")
        assert (await chat.update(title="")).title is None
        await chain(chat, 2)
        await chat.update(title="Mine again")
        found = await (await there.chat(chat)).update(title="")
        assert (found.title, found.named_by) == ("q1", NamedBy.WORDS)
        assert (await chat.update(title="")).revision == found.revision

    async def test_blanks_are_no_name(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title=" \u3000")
        assert (await chat.info()).named_by is None
        await exchange(await there.chat(chat), "q1")
        await chat.update(title="Mine")
        found = await chat.update(title=" \n")
        assert (found.title, found.named_by) == ("q1", NamedBy.WORDS)

    async def test_words_that_are_hidden_name_nothing(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        turn = await exchange(chat, "a secret")
        await (await there.chat(chat)).flag(turn.id, to_user=False)
        found = await chat.info()
        assert (found.title, found.named_by, found.revision) == (None, None, 1)
        assert (await chat.update(title="Mine")).title == "Mine"
        assert (await chat.update(title="")).title is None
        await exchange(chat, "q2")
        assert (await chat.info()).title == "q2"
        await chat.flag(turn.id, to_user=True)
        assert (await chat.info()).title == "q2"

    async def test_words_that_are_shown_again_are_the_name_again(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        turn = await exchange(chat, "q1")
        for is_shown, title in ((False, None), (True, "q1")):
            await (await there.chat(chat)).flag(turn.id, 0, to_user=is_shown)
            assert (await chat.info()).title == title

    async def test_what_is_asked_again_and_hidden_names_nothing(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        turn = await exchange(chat, "a secret")
        await chat.flag(turn.id, to_user=False)
        await soon((await there.chat(chat)).regenerate().run(ScriptedModel(["b"])))
        assert (await chat.info()).title is None

    async def test_a_model_names_what_no_person_has_named(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat, mine = await here.chat(), await here.chat(title="Mine")
        await exchange(chat, "q")
        name = there.ledger.catalogue.name_by_model
        named = await name(chat.id, "By a model")
        assert named == await chat.info()
        assert named is not None
        assert (named.title, named.named_by, named.revision) == ("By a model", NamedBy.MODEL, 1)
        assert await name(chat.id, "By another") is None
        assert await name(mine.id, "By a model") is None
        assert await name(chat.id, "By a model", owner="eve") is None
        await mine.delete()
        assert await name(mine.id, "By a model") is None
        await exchange(chat, "q2")
        assert (await chat.info()).title == "By a model"

    @pytest.mark.parametrize("fate", Fate)
    async def test_naming_by_a_model_happens_once_whatever_becomes_of_it(
        self, stage: Stage, fate: Fate
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await exchange(chat, "q")
        here.store.lose_answer(name_by_model, fate)
        await soon(here.ledger.catalogue.name_by_model(chat.id, "By a model"))
        assert (await (await there.chat(chat)).info()).title == "By a model"


class Previewed(Contract):
    async def test_it_follows_turns_edits_undo_and_switches(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T")
        assert await preview(there, chat) == (0, "")
        first = (await chat.info()).branch
        await exchange(chat, "q1", "First answer")
        second = await exchange(chat, "q2", "Second answer")
        assert await preview(there, chat) == (2, "Second answer")
        await soon(chat.edit(second.id, "q2, better").run(ScriptedModel(["Third answer"])))
        assert await preview(there, chat) == (2, "Third answer")
        await chat.undo()
        assert await preview(there, chat) == (1, "First answer")
        await chat.switch(first)
        assert await preview(there, chat) == (2, "Second answer")

    async def test_a_fork_has_that_of_the_turn_it_begins_with(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T")
        first, _ = await chain(chat, 2)
        forked = await chat.fork(first.id, title="F")
        assert await preview(there, forked) == (1, first.text)
        empty = await (await here.chat(title="Empty")).fork(title="F")
        assert await preview(there, empty) == (0, "")

    async def test_what_tools_said_is_never_in_it(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T")
        await soon(chat.run(ScriptedModel([Tool("look", result="secret"), "Seen."]), "Look."))
        assert await preview(there, chat) == (1, "Seen.")
        async with chat.turn("Again.") as turn:
            turn.put({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"})
        assert await preview(there, chat) == (2, "Again.")
        async with chat.turn({"type": "function_call_output", "call_id": "c", "output": "secret"}) as turn:
            turn.put({"type": "function_call", "call_id": "d", "name": "f", "arguments": "{}"})
        assert await preview(there, chat) == (3, "Again.")

    async def test_what_is_hidden_from_its_user_leaves_it(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T")
        await exchange(chat, "q1", "First answer")
        last = await exchange(chat, "q2", "Second answer")
        await chat.flag(last.id, 1, to_user=False)
        assert await preview(there, chat) == (2, "q2")
        await chat.flag(last.id, to_user=False)
        assert await preview(there, chat) == (2, "First answer")
        await chat.flag(last.id, to_user=True)
        assert await preview(there, chat) == (2, "Second answer")
        await chat.flag(last.id, to_model=False)
        assert await preview(there, chat) == (2, "Second answer")

    async def test_what_is_hidden_leaves_the_previews_of_forks_and_of_what_follows(
        self, stage: Stage
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T")
        first = await exchange(chat, "q1", "First answer")
        forked = await chat.fork(title="F")
        async with chat.turn("q2") as turn:
            turn.put({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"})
        await chat.flag(turn.id, to_user=False)
        assert await preview(there, chat) == (2, "First answer")
        await chat.flag(first.id, 1, to_user=False)
        assert await preview(there, chat) == (2, "q1")
        assert await preview(there, forked) == (1, "q1")

    async def test_what_is_hidden_of_a_question_asked_again_stays_hidden(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T")
        asked = [user("shown"), user("hidden")]
        turn = await soon(chat.turn(asked).run(ScriptedModel(["a"])))
        await chat.flag(turn.id, 1, to_user=False)
        async with chat.regenerate() as again:
            again.put({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"})
        assert await preview(there, chat) == (1, "shown")


class Chosen(Contract):
    async def test_lists_by_tag_pin_and_archive(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chats: dict[str, Chat] = {}
        for title in "abcdef":
            stage.clock.advance(1)
            chats[title] = await here.chat(title=title, scope="shop" if title in "ef" else "")
        await chats["a"].update(tags=["work", "Été"], pinned=True)
        await chats["b"].update(tags=["work"], archived=True)
        await chats["c"].update(archived=True, pinned=True)
        await chats["e"].update(tags=["work"])
        lists: list[tuple[dict[str, Any], str]] = [
            ({}, "feda"),
            ({"archived": None}, "fedcba"),
            ({"archived": True}, "cb"),
            ({"pinned": True}, "a"),
            ({"pinned": True, "archived": None}, "ca"),
            ({"pinned": False}, "fed"),
            ({"pinned": False, "archived": None}, "fedb"),
            ({"tag": "work"}, "ea"),
            ({"tag": "work", "archived": None}, "eba"),
            ({"tag": "work", "scope": "shop"}, "e"),
            ({"tag": "work", "pinned": True}, "a"),
            ({"tag": "E\u0301te\u0301"}, "a"),
            ({"tag": "Work"}, ""),
            ({"tag": "nobody has it"}, ""),
            ({"tag": "work", "owner": "eve"}, ""),
            ({"scope": "", "archived": None}, "dcba"),
            ({"scope": "shop", "archived": None}, "fe"),
            ({"archived": True, "scope": "shop"}, ""),
        ]
        for wanted, expected in lists:
            assert "".join(await titles(there, **wanted)) == expected, wanted
            paged, cursor = "", None
            while True:
                page = await here.ledger.catalogue.list(**wanted, limit=1, cursor=cursor)
                paged += "".join(each.conversation.title or "" for each in page.chats)
                cursor = page.next
                if cursor is None:
                    break
            assert paged == expected, wanted

    async def test_tags_are_replaced_as_a_whole(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T", tags=["a", "b", "a "])
        assert (await chat.info()).tags == ("a", "b")
        await (await there.chat(chat)).update(tags=["b", "c"])
        assert [await titles(here, tag=tag) for tag in "abc"] == [[], ["T"], ["T"]]
        await chat.update(tags=[])
        assert [await titles(there, tag=tag) for tag in "abc"] == [[], [], []]

    async def test_what_is_gone_for_good_is_found_by_no_tag(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T", tags=["a"])
        await chat.delete(purge=True)
        for deleted in (False, True):
            assert await titles(there, tag="a", deleted=deleted) == []

    async def test_what_is_no_tag_is_refused(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        tags: list[Any] = [[""], [" "], ["a\nb"], ["x" * 65], [1], "work", [str(each) for each in range(17)]]
        for given in tags:
            with pytest.raises(InvalidInput):
                await chat.update(tags=given)
        with pytest.raises(InvalidInput):
            await here.ledger.catalogue.list(tag="\x00")
        assert (await chat.info()).revision == 1

    async def test_all_of_an_update_happens_or_nothing(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T", tags=["a"])
        before = await chat.update(pinned=True)
        with pytest.raises(RevisionConflict):
            await chat.update(title="U", tags=["b"], archived=True, pinned=False, revision=1)
        assert await (await there.chat(chat)).info() == before
        assert await titles(there, tag="b", archived=None) == []

    @pytest.mark.parametrize("fate", Fate)
    async def test_an_update_happens_once_whatever_becomes_of_it(self, stage: Stage, fate: Fate) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T")
        here.store.lose_answer(update, fate)
        found = await soon(chat.update(tags=["a"], archived=True, revision=1))
        assert (found.tags, found.archived, found.revision) == (("a",), True, 2)
        assert await titles(there, tag="a", archived=True) == ["T"]


class PagedWhileChatsChange(Contract):
    async def test_a_cursor_needs_nothing_that_it_was_made_of(self, stage: Stage) -> None:
        here, there = await stage.processes()
        for title in "abcd":
            stage.clock.advance(1)
            await here.chat(title=title)
        page = await here.ledger.catalogue.list(limit=2)
        named = await here.ledger.conversation(page.chats[-1].conversation.id)
        stage.clock.advance(1)
        await exchange(named, "q")
        assert await titles(there, cursor=page.next) == ["b", "a"]
        await named.delete(purge=True)
        assert await titles(there, cursor=page.next) == ["b", "a"]

    async def test_what_is_no_cursor_is_refused(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        for cursor in ("", "nonsense", str(chat.id), "A" * 36):
            with pytest.raises(InvalidInput, match="cursor"):
                await here.ledger.catalogue.list(cursor=cursor)

    @pytest.mark.parametrize("seed", range(12))
    async def test_no_chat_comes_twice_and_none_is_missed_that_nobody_used(
        self, stage: Stage, seed: int
    ) -> None:
        walk = Walk(stage, Random(seed), *await stage.processes())
        await walk.settle(count=14)
        await walk.go(size=walk.random.randint(1, 4))


class Walk:
    """Somebody reads a list page by page, while others use, change, make and delete chats."""

    def __init__(self, stage: Stage, random: Random, here: StageProcess, there: StageProcess) -> None:
        self._stage, self.random, self._here, self._there = stage, random, here, there
        self._chats: dict[ConversationId, Chat] = {}
        self._used: set[ConversationId] = set()
        """Used, made or deleted since the walk began."""

    async def settle(self, count: int) -> None:
        for _ in range(count):
            await self._make()
        self._used.clear()

    async def go(self, size: int) -> None:
        seen: list[ConversationId] = []
        cursor: str | None = None
        while True:
            page = await self._here.ledger.catalogue.list(limit=size, cursor=cursor, archived=None)
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
