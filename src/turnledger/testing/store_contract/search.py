"""Search: an owner finds every visible committed text at once, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from turnledger.engine.conversations.search import Hit, index_some
from turnledger.model.conversation import Within
from turnledger.model.ids import ConversationId
from turnledger.model.item import Item, message
from turnledger.testing.scripted_model import ScriptedModel, Step
from turnledger.testing.store_contract.stage import Contract, Stage, StageProcess, chats_of


async def search(process: StageProcess, text: str, **options: Any) -> list[Hit]:
    page = await chats_of(process.ledger, options).search(text, **options)
    assert page.is_complete
    return list(page.hits)


async def snippets(process: StageProcess, text: str, **options: Any) -> list[str]:
    return [hit.snippet for hit in await search(process, text, **options)]


def marked_words(hit: Hit) -> list[str]:
    return [hit.snippet[start:end] for start, end in hit.marks]


def answering(*texts: Step) -> ScriptedModel:
    return ScriptedModel(list(texts))


class Search(Contract):
    async def test_search_finds_question_and_answer_at_once_in_every_process(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        turn = await chat.run(answering("Take the night train to Zürich."), "How do I get to Switzerland?")
        for process in (here, there):
            for text in ("switzerland", "ZURICH train"):
                [hit] = await search(process, text)
                assert (hit.conversation.id, hit.turn, hit.branch) == (chat.id, turn.id, turn.branch)
        [hit] = await search(there, "zurich")
        assert (hit.snippet, marked_words(hit)) == ("Take the night train to Zürich.", ["Zürich"])

    async def test_search_needs_all_words_and_matches_the_last_as_prefix(self, stage: Stage) -> None:
        here = await stage.process()
        await (await here.chat()).run(answering("The ferry leaves at noon."), "When does it leave?")
        assert await snippets(here, "ferr") == ["The ferry leaves at noon."]
        assert await snippets(here, "noon ferr") == ["The ferry leaves at noon."]
        # Question and answer of a turn are matched together.
        assert len(await search(here, "does noon")) == 1
        for text in ("ferr noon", "ferry midnight", '"ferr"', "leave leaves boat"):
            assert await search(here, text) == []

    async def test_search_for_a_quoted_phrase_matches_it_exactly(self, stage: Stage) -> None:
        here = await stage.process()
        await (await here.chat()).run(answering("End of story. Begin again."), "A story of the end")
        for text in ('"end of story"', "end-of-story", '"story of the end"', '"end of sto'):
            assert len(await search(here, text)) == 1
        # A phrase never spans question and answer.
        for text in ('"of end"', '"end end"', '"story end"', "story-of-begin"):
            assert await search(here, text) == []

    async def test_search_in_scripts_without_spaces_matches_adjacent_characters(self, stage: Stage) -> None:
        here = await stage.process()
        await (await here.chat()).run(answering("京都から東京へ行きます。"), "旅行の計画")
        [hit] = await search(here, "東京へ")
        assert marked_words(hit) == ["東京へ"]
        assert len(await search(here, "計画 京都")) == 1
        assert await search(here, "京東") == []

    async def test_search_returns_titles_then_newest_messages(self, stage: Stage) -> None:
        here = await stage.process()
        chats = [await here.chat() for _ in range(3)]
        for chat in chats:
            await chat.run(answering("About herons."), "Tell me")
        await chats[0].run(answering("More herons."), "More")
        named = [await here.chat(title=f"Herons {number}") for number in (1, 2)]
        hits = await search(here, "herons")
        ids = [hit.conversation.id for hit in hits]
        assert ids == [each.id for each in (named[1], named[0], chats[0], chats[2], chats[1])]
        assert [hit.turn is None for hit in hits] == [True, True, False, False, False]
        assert hits[2].snippet == "More herons."

    async def test_search_pages_continue_without_gaps(self, stage: Stage) -> None:
        here = await stage.process()
        for number in range(7):
            chat = await here.chat(title="Swans" if number % 3 == 0 else None)
            await chat.run(answering(f"Swan {number}"), "Say")
        whole = [(hit.conversation.id, hit.turn) for hit in await search(here, "swan", limit=50)]
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

    async def test_search_finds_no_chats_of_other_owners_or_scopes(self, stage: Stage) -> None:
        here = await stage.process()
        for owner, scope in (("ann", ""), ("ann", "shop"), ("ben", "shop")):
            chat = await here.chat(owner=owner, scope=scope, title=f"Otters {owner}")
            await chat.run(answering(f"Otter of {owner} in {scope}."), "Say")
        both = ["Otters ann", "Otters ann"]
        assert await snippets(here, "otters", owner="ann") == both
        assert await snippets(here, "otters", owner="ben", scope="shop") == ["Otters ben"]
        assert await snippets(here, "otters", owner="ben", scope="") == []
        assert await snippets(here, '"otter of', owner="ann", within=Within("shop")) == [
            "Otter of ann in shop."
        ]
        assert await snippets(here, '"otter of', owner="ann", scope="") == ["Otter of ann in ."]
        for stranger in ("an", "annn", "cat", "ANN"):
            assert await search(here, "otters", owner=stranger) == []

    async def test_search_restricted_to_one_chat_finds_its_turns_only(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(title="Owls")
        shared = await chat.run(answering("A tawny owl."), "Which?")
        fork = await chat.fork()
        await chat.run(answering("A barn owl."), "And?")
        for seen, texts in ((chat, ["Owls"]), (fork, ["A tawny owl."])):
            assert await snippets(here, "owl", within=Within(chat=ConversationId(seen.id))) == texts
        [hit] = await search(here, "tawny", within=Within(chat=ConversationId(fork.id)))
        assert (hit.conversation.id, hit.turn) == (fork.id, shared.id)

    async def test_search_finds_messages_only(self, stage: Stage) -> None:
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
        assert await search(here, "badger") == []
        assert len(await search(here, "nothing")) == 1
        await here.chat(title="Badger", internal=True)
        assert await search(here, "badger") == []

    async def test_search_skips_items_hidden_from_the_user(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        turn = await chat.run(answering("A lynx."), "Which cat?")
        assert len(await search(here, "lynx")) == 1
        await chat.flag(turn.id, [1], to_user=False)
        assert await search(here, "lynx") == []
        assert len(await search(here, "cat")) == 1
        await chat.flag(turn.id, [1], to_model=False, to_user=True)
        assert len(await search(here, "lynx")) == 1

    async def test_search_finds_a_renamed_chat_by_its_new_title(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(title="Marmots")
        assert await snippets(here, "marmots") == ["Marmots"]
        await chat.update(title="Ibexes")
        assert await search(here, "marmots") == []
        [hit] = await search(here, "ibex")
        assert (hit.conversation.title, hit.turn, hit.branch) == ("Ibexes", None, hit.conversation.branch)

    async def test_search_finds_edited_turns_with_their_branch(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        first = await chat.run(answering("Hello."), "Hi")
        old = await chat.run(answering("A weasel."), "What?")
        new = await chat.edit(old.id, "Which?").run(answering("A stoat."))
        [hit] = await search(here, "weasel")
        assert (hit.turn, hit.branch) == (old.id, old.branch)
        # Shared turns are found on the current branch.
        [hit] = await search(here, "hello")
        assert (hit.turn, hit.branch) == (first.id, new.branch)

    async def test_search_finds_turns_of_a_deleted_chat_in_its_fork(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        first = await chat.run(answering("A polecat."), "What?")
        await chat.run(answering("A marten."), "And?")
        fork = await chat.fork(first.id)
        further = await (await fork.fork()).run(answering("A mink."), "Further")
        await chat.delete()
        assert await search(here, "marten") == []
        assert len(await search(here, "polecat")) == 1
        await chat.delete(purge=True)
        for _ in range(5):
            await here.tend()
        [hit] = await search(here, "polecat")
        assert (hit.conversation.id, hit.turn) == (fork.id, first.id)
        assert hit.branch == hit.conversation.branch
        assert await search(here, "marten") == []
        await fork.delete()
        [hit] = await search(here, "polecat")
        assert (hit.branch, hit.turn) == (further.branch, first.id)

    async def test_search_finds_new_turns_and_no_deleted_ones(self, stage: Stage) -> None:
        here = await stage.process()
        gone = await here.chat(title="Puffins")
        await gone.run(answering("A puffin."), "Say")
        assert len(await search(here, "puffin")) == 1
        await gone.delete(purge=True)
        assert await search(here, "puffin") == []
        for _ in range(5):
            await here.tend()
        # New turns may reuse the numbers of purged ones.
        chat = await here.chat()
        await chat.run(answering("Another puffin."), "Say")
        assert await snippets(here, "puffin") == ["Another puffin."]

    async def test_search_finds_a_restored_chat(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(title="Gannets")
        await chat.run(answering("A gannet on a cliff."), "Say")
        assert len(await search(here, "gannet")) == 1
        await chat.delete()
        assert await search(here, "gannet") == []
        await here.ledger.restore(chat.id)
        [hit] = await search(here, "gannet")
        assert (hit.conversation.id, hit.turn) == (chat.id, None)
        assert len(await search(here, "cliff")) == 1

    async def test_search_skips_failed_turns(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        with pytest.raises(ZeroDivisionError):
            await chat.run(answering("Curlew", ZeroDivisionError()), "A curlew?")
        assert await search(here, "curlew") == []

    async def test_search_accepts_any_text(self, stage: Stage) -> None:
        here = await stage.process()
        await (await here.chat()).run(answering("Plain."), "Words")
        queries = ("", " ", '"', "***", "AND", "a OR b NOT c", "NEAR(a b)", "words:x", "x*", "'; --", "\x00")
        for text in (*queries, "{a} : ^b", "-"):
            page = await here.ledger.search(text)
            assert (page.hits, page.next) == ((), None), text

    async def test_maintenance_indexes_turns_without_a_search(self, stage: Stage) -> None:
        here = await stage.process()
        await (await here.chat(title="Grebe")).run(answering("A grebe."), "Say")
        await here.tend()
        assert await here.store.transact_whole(index_some, 10) == 0
        assert len(await search(here, "grebe")) == 1

    async def test_search_finds_any_word_of_a_long_text(self, stage: Stage) -> None:
        here = await stage.process()
        words = " ".join(f"word{number}" for number in range(3_000))
        chat = await here.chat()
        await chat.run(answering(words), [message("user", "x" * 100_000), Item.of("Go")])
        [hit] = await search(here, "word2718")
        assert marked_words(hit) == ["word2718"]
        assert len(hit.snippet) <= 162
        assert hit.snippet.startswith("…")
        assert len(await search(here, "x" * 70)) == 1
