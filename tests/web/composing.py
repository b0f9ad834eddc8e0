"""What people do where they write."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.web.page_server import Person
from tests.web.sign_in import field


def send(tab: Page, *texts: str) -> None:
    """Write each, and press Enter."""
    for text in texts:
        field(tab).fill(text)
        field(tab).press("Enter")


def said(person: Person) -> list[list[str]]:
    """What was said in each of somebody's chats, the last used chat first."""
    return [[text for text, _ in person.turns(chat["id"])] for chat in person.chats()]


def shows(tab: Page, count: int) -> None:
    """Wait until the history has so many turns, and nothing is on its way."""
    expect(tab.locator("[data-turn]")).to_have_count(count)
    expect(stop(tab)).to_have_count(0)


def stop(tab: Page) -> Locator:
    return tab.get_by_role("button", name="Stop", exact=True)


def open_new(tab: Page, person: Person) -> None:
    """Open a new chat."""
    tab.goto(person.house.url + "#new")
    expect(field(tab)).to_be_visible()


def begin_another(tab: Page) -> None:
    """Go from a chat to a new one."""
    tab.get_by_role("button", name="New chat").first.click()
    expect(tab.locator("[data-turn]")).to_have_count(0)


def until(tab: Page, condition: str) -> None:
    """Wait until this is so in the page, whose policy lets nobody evaluate texts there."""
    tab.evaluate(
        f"""() => new Promise((resolve) => {{
            const look = () => ({condition}) ? resolve() : setTimeout(look, 20);
            look();
        }})"""
    )
