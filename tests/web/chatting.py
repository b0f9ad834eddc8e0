"""What people do in the page, and chats that were there before they came."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.web.page_server import PATIENCE, Person
from turnledger import Ledger

AT = 1_770_000_000_000


def write(tab: Page, text: str) -> None:
    """Say something."""
    field = tab.get_by_role("textbox", name="Message", exact=True)
    field.fill(text)
    field.press("Enter")


def show(tab: Page, person: Person, chat: str) -> None:
    """Open the page at a chat."""
    tab.goto("about:blank")  # another fragment alone would not load it
    tab.goto(f"{person.house.url}/#{chat}")


def messages(tab: Page) -> Locator:
    """What was asked, each."""
    return tab.locator(".message.user")


def answers(tab: Page) -> Locator:
    """The texts of the answers."""
    return tab.locator(".message.assistant")


def committed(tab: Page) -> Locator:
    """The turns that are in the history."""
    return tab.locator("[data-turn]")


def hide(tab: Page, *, hidden: bool = True) -> None:
    """Have another tab in front of it, or this one again. Browsers without a window show all their tabs."""
    tab.evaluate(
        """hidden => {
          const state = hidden ? "hidden" : "visible";
          Object.defineProperty(document, "visibilityState", { get: () => state, configurable: true });
          Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def said(text: str, role: str = "user", **more: Any) -> dict[str, Any]:
    """A message, as an item."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}], **more}


def chat_of(
    person: Person, turns: Iterable[Mapping[str, Any]], title: str = "As it was", at: int = AT
) -> str:
    """Make a chat with these turns, each by its `input` and `output` and whatever else a file says of one."""
    head = {"type": "chat", "schema_version": 1, "id": f"{person.owner} {title}", "title": title}
    lines: list[dict[str, Any]] = [{**head, "created_at": at, "touched_at": at}]
    for number, turn in enumerate(turns):
        line = {
            "type": "turn",
            "schema_version": 1,
            "chat": head["id"],
            "id": f"{person.owner} {title} {number}",
            "parent": f"{person.owner} {title} {number - 1}" if number else None,
            "kind": "completed",
            "created_at": at + number * 1_000,
            "committed_at": at + number * 1_000 + 900,
        }
        lines.append({**line, **turn})

    async def load(ledger: Ledger) -> str:
        text = "\n".join(map(json.dumps, lines)).encode()
        reports = [each async for each in ledger.for_owner(person.owner).import_lines([text])]
        assert [str(each.did) for each in reports if each.did in {"refused", "conflict"}] == []
        return str(reports[0].chat)

    return person.house.on_ledger(load, patience=6 * PATIENCE)


def second_tab(tab: Page, person: Person) -> Page:
    """Say one thing in a new chat, and open a second tab at it."""
    person.house.model.says("Hello.")
    write(tab, "Good morning")
    expect(committed(tab)).to_have_count(1)
    page = tab.context.new_page()
    page.goto(tab.url)
    expect(committed(page)).to_have_count(1)
    return page
