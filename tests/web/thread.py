"""Actions in a chat of the page, parts of its thread, and chats imported before a test."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from playwright.sync_api import FrameLocator, Locator, Page, expect

from tests.web.page_server import PATIENCE, Person
from turnledger import Ledger

AT = 1_770_000_000_000


def message_field(page: Page | FrameLocator) -> Locator:
    return page.get_by_role("textbox", name="Message", exact=True)


def send(tab: Page, *texts: str) -> None:
    for text in texts:
        message_field(tab).fill(text)
        message_field(tab).press("Enter")


def inputs_by_chat(person: Person) -> list[list[str]]:
    """Return the inputs of each chat, the last used chat first."""
    return [[text for text, _ in person.turns(chat["id"])] for chat in person.chats()]


def expect_turns(tab: Page, count: int) -> None:
    """Wait until the history has this many turns and none runs."""
    expect(tab.locator("[data-turn]")).to_have_count(count)
    expect(stop_button(tab)).to_have_count(0)


def stop_button(tab: Page) -> Locator:
    return tab.get_by_role("button", name="Stop", exact=True)


def open_new_chat(tab: Page, person: Person) -> None:
    tab.goto(person.server.url + "#new")
    expect(message_field(tab)).to_be_visible()


def start_new_chat(tab: Page) -> None:
    tab.get_by_role("button", name="New chat").first.click()
    expect(tab.locator("[data-turn]")).to_have_count(0)


def wait_until(tab: Page, condition: str) -> None:
    """Wait until a condition holds. The policy of the page forbids to evaluate texts, as Playwright would."""
    tab.evaluate(
        f"""() => new Promise((resolve) => {{
            const look = () => ({condition}) ? resolve() : setTimeout(look, 20);
            look();
        }})"""
    )


def open_chat(tab: Page, person: Person, chat: str) -> None:
    tab.goto("about:blank")  # a new fragment alone would not reload the page
    tab.goto(f"{person.server.url}/#{chat}")


def messages(tab: Page) -> Locator:
    return tab.locator(".message.user")


def answers(tab: Page) -> Locator:
    return tab.locator(".message.assistant")


def turns_in_history(tab: Page) -> Locator:
    return tab.locator("[data-turn]")


def set_hidden(tab: Page, *, hidden: bool = True) -> None:
    """Simulate a hidden tab, since headless browsers show all tabs."""
    tab.evaluate(
        """hidden => {
          const state = hidden ? "hidden" : "visible";
          Object.defineProperty(document, "visibilityState", { get: () => state, configurable: true });
          Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def message_item(text: str, role: str = "user", **more: Any) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}], **more}


def import_chat(
    person: Person, turns: Iterable[Mapping[str, Any]], title: str = "As it was", at: int = AT
) -> str:
    """Import a chat with these turns, given by fields of the export format."""
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

    return person.server.on_ledger(load, patience=6 * PATIENCE)


def open_second_tab(tab: Page, person: Person) -> Page:
    """Run a turn in a new chat and open a second tab at it."""
    person.server.model.add_script("Hello.")
    send(tab, "Good morning")
    expect(turns_in_history(tab)).to_have_count(1)
    page = tab.context.new_page()
    page.goto(tab.url)
    expect(turns_in_history(page)).to_have_count(1)
    return page
