"""How people come into the page, and leave it."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import BrowserContext, FrameLocator, Locator, Page, expect

from tests.web.page_server import STORED, Person


def field(page: Page | FrameLocator) -> Locator:
    """Where who is in can write."""
    return page.get_by_role("textbox", name="Message", exact=True)


def give_token(page: Page | FrameLocator, text: str) -> None:
    """Give a token, or what is none."""
    page.get_by_label("Token").fill(text)
    page.get_by_role("button", name="Sign in").click()


def sign_in(page: Page | FrameLocator, who: Person) -> None:
    """Come in with his token."""
    give_token(page, who.token)
    is_in(page, who)


def is_in(page: Page | FrameLocator, who: Person) -> None:
    """He is who is in."""
    # The list of chats may be put away.
    expect(page.locator(f'[aria-label="Signed in as {who.owner}"]')).to_be_attached()


def sign_out(page: Page | FrameLocator) -> None:
    """Leave."""
    page.get_by_role("button", name="Signed in as").click()
    page.get_by_role("menuitem", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()


def kept(page: Page) -> str:
    """All that is written down in the browser."""
    return str(page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])"))


def opened(context: BrowserContext, url: str) -> Page:
    """A tab with this page."""
    page = context.new_page()
    page.goto(url)
    return page


def replace_elsewhere(context: BrowserContext, who: Person) -> None:
    """Another tab has his token from now on, and tells nobody but the storage."""
    page = opened(context, f"{who.house.url}/favicon.svg")
    page.evaluate("([name, token]) => localStorage.setItem(name, token)", [STORED, who.token])
    page.close()


def expire(page: Page) -> None:
    """Have an hour go by, in a page with a clock of its own, and the server say what it says of a token that
    has had its time."""
    problem = {"code": "token_expired", "message": "This token has expired.", "type": "authentication_error"}
    page.route("**/api/tokens/self*", lambda route: route.fulfill(status=401, json={"error": problem}))
    page.clock.fast_forward(3_600_000)


def shared(person: Person, **wish: Any) -> dict[str, Any]:
    """A link, and where it leads."""
    made = person.ask("POST", "/api/shares", wish)
    return {**made, "url": person.house.url + made["path"]}


def visit(page: Page | FrameLocator) -> Locator:
    """What somebody is told of his visit."""
    return page.get_by_role("note", name="Your visit")
