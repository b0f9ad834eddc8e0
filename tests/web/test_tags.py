"""Tags of chats, and the filter of the list by tag."""

from __future__ import annotations

from urllib.error import HTTPError

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.long_form import long_only
from tests.web.axe import violations_in_each_theme
from tests.web.chats import chat_line, chat_lines, make_chats, titles
from tests.web.page_server import Person, Profile
from tests.web.sign_in import create_link
from tests.web.test_dialogs import expect_sound, open_from_menu
from tests.web.thread import answers, open_chat


def tags_of(person: Person, chat: str) -> list[str]:
    return list(person.fetch("GET", f"/api/chats/{chat}")["tags"])


def tags_dialog(page: Page, title: str) -> Locator:
    return page.get_by_role("dialog", name=f"Tags of “{title}”")


def filter_by(page: Page, tag: str) -> None:
    page.get_by_role("button", name="Filter by tag").press("Enter")
    page.get_by_role("menuitemradio", name=tag, exact=True).press("Enter")


def test_tags_are_added_and_removed_by_keyboard_in_two_tabs(person: Person, profile: Profile) -> None:
    dinner, lunch = make_chats(person, ["Dinner", "Lunch"])
    person.fetch("PATCH", f"/api/chats/{lunch}", {"tags": ["food"]})
    context = profile(person)
    page, other = context.new_page(), context.new_page()
    for each in (page, other):
        open_chat(each, person, dinner)
        open_from_menu(each, "Tags")
    dialog, beside = (tags_dialog(each, "Dinner") for each in (page, other))
    page.bring_to_front()
    expect(dialog).to_contain_text("No tags yet.")
    page.keyboard.press("Tab")
    page.keyboard.type("/ to cook?")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("status")).to_have_text("Added “/ to cook?”.")
    expect(dialog.get_by_role("combobox", name="New tag")).to_be_focused()
    expect(dialog.locator("datalist option")).to_have_attribute("value", "food")
    page.keyboard.type("food")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    for each in (dialog, beside):
        expect(each.get_by_role("listitem")).to_have_text(["/ to cook?", "food"])
    expect_sound(page, dialog)
    assert tags_of(person, dinner) == ["/ to cook?", "food"]

    # Both tabs keep what the other has changed; after a reload all is there.
    other.bring_to_front()
    beside.get_by_role("button", name="Remove “/ to cook?”").press("Enter")
    expect(beside.get_by_role("combobox", name="New tag")).to_be_focused()
    expect(dialog.get_by_role("listitem")).to_have_text(["food"])
    page.bring_to_front()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Chat options")).to_be_focused()
    page.reload()
    expect(page.get_by_role("list", name="Tags")).to_have_text("food")
    assert violations_in_each_theme(page) == {}
    assert tags_of(person, dinner) == ["food"]

    # A refusal is shown, and what was typed stays.
    person.fetch("PATCH", f"/api/chats/{dinner}", {"tags": [f"tag {number}" for number in range(16)]})
    beside.get_by_role("combobox", name="New tag").fill("One too many")
    beside.get_by_role("combobox", name="New tag").press("Enter")
    expect(beside.get_by_role("alert")).to_contain_text("at most 16 tags")
    expect(beside.get_by_role("combobox", name="New tag")).to_have_value("One too many")


@long_only
def test_filter_by_tag_lists_tagged_chats_however_old_and_follows_changes(
    person: Person, profile: Profile
) -> None:
    ids = make_chats(person, [f"Chat {number}" for number in range(130)])
    page = profile(person).new_page()
    page.goto(person.server.url)
    expect(chat_line(page, "Chat 0")).to_be_visible()
    for number in (3, 128):
        person.fetch("PATCH", f"/api/chats/{ids[number]}", {"tags": ["work"]})
    person.fetch("PATCH", f"/api/chats/{ids[127]}", {"tags": ["play"]})
    page.reload()
    # The list has read only its first pages, the menu knows all tags.
    page.get_by_role("button", name="Filter by tag").press("Enter")
    expect(page.get_by_role("menuitemradio")).to_have_text(["All chats", "play", "work"])
    assert violations_in_each_theme(page) == {}
    page.keyboard.press("Escape")
    filter_by(page, "work")
    expect(page.get_by_role("heading", name="Tag: work")).to_be_visible()
    expect(chat_lines(page)).to_have_count(2)
    assert titles(page) == ["Chat 3", "Chat 128"]
    assert violations_in_each_theme(page) == {}
    person.fetch("PATCH", f"/api/chats/{ids[50]}", {"tags": ["play", "work"]})
    expect(chat_lines(page)).to_have_count(3)
    person.fetch("PATCH", f"/api/chats/{ids[3]}", {"tags": []})
    expect(chat_lines(page)).to_have_count(2)
    person.fetch("PATCH", f"/api/chats/{ids[128]}", {"archived": True})
    expect(chat_lines(page)).to_have_count(1)
    page.get_by_role("button", name="More chats").click()
    page.get_by_role("menuitem", name="Archive").click()
    expect(page.get_by_role("heading", name="Archive · Tag: work")).to_be_visible()
    expect(chat_lines(page)).to_have_text(["Chat 128"])
    page.get_by_role("button", name="Back to chats").press("Enter")
    expect(chat_line(page, "Chat 0")).to_be_visible()
    # A tag above the chat filters, too; without chats it says so.
    chat_line(page, "Chat 2").first.get_by_role("link").click()
    person.fetch("PATCH", f"/api/chats/{ids[2]}", {"tags": ["once"]})
    page.get_by_role("list", name="Tags").get_by_role("button", name="once").press("Enter")
    expect(chat_lines(page)).to_have_text(["Chat 2"])
    person.fetch("PATCH", f"/api/chats/{ids[2]}", {"tags": []})
    expect(page.get_by_text("No chats with this tag.")).to_be_visible()
    page.reload()
    expect(chat_line(page, "Chat 0")).to_be_visible()
    page.get_by_role("button", name="Filter by tag").click()
    expect(page.get_by_role("menuitemradio")).to_have_text(["All chats", "play", "work"])


@long_only
def test_tags_are_not_shown_to_visitors_nor_changed_by_readers(person: Person, profile: Profile) -> None:
    chat = str(person.run_turn("Dinner")["chat"]["id"])
    person.fetch("PATCH", f"/api/chats/{chat}", {"tags": ["secret"]})
    reader = profile(person.server.person(scopes=("chats:read",), owner=person.owner)).new_page()
    open_chat(reader, person, chat)
    expect(reader.get_by_role("list", name="Tags")).to_have_text("secret")
    chat_line(reader, "Dinner").hover()
    expect(reader.get_by_role("button", name="Options for")).to_have_count(0)
    filter_by(reader, "secret")
    expect(chat_lines(reader)).to_have_text(["Dinner"])

    visitor = profile().new_page()
    visitor.goto(create_link(person, chat=chat)["url"])
    expect(answers(visitor)).to_have_count(1)
    expect(visitor.get_by_text("secret")).to_have_count(0)
    with pytest.raises(HTTPError, match="404"):
        person.server.person().fetch("PATCH", f"/api/chats/{chat}", {"tags": ["theirs"]})
    assert person.server.person().fetch("GET", "/api/chats?tag=secret")["data"] == []


@long_only
def test_list_without_tags_has_no_filter(person: Person, profile: Profile) -> None:
    make_chats(person, ["Dinner"])
    page = profile(person).new_page()
    page.goto(person.server.url)
    expect(chat_line(page, "Dinner")).to_be_visible()
    expect(page.get_by_role("button", name="Filter by tag")).to_have_count(0)
