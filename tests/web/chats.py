"""Stored chats of any number and age, and the list that shows them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing

from playwright.sync_api import Locator, Page

from tests.web.page_server import Person
from turnledger import Ledger
from turnledger.model.ids import ConversationId

DAY = 86_400_000


def make_chats(person: Person, titles: Sequence[str], scope: str = "") -> list[str]:
    """Create chats directly in the store, the first of them used last; return their ids."""

    async def make(ledger: Ledger) -> list[str]:
        chats = [
            await asyncio.gather(
                *(ledger.for_owner(person.owner, scope=scope).conversation(title=title) for title in some)
            )
            for some in (titles[at : at + 100] for at in range(0, len(titles), 100))
        ]
        return [str(chat.id) for some in chats for chat in some]

    ids = person.server.on_ledger(make)
    now = int(person.fetch("GET", "/api/chats?limit=1")["data"][0]["touched_at"])
    set_last_use(person, {id: now - 1_000 - at for at, id in enumerate(ids)})
    return ids


def set_last_use(person: Person, times: dict[str, int]) -> None:
    """Set the last use of chats, in milliseconds since 1970."""
    path = person.server.store.removeprefix("sqlite:///")
    rows = [(time, ConversationId(id).raw) for id, time in times.items()]
    with closing(sqlite3.connect(path, timeout=20)) as store, store:
        store.executemany("UPDATE conversation SET touched_at = ? WHERE id = ?", rows)


def reopen(page: Page, person: Person) -> None:
    page.goto("about:blank")
    page.goto(person.server.url)


def chat_lines(page: Page) -> Locator:
    return page.get_by_role("navigation", name="Chats").locator("li[aria-posinset]")


def chat_line(page: Page, title: str) -> Locator:
    return chat_lines(page).filter(has_text=title)


def notice(page: Page, text: str) -> Locator:
    return page.get_by_role("region", name="Notifications").get_by_text(text)


def titles(page: Page) -> list[str]:
    """Return the titles from top to bottom."""
    shown = chat_lines(page).evaluate_all(
        "(lines) => lines.sort((one, other) => one.ariaPosInSet - other.ariaPosInSet)"
        ".map((line) => line.querySelector('.title')?.textContent)"
    )
    return [str(each) for each in shown]


def scroll_to(page: Page, title: str) -> None:
    """Scroll down in steps until the list shows the chat."""
    page.evaluate(
        """async (title) => {
          const list = document.querySelector(".lines");
          const titles = () => [...list.querySelectorAll(".title")].map((each) => each.textContent);
          for (let frame = 0; frame < 1500 && !titles().includes(title); frame++) {
            list.scrollTop += 300;
            await new Promise(requestAnimationFrame);
          }
        }""",
        title,
    )


def delete_chat(page: Page, title: str) -> None:
    choose_from_menu(page, title, "Delete")
    page.get_by_role("menuitem", name="Delete?").click()


def choose_from_menu(page: Page, title: str, entry: str) -> None:
    chat_line(page, title).hover()
    chat_line(page, title).get_by_role("button", name="Options for").click()
    page.get_by_role("menuitem", name=entry, exact=True).click()
