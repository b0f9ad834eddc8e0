"""The chat session: its screen, its messages, and one turn from a pipe."""

from __future__ import annotations

import io

import pytest

from tests.unit.cli.chat.memory_screen import MemoryScreen
from tests.unit.cli.chat.test_turn_view import Scripted, text_updates
from turnledger.cli.chat.backend import AnswerRestarted, NewTurn, TurnUpdate
from turnledger.cli.chat.interrupts import Interrupts
from turnledger.cli.chat.pipe import run_piped
from turnledger.cli.chat.session import OPENED_TURNS, Session
from turnledger.cli.chat.store import StoreChat, StoreChatBackend
from turnledger.errors import InvalidInput
from turnledger.model.event import TurnFinished
from turnledger.model.turn import AttemptState


@pytest.fixture
def paper() -> MemoryScreen:
    return MemoryScreen(80, 40)


@pytest.fixture
async def session(backend: StoreChatBackend, paper: MemoryScreen) -> Session:
    return Session(backend, paper.screen, ["small", "large"], Interrupts(), now=lambda: 0.0)


async def run_turns_elsewhere(backend: StoreChatBackend, session: Session, *texts: str) -> StoreChat:
    talk = await backend.open(str(session.handle.id)) if session.handle.id else backend.new()
    for text in texts:
        question = NewTurn(model="large", text=text, idempotency_key=f"{talk.id} {text}")
        assert [event async for event in talk.start(question)]
    return talk


async def test_session_message_prints_the_answer_and_counts_on(session: Session, paper: MemoryScreen) -> None:
    assert session.label == "1 › "
    await session.send("Hello")
    assert paper.lines == ['You said "Hello". I remember nothing before that.']
    assert session.label == "2 › "
    assert session.chat is not None
    assert session.chat.title == "Hello"


async def test_session_shows_turns_made_elsewhere_once(
    backend: StoreChatBackend, session: Session, paper: MemoryScreen
) -> None:
    await session.send("Hello")
    await run_turns_elsewhere(backend, session, "From there")
    await session.catch_up()
    await session.catch_up()
    assert paper.lines[2:5] == ["New in this chat:", "", "2 › From there"]
    assert "\n".join(paper.lines).count("From there") == 2  # in the question and in the answer
    talk = await backend.open(str(session.handle.id))
    await talk.existing.undo((await talk.read()).turns[-1].id)
    await session.catch_up()
    assert paper.lines[-1] == "Undone elsewhere: 1 turn."
    assert session.label == "2 › "


async def test_session_with_only_the_demo_model_refuses_to_continue_a_chat_of_another_until_it_is_chosen(
    backend: StoreChatBackend, paper: MemoryScreen
) -> None:
    backend.is_demo = True
    session = Session(backend, paper.screen, ["small"], Interrupts(), now=lambda: 0.0)
    talk = await run_turns_elsewhere(backend, session, "From there")
    await session.open(talk)
    with pytest.raises(InvalidInput, match=r"'large' answered last.*or /model small"):
        await session.send("Hello")
    assert session.unsent == "Hello"
    session.begin()
    await session.send("Hello")  # a new chat
    await session.open(talk)
    session.is_model_chosen = True
    await session.send("Hello")
    assert len((await talk.read()).turns) == 2


async def test_session_reports_the_number_of_a_later_turn(
    backend: StoreChatBackend, session: Session, paper: MemoryScreen
) -> None:
    await session.send("Hello")
    await run_turns_elsewhere(backend, session, "From there")
    await session.send("From here")
    assert [line for line in paper.lines if "› " in line] == ["2 › From there"]
    assert paper.lines[-1] == "Your message is turn 3: From here"
    assert session.label == "4 › "


async def test_session_open_shows_the_last_turns_and_adopts_the_model(
    backend: StoreChatBackend, session: Session, paper: MemoryScreen
) -> None:
    talk = await run_turns_elsewhere(
        backend, session, *(f"message {number}" for number in range(1, OPENED_TURNS + 3))
    )
    await session.open(talk)
    assert paper.lines[0] == "message 1"
    assert paper.lines[2] == "2 earlier turns: /history shows them"
    assert [line for line in paper.lines if "› " in line] == [
        f"{number} › message {number}" for number in range(3, OPENED_TURNS + 3)
    ]
    assert session.model == "large"
    assert session.label == f"{OPENED_TURNS + 3} › "


async def test_session_returns_an_unsendable_message_to_the_prompt(session: Session) -> None:
    session.model = "unknown"
    with pytest.raises(InvalidInput):
        await session.send("/path is what?")
    assert session.unsent == "//path is what?"


async def test_session_retries_a_failed_turn_under_its_idempotency_key(
    session: Session, paper: MemoryScreen
) -> None:
    question: list[NewTurn] = []
    start = session.handle.start

    def noted(new_turn: NewTurn) -> object:
        question.append(new_turn)
        return start(new_turn)

    session.handle.start = noted  # type: ignore[method-assign, assignment]
    for text in ("/fail", "/fail", "Hello", "Hello"):
        await session.send(text)
    keys = [new_turn.idempotency_key for new_turn in question]
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

    def __init__(self, *updates: TurnUpdate) -> None:
        self._updates = updates

    def start(self, new_turn: NewTurn) -> Scripted:
        return Scripted(*self._updates, TurnFinished(9, AttemptState.COMPLETED))


async def test_piped_answer_that_begins_again_is_reported_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = Out(is_terminal=False)
    talk = Talking(*text_updates("Half of"), AnswerRestarted(), *text_updates("Half of it."))
    await run_piped(talk, "demo", "Hello", out)  # type: ignore[arg-type]
    assert out.getvalue() == "Half of\nHalf of it.\n"
    assert "begins again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("is_terminal", "written"),
    [(False, "a \u202eb\u202c\n\tc\nd\n"), (True, "a \\u202eb\\u202c\n    c\nd\n")],
)
async def test_piped_answer_escapes_bidi_controls_only_on_a_terminal(is_terminal: bool, written: str) -> None:
    out = Out(is_terminal=is_terminal)
    talk = Talking(*text_updates("a \u202eb\u202c\r", "\n\tc\r\nd"))
    await run_piped(talk, "demo", "Hello", out)  # type: ignore[arg-type]
    assert out.getvalue() == written
