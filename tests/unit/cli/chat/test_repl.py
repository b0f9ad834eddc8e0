"""The prompt, the chat picker and the chat loop, driven by key presses."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.utils import get_cwidth

from tests.unit.cli.chat.backend_contract import answer_of, new_turn
from tests.unit.cli.chat.memory_screen import MemoryScreen
from tests.unit.model.shapes import some_id
from turnledger.api.chats import ChatInfo
from turnledger.cli.chat import repl
from turnledger.cli.chat.connect import DemoModels
from turnledger.cli.chat.interrupts import Interrupts
from turnledger.cli.chat.picker import MAX_ROWS, PAGE, Picker
from turnledger.cli.chat.prompt import LARGEST_HISTORY, CommandCompleter, fit_line, history_in
from turnledger.cli.chat.repl import ChatLoop
from turnledger.cli.chat.session import Session
from turnledger.cli.chat.store import StoreChatBackend
from turnledger.ledger import Ledger
from turnledger.model.ids import BranchId, ConversationId


def test_input_history_is_stored_privately_without_repetitions(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    history = history_in(folder)
    for typed in ("one", "two\nlines", "two\nlines", " "):
        history.append_string(typed)
    assert list(history_in(folder).load_history_strings()) == ["two\nlines", "one"]
    assert stat.S_IMODE((folder / "chat_history").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_input_history_file_readable_by_others_is_made_private(tmp_path: Path) -> None:
    (tmp_path / "chat_history").touch(mode=0o644)
    history_in(tmp_path)
    assert stat.S_IMODE((tmp_path / "chat_history").stat().st_mode) == 0o600


def test_input_history_above_its_limit_drops_the_older_half(tmp_path: Path) -> None:
    history = history_in(tmp_path)
    history.append_string("the first")
    with (tmp_path / "chat_history").open("a") as file:
        file.write("\n# then\n+" + "x" * LARGEST_HISTORY + "\n")
    history.append_string("the last")
    kept = list(history_in(tmp_path).load_history_strings())
    assert kept == ["the last"]
    assert (tmp_path / "chat_history").stat().st_size < LARGEST_HISTORY
    assert stat.S_IMODE((tmp_path / "chat_history").stat().st_mode) == 0o600


def test_input_history_without_a_folder_stays_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert isinstance(history_in(tmp_path / "file"), InMemoryHistory)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("/e", ["/edit", "/export"]),
        ("/model ", ["large", "small"]),
        ("/model la", ["large"]),
        ("/edit ", []),
        ("hello /e", []),
        ("/e\nx", []),
    ],
)
def test_completer_offers_commands_and_models(typed: str, offered: list[str]) -> None:
    commands = [("edit", "change"), ("export", "write"), ("model", "ask")]
    completer = CommandCompleter(commands, lambda name: ["large", "small"] if name == "model" else [])
    found = completer.get_completions(Document(typed), CompleteEvent())
    assert [each.text for each in found] == offered


@pytest.mark.parametrize("columns", range(14))
def test_fitted_line_never_exceeds_the_columns(columns: int) -> None:
    line = fit_line("日本語 and\nmore", columns)
    assert get_cwidth(line) <= columns
    assert line in ("日本語 and more", "") or line.endswith("…")
    assert fit_line("short", 5) == "short"


ENTER, ESCAPE, PAGE_DOWN, UP, CTRL_D = "\r", "\x1b", "\x1b[6~", "\x1b[A", "\x04"
CHATS = [
    ChatInfo(id=some_id(ConversationId, number), title=f"chat {number}", branch=some_id(BranchId, 1))
    for number in range(3 * PAGE)
]


class Chats:
    """Three pages of chats."""

    def __init__(self) -> None:
        self.sought: list[tuple[str, int]] = []
        self.on_found: Callable[[], None] = lambda: None

    async def search(self, words: str, most: int) -> list[ChatInfo]:
        self.sought.append((words, most))
        asyncio.get_running_loop().call_soon(self.on_found)
        return [chat for chat in CHATS if words in (chat.title or "")][:most]


async def picked(chats: Chats, *keys: str) -> ChatInfo | None:
    """Press the first keys, then the next ones after each search; return the picked chat."""
    left = list(keys)

    def press(keyboard: PipeInput) -> None:
        if left:
            keyboard.send_text(left.pop(0))

    with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
        chats.on_found = lambda: press(keyboard)
        return await Picker(chats.search, "", lambda: 0.0).pick()


async def test_picker_loads_more_chats_while_scrolling_down() -> None:
    chats = Chats()
    down = PAGE_DOWN * (PAGE // (MAX_ROWS - 1) + 1)
    chosen = await picked(chats, down, down, down, UP + ENTER)
    assert chosen == CHATS[3 * PAGE - 2]
    assert [most for _, most in chats.sought] == [PAGE, 2 * PAGE, 3 * PAGE, 4 * PAGE]


async def test_picker_opens_the_first_search_result_on_enter() -> None:
    chats = Chats()
    assert await picked(chats, "7" + ENTER) == CHATS[7]
    assert chats.sought == [("", PAGE), ("7", PAGE)]


async def test_picker_without_results_opens_no_chat_on_enter() -> None:
    assert await picked(Chats(), "no such" + ENTER, ESCAPE) is None


PATIENCE = 20.0


class Person:
    """A user at the terminal."""

    def __init__(self, backend: StoreChatBackend, keyboard: PipeInput) -> None:
        self.backend = backend
        self.paper = MemoryScreen(80, 40)
        self.presses = Interrupts()
        self.session = Session(backend, self.paper.screen, ["demo"], self.presses)
        self._keyboard = keyboard
        self.chat_loop = ChatLoop(self.session, self.presses, InMemoryHistory())
        self.talking = asyncio.create_task(self.chat_loop.run())

    def types(self, keys: str) -> None:
        self._keyboard.send_text(keys)

    async def sees(self, text: str) -> None:
        await self.until(lambda: text in "\n".join(self.paper.lines))

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                await asyncio.sleep(0.002)

    async def leaves(self) -> None:
        self.types(CTRL_D)
        await self.talking


@pytest.fixture
async def person() -> AsyncIterator[Person]:
    backend = StoreChatBackend(await Ledger.open(), DemoModels(), "memory")
    with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
        person = Person(backend, keyboard)
        yield person
        person.talking.cancel()
        await asyncio.wait((person.talking,))
    await backend.close()


async def test_chat_deleted_elsewhere_is_reported_and_the_next_chat_is_watched(person: Person) -> None:
    person.types("Hello" + ENTER)
    await person.sees("nothing before that")
    await person.until(lambda: person.session.label == "2 › ")
    elsewhere = await person.backend.open(str(person.session.handle.id))
    await elsewhere.existing.delete()
    await person.sees("✗ conversation_deleted: ")
    person.types("/new" + ENTER)
    await person.sees("New chat.")
    person.types("Another" + ENTER)
    await person.sees('You said "Another"')
    await person.until(lambda: person.session.label == "2 › ")
    await answer_of(await person.backend.open(str(person.session.handle.id)), new_turn("From there"))
    await person.sees("New in this chat:")
    await person.leaves()


async def test_change_made_elsewhere_just_before_a_prompt_is_reported_there(person: Person) -> None:
    catch_up = person.session.catch_up

    async def late(own: str | None = None) -> Any:
        made = await catch_up(own)
        if own is None and person.session.handle.id is not None:  # the first turn was reported
            await (await person.backend.open(str(person.session.handle.id))).existing.delete()
            await person.until(person.chat_loop._news.is_set)  # before there is a prompt
        return made

    person.session.catch_up = late  # type: ignore[method-assign]
    person.types("Hello" + ENTER)
    await person.sees("✗ conversation_deleted: ")
    await person.leaves()


async def test_cancelled_session_leaves_a_clean_screen(person: Person) -> None:
    person.types("//stall after 2" + ENTER)
    await person.sees("You said")
    person.talking.cancel()
    await asyncio.wait((person.talking,))
    assert "Ctrl-C stops" in person.paper.written
    assert [line for line in person.paper.lines if line] == ["You said"]


async def test_waiting_command_shows_its_wait_and_ctrl_c_abandons_it(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repl, "TICK", 0.01)
    person.types("Hello" + ENTER)
    await person.sees("nothing before that")
    await person.until(lambda: person.session.label == "2 › ")
    elsewhere = await person.backend.open(str(person.session.handle.id))
    running = elsewhere.start(new_turn("/stall"))
    events = aiter(running)
    await anext(events)
    person.types("/undo" + ENTER)
    await person.sees("waiting, 0 s, Ctrl-C cancels")
    person.presses.notify()
    await person.sees("Cancelled.")
    assert "waiting" not in "\n".join(person.paper.lines)
    await running.leave()
    await person.leaves()
