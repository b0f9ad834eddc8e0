"""What is written and not sent is there again: in its chat, after a reload, in another tab."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, expect

from tests.web.coming_in import field
from tests.web.composing import open_new, send, shows, until
from tests.web.house import Person, Profile
from turnledger.testing.gates import Gate

DRAFTS = "Object.keys(localStorage).filter(name => name.includes(':draft:'))"


def made(person: Person, *texts: str) -> list[str]:
    """Chats in which this was said."""
    return [person.say(text)["chat"]["id"] for text in texts]


def at(tab: Page, person: Person, chat: str) -> None:
    tab.goto(f"{person.house.url}#{chat}")
    expect(tab.locator("[data-turn]")).to_have_count(1)


def kept(tab: Page) -> Any:
    return tab.evaluate(DRAFTS)


def test_each_chat_has_a_draft_of_its_own_and_so_has_the_new_one(person: Person, profile: Profile) -> None:
    one, other = made(person, "One", "Other")
    tab = profile(person).new_page()
    at(tab, person, one)
    field(tab).fill("for one ")
    at(tab, person, other)
    expect(field(tab)).to_have_value("")
    field(tab).fill("for the other")
    open_new(tab, person)
    expect(field(tab)).to_have_value("")
    field(tab).fill("for a new one")
    at(tab, person, one)
    expect(field(tab)).to_have_value("for one ")
    at(tab, person, other)
    expect(field(tab)).to_have_value("for the other")
    open_new(tab, person)
    expect(field(tab)).to_have_value("for a new one")


def test_a_draft_is_there_after_a_reload_however_soon_that_is(tab: Page, person: Person) -> None:
    expect(field(tab)).to_be_visible()
    field(tab).press_sequentially("almost")
    field(tab).press("Shift+Enter")
    field(tab).press_sequentially("lost")
    tab.reload()
    expect(field(tab)).to_have_value("almost\nlost")


def test_what_was_sent_is_no_draft_any_more(tab: Page, person: Person) -> None:
    send(tab, "Said")
    shows(tab, 1)
    assert kept(tab) == []
    tab.reload()
    shows(tab, 1)
    expect(field(tab)).to_have_value("")


def test_what_is_written_while_the_chat_is_made_stays_with_it(tab: Page, person: Person) -> None:
    gate = Gate()
    person.house.model.says("Half", gate)
    send(tab, "First")
    field(tab).press_sequentially("and the next")
    expect(tab.get_by_text("Half")).to_be_visible()
    person.house.model.release(gate)
    shows(tab, 1)
    expect(field(tab)).to_have_value("and the next")
    tab.reload()
    expect(field(tab)).to_have_value("and the next")
    tab.get_by_role("button", name="New chat").first.click()
    expect(field(tab)).to_have_value("")


def test_two_tabs_of_one_chat_show_one_draft(person: Person, profile: Profile) -> None:
    [chat] = made(person, "Here")
    context = profile(person)
    one, other = context.new_page(), context.new_page()
    for tab in (one, other):
        at(tab, person, chat)
    one.bring_to_front()
    field(one).press_sequentially("Begun here")
    expect(field(other)).to_have_value("Begun here")
    other.bring_to_front()
    field(other).press("End")
    field(other).press_sequentially(", gone on there")
    expect(field(one)).to_have_value("Begun here, gone on there")
    field(other).press("Enter")
    expect(field(other)).to_have_value("")
    expect(field(one)).to_have_value("")
    expect(one.locator("[data-turn]")).to_have_count(2)


def test_new_chats_of_two_tabs_have_nothing_to_do_with_each_other(person: Person, profile: Profile) -> None:
    context = profile(person)
    one, other = context.new_page(), context.new_page()
    for tab in (one, other):
        open_new(tab, person)
    field(one).press_sequentially("One")
    field(other).press_sequentially("Other")
    field(one).press("Enter")
    shows(one, 1)
    expect(field(other)).to_have_value("Other")
    other.reload()
    expect(field(other)).to_have_value("Other")


def test_the_draft_of_a_deleted_chat_goes(person: Person, profile: Profile) -> None:
    one, other = made(person, "One", "Other")
    tab = profile(person).new_page()
    at(tab, person, one)
    field(tab).fill("kept")
    at(tab, person, other)
    until(tab, f"{DRAFTS}.length === 1")
    person.ask("DELETE", f"/api/chats/{one}")
    until(tab, f"{DRAFTS}.length === 0")


def test_a_chat_that_is_not_kept_leaves_no_draft(person: Person, profile: Profile) -> None:
    tab = profile(person).new_page()
    tab.goto(person.house.url + "/?keep=no")
    field(tab).press_sequentially("between us")
    tab.evaluate("dispatchEvent(new Event('pagehide'))")
    assert kept(tab) == []
    assert "between us" not in tab.evaluate("JSON.stringify(localStorage)")
    tab.reload()
    expect(field(tab)).to_have_value("")
