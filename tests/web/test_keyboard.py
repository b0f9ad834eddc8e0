"""Everything that is done where people write is done with keys, too."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.web.coming_in import field
from tests.web.composing import said, send, shows
from tests.web.house import Person


def panel(tab: Page) -> Locator:
    return tab.get_by_role("region", name="Keyboard shortcuts")


def test_control_and_enter_sends_too(tab: Page, person: Person) -> None:
    field(tab).fill("Hello")
    field(tab).press("ControlOrMeta+Enter")
    shows(tab, 1)
    assert said(person) == [["Hello"]]


def test_the_last_message_comes_back_and_those_before_it(tab: Page) -> None:
    send(tab, "first")
    shows(tab, 1)
    send(tab, "second")
    shows(tab, 2)
    for key, text in (
        ("ArrowUp", "second"),
        ("ArrowUp", "first"),
        ("ArrowDown", "second"),
        ("ArrowDown", ""),
    ):
        field(tab).press(key)
        expect(field(tab)).to_have_value(text)
    field(tab).fill("mine")
    field(tab).press("ArrowUp")
    expect(field(tab)).to_have_value("mine")


def test_arrows_lead_through_the_lines_of_a_message_that_came_back(tab: Page) -> None:
    send(tab, "first")
    shows(tab, 1)
    send(tab, "second\nof two lines")
    shows(tab, 2)
    for key, text in (
        ("ArrowUp", "second\nof two lines"),
        ("ArrowUp", "second\nof two lines"),
        ("ArrowUp", "first"),
    ):
        field(tab).press(key)
        expect(field(tab)).to_have_value(text)


def test_the_shortcuts_are_listed_beside_what_people_do(tab: Page) -> None:
    button = tab.get_by_role("button", name="Keyboard shortcuts")
    button.click()
    expect(panel(tab)).to_be_visible()
    for what in ("Send the message", "Begin a new line", "New chat", "Search the chats"):
        expect(panel(tab).get_by_text(what)).to_be_visible()
    field(tab).fill("It is in nobody's way")
    expect(panel(tab)).to_be_visible()
    panel(tab).get_by_role("button", name="Close").click()
    expect(panel(tab)).to_have_count(0)
    expect(button).to_have_attribute("aria-expanded", "false")


def test_a_question_mark_opens_the_list_unless_somebody_writes_it(tab: Page) -> None:
    field(tab).press("?")
    expect(field(tab)).to_have_value("?")
    expect(panel(tab)).to_have_count(0)
    tab.get_by_role("button", name="Model: ").focus()
    tab.keyboard.press("?")
    expect(panel(tab)).to_be_focused()
    tab.keyboard.press("Escape")
    expect(panel(tab)).to_have_count(0)
    expect(tab.get_by_role("button", name="Model: ")).to_be_focused()


def test_keys_lead_to_where_one_writes_and_to_a_new_chat(tab: Page, person: Person) -> None:
    expect(field(tab)).to_be_focused()
    send(tab, "Hello")
    shows(tab, 1)
    tab.get_by_role("button", name="Model: ").focus()
    tab.keyboard.press("ControlOrMeta+J")
    expect(field(tab)).to_be_focused()
    tab.keyboard.press("ControlOrMeta+Shift+O")
    expect(tab.locator("[data-turn]")).to_have_count(0)
    expect(field(tab)).to_be_focused()
    assert tab.url.endswith("#new")


def test_every_control_is_reached_with_tab(tab: Page) -> None:
    field(tab).focus()
    names = []
    for _ in range(3):
        tab.keyboard.press("Tab")
        names.append(tab.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert names == ["Model: scripted", "Keyboard shortcuts", "Send"]
