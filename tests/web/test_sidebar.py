"""The list of chats: by day, of any length, and changed in its place."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from playwright.sync_api import Page, expect

from tests.web.chats import DAY, choose, line, listed, make_chats, notice, reopen, scroll_to, titles, use
from tests.web.house import Person, Profile


def test_chats_stand_by_the_day_on_which_they_were_used_pinned_ones_over_all(
    person: Person, profile: Profile
) -> None:
    names = [
        "Of today",
        "Of yesterday",
        "Of this week",
        "Of last month",
        "Of long ago",
        "An old one that matters",
    ]
    ids = make_chats(person, names)
    noon = 1_789_992_000_000  # 2026-09-21T12:00:00Z
    ages = [0, 1, 4, 31, 500, 400]
    use(person, {id: noon - age * DAY for id, age in zip(ids, ages, strict=True)})
    person.ask("PATCH", f"/api/chats/{ids[5]}", {"pinned": True})
    page = profile(person, timezone_id="UTC", locale="en-GB").new_page()
    page.clock.install(time=noon / 1000)
    page.goto(person.house.url)
    expect(listed(page)).to_have_count(6)
    shown = page.locator(".lines li").evaluate_all(
        "(lines) => lines.sort((one, other) => one.offsetTop - other.offsetTop)"
        ".map((line) => line.querySelector('h3, .title').textContent)"
    )
    assert shown == [
        *("Pinned", "An old one that matters", "Today", "Of today", "Yesterday", "Of yesterday"),
        *("Previous 7 days", "Of this week", "August 2026", "Of last month", "May 2025", "Of long ago"),
    ]
    # The chat that was used last is open, not the one that is pinned.
    expect(line(page, "Of today").get_by_role("link")).to_have_attribute("aria-current", "page")
    page.clock.fast_forward(12 * 3_600_000 + 60_000)
    expect(page.get_by_role("heading", name="Today", exact=True)).to_have_count(0)
    assert titles(page)[1] == "Of today"
    expect(page.get_by_role("heading", name="Yesterday", exact=True)).to_be_visible()


def test_thousands_of_chats_are_scrolled_through_with_few_of_them_there(person: Person, tab: Page) -> None:
    make_chats(person, [f"Chat number {at}" for at in range(2_000)])
    reopen(tab, person)
    expect(line(tab, "Chat number 0")).to_be_visible()
    most = tab.evaluate(
        """async () => {
          const list = document.querySelector(".lines");
          let most = 0;
          const stood = performance.now();
          while (list.querySelector("li:last-child .title")?.textContent !== "Chat number 1999") {
            if (performance.now() - stood > 18000) throw new Error(list.lastChild.textContent);
            list.scrollTop += 4000;
            await new Promise(requestAnimationFrame);
            most = Math.max(most, list.querySelectorAll("li").length);
          }
          return most;
        }"""
    )
    assert most < 80
    last = line(tab, "Chat number 1999")
    expect(last).to_have_attribute("aria-posinset", "2000")
    expect(last).to_have_attribute("aria-setsize", "2000")
    numbers = [int(name.removeprefix("Chat number ")) for name in titles(tab)]
    assert numbers == list(range(numbers[0], 2_000))
    tab.locator(".lines").evaluate("(list) => { list.scrollTop = list.scrollHeight / 2 }")
    expect(line(tab, "Chat number 1000")).to_be_visible()
    assert listed(tab).count() < 80


def test_what_is_seen_stays_in_its_place_when_chats_come_above_it(person: Person, tab: Page) -> None:
    make_chats(person, [f"Chat number {at}" for at in range(120)])
    reopen(tab, person)
    expect(line(tab, "Chat number 0")).to_be_visible()
    scroll_to(tab, "Chat number 60")
    expect(line(tab, "Chat number 40")).to_be_visible()
    before = line(tab, "Chat number 40").bounding_box()
    top = tab.locator(".lines").evaluate("(list) => list.scrollTop")
    person.ask("POST", "/api/chats", {"title": "Another one"})
    expect(tab.locator(".lines")).not_to_have_js_property("scrollTop", top)
    assert line(tab, "Chat number 40").bounding_box() == before


def test_the_list_is_walked_by_keys_and_the_focus_is_kept_whatever_scrolls_or_moves(
    person: Person, tab: Page
) -> None:
    ids = make_chats(person, [f"Chat number {at}" for at in range(100)])
    reopen(tab, person)
    first = line(tab, "Chat number 0").get_by_role("link")
    first.focus()
    for _ in range(30):
        tab.keyboard.press("ArrowDown")
    expect(line(tab, "Chat number 30").get_by_role("link")).to_be_focused()
    tab.locator(".lines").evaluate("(list) => { list.scrollTop = 0 }")
    expect(line(tab, "Chat number 0")).to_be_visible()
    expect(line(tab, "Chat number 30").get_by_role("link")).to_be_focused()
    person.say("It is used again", ids[30])
    expect(line(tab, "Chat number 30")).to_have_attribute("aria-posinset", "1")
    expect(line(tab, "Chat number 30").get_by_role("link")).to_be_focused()
    tab.keyboard.press("ArrowDown")
    expect(line(tab, "Chat number 0").get_by_role("link")).to_be_focused()
    tab.keyboard.press("End")
    tab.keyboard.press("Home")
    tab.keyboard.press("Enter")
    expect(tab).to_have_url(f"{person.house.url}/#{ids[30]}")
    # Where the line with the focus goes, the next one has it.
    person.ask("DELETE", f"/api/chats/{ids[30]}")
    expect(line(tab, "Chat number 0").get_by_role("link")).to_be_focused()


def test_a_chat_is_renamed_in_its_place(person: Person, tab: Page) -> None:
    [id] = make_chats(person, ["Before"])
    reopen(tab, person)
    line(tab, "Before").get_by_role("link").focus()
    tab.keyboard.press("F2")
    field = tab.get_by_role("textbox", name="Name of the chat")
    expect(field).to_be_focused()
    field.fill("Never")
    tab.keyboard.press("Escape")
    expect(line(tab, "Before").get_by_role("link")).to_be_focused()
    tab.keyboard.press("F2")
    field.fill("After <b>")
    with _changed(tab):
        tab.keyboard.press("Enter")
    expect(line(tab, "After <b>").get_by_role("link")).to_be_focused()
    assert person.ask("GET", f"/api/chats/{id}")["title"] == "After <b>"
    tab.keyboard.press("F2")
    field.fill("By going elsewhere")
    with _changed(tab):
        tab.get_by_role("searchbox").focus()
    expect(line(tab, "By going elsewhere")).to_be_visible()
    assert person.ask("GET", f"/api/chats/{id}")["title"] == "By going elsewhere"


def test_who_renames_a_chat_goes_on_writing_when_it_moves(person: Person, tab: Page) -> None:
    ids = make_chats(person, [f"Chat number {at}" for at in range(4)])
    reopen(tab, person)
    line(tab, "Chat number 3").get_by_role("link").focus()
    tab.keyboard.press("F2")
    tab.keyboard.type("Half of")
    person.say("It is used meanwhile", ids[3])
    field = tab.get_by_role("textbox", name="Name of the chat")
    expect(listed(tab).filter(has=field)).to_have_attribute("aria-posinset", "1")
    tab.keyboard.type(" a name")
    expect(field).to_have_value("Half of a name")
    with _changed(tab):
        tab.keyboard.press("Enter")
    expect(line(tab, "Half of a name").get_by_role("link")).to_be_focused()
    assert titles(tab) == ["Half of a name", *(f"Chat number {at}" for at in range(3))]


def test_who_renames_what_somebody_else_renamed_is_told_so(person: Person, tab: Page) -> None:
    [id] = make_chats(person, ["Before"])
    reopen(tab, person)
    line(tab, "Before").get_by_role("link").focus()
    tab.keyboard.press("F2")
    person.ask("PATCH", f"/api/chats/{id}", {"title": "Theirs"})
    field = tab.get_by_role("textbox", name="Name of the chat")
    field.fill("Mine")
    tab.keyboard.press("Enter")
    expect(notice(tab, "It is called “Theirs”")).to_be_visible()
    expect(line(tab, "Theirs")).to_be_visible()
    with _changed(tab):
        tab.get_by_role("button", name="Rename to “Mine”").click()
    expect(line(tab, "Mine")).to_be_visible()
    assert person.ask("GET", f"/api/chats/{id}")["title"] == "Mine"


def test_a_chat_is_pinned_and_archived_by_its_menu_and_the_archive_is_undone(
    person: Person, tab: Page
) -> None:
    ids = make_chats(person, ["One", "Other"])
    reopen(tab, person)
    choose(tab, "Other", "Pin")
    expect(tab.get_by_role("heading", name="Pinned")).to_be_visible()
    assert titles(tab) == ["Other", "One"]
    choose(tab, "One", "Archive")
    expect(line(tab, "One")).to_have_count(0)
    tab.get_by_role("button", name="Undo").click()
    expect(line(tab, "One")).to_be_visible()
    choose(tab, "One", "Archive")
    expect(line(tab, "One")).to_have_count(0)
    tab.get_by_role("button", name="More chats").click()
    tab.get_by_role("menuitem", name="Archive").click()
    expect(tab.get_by_role("heading", name="Archive")).to_be_visible()
    expect(line(tab, "One")).to_be_visible()
    expect(line(tab, "Other")).to_have_count(0)
    person.ask("PATCH", f"/api/chats/{ids[1]}", {"archived": True})
    expect(line(tab, "Other")).to_be_visible()
    choose(tab, "One", "Move back to the list")
    expect(line(tab, "One")).to_have_count(0)
    tab.get_by_role("button", name="Back to the chats").click()
    expect(line(tab, "One")).to_be_visible()


def test_what_the_server_refuses_is_taken_back(person: Person, tab: Page) -> None:
    make_chats(person, ["One"])
    reopen(tab, person)
    expect(line(tab, "One")).to_be_visible()
    tab.route(
        "**/api/chats/*", lambda route: route.fulfill(status=400, json={"error": {"message": "Not now."}})
    )
    choose(tab, "One", "Archive")
    expect(notice(tab, "could not be archived: Not now.")).to_be_visible()
    expect(line(tab, "One")).to_be_visible()


def test_scopes_are_chosen_from_where_there_are_several_and_remembered(
    person: Person, profile: Profile
) -> None:
    make_chats(person, ["Of the shop"], scope="shop")
    context = profile(person)
    page = context.new_page()
    page.goto(person.house.url)
    expect(line(page, "Of the shop")).to_be_visible()
    scope = page.get_by_role("button", name="Scope:")
    expect(scope).to_have_count(0)
    make_chats(person, ["Of the wiki"], scope="wiki")
    expect(line(page, "Of the wiki")).to_be_visible()
    scope.click()
    page.get_by_role("menuitemradio", name="wiki").click()
    expect(line(page, "Of the shop")).to_have_count(0)
    page.reload()
    expect(line(page, "Of the wiki")).to_be_visible()
    expect(line(page, "Of the shop")).to_have_count(0)
    make_chats(person, ["Later, of the shop"], scope="shop")
    make_chats(person, ["Later, of the wiki"], scope="wiki")
    expect(line(page, "Later, of the wiki")).to_be_visible()
    expect(line(page, "Later, of the shop")).to_have_count(0)
    fixed = context.new_page()
    fixed.goto(person.house.url + "/?scope=shop")
    expect(line(fixed, "Later, of the shop")).to_be_visible()
    expect(line(fixed, "wiki")).to_have_count(0)
    expect(fixed.get_by_role("button", name="Scope:")).to_have_count(0)


def _changed(page: Page) -> AbstractContextManager[Any]:
    """Wait until the server has answered a change."""
    return page.expect_response(lambda answer: answer.request.method == "PATCH")
