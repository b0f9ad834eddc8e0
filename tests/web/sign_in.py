"""Signing in and out, tokens in the browser, and share links."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import BrowserContext, FrameLocator, Locator, Page, expect

from tests.web.page_server import STORED, Person


def submit_token(page: Page | FrameLocator, text: str) -> None:
    page.get_by_label("Token").fill(text)
    page.get_by_role("button", name="Sign in").click()


def sign_in(page: Page | FrameLocator, who: Person) -> None:
    submit_token(page, who.token)
    expect_signed_in(page, who)


def expect_signed_in(page: Page | FrameLocator, who: Person) -> None:
    # Attached, not visible: the list of chats may be closed.
    expect(page.locator(f'[aria-label="Signed in as {who.owner}"]')).to_be_attached()


def sign_out(page: Page | FrameLocator) -> None:
    page.get_by_role("button", name="Signed in as").click()
    page.get_by_role("menuitem", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()


def browser_storage(page: Page) -> str:
    return str(page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])"))


def open_tab(context: BrowserContext, url: str) -> Page:
    page = context.new_page()
    page.goto(url)
    return page


def replace_stored_token(context: BrowserContext, who: Person) -> None:
    """Store the token of another user, as another tab would."""
    page = open_tab(context, f"{who.server.url}/favicon.svg")
    page.evaluate("([name, token]) => localStorage.setItem(name, token)", [STORED, who.token])
    page.close()


def expire_token(page: Page) -> None:
    """Advance the page's fake clock by an hour, and answer that the token has expired."""
    problem = {"code": "token_expired", "message": "This token has expired.", "type": "authentication_error"}
    page.route("**/api/tokens/self*", lambda route: route.fulfill(status=401, json={"error": problem}))
    page.clock.fast_forward(3_600_000)


def create_link(person: Person, **wish: Any) -> dict[str, Any]:
    """Create a share link; return it with its URL."""
    made = person.fetch("POST", "/api/shares", wish)
    return {**made, "url": person.server.url + made["path"]}


def visit_note(page: Page | FrameLocator) -> Locator:
    return page.get_by_role("note", name="Your visit")
