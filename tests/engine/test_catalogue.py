"""Titles, previews and metadata of a chat in the catalogue."""

from __future__ import annotations

import asyncio

import pytest

from turnledger.chat import Chat
from turnledger.engine.conversations.details import update
from turnledger.engine.turn.commit import commit
from turnledger.errors import RevisionConflict
from turnledger.hosting import Host
from turnledger.model.conversation import TitleSource
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.stage import Stage, StageProcess, chain, exchange, soon, user

PICTURE = {"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}


async def preview(process: StageProcess, chat: Chat) -> tuple[int, str]:
    """Return the number of turns and the preview that the list shows of a chat."""
    page = await process.ledger.list()
    [listed] = [each for each in page.chats if each.conversation.id == chat.id]
    assert await (await process.chat(chat)).summary() == listed
    return listed.turns, listed.preview


class TestTitles:
    async def test_title_is_set_by_the_first_commit_and_kept_by_later_ones(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        await exchange(chat, "  Where is\nmy order of today? " + "x" * 100)
        found = await same.info()
        assert (found.title, found.named_by) == ("Where is my order of today?…", TitleSource.WORDS)
        await exchange(same, "Another question")
        assert await chat.info() == await same.info()
        assert (await chat.info()).title == found.title

    async def test_rename_between_begin_and_commit_survives_the_commit(
        self, stage: Stage, here: StageProcess, chat: Chat, same: Chat
    ) -> None:
        with here.store.hold(commit) as gate:
            task = stage.start(chat.run(ScriptedModel(["a"]), "q"))
            await stage.reach(gate, task)
            await same.update(title="Mine", tags=["a"], pinned=True, revision=1)
        await soon(task)
        found = await chat.info()
        assert (found.title, found.named_by, found.revision) == ("Mine", TitleSource.PERSON, 2)
        assert (found.tags, found.pinned) == (("a",), True)

    async def test_automatic_title_causes_no_revision_conflict_for_a_rename(
        self, here: StageProcess, chat: Chat, same: Chat
    ) -> None:
        read = (await chat.info()).revision
        await exchange(chat, "q")
        await Host(here.ledger).name_by_model(chat.id, "By a model")
        found = await same.update(title="Mine", revision=read)
        assert (found.title, found.revision) == ("Mine", read + 1)

    async def test_chat_whose_first_turn_has_no_text_is_titled_by_the_next_text(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        await soon(chat.run(ScriptedModel(["Nice."]), PICTURE))
        assert (await chat.info()).title is None
        await exchange(same, "What is it?")
        assert (await chat.info()).title == "What is it?"

    async def test_title_that_is_cleared_falls_back_to_the_first_words(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat(title="Mine")
        assert (await chat.update(title="")).title is None
        await chain(chat, 2)
        await chat.update(title="Mine again")
        found = await same.update(title="")
        assert (found.title, found.named_by) == ("q1", TitleSource.WORDS)
        assert (await chat.update(title="")).revision == found.revision

    async def test_blank_title_counts_as_no_title(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat(title=" \u3000")
        assert (await chat.info()).named_by is None
        await exchange(same, "q1")
        await chat.update(title="Mine")
        found = await chat.update(title=" \n")
        assert (found.title, found.named_by) == ("q1", TitleSource.WORDS)

    async def test_title_from_a_question_hidden_from_the_user_is_removed(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        turn = await exchange(chat, "a secret")
        await same.flag(turn.id, to_user=False)
        found = await chat.info()
        assert (found.title, found.named_by, found.revision) == (None, None, 1)
        assert (await chat.update(title="Mine")).title == "Mine"
        assert (await chat.update(title="")).title is None
        await exchange(chat, "q2")
        assert (await chat.info()).title == "q2"
        await chat.flag(turn.id, to_user=True)
        assert (await chat.info()).title == "q2"

    async def test_title_returns_when_its_hidden_question_is_shown_again(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        turn = await exchange(chat, "q1")
        for is_shown, title in ((False, None), (True, "q1")):
            await same.flag(turn.id, 0, to_user=is_shown)
            assert (await chat.info()).title == title

    async def test_regenerated_hidden_question_gives_no_title(self, chat: Chat, same: Chat) -> None:
        turn = await exchange(chat, "a secret")
        await chat.flag(turn.id, to_user=False)
        await soon(same.regenerate().run(ScriptedModel(["b"])))
        assert (await chat.info()).title is None

    async def test_model_title_is_accepted_only_for_a_live_chat_without_a_given_title(
        self, here: StageProcess, there: StageProcess
    ) -> None:
        chat, mine = await here.chat(), await here.chat(title="Mine")
        await exchange(chat, "q")
        name = Host(there.ledger).name_by_model
        named = await name(chat.id, "By a model")
        assert named == await chat.info()
        assert (named.title, named.named_by, named.revision) == ("By a model", TitleSource.MODEL, 1)
        assert await name(chat.id, "By another") is None
        assert await name(mine.id, "By a model") is None
        assert await name(chat.id, "By a model", owner="eve") is None
        await mine.delete()
        assert await name(mine.id, "By a model") is None
        await exchange(chat, "q2")
        assert (await chat.info()).title == "By a model"


class TestPreviews:
    async def test_preview_follows_turns_edits_undo_and_switches(self, stage: Stage) -> None:
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

    async def test_preview_of_a_fork_is_that_of_the_turn_it_starts_from(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T")
        first, _ = await chain(chat, 2)
        forked = await chat.fork(first.id, title="F")
        assert await preview(there, forked) == (1, first.text)
        empty = await (await here.chat(title="Empty")).fork(title="F")
        assert await preview(there, empty) == (0, "")

    async def test_preview_never_contains_tool_calls_or_results(self, stage: Stage) -> None:
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

    async def test_preview_leaves_out_items_hidden_from_the_user(self, stage: Stage) -> None:
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

    async def test_preview_leaves_out_hidden_items_in_forks_and_after_later_turns(self, stage: Stage) -> None:
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

    async def test_preview_after_regeneration_leaves_out_the_hidden_part_of_the_question(
        self, here: StageProcess, there: StageProcess
    ) -> None:
        chat = await here.chat(title="T")
        questions = [user("shown"), user("hidden")]
        turn = await soon(chat.turn(questions).run(ScriptedModel(["a"])))
        await chat.flag(turn.id, 1, to_user=False)
        async with chat.regenerate() as again:
            again.put({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"})
        assert await preview(there, chat) == (1, "shown")


class TestMetadata:
    async def test_title_and_metadata_given_at_creation_are_stored_unchanged(self, stage: Stage) -> None:
        here, there = await stage.processes()
        metadata = {"": "", "ключ": "значение", "a\x00b": "\U0001f600 'quoted' \"twice\""}
        chat = await here.chat(conversation_key="k", title="Ünïcode", metadata=metadata)
        found = await (await there.chat(conversation_key="k")).info()
        assert found == await chat.info()
        assert (found.title, found.metadata, found.revision) == ("Ünïcode", metadata, 1)

    async def test_update_keeps_the_fields_that_it_does_not_name(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat(title="T", metadata={"a": "1"})
        await chat.update(title="U")
        updated = await same.update(metadata={"b": "2"})
        assert updated == await chat.info()
        assert (updated.title, updated.metadata, updated.revision) == ("U", {"b": "2"}, 3)

    async def test_update_with_an_old_revision_is_refused_and_changes_nothing(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat(title="T")
        await same.update(title="U", revision=1)
        before = await chat.info()
        with pytest.raises(RevisionConflict) as conflict:
            await chat.update(title="V", revision=1)
        assert conflict.value.current == 2
        assert await chat.info() == before

    async def test_update_with_equal_values_keeps_the_revision(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat(title="T")
        before = await chat.info()
        assert await chat.update(title="T", revision=1) == before
        await same.update(title="U", revision=1)
        await same.update(title="T", revision=2)
        assert (await chat.update(title="T")).revision == 3
        with pytest.raises(RevisionConflict):
            await chat.update(title="T", revision=1)  # it was something else in between

    async def test_two_concurrent_updates_of_one_revision_accept_one_and_refuse_the_other(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
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
