"""The main states of the page: how each is reached, and when it is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Page, expect

from tests.web.page_server import Person
from tests.web.thread import AT, import_chat, message_item
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import CUT

HOUR = 3_600_000
GUIDE = """\
A **turn** is a message and its answer. It is kept as a whole, or it never happened.

1. `begin` claims the place in the history.
2. Steps are saved as they happen.
3. `commit` makes all of it visible, *at once*.

```python
async with chat.turn("Book a table for two") as turn:
    answer = await model(turn.messages)
    turn.emit(answer)   # committed where the block ends
```

| What happens | What is kept |
| --- | --- |
| the answer is complete | all of it |
| somebody presses Stop | as far as it got |
| the model breaks down | nothing, and your text is back |

> A history that is half a turn ahead of the world is worse than none.
"""


def spent(read: int, written: int) -> dict[str, Any]:
    """Model and usage of a turn."""
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return {"model": "demo", "usage": usage}


CALL = {
    "type": "function_call",
    "call_id": "call_1",
    "name": "find_table",
    "arguments": '{"guests": 2, "at": "19:30"}',
}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": '{"table": 7, "by": "the window"}'}
TURNS: list[dict[str, Any]] = [
    {
        "input": [message_item("Tell me about the house")],
        "output": [message_item("It was built in 1904, and for a long time it was", "assistant")],
        "kind": "interrupted",
        "details": spent(412, 11),
    },
    {
        "input": [message_item("Book a table for two, tonight at half past seven")],
        "output": [CALL, RESULT, message_item("Done: **table 7**, by the window, at 19:30.", "assistant")],
        "details": spent(516, 38),
    },
    {
        "input": [message_item("And what is a turn?")],
        "output": [message_item(GUIDE, "assistant")],
        "details": spent(988, 216),
    },
]


DINNER = TURNS[:2]


@dataclass
class Scene:
    page: Page
    person: Person
    gates: list[Gate] = field(default_factory=list)

    def hold(self, *script: Any) -> None:
        """Make the model answer with this, then wait."""
        gate = Gate()
        self.gates.append(gate)
        self.person.server.model.add_script(*script, gate, " And so on.")

    def end(self) -> None:
        for gate in self.gates:
            self.person.server.model.release(gate)

    def chat(self, turns: Sequence[Mapping[str, Any]] = TURNS, title: str = "What a turn is") -> None:
        """Open a chat with these turns, by default with every kind of content."""
        self.open(import_chat(self.person, turns, title))
        expect(self.page.locator("[data-turn]")).to_have_count(len(turns))
        if turns is TURNS:  # a worker colours the code
            expect(self.page.locator(".code-string").first).to_be_attached()

    def send(self, text: str) -> None:
        """Send by the button: Enter does not send on touch devices."""
        self.page.get_by_role("textbox", name="Message", exact=True).fill(text)
        self.page.get_by_role("button", name="Send", exact=True).click()

    def open(self, chat: str) -> None:
        self.page.goto(f"{self.person.server.url}/#{chat}")

    @property
    def is_narrow(self) -> bool:
        size = self.page.viewport_size
        return size is not None and size["width"] < 832

    def show_chats(self) -> None:
        chats = self.page.get_by_role("navigation", name="Chats")
        if self.is_narrow and chats.count() == 0:
            self.page.get_by_role("button", name="Show chats").click()
        expect(chats).to_be_visible()


def welcome(scene: Scene) -> None:
    """With the demo model only."""
    scene.page.goto(scene.person.server.url)
    expect(scene.page.get_by_role("button", name="See a failed turn vanish")).to_be_visible()


def vanished(scene: Scene) -> None:
    """With the demo model only."""
    welcome(scene)
    scene.page.get_by_role("button", name="See a failed turn vanish").click()
    expect(scene.page.get_by_role("complementary")).to_contain_text("the turn never happened")


def sign_in(scene: Scene) -> None:
    scene.page.goto(scene.person.server.url)
    scene.page.evaluate("localStorage.clear()")
    scene.page.reload()
    expect(scene.page.get_by_role("heading", name="Sign in")).to_be_visible()


def reader(scene: Scene) -> None:
    chat = import_chat(scene.person, TURNS, "What a turn is")
    link = scene.person.fetch("POST", "/api/shares", {"chat": chat})
    scene.page.goto(scene.person.server.url + link["path"])
    expect(scene.page.locator("[data-turn]")).to_have_count(len(TURNS))


def empty(scene: Scene) -> None:
    scene.page.goto(scene.person.server.url)
    expect(scene.page.get_by_text("What would you like to talk about?")).to_be_visible()


def thread(scene: Scene) -> None:
    for number, title in enumerate(("Dinner on Friday", "Packing list", "A name for the boat", "Tax letter")):
        import_chat(scene.person, TURNS[: number % 2 + 1], title, AT - HOUR * (number + 1) * 7)
    scene.chat()


def steps(scene: Scene) -> None:
    scene.chat()
    scene.page.locator("details > summary").first.click()
    expect(scene.page.locator("details[open] .code-string").first).to_be_visible()


def running(scene: Scene) -> None:
    scene.chat(DINNER, "Dinner tonight")
    scene.hold("It is on its way, and so far it says **this much**")
    scene.send("And while it runs?")
    expect(scene.page.get_by_text("It is on its way")).to_be_visible()
    scene.page.get_by_role("textbox", name="Message", exact=True).fill("One more thing, when you are done")
    expect(scene.page.get_by_role("radio", name="Send next")).to_be_visible()


def queued(scene: Scene) -> None:
    if not scene.gates:
        running(scene)
    scene.send("One more thing, when you are done")
    expect(scene.page.locator("[data-state=queued]")).to_be_visible()


def failed(scene: Scene) -> None:
    scene.chat(DINNER, "Dinner tonight")
    scene.person.server.model.add_script("The terrace is ", CUT)
    scene.send("Is the terrace open?")
    expect(scene.page.locator("[data-failed]")).to_be_visible()


def branches(scene: Scene) -> None:
    scene.page.goto(scene.person.server.url)
    scene.person.server.model.add_script("Soup, bread and a glass of wine.")
    scene.send("What shall we eat?")
    expect(scene.page.locator("[data-turn]")).to_have_count(1)
    scene.person.server.model.add_script("Fish, if there is some today.")
    scene.page.get_by_role("button", name="Regenerate").click()
    expect(scene.page.get_by_text("2/2")).to_be_visible()


def chats(scene: Scene) -> None:
    thread(scene)
    scene.show_chats()
    expect(scene.page.get_by_role("navigation").get_by_text("Packing list")).to_be_visible()


def search(scene: Scene) -> None:
    chats(scene)
    scene.page.get_by_role("searchbox").fill("table")
    expect(scene.page.locator(".hit").first).to_be_visible()


def menu(scene: Scene) -> None:
    chats(scene)
    scene.page.get_by_role("link", name="Packing list").hover()
    scene.page.get_by_role("button", name="Options for “Packing list”").click()
    expect(scene.page.get_by_role("menu")).to_be_visible()


def rename(scene: Scene) -> None:
    menu(scene)
    scene.page.get_by_role("menuitem", name="Rename").click()
    expect(scene.page.get_by_role("textbox", name="Chat name")).to_be_focused()


def deleted(scene: Scene) -> None:
    menu(scene)
    scene.page.get_by_role("menuitem", name="Delete").click()
    scene.page.get_by_role("menuitem", name="Delete?").click()
    expect(scene.page.get_by_role("button", name="Undo")).to_be_visible()


def options(scene: Scene) -> None:
    scene.chat()
    scene.page.get_by_role("button", name="Chat options").click()
    expect(scene.page.get_by_role("menu")).to_be_visible()


def edit(scene: Scene) -> None:
    scene.chat()
    scene.page.locator("[data-turn]").last.get_by_role("button", name="Edit").click()
    expect(scene.page.get_by_role("textbox", name="Edit")).to_be_focused()
    expect(scene.page.get_by_role("textbox", name="Edit")).to_be_in_viewport(ratio=0.9)


def shortcuts(scene: Scene) -> None:
    empty(scene)
    scene.page.get_by_role("button", name="Keyboard shortcuts").click()
    expect(scene.page.get_by_role("region", name="Keyboard shortcuts")).to_be_visible()


def embedded(scene: Scene) -> None:
    chat = import_chat(scene.person, TURNS, "What a turn is")
    scene.page.goto(f"{scene.person.server.url}/?embed=1#{chat}")
    expect(scene.page.locator("[data-turn]")).to_have_count(len(TURNS))


def temporary(scene: Scene) -> None:
    scene.page.goto(f"{scene.person.server.url}/?keep=no")
    expect(scene.page.get_by_role("heading", name="Temporary chat")).to_be_visible()


def offline(scene: Scene) -> None:
    scene.chat()
    scene.page.context.set_offline(True)
    expect(scene.page.get_by_text("No connection").first).to_be_visible()


SCENES: dict[str, Callable[[Scene], None]] = {
    each.__name__: each
    for each in (
        empty, thread, steps, running, queued, failed, branches, chats, search, menu, rename, deleted,
        options, edit, shortcuts, embedded, temporary, offline, sign_in, reader, welcome, vanished,
    )
}  # fmt: skip
WITH_DEMO = {"welcome", "vanished"}
"""Scenes with the demo model."""


def staged(page: Page, person: Person, names: Iterable[str]) -> Iterator[tuple[str, Scene]]:
    """Yield the scenes one after the other, in one page of one user."""
    scene = Scene(page, person)
    try:
        for name in names:
            SCENES[name](scene)
            yield name, scene
            page.context.set_offline(False)
            if not scene.gates:  # it would stop what runs
                page.keyboard.press("Escape")
    finally:
        scene.end()
