"""The chat session: its screen, its messages, and one turn from a pipe."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator

import pytest

from tests.unit.cli.chat.memory_screen import MemoryScreen
from tests.unit.cli.chat.test_turn_view import Scripted, said
from turnledger.cli.chat.backend import NewTurn
from turnledger.cli.chat.interrupts import Interrupts
from turnledger.cli.chat.pipe import run_piped
from turnledger.cli.chat.session import LAST, Session
from turnledger.cli.chat.store import OnStore, StoredTalk, StoreModels
from turnledger.errors import InvalidInput
from turnledger.ledger import Ledger
from turnledger.model.event import TurnFinished
from turnledger.model.turn import AttemptState
from turnledger.runners.demo import DemoModel
from turnledger.server.models.models import Models, ResolvedModel


@pytest.fixture
async def place() -> AsyncIterator[OnStore]:
    model = DemoModel(pace=0)
    models = Models({name: ResolvedModel(model, name) for name in ("small", "large")})
    place = OnStore(await Ledger.open(), StoreModels(models), "memory")
    yield place
    await place.close()


@pytest.fixture
def paper() -> MemoryScreen:
    return MemoryScreen(80, 40)


@pytest.fixture
async def talker(place: OnStore, paper: MemoryScreen) -> Session:
    return Session(place, paper.screen, ["small", "large"], Interrupts(), now=lambda: 0.0)


async def said_elsewhere(place: OnStore, talker: Session, *texts: str) -> StoredTalk:
    talk = await place.open(str(talker.talk.id)) if talker.talk.id else place.new()
    for text in texts:
        asked = NewTurn(model="large", text=text, idempotency_key=f"{talk.id} {text}")
        assert [event async for event in talk.ask(asked)]
    return talk


async def test_session_message_prints_the_answer_and_counts_on(talker: Session, paper: MemoryScreen) -> None:
    assert talker.label == "1 › "
    await talker.say("Hello")
    assert paper.lines == ['You said "Hello". I remember nothing before that.']
    assert talker.label == "2 › "
    assert talker.chat is not None
    assert talker.chat.title == "Hello"


async def test_session_shows_turns_made_elsewhere_once(
    place: OnStore, talker: Session, paper: MemoryScreen
) -> None:
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


async def test_session_reports_the_number_of_a_turn_that_came_later(
    place: OnStore, talker: Session, paper: MemoryScreen
) -> None:
    await talker.say("Hello")
    await said_elsewhere(place, talker, "From there")
    await talker.say("From here")
    assert [line for line in paper.lines if "› " in line] == ["2 › From there"]
    assert paper.lines[-1] == "Yours is turn 3: From here"
    assert talker.label == "4 › "


async def test_session_open_shows_the_last_turns_and_adopts_the_model(
    place: OnStore, talker: Session, paper: MemoryScreen
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


async def test_session_returns_an_unsendable_message_to_the_prompt(talker: Session) -> None:
    talker.model = "unknown"
    with pytest.raises(InvalidInput):
        await talker.say("/path is what?")
    assert talker.unsent == "//path is what?"


async def test_session_retries_a_failed_turn_under_its_idempotency_key(
    talker: Session, paper: MemoryScreen
) -> None:
    asked: list[NewTurn] = []
    ask = talker.talk.ask

    def noted(wish: NewTurn) -> object:
        asked.append(wish)
        return ask(wish)

    talker.talk.ask = noted  # type: ignore[method-assign, assignment]
    for text in ("/fail", "/fail", "Hello", "Hello"):
        await talker.say(text)
    keys = [wish.idempotency_key for wish in asked]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    assert paper.lines.count("✗ model_unavailable: The demo model failed, as requested.") == 2


class Out(io.StringIO):
    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


class Talking:
    """A chat in which this is answered."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts

    def ask(self, wish: NewTurn) -> Scripted:
        return Scripted(*said(*self._texts), TurnFinished(9, AttemptState.COMPLETED))


@pytest.mark.parametrize(
    ("is_terminal", "written"),
    [(False, "a \u202eb\u202c\n\tc\nd\n"), (True, "a \\u202eb\\u202c\n    c\nd\n")],
)
async def test_piped_answer_escapes_bidi_controls_only_on_a_terminal(is_terminal: bool, written: str) -> None:
    out = Out(is_terminal=is_terminal)
    talk = Talking("a \u202eb\u202c\r", "\n\tc\r\nd")
    await run_piped(talk, "demo", "Hello", out)  # type: ignore[arg-type]
    assert out.getvalue() == written
