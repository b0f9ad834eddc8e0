"""The rows of the search, and their index if the store has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from turnledger.engine.ports import Store
from turnledger.engine.tables.search import ShownBranch
from turnledger.model.conversation import Conversation, ConversationState, Stretch, TitleSource
from turnledger.model.flags import Flags
from turnledger.model.text.search import Phrase, SearchMatch
from turnledger.model.turn import Turn
from turnledger.testing.store_contract.rows.kit import (
    TableStep,
    branch_off,
    conversation,
    do,
    do_whole,
    grow,
    insert_all,
    insert_conversation,
    read,
    turn,
    write,
)
from turnledger.testing.store_contract.stage import Contract


async def add_text(store: Store, found: Conversation, text: str, number: int = 1) -> Turn:
    made = turn(found.branch, number, text=text)
    await write(store, do("add_turn", made, owner=found.owner))
    return made


async def index(store: Store, step: Callable[[int], TableStep], limit: int = 9) -> None:
    """Index step by step until nothing is left."""
    for _ in range(20):
        [done] = await write(store, step(limit))
        assert 0 <= done <= limit
        if not done:
            return
    raise AssertionError("the index is never complete")


def index_all(limit: int) -> TableStep:
    return do_whole("index_texts", limit)


async def find(store: Store, *words: str, **options: Any) -> list[SearchMatch]:
    """Search for these words; the last is a prefix if `is_open`."""
    phrases = [Phrase((word,), options.get("is_open", False)) for word in words]
    bounds = options.get("scope"), phrases, options.get("before"), options.get("limit", 9)
    found: list[SearchMatch] = await read(store, do("search", *bounds, owner=options.get("owner", "ann")))
    return found


class StoredTexts(Contract):
    async def test_search_finds_turns_and_titles_that_have_all_words(self, here: Store, there: Store) -> None:
        titled = await insert_conversation(here, conversation(title="Night ferry"))
        plain = await insert_conversation(here, conversation(title="ferry", named_by=TitleSource.WORDS))
        first = await add_text(here, titled, "Night train")
        second = await add_text(here, plain, "Ferry night")
        await index(here, index_all)
        for words, is_open, expected in (
            (["night"], False, [(titled, None), (plain, second), (titled, first)]),
            (["night", "ferry"], False, [(titled, None), (plain, second)]),
            (["train"], False, [(titled, first)]),
            (["tra"], False, []),
            (["tra"], True, [(titled, first)]),
            (["night", "bus"], False, []),
            ([], False, []),
        ):
            found = await find(there, *words, is_open=is_open)
            assert [(each.conversation, each.turn) for each in found] == [
                (chat.id, turn and turn.id) for chat, turn in expected
            ], words

    async def test_search_is_in_descending_order_of_place_in_pages(self, here: Store, there: Store) -> None:
        chats = await insert_all(here, [conversation(title="word"), conversation(title="word")])
        for number in (1, 2):
            for each in chats:
                await add_text(here, each, "word", number)
        await index(here, index_all)
        found = await find(there, "word")
        places = [each.place for each in found]
        assert places == sorted(set(places), reverse=True)
        assert len(found) == 6
        assert await find(there, "word", limit=3) == found[:3]
        for number in range(6):
            assert await find(there, "word", before=places[number], limit=2) == found[number + 1 :][:2]

    async def test_search_is_in_one_scope_or_all_in_any_state_without_internal_chats(
        self, here: Store, there: Store
    ) -> None:
        details: list[dict[str, Any]] = [
            {},
            {"scope": "shop"},
            {"state": ConversationState.DELETED, "purge_at": 9},
            {"internal": True},
        ]
        made = await insert_all(here, [conversation(title="word", **each) for each in details])
        for each in made:
            await add_text(here, each, "word")
        await index(here, index_all)
        for scope, expected in ((None, made[:3]), ("shop", made[1:2]), ("", [made[0], made[2]])):
            found = await find(there, "word", scope=scope)
            assert sorted(each.conversation for each in found) == sorted(2 * [each.id for each in expected])

    async def test_forks_showing_a_turn_are_live_branches_made_from_it_or_later_ones(
        self, here: Store, there: Store
    ) -> None:
        found, forked, gone = await insert_all(here, [conversation() for _ in range(3)])
        turns = await grow(here, found.branch, 3)
        early, _ = await branch_off(here, forked, turns[0], Stretch(found.branch, 0, 1))
        late, own = await branch_off(here, forked, turns[2], Stretch(found.branch, 0, 3), count=1)
        line = (Stretch(late.id, 3, 4), Stretch(found.branch, 0, 3))
        indirect, _ = await branch_off(here, found, own[0], *line)
        await branch_off(here, gone, turns[2], Stretch(found.branch, 0, 3))
        await write(here, do("save_conversation", replace(gone, state=ConversationState.EXPIRED)))
        of_late = [ShownBranch(forked.id, late.id), ShownBranch(found.id, indirect.id)]
        of_all = [ShownBranch(forked.id, early.id), *of_late]
        for number, limit, expected in ((1, 9, of_all), (2, 9, of_late), (1, 2, of_all[:2]), (4, 9, [])):
            assert await read(there, do("forks_showing", found.branch, number, limit)) == expected
        assert await read(there, do("forks_showing", indirect.id, 1, 9)) == []

    async def test_index_texts_makes_the_texts_of_its_owner_found_as_they_are_now(
        self, here: Store, there: Store
    ) -> None:
        found = await insert_conversation(here, conversation(title="old"))
        made = await add_text(here, found, "word")
        await add_text(here, await insert_conversation(here, conversation(owner="bob")), "word")

        async def index_own() -> None:
            await index(here, lambda limit: do("index_texts", limit), limit=1)

        await index_own()
        assert [each.turn for each in await find(there, "word")] == [made.id]
        await write(here, do("save_conversation", replace(found, title="new")))
        later = await add_text(here, found, "later", 2)
        await index_own()
        assert [each.turn for each in await find(there, "new")] == [None]
        assert await find(there, "old") == []
        assert [each.turn for each in await find(there, "later")] == [later.id]

    async def test_index_texts_of_all_owners_makes_every_text_found(self, here: Store, there: Store) -> None:
        chats = await insert_all(here, [conversation(), conversation(owner="bob")])
        made = [await add_text(here, each, "word") for each in chats]
        await index(here, index_all, limit=1)
        for each, text in zip(chats, made, strict=True):
            found = await find(there, "word", owner=each.owner)
            assert [match.turn for match in found] == [text.id]
        await write(here, do("save_flags", made[0].id, {0: Flags(True, False)}))
        await index(here, index_all)
        assert await find(there, "word") == []

    async def test_is_index_complete_only_if_every_text_is_found(self, here: Store, there: Store) -> None:
        for number in range(1, 4):
            chats = await insert_all(here, [conversation(), conversation(owner="bob")])
            for each in chats:
                await add_text(here, each, "word")
            if await read(there, do("is_index_complete")):
                assert len(await find(there, "word")) == number
            await index(here, lambda limit: do("index_texts", limit))
            assert await read(there, do("is_index_complete")) is True
            assert len(await find(there, "word")) == number
            if await read(there, do_whole("is_index_complete")):
                assert len(await find(there, "word", owner="bob")) == number
            await index(here, index_all)
            assert await read(there, do_whole("is_index_complete")) is True
            assert await read(there, do("is_index_complete", owner="bob")) is True
            assert len(await find(there, "word", owner="bob")) == number
