"""Several chats selected, and archived or deleted at once."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.long_form import long_only, sample
from tests.web.axe import violations_in_each_theme
from tests.web.chats import chat_line, chat_lines, choose_from_menu, make_chats, notice
from tests.web.page_server import Person, Profile
from tests.web.sign_in import create_link
from tests.web.thread import open_chat

NAMES = ["One", "Two", "Three", "Four", "Five"]
PATIENT = """const set = window.setTimeout;
window.setTimeout = (work, pause) => set(work, pause === 4000 ? 600_000 : pause);"""
"""Makes the page wait for the second press of Delete for longer than axe takes on any machine."""


def bar(page: Page) -> Locator:
    return page.get_by_role("group", name="Selected chats")


def box(page: Page, title: str) -> Locator:
    return chat_line(page, title).get_by_role("checkbox")


def listed(person: Person) -> list[str]:
    return [str(chat["title"]) for chat in person.chats()]


def start_selecting(page: Page) -> None:
    page.get_by_role("button", name="More chats").press("Enter")
    page.get_by_role("menuitem", name="Select chats").press("Enter")
    expect(bar(page)).to_be_visible()


def test_selected_chats_are_deleted_by_keyboard_in_two_steps_and_restored_at_once(
    person: Person, profile: Profile
) -> None:
    ids = make_chats(person, NAMES)
    context = profile(person)
    context.add_init_script(PATIENT)
    page, other = context.new_page(), context.new_page()
    open_chat(page, person, ids[1])
    other.goto(person.server.url)
    expect(chat_lines(other)).to_have_text(NAMES)
    page.bring_to_front()
    expect(chat_lines(page)).to_have_text(NAMES)
    start_selecting(page)
    expect(box(page, "Two")).to_be_focused()
    assert violations_in_each_theme(page) == {}
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect(bar(page).get_by_role("status")).to_have_text("2 selected")
    page.keyboard.press("Delete")
    expect(bar(page).get_by_role("button", name="Delete 2 chats?")).to_be_visible()
    assert violations_in_each_theme(page) == {}
    page.keyboard.press("Escape")  # not yet
    expect(bar(page).get_by_role("button", name="Delete", exact=True)).to_be_visible()
    assert listed(person) == NAMES
    page.keyboard.press("Delete")
    page.keyboard.press("Delete")
    for each in (page, other):
        expect(chat_lines(each)).to_have_text(["One", "Four", "Five"])
    expect(bar(page)).to_have_count(0)
    expect(chat_line(page, "Four").get_by_role("link")).to_be_focused()  # in place of the deleted ones
    expect(notice(page, "Deleted 2 chats.")).to_be_visible()
    assert not page.url.endswith(ids[1])
    page.get_by_role("button", name="Undo").press("Enter")
    expect(notice(page, "Restored 2 chats.")).to_be_visible()
    for each in (page, other):
        expect(chat_lines(each)).to_have_text(NAMES)
    expect(page).to_have_url(f"{person.server.url}/#{ids[1]}")
    page.reload()
    expect(chat_lines(page)).to_have_text(NAMES)
    expect(bar(page)).to_have_count(0)


@long_only
def test_range_of_chats_is_archived_and_unarchived_and_follows_other_tabs(
    person: Person, profile: Profile
) -> None:
    ids = make_chats(person, NAMES)
    context = profile(person)
    page, other = context.new_page(), context.new_page()
    for each in (page, other):
        each.goto(person.server.url)
    page.bring_to_front()
    choose_from_menu(page, "Two", "Select")
    expect(box(page, "Two")).to_be_checked()
    box(page, "Five").click(modifiers=["Shift"])
    expect(bar(page).get_by_role("status")).to_have_text("4 selected")
    person.fetch("DELETE", f"/api/chats/{ids[3]}")  # another program deletes one of them
    expect(bar(page).get_by_role("status")).to_have_text("3 selected")
    bar(page).get_by_role("button", name="Archive").press("Enter")
    for each in (page, other):
        expect(chat_lines(each)).to_have_text(["One"])
    expect(notice(page, "Archived 3 chats.")).to_be_visible()

    page.get_by_role("button", name="More chats").click()
    page.get_by_role("menuitem", name="Archive").click()
    expect(chat_lines(page)).to_have_text(["Two", "Three", "Five"])
    start_selecting(page)
    expect(box(page, "Two")).to_be_focused()
    page.keyboard.press("ControlOrMeta+a")
    expect(bar(page).get_by_role("checkbox", name="All")).to_be_checked()
    bar(page).get_by_role("checkbox", name="All").press("Space")
    expect(bar(page).get_by_role("status")).to_have_text("0 selected")
    bar(page).get_by_role("button", name="Unarchive").press("Enter")  # of none: nothing
    box(page, "Two").press("Space")
    bar(page).get_by_role("button", name="Unarchive").press("Enter")
    expect(chat_lines(page)).to_have_text(["Three", "Five"])
    expect(notice(page, "Unarchived 1 chat.")).to_be_visible()
    page.get_by_role("button", name="Back to chats").click()
    for each in (page, other):
        expect(chat_lines(each)).to_have_text(["One", "Two"])


@long_only
def test_all_chats_are_selected_however_many_and_a_double_click_deletes_none(
    person: Person, profile: Profile
) -> None:
    make_chats(person, [f"Chat {number}" for number in range(120)])
    page = profile(person).new_page()
    page.goto(person.server.url)
    expect(chat_line(page, "Chat 0")).to_be_visible()
    start_selecting(page)
    bar(page).get_by_role("checkbox", name="All").press("Space")
    expect(bar(page).get_by_role("status")).to_have_text("120 selected")
    bar(page).get_by_role("button", name="Delete").dblclick()
    expect(bar(page).get_by_role("button", name="Delete 120 chats?")).to_be_visible()
    bar(page).get_by_role("button", name="Delete 120 chats?").press("Enter")
    expect(page.get_by_text("No chats yet.")).to_be_visible()
    expect(notice(page, "Deleted 120 chats.")).to_be_visible()
    assert person.chats() == []


@long_only
def test_selection_fits_a_phone_and_is_offered_only_to_those_who_may_write(
    person: Person, profile: Profile
) -> None:
    make_chats(person, NAMES)
    page = profile(person, viewport={"width": 360, "height": 640}, has_touch=True).new_page()
    page.goto(person.server.url)
    page.get_by_role("button", name="Show chats").click()
    start_selecting(page)
    chat_line(page, "Two").tap()
    expect(box(page, "Two")).to_be_checked()
    assert violations_in_each_theme(page) == {}
    bar(page).get_by_role("button", name="Stop selecting").tap()
    expect(bar(page)).to_have_count(0)

    reader = profile(person.server.person(scopes=("chats:read",), owner=person.owner)).new_page()
    reader.goto(person.server.url)
    expect(chat_lines(reader)).to_have_text(NAMES)
    reader.get_by_role("button", name="More chats").click()
    expect(reader.get_by_role("menuitem", name="Archive")).to_be_visible()
    expect(reader.get_by_role("menuitem", name="Select chats")).to_have_count(0)

    # A guest selects among its own chats only.
    guest = profile().new_page()
    guest.goto(create_link(person, scope="fair")["url"])
    expect(guest.get_by_text("No chats yet.")).to_be_visible()
    expect(chat_lines(guest)).to_have_count(0)


@pytest.mark.parametrize("buttons", sample([["Delete", "Delete 3 chats?"], ["Archive"]], 1), ids="-".join)
def test_bulk_actions_on_chats_of_another_owner_are_refused_and_change_none(
    buttons: list[str], person: Person, profile: Profile
) -> None:
    foreign = person.server.person()
    make_chats(foreign, NAMES[1:3])
    make_chats(person, NAMES[:1])
    before = foreign.fetch("GET", "/api/chats?archived=any")["data"]

    def add_foreign(route: Route) -> None:
        body: dict[str, Any] = route.fetch().json()
        route.fulfill(json={**body, "data": [*body["data"], *before]})

    page = profile(person).new_page()
    page.route("**/api/chats?*", add_foreign)
    page.goto(person.server.url)
    expect(chat_lines(page)).to_have_text(NAMES[:3])
    start_selecting(page)
    expect(box(page, NAMES[0])).to_be_focused()
    page.keyboard.press("ControlOrMeta+a")
    for name in buttons:
        bar(page).get_by_role("button", name=name).press("Enter")
    expect(notice(page, f"{buttons[0]}d 1 chat.")).to_be_visible()
    expect(notice(page, f"Could not {buttons[0].lower()} 2 chats: ")).to_be_visible()
    expect(chat_lines(page)).to_have_count(0)
    assert listed(person) == []
    assert foreign.fetch("GET", "/api/chats?archived=any")["data"] == before
