"""Search: an owner finds every committed text that they may see, at once, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from turnledger.engine.conversations.search import Hit, index_some
from turnledger.errors import InvalidInput
from turnledger.model.conversation import Within
from turnledger.model.ids import ConversationId
from turnledger.model.item import Item, message
from turnledger.testing.scripted_model import ScriptedModel, Step
from turnledger.testing.store_contract.stage import Contract, Stage, StageProcess, owned


async def found(process: StageProcess, text: str, **options: Any) -> list[Hit]:
    page = await owned(process.ledger, options).search(text, **options)
    assert page.is_complete
    return list(page.hits)


async def snippets(process: StageProcess, text: str, **options: Any) -> list[str]:
    return [hit.snippet for hit in await found(process, text, **options)]


def marked(hit: Hit) -> list[str]:
    return [hit.snippet[start:end] for start, end in hit.marks]


def says(*texts: Step) -> ScriptedModel:
    return ScriptedModel(list(texts))


class Search(Contract):
    async def test_question_and_answer_are_found_at_once_and_in_every_process(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        turn = await chat.run(says("Take the night train to Zürich."), "How do I get to Switzerland?")
        for process in (here, there):
            for text in ("switzerland", "ZURICH train"):
                [hit] = await found(process, text)
                assert (hit.conversation.id, hit.turn, hit.branch) == (chat.id, turn.id, turn.branch)
        [hit] = await found(there, "zurich")
        assert (hit.snippet, marked(hit)) == ("Take the night train to Zürich.", ["Zürich"])

    async def test_all_words_must_be_there_and_the_last_may_go_on(self, stage: Stage) -> None:
        here = await stage.process()
        await (await here.chat()).run(says("The ferry leaves at noon."), "When does it leave?")
        assert await snippets(here, "ferr") == ["The ferry leaves at noon."]
        assert await snippets(here, "noon ferr") == ["The ferry leaves at noon."]
        # The words of a turn count together, whoever said them.
        assert len(await found(here, "does noon")) == 1
        for text in ("ferr noon", "ferry midnight", '"ferr"', "leave leaves boat"):
            assert await found(here, text) == []

    async def test_what_is_quoted_is_found_as_it_stands(self, stage: Stage) -> None:
        here = await stage.process()
        await (await here.chat()).run(says("End of story. Begin again."), "A story of the end")
        for text in ('"end of story"', "end-of-story", '"story of the end"', '"end of sto'):
            assert len(await found(here, text)) == 1
        # No phrase reaches from the question into the answer.
        for text in ('"of end"', '"end end"', '"story end"', "story-of-begin"):
            assert await found(here, text) == []

    async def test_scripts_without_spaces_are_found_by_what_stands_together(self, stage: Stage) -> None:
        here = await stage.process()
        await (await here.chat()).run(says("京都から東京へ行きます。"), "旅行の計画")
        [hit] = await found(here, "東京へ")
        assert marked(hit) == ["東京へ"]
        assert len(await found(here, "計画 京都")) == 1
        assert await found(here, "京東") == []

    async def test_titles_come_first_and_then_the_newest_message(self, stage: Stage) -> None:
        here = await stage.process()
        chats = [await here.chat() for _ in range(3)]
        for chat in chats:
            await chat.run(says("About herons."), "Tell me")
        await chats[0].run(says("More herons."), "More")
        named = [await here.chat(title=f"Herons {number}") for number in (1, 2)]
        hits = await found(here, "herons")
        ids = [hit.conversation.id for hit in hits]
        assert ids == [each.id for each in (named[1], named[0], chats[0], chats[2], chats[1])]
        assert [hit.turn is None for hit in hits] == [True, True, False, False, False]
        assert hits[2].snippet == "More herons."

    async def test_pages_go_on_where_the_last_one_ended(self, stage: Stage) -> None:
        here = await stage.process()
        for number in range(7):
            chat = await here.chat(title="Swans" if number % 3 == 0 else None)
            await chat.run(says(f"Swan {number}"), "Say")
        whole = [(hit.conversation.id, hit.turn) for hit in await found(here, "swan", limit=50)]
        paged, cursor = [], None
        for _ in range(20):
            page = await here.ledger.search("swan", cursor=cursor, limit=2)
            paged += [(hit.conversation.id, hit.turn) for hit in page.hits]
            cursor = page.next
            if cursor is None:
                break
        assert cursor is None
        assert set(whole) <= set(paged)
        assert len(paged) == len(set(paged))
        assert {chat for chat, _ in paged} == {chat for chat, _ in whole}

    @pytest.mark.parametrize("cursor", ["", "x", "-1", "0", "1" * 17, "f" * 16, "é", "1 "])
    async def test_a_cursor_that_was_never_given_is_refused(self, stage: Stage, cursor: str) -> None:
        here = await stage.process()
        with pytest.raises(InvalidInput):
            await here.ledger.search("swan", cursor=cursor)

    async def test_nobody_finds_what_is_not_his(self, stage: Stage) -> None:
        here = await stage.process()
        for owner, scope in (("ann", ""), ("ann", "shop"), ("ben", "shop")):
            chat = await here.chat(owner=owner, scope=scope, title=f"Otters {owner}")
            await chat.run(says(f"Otter of {owner} in {scope}."), "Say")
        both = ["Otters ann", "Otters ann"]
        assert await snippets(here, "otters", owner="ann") == both
        assert await snippets(here, "otters", owner="ben", scope="shop") == ["Otters ben"]
        assert await snippets(here, "otters", owner="ben", scope="") == []
        assert await snippets(here, '"otter of', owner="ann", within=Within("shop")) == [
            "Otter of ann in shop."
        ]
        assert await snippets(here, '"otter of', owner="ann", scope="") == ["Otter of ann in ."]
        for stranger in ("an", "annn", "cat", "ANN"):
            assert await found(here, "otters", owner=stranger) == []

    async def test_who_sees_one_chat_only_finds_what_it_shows(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(title="Owls")
        shared = await chat.run(says("A tawny owl."), "Which?")
        fork = await chat.fork()
        await chat.run(says("A barn owl."), "And?")
        for seen, texts in ((chat, ["Owls"]), (fork, ["A tawny owl."])):
            assert await snippets(here, "owl", within=Within(chat=ConversationId(seen.id))) == texts
        [hit] = await found(here, "tawny", within=Within(chat=ConversationId(fork.id)))
        assert (hit.conversation.id, hit.turn) == (fork.id, shared.id)

    async def test_nothing_but_what_people_say_to_each_other_is_found(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        call = {"type": "function_call", "call_id": "c", "name": "badger", "arguments": '{"badger": 1}'}
        result = {"type": "function_call_output", "call_id": "c", "output": "badger"}
        async with chat.turn("Look it up", instructions="badger first") as turn:
            await turn.add({"type": "reasoning", "summary": [{"type": "summary_text", "text": "badger"}]})
            await turn.add(call)
            await turn.add(result)
            turn.emit("Nothing.")
            turn.details["badger"] = "badger"
        assert await found(here, "badger") == []
        assert len(await found(here, "nothing")) == 1
        await here.chat(title="Badger", internal=True)
        assert await found(here, "badger") == []

    async def test_what_is_hidden_from_the_user_is_not_found_until_it_is_shown(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        turn = await chat.run(says("A lynx."), "Which cat?")
        assert len(await found(here, "lynx")) == 1
        await chat.flag(turn.id, [1], to_user=False)
        assert await found(here, "lynx") == []
        assert len(await found(here, "cat")) == 1
        await chat.flag(turn.id, [1], to_model=False, to_user=True)
        assert len(await found(here, "lynx")) == 1

    async def test_a_chat_is_found_by_the_name_it_has(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(title="Marmots")
        assert await snippets(here, "marmots") == ["Marmots"]
        await chat.update(title="Ibexes")
        assert await found(here, "marmots") == []
        [hit] = await found(here, "ibex")
        assert (hit.conversation.title, hit.turn, hit.branch) == ("Ibexes", None, hit.conversation.branch)

    async def test_what_was_edited_away_is_found_with_its_branch(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        first = await chat.run(says("Hello."), "Hi")
        old = await chat.run(says("A weasel."), "What?")
        new = await chat.edit(old.id, "Which?").run(says("A stoat."))
        [hit] = await found(here, "weasel")
        assert (hit.turn, hit.branch) == (old.id, old.branch)
        # What both branches share is shown by the current one.
        [hit] = await found(here, "hello")
        assert (hit.turn, hit.branch) == (first.id, new.branch)

    async def test_a_fork_shows_what_its_deleted_original_said(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        first = await chat.run(says("A polecat."), "What?")
        await chat.run(says("A marten."), "And?")
        fork = await chat.fork(first.id)
        further = await (await fork.fork()).run(says("A mink."), "Further")
        await chat.delete()
        assert await found(here, "marten") == []
        assert len(await found(here, "polecat")) == 1
        await chat.delete(purge=True)
        for _ in range(5):
            await here.tend()
        [hit] = await found(here, "polecat")
        assert (hit.conversation.id, hit.turn) == (fork.id, first.id)
        assert hit.branch == hit.conversation.branch
        assert await found(here, "marten") == []
        await fork.delete()
        [hit] = await found(here, "polecat")
        assert (hit.branch, hit.turn) == (further.branch, first.id)

    async def test_what_is_deleted_is_not_found_and_later_turns_are(self, stage: Stage) -> None:
        here = await stage.process()
        gone = await here.chat(title="Puffins")
        await gone.run(says("A puffin."), "Say")
        assert len(await found(here, "puffin")) == 1
        await gone.delete(purge=True)
        assert await found(here, "puffin") == []
        for _ in range(5):
            await here.tend()
        # Whatever numbers the purged turns had, new ones are found under them.
        chat = await here.chat()
        await chat.run(says("Another puffin."), "Say")
        assert await snippets(here, "puffin") == ["Another puffin."]

    async def test_what_is_restored_is_found_again(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(title="Gannets")
        await chat.run(says("A gannet on a cliff."), "Say")
        assert len(await found(here, "gannet")) == 1
        await chat.delete()
        assert await found(here, "gannet") == []
        await here.ledger.restore(chat.id)
        [hit] = await found(here, "gannet")
        assert (hit.conversation.id, hit.turn) == (chat.id, None)
        assert len(await found(here, "cliff")) == 1

    async def test_turns_that_did_not_become_history_are_not_found(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        with pytest.raises(ZeroDivisionError):
            await chat.run(says("Curlew", ZeroDivisionError()), "A curlew?")
        assert await found(here, "curlew") == []

    async def test_whatever_is_typed_is_no_error(self, stage: Stage) -> None:
        here = await stage.process()
        await (await here.chat()).run(says("Plain."), "Words")
        queries = ("", " ", '"', "***", "AND", "a OR b NOT c", "NEAR(a b)", "words:x", "x*", "'; --", "\x00")
        for text in (*queries, "{a} : ^b", "-"):
            page = await here.ledger.search(text)
            assert (page.hits, page.next) == ((), None), text

    async def test_tending_makes_findable_what_nobody_searched_for(self, stage: Stage) -> None:
        here = await stage.process()
        await (await here.chat(title="Grebe")).run(says("A grebe."), "Say")
        await here.tend()
        assert await here.store.transact(index_some, 10) == 0
        assert len(await found(here, "grebe")) == 1

    async def test_long_texts_are_found_by_any_of_their_words(self, stage: Stage) -> None:
        here = await stage.process()
        words = " ".join(f"word{number}" for number in range(3_000))
        chat = await here.chat()
        await chat.run(says(words), [message("user", "x" * 100_000), Item.of("Go")])
        [hit] = await found(here, "word2718")
        assert marked(hit) == ["word2718"]
        assert len(hit.snippet) <= 162
        assert hit.snippet.startswith("…")
        assert len(await found(here, "x" * 70)) == 1
