"""The list to pick from: by the keys that a person presses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from turnledger.cli.chat.backend import SeenChat
from turnledger.cli.chat.picker import MOST_ROWS, PAGE, Picker

pytestmark = pytest.mark.anyio

ENTER, ESCAPE, PAGE_DOWN, UP = "\r", "\x1b", "\x1b[6~", "\x1b[A"
CHATS = [
    SeenChat(id=f"conv_{number}", title=f"chat {number}", preview="", turns=1, touched_at=0)
    for number in range(3 * PAGE)
]


class Chats:
    """Three pages of chats."""

    def __init__(self) -> None:
        self.sought: list[tuple[str, int]] = []
        self.has_told: Callable[[], None] = lambda: None

    async def search(self, words: str, most: int) -> list[SeenChat]:
        self.sought.append((words, most))
        asyncio.get_running_loop().call_soon(self.has_told)
        return [chat for chat in CHATS if words in (chat.title or "")][:most]


async def picked(chats: Chats, *keys: str) -> SeenChat | None:
    """What is picked by who presses the first keys, and the next ones each time that something was found."""
    left = list(keys)

    def press(keyboard: PipeInput) -> None:
        if left:
            keyboard.send_text(left.pop(0))

    with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
        chats.has_told = lambda: press(keyboard)
        return await Picker(chats.search, "", lambda: 0.0).pick()


async def test_who_goes_down_comes_to_all_chats() -> None:
    chats = Chats()
    down = PAGE_DOWN * (PAGE // (MOST_ROWS - 1) + 1)
    chosen = await picked(chats, down, down, down, UP + ENTER)
    assert chosen == CHATS[3 * PAGE - 2]
    assert [most for _, most in chats.sought] == [PAGE, 2 * PAGE, 3 * PAGE, 4 * PAGE]


async def test_enter_behind_a_word_opens_what_is_found_by_it() -> None:
    chats = Chats()
    assert await picked(chats, "7" + ENTER) == CHATS[7]
    assert chats.sought == [("", PAGE), ("7", PAGE)]


async def test_enter_where_nothing_is_found_opens_nothing() -> None:
    assert await picked(Chats(), "no such" + ENTER, ESCAPE) is None
