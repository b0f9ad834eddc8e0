"""The dialogs of the page: the same in two tabs, after a reload, and with the keyboard alone."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.web.axe import violations_in_each_theme
from tests.web.chats import chat_line, make_chats
from tests.web.page_server import Person, Profile
from tests.web.sign_in import create_link
from tests.web.thread import open_chat

PHONE = {"width": 360, "height": 640}
ZOOMED = {"width": 320, "height": 256}
"""A window of 1280 by 1024 at 400% zoom."""


def open_from_menu(page: Page, entry: str) -> None:
    """Choose an entry of the menu above the chat, with the keyboard."""
    page.get_by_role("button", name="Chat options").press("Enter")
    page.get_by_role("menuitem", name=entry, exact=True).press("Enter")


def expect_sound(page: Page, dialog: Locator) -> None:
    """Expect no violations in either theme, large, on a phone and zoomed, and no sideways scrolling."""
    size = page.viewport_size
    assert size is not None
    for each in (size, PHONE, ZOOMED):
        page.set_viewport_size({"width": each["width"], "height": each["height"]})
        expect(dialog).to_be_visible()
        assert violations_in_each_theme(page) == {}
        assert dialog.evaluate("it => it.firstChild.scrollWidth <= it.clientWidth")
        box = dialog.bounding_box()
        assert box is not None
        assert (box["x"] >= 0, box["y"] >= 0, box["y"] + box["height"] <= each["height"]) == (True,) * 3
    page.set_viewport_size({"width": size["width"], "height": size["height"]})


def test_share_dialog_creates_copies_lists_and_revokes_links_in_two_tabs(
    person: Person, profile: Profile
) -> None:
    chat = str(person.run_turn("Dinner")["chat"]["id"])
    create_link(person, chat=str(person.run_turn("Breakfast")["chat"]["id"]), name="Of another chat")
    context = profile(person, permissions=["clipboard-read", "clipboard-write"])
    page, other = context.new_page(), context.new_page()
    dialogs = [each.get_by_role("dialog", name="Share “Dinner”") for each in (page, other)]
    dialog, beside = dialogs
    for each in (page, other):
        open_chat(each, person, chat)
        open_from_menu(each, "Share")
    for each in dialogs:
        expect(each).to_contain_text("No links yet.")

    # With the keyboard: the close button has the focus, the name and the time follow.
    page.bring_to_front()
    expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.type("/ For Ann?")  # no shortcuts of the page behind
    page.keyboard.press("Tab")
    page.keyboard.type("7")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    address = dialog.get_by_role("textbox", name="New link")
    expect(address).to_be_focused()
    expect(dialog.get_by_role("status")).to_have_text("Link copied.")
    link = page.evaluate("navigator.clipboard.readText()")
    expect(address).to_have_value(link)
    for each in dialogs:
        expect(each.get_by_role("listitem")).to_have_count(1)
        expect(each.get_by_role("listitem")).to_contain_text("/ For Ann?")
        expect(each.get_by_role("listitem")).to_contain_text("0 visitors · Valid until")
    expect(beside.get_by_role("textbox", name="New link")).to_have_count(0)
    expect_sound(page, dialog)
    [share] = [each for each in person.fetch("GET", "/api/shares")["data"] if each["chat"] == chat]
    assert share["expires_at"] - share["created_at"] == 7 * 86_400_000

    visitor = profile().new_page()
    visitor.goto(link)
    expect(visitor.get_by_role("log")).to_contain_text("Dinner")
    visitor.get_by_role("button", name="Chat options").click()
    expect(visitor.get_by_role("menuitem", name="Save as Markdown")).to_be_visible()
    expect(visitor.get_by_role("menuitem", name="Share")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Chat options")).to_be_focused()

    # After a reload, from the list: the link is there, but not its address.
    page.reload()
    chat_line(page, "Dinner").get_by_role("link").focus()
    options = chat_line(page, "Dinner").get_by_role("button", name="Options for")
    options.press("Enter")
    page.get_by_role("menuitem", name="Share").press("Enter")
    expect(dialog.get_by_role("listitem")).to_contain_text("1 visitor ·")
    expect(dialog.get_by_role("textbox", name="New link")).to_have_count(0)
    dialog.get_by_role("button", name="Revoke / For Ann?").press("Enter")
    expect(dialog.get_by_role("status")).to_have_text("The link no longer works.")
    for each in dialogs:
        expect(each).to_contain_text("No links yet.")
    late = profile().new_page()
    late.goto(link)
    expect(late.get_by_role("heading", name="This link does not work")).to_be_visible()
    dialog.get_by_role("button", name="Close").press("Enter")
    expect(options).to_be_focused()

    # A refusal is shown in the dialog.
    person.fetch("DELETE", f"/api/chats/{chat}")
    other.bring_to_front()
    beside.get_by_role("button", name="Create link").click()
    expect(beside.get_by_role("alert")).to_be_visible()


def test_share_is_not_offered_to_guests_and_tokens_that_may_not(person: Person, profile: Profile) -> None:
    reader = person.server.person(scopes=("chats:read",), owner=person.owner)
    make_chats(person, ["Dinner"])
    page = profile(reader).new_page()
    page.goto(person.server.url)
    chat_line(page, "Dinner").get_by_role("link").click()
    expect(page.get_by_role("heading", name="Dinner", level=1)).to_be_visible()
    expect(page.get_by_role("button", name="Chat options")).to_have_count(0)

    guest = profile().new_page()
    guest.goto(create_link(person, scope="fair")["url"])
    guest.get_by_role("textbox", name="Message", exact=True).fill("Hello")
    guest.keyboard.press("Enter")
    guest.get_by_role("button", name="Chat options").click()
    expect(guest.get_by_role("menuitem", name="Rename")).to_be_visible()
    expect(guest.get_by_role("menuitem", name="Share")).to_have_count(0)
