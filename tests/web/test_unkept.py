"""Temporary chats: the page shows a notice, and no text remains anywhere after leaving."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.web.axe import violations
from tests.web.page_server import PageServer, Person, Profile
from tests.web.sign_in import browser_storage
from tests.web.thread import message_field, send
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import Status

SECRET, ANSWER, DRAFT = "Periwinkle cathedral", "Elderberry thunder", "Quicksilver almanac"
NOTICE = "This chat is not saved. It will be gone when you leave it."


def held_by(page: Page, page_server: PageServer) -> str:
    """All stored text: in the browser, in the address, and in the files of the store."""
    files = (
        each.read_bytes() for each in Path(page_server.process.folder).glob("served.db*") if each.is_file()
    )
    return (
        browser_storage(page)
        + page.evaluate("location.href")
        + page.title()
        + b"".join(files).decode("latin-1")
    )


def test_temporary_chat_is_sent_to_the_model_and_leaves_no_data(tab: Page, person: Person) -> None:
    toggle = tab.get_by_role("switch", name="Temporary chat")
    toggle.click()
    expect(toggle).to_be_checked()
    toggle.click()  # an empty one is left without a question
    expect(toggle).not_to_be_checked()
    send(tab, "Something that is kept")
    expect(tab.locator("[data-turn]")).to_have_count(1)
    [stays] = [each["id"] for each in person.chats()]
    tab.get_by_role("button", name="New chat").click()
    toggle.click()
    expect(tab.get_by_text(NOTICE)).to_be_visible()
    person.server.model.add_script(ANSWER)
    send(tab, SECRET)
    expect(tab.get_by_role("log").get_by_text(ANSWER)).to_be_visible()
    expect(tab.get_by_text(NOTICE)).to_be_visible()
    person.server.model.add_script("As I said.")
    send(tab, "Once more")
    expect(tab.get_by_role("log").get_by_text("As I said.")).to_be_visible()
    messages = [(each["role"], each["content"]) for each in person.server.model.last_messages]
    assert messages == [("user", SECRET), ("assistant", ANSWER), ("user", "Once more")]
    message_field(tab).fill(DRAFT)
    expect(message_field(tab)).to_have_value(DRAFT)
    tab.evaluate("dispatchEvent(new Event('pagehide'))")
    left = held_by(tab, person.server)
    assert "Something that is kept" in left  # that is where it would be
    assert not [each for each in (SECRET, ANSWER, DRAFT) if each in left]
    assert tab.evaluate("location.hash") == ""
    assert [each["id"] for each in person.chats()] == [stays]
    expect(tab.get_by_role("navigation", name="Chats").get_by_text(SECRET)).to_have_count(0)
    tab.reload()
    expect(message_field(tab)).to_have_value("")
    expect(tab.get_by_text(NOTICE)).to_have_count(0)
    assert not [each for each in (SECRET, ANSWER, DRAFT) if each in tab.content()]


def test_leaving_a_temporary_chat_asks_for_confirmation_in_the_page(tab: Page, person: Person) -> None:
    person.run_turn("Something that is kept")
    row = tab.get_by_role("navigation", name="Chats").get_by_text("Something that is kept")
    expect(row).to_be_visible()
    tab.get_by_role("button", name="New chat").click()
    tab.get_by_role("switch", name="Temporary chat").click()
    send(tab, SECRET)
    expect(tab.locator("[data-turn]")).to_have_count(1)
    row.click()
    expect(tab.get_by_role("button", name="Stay")).to_be_focused()
    assert violations(tab) == []
    assert tab.evaluate("location.hash") == ""
    tab.keyboard.press("Escape")
    expect(tab.get_by_text(NOTICE)).to_be_visible()
    expect(tab.get_by_role("log").get_by_text(SECRET)).to_be_visible()
    row.click()
    tab.get_by_role("button", name="Leave and discard").click()
    expect(tab.get_by_role("log").get_by_text("Something that is kept")).to_be_visible()
    assert SECRET not in tab.content()
    tab.go_back()
    expect(message_field(tab)).to_be_visible()
    assert SECRET not in tab.content()


def test_temporary_chat_can_be_stopped_fail_and_be_retried(tab: Page, person: Person) -> None:
    gate = Gate()
    person.server.model.add_script("Peppermint ", gate, "locomotive")
    tab.get_by_role("switch", name="Temporary chat").click()
    send(tab, SECRET)
    expect(tab.get_by_text("Peppermint")).to_be_visible()
    tab.get_by_role("button", name="Stop").first.click()
    expect(tab.locator("[data-turn][data-kind=interrupted]")).to_have_count(1)
    person.server.model.release(gate)
    person.server.model.add_script(Status(400))
    send(tab, "Tangerine solstice")
    expect(tab.get_by_role("group", name="Failed message")).to_be_visible()
    expect(tab.locator("[data-turn]")).to_have_count(1)
    tab.get_by_role("button", name="Retry").click()
    expect(tab.locator("[data-turn]")).to_have_count(2)
    left = held_by(tab, person.server)
    assert not [each for each in (SECRET, "Peppermint", "Tangerine solstice") if each in left]
    assert person.chats() == []


def check_nothing_is_kept(page: Page, page_server: PageServer) -> None:
    """The page marks each chat as temporary, and keeps none of its text."""
    expect(page.get_by_text(NOTICE)).to_be_visible()
    expect(page.get_by_role("switch", name="Temporary chat")).to_have_count(0)
    send(page, SECRET)
    expect(page.locator("[data-turn]")).to_have_count(1)
    assert SECRET not in held_by(page, page_server)
    page.get_by_role("button", name="New chat").click()
    page.get_by_role("button", name="Leave and discard").click()
    expect(page.locator("[data-turn]")).to_have_count(0)
    expect(page.get_by_text(NOTICE)).to_be_visible()


@pytest.mark.parametrize(("own", "query"), [("gossip", ""), (None, "?scope=gossip"), (None, "?keep=no")])
def test_unkept_scope_or_address_shows_the_not_kept_notice_in_every_chat(
    own: str | None, query: str, page_server: PageServer, profile: Profile
) -> None:
    """By the scope of the token, or of the address, or by a parameter of the address. By the settings of
    the server: see test_sign_in."""
    person = page_server.person(chat_scope=own)
    page = profile(person).new_page()
    page.goto(f"{page_server.url}/{query}")
    check_nothing_is_kept(page, page_server)
    assert person.chats() == []
