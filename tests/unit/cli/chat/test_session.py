"""The chat that one is in: what is on the screen of it, and what is said there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.cli.talking.paper import Paper
from turnledger.cli.chat.backend import Wish
from turnledger.cli.chat.interrupts import Presses
from turnledger.cli.chat.session import LAST, Talker
from turnledger.cli.chat.store import OnStore, StoredTalk, StoreModels
from turnledger.errors import InvalidInput
from turnledger.ledger import Ledger
from turnledger.runners.demo import DemoModel
from turnledger.server.models.models import Models, ResolvedModel

pytestmark = pytest.mark.anyio


@pytest.fixture
async def place() -> AsyncIterator[OnStore]:
    model = DemoModel(pace=0)
    models = Models({name: ResolvedModel(model, name) for name in ("small", "large")})
    place = OnStore(await Ledger.open(), StoreModels(models), "memory")
    yield place
    await place.close()


@pytest.fixture
def paper() -> Paper:
    return Paper(80, 40)


@pytest.fixture
async def talker(place: OnStore, paper: Paper) -> Talker:
    return Talker(place, paper.screen, ["small", "large"], Presses(), now=lambda: 0.0)


async def said_elsewhere(place: OnStore, talker: Talker, *texts: str) -> StoredTalk:
    talk = await place.open(str(talker.talk.id)) if talker.talk.id else place.new()
    for text in texts:
        asked = Wish(model="large", text=text, idempotency_key=f"{talk.id} {text}")
        assert [event async for event in talk.ask(asked)]
    return talk


async def test_what_is_said_and_answered_counts(talker: Talker, paper: Paper) -> None:
    assert talker.label == "1 › "
    await talker.say("Hello")
    assert paper.lines == ['You said "Hello". I remember nothing before that.']
    assert talker.label == "2 › "
    assert talker.chat is not None
    assert talker.chat.title == "Hello"


async def test_others_are_seen_once(place: OnStore, talker: Talker, paper: Paper) -> None:
    await talker.say("Hello")
    await said_elsewhere(place, talker, "From there")
    await talker.catch_up()
    await talker.catch_up()
    assert paper.lines[2:5] == ["Meanwhile, elsewhere:", "", "2 › From there"]
    assert "\n".join(paper.lines).count("From there") == 2  # asked, and told by the answer
    talk = await place.open(str(talker.talk.id))
    await talk.undo((await talk.look()).turns[-1].id)
    await talker.catch_up()
    assert paper.lines[-1] == "Taken back elsewhere: 1 turn."
    assert talker.label == "2 › "


async def test_who_was_not_the_next_is_told_which_turn_it_is(
    place: OnStore, talker: Talker, paper: Paper
) -> None:
    await talker.say("Hello")
    await said_elsewhere(place, talker, "From there")
    await talker.say("From here")
    assert [line for line in paper.lines if "› " in line] == ["2 › From there"]
    assert paper.lines[-1] == "Yours is turn 3: From here"
    assert talker.label == "4 › "


async def test_a_chat_that_is_opened_shows_its_end_and_keeps_its_model(
    place: OnStore, talker: Talker, paper: Paper
) -> None:
    talk = await said_elsewhere(place, talker, *(f"message {number}" for number in range(1, LAST + 3)))
    await talker.open(talk)
    assert paper.lines[0] == "message 1"
    assert paper.lines[2] == "2 earlier turns: /history shows all"
    assert [line for line in paper.lines if "› " in line] == [
        f"{number} › message {number}" for number in range(3, LAST + 3)
    ]
    assert talker.model == "large"
    assert talker.label == f"{LAST + 3} › "


async def test_what_cannot_be_said_is_in_the_prompt_again(talker: Talker) -> None:
    talker.model = "unknown"
    with pytest.raises(InvalidInput):
        await talker.say("/path is what?")
    assert talker.unsent == "//path is what?"


async def test_a_failed_turn_is_tried_again_under_its_name(talker: Talker, paper: Paper) -> None:
    asked: list[Wish] = []
    ask = talker.talk.ask

    def noted(wish: Wish) -> object:
        asked.append(wish)
        return ask(wish)

    talker.talk.ask = noted  # type: ignore[method-assign, assignment]
    for text in ("/fail", "/fail", "Hello", "Hello"):
        await talker.say(text)
    keys = [wish.idempotency_key for wish in asked]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    assert paper.lines.count("✗ model_unavailable: The demo model failed, as it was asked to.") == 2
