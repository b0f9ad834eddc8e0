"""Which chat is open at the start, and that a new one stays new."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.web.chats import line, listed, make_chats
from tests.web.house import Person, Profile


def test_the_chat_that_was_used_last_is_opened_once(person: Person, tab: Page) -> None:
    expect(tab).to_have_url(f"{person.house.url}/#new")
    ids = make_chats(person, ["Last", "Pinned, and older"])
    person.ask("PATCH", f"/api/chats/{ids[1]}", {"pinned": True})
    expect(listed(tab)).to_have_count(2)
    expect(tab).to_have_url(f"{person.house.url}/#new")
    tab.reload()
    expect(listed(tab)).to_have_count(2)
    expect(tab).to_have_url(f"{person.house.url}/#new")
    tab.goto(person.house.url + "/?again")
    expect(tab).to_have_url(f"{person.house.url}/?again#{ids[0]}")
    tab.get_by_role("button", name="New chat").click()
    expect(tab).to_have_url(f"{person.house.url}/?again#new")
    person.say("Somebody else goes on", ids[0])
    person.say("Somebody else begins")
    expect(listed(tab)).to_have_count(3)
    expect(tab).to_have_url(f"{person.house.url}/?again#new")


def test_a_new_chat_of_another_tab_leaves_this_one_new(person: Person, profile: Profile) -> None:
    context = profile(person)
    one, other = context.new_page(), context.new_page()
    for page in (one, other):
        page.goto(person.house.url)
        expect(page).to_have_url(f"{person.house.url}/#new")
    other.get_by_role("textbox", name="Message").fill("Hello from the other tab")
    other.keyboard.press("Enter")
    expect(line(one, "Hello from the other tab")).to_be_visible()
    expect(one).to_have_url(f"{person.house.url}/#new")
    expect(one.locator("[data-turn]")).to_have_count(0)


def test_new_chat_twice_is_one_new_chat(person: Person, tab: Page) -> None:
    make_chats(person, ["One"])
    tab.goto(person.house.url + "/?again")
    expect(line(tab, "One").get_by_role("link")).to_have_attribute("aria-current", "page")
    tab.get_by_role("button", name="New chat").click()
    tab.get_by_role("textbox", name="Message").fill("Half of a thought")
    tab.get_by_role("textbox", name="Message").evaluate("(field) => { window.field = field }")
    tab.get_by_role("button", name="New chat").click()
    assert tab.get_by_role("textbox", name="Message").evaluate("(field) => field === window.field")
    expect(tab.get_by_role("textbox", name="Message")).to_have_value("Half of a thought")
    tab.go_back()
    expect(line(tab, "One").get_by_role("link")).to_have_attribute("aria-current", "page")
    tab.go_forward()
    tab.get_by_role("textbox", name="Message").fill("Said")
    tab.keyboard.press("Enter")
    expect(tab.locator("[data-turn]")).to_have_count(1)
    tab.get_by_role("button", name="New chat").click()
    expect(tab).to_have_url(f"{person.house.url}/?again#new")
    expect(tab.locator("[data-turn]")).to_have_count(0)
