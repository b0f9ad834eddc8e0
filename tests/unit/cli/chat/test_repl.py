"""From one prompt to the next, by the keys that a person presses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from tests.unit.cli.talking.paper import Paper
from tests.unit.cli.talking.place_contract import told, wish
from turnledger.cli.chat import repl
from turnledger.cli.chat.connect import DemoOnly
from turnledger.cli.chat.interrupts import Interrupts
from turnledger.cli.chat.repl import ChatLoop
from turnledger.cli.chat.session import Session
from turnledger.cli.chat.store import OnStore, StoreModels
from turnledger.ledger import Ledger

pytestmark = pytest.mark.anyio

ENTER, CTRL_D = "\r", "\x04"
PATIENCE = 20.0


class Person:
    """Somebody who sits before it."""

    def __init__(self, place: OnStore, keyboard: PipeInput) -> None:
        self.place = place
        self.paper = Paper(80, 40)
        self.presses = Interrupts()
        self.talker = Session(place, self.paper.screen, ["demo"], self.presses)
        self._keyboard = keyboard
        self.chat_loop = ChatLoop(self.talker, self.presses, InMemoryHistory())
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
    place = OnStore(await Ledger.open(), StoreModels(DemoOnly()), "memory")
    with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
        person = Person(place, keyboard)
        yield person
        person.talking.cancel()
        await asyncio.wait((person.talking,))
    await place.close()


async def test_a_chat_that_others_delete_is_told_and_the_next_one_is_watched_as_well(person: Person) -> None:
    person.types("Hello" + ENTER)
    await person.sees("nothing before that")
    await person.until(lambda: person.talker.label == "2 › ")
    elsewhere = await person.place.open(str(person.talker.talk.id))
    await elsewhere.delete()
    await person.sees("✗ conversation_deleted: ")
    person.types("/new" + ENTER)
    await person.sees("A new chat.")
    person.types("Another" + ENTER)
    await person.sees('You said "Another"')
    await person.until(lambda: person.talker.label == "2 › ")
    await told(await person.place.open(str(person.talker.talk.id)), wish("From there"))
    await person.sees("Meanwhile, elsewhere:")
    await person.leaves()


async def test_what_others_do_right_before_a_prompt_is_told_there(person: Person) -> None:
    catch_up = person.talker.catch_up

    async def late(own: str | None = None) -> Any:
        made = await catch_up(own)
        if own is None and person.talker.talk.id is not None:  # the first turn was told
            await (await person.place.open(str(person.talker.talk.id))).delete()
            await person.until(person.chat_loop._news.is_set)  # before there is a prompt
        return made

    person.talker.catch_up = late  # type: ignore[method-assign]
    person.types("Hello" + ENTER)
    await person.sees("✗ conversation_deleted: ")
    await person.leaves()


async def test_who_is_told_to_end_leaves_the_screen_in_order(person: Person) -> None:
    person.types("//stall after 2" + ENTER)
    await person.sees("You said")
    person.talking.cancel()
    await asyncio.wait((person.talking,))
    assert "Ctrl-C stops" in person.paper.written
    assert [line for line in person.paper.lines if line] == ["You said"]


async def test_who_waits_for_a_command_is_told_so_and_can_leave_off(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repl, "TICK", 0.01)
    person.types("Hello" + ENTER)
    await person.sees("nothing before that")
    await person.until(lambda: person.talker.label == "2 › ")
    elsewhere = await person.place.open(str(person.talker.talk.id))
    running = elsewhere.ask(wish("/stall"))
    events = aiter(running)
    await anext(events)
    person.types("/undo" + ENTER)
    await person.sees("waiting, 0 s, Ctrl-C leaves off")
    person.presses.note()
    await person.sees("Left off.")
    assert "waiting" not in "\n".join(person.paper.lines)
    await running.leave()
    await person.leaves()
