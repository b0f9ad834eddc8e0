"""Chats of a store, as the terminal sees them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from turnledger.cli.talking.naming import Naming
from turnledger.cli.talking.on_store import OnStore, StoredTalk
from turnledger.cli.talking.place import Wish
from turnledger.cli.talking.store_models import StoreModels
from turnledger.errors import ConversationNotFound, ModelUnavailable
from turnledger.ledger import Ledger
from turnledger.model.attempt import AttemptState
from turnledger.model.event import TextDelta, TurnFinished
from turnledger.model.turn import TurnKind
from turnledger.runners.demo import DemoModel
from turnledger.server.models import Found, Models

pytestmark = pytest.mark.anyio


async def at_once(seconds: float) -> None:
    await asyncio.sleep(0)


@pytest.fixture
async def place() -> AsyncIterator[OnStore]:
    models = Models({"demo": Found(DemoModel(sleep=at_once), "demo")})
    place = OnStore(await Ledger.open(), StoreModels(models), "memory")
    yield place
    await place.close()


def wish(text: str, key: str = "", **more: str) -> Wish:
    return Wish(model="demo", text=text, idempotency_key=key or text, **more)  # type: ignore[arg-type]


async def told(talk: StoredTalk, asked: Wish) -> str:
    events = [event async for event in talk.ask(asked)]
    assert isinstance(events[-1], TurnFinished)
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_a_chat_is_there_with_its_first_turn(place: OnStore) -> None:
    talk = place.new()
    assert talk.id is None
    with pytest.raises(ConversationNotFound):
        await talk.look()
    assert await told(talk, wish("Hello")) == 'You said "Hello". I remember nothing before that.'
    seen = await talk.look()
    assert [(turn.number, turn.asked, turn.kind) for turn in seen.turns] == [(1, "Hello", TurnKind.COMPLETED)]
    assert (seen.chat.id, seen.chat.title, seen.chat.turns) == (talk.id, "Hello", 1)
    assert [chat.id for chat in await place.chats()] == [talk.id]
    assert (await (await place.open(str(talk.id))).look()).turns == seen.turns


async def test_a_failed_turn_raises_behind_its_end_and_the_same_again_is_said_once(place: OnStore) -> None:
    talk = place.new()
    events = []
    with pytest.raises(ModelUnavailable):
        async for event in talk.ask(wish("/fail after 2", "k")):
            events.append(event)
    assert isinstance(events[-1], TurnFinished)
    assert events[-1].state is AttemptState.FAILED
    assert await told(talk, wish("Hello", "once")) == await told(talk, wish("Hello", "once"))
    assert [turn.asked for turn in (await talk.look()).turns] == ["Hello"]


async def test_a_stopped_turn_is_kept_and_one_that_runs_is_followed(place: OnStore) -> None:
    place.answering = StoreModels(Models({"demo": Found(DemoModel(pace=0, patience=3600), "demo")}))
    talk = place.new()
    answering = talk.ask(wish("/stall after 2"))
    said = ""
    async for event in answering:
        if isinstance(event, TextDelta):
            said += event.text
        if said == "You said":
            seen = await talk.look()
            assert seen.running is not None
            assert (seen.running.id, seen.running.asked) == (answering.turn, "/stall after 2")
            followed = talk.follow(seen.running.id)
            await followed.stop()
            assert isinstance([event async for event in followed][-1], TurnFinished)
            said = "stopped"
    (turn,) = (await talk.look()).turns
    assert turn.kind is TurnKind.INTERRUPTED


async def test_versions_branches_and_forks(place: OnStore) -> None:
    talk = place.new()
    await told(talk, wish("One"))
    await told(talk, wish("Two"))
    first, second = (await talk.look()).turns
    await told(talk, wish("Two and a half", replaces=second.id))
    await told(talk, wish("", "again", regenerates=(await talk.look()).turns[-1].id))
    versions = await talk.versions((await talk.look()).turns[-1].id)
    assert [version.turn.asked for version in versions] == ["Two", "Two and a half", "Two and a half"]
    await talk.switch(versions[0].branch)
    assert [turn.asked for turn in (await talk.look()).turns] == ["One", "Two"]
    assert [branch.length for branch in await talk.branches()] == [2, 2, 2]
    await talk.undo(second.id)
    assert [turn.asked for turn in (await talk.look()).turns] == ["One"]
    forked = await talk.fork(first.id, "Another")
    assert forked.id != talk.id
    assert (await forked.look()).chat.title == "Another"
    assert [turn.asked for turn in (await forked.look()).turns] == ["One"]


async def test_what_is_hidden_from_people_is_not_shown(place: OnStore) -> None:
    talk = place.new()
    await told(talk, wish("A secret"))
    (turn,) = (await talk.look()).turns
    await (await place.ledger.conversation(talk.id)).flag(turn.id, 1, to_user=False)
    (turn,) = (await talk.look()).turns
    assert (turn.asked, turn.output) == ("A secret", ())


async def test_chats_are_found_named_pinned_exported_and_deleted(place: OnStore) -> None:
    talk, other = place.new(), place.new()
    await told(talk, wish("Cats and dogs"))
    await told(other, wish("The weather"))
    (found,) = await place.chats("dogs")
    assert (found.id, found.found[slice(*found.marks[0])]) == (talk.id, "dogs")
    await talk.rename("Animals")
    await talk.pin(True)
    seen = (await talk.look()).chat
    assert (seen.title, seen.is_pinned) == ("Animals", True)
    markdown = b"".join([piece async for piece in talk.export(is_markdown=True)])
    assert markdown.startswith(b"# Animals")
    assert b'"chat"' in b"".join([piece async for piece in talk.export(is_markdown=False)])
    await other.archive()
    assert [chat.id for chat in await place.chats()] == [talk.id]
    await talk.delete()
    assert await place.chats() == []


async def test_what_happens_is_told(place: OnStore) -> None:
    changes = place.changes()
    talk = place.new()
    await told(talk, wish("Hello"))
    heard = asyncio.ensure_future(anext(changes))
    await told(talk, wish("Again"))
    assert await heard == talk.id


async def test_a_model_names_a_chat_behind_its_first_turn(place: OnStore) -> None:
    place.naming = Naming(place.ledger, Found(DemoModel(sleep=at_once), "demo"))
    talk = place.new()
    changes = place.changes()
    await told(talk, wish("Hello"))
    while (await talk.look()).chat.title == "Hello":
        await anext(changes)
    title = (await talk.look()).chat.title
    assert title is not None
    assert title.startswith("You said")
    await told(talk, wish("Again"))
    assert (await talk.look()).chat.title == title
