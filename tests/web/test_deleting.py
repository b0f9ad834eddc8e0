"""A chat is deleted by two clicks, and brought back by one."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.web.chats import line, listed, make_chats, notice, reopen, titles
from tests.web.house import Person, Profile


def test_the_first_click_arms_and_that_passes_by_itself(person: Person, profile: Profile) -> None:
    make_chats(person, ["One", "Other"])
    page = profile(person).new_page()
    page.clock.install()
    page.goto(person.house.url)
    line(page, "One").hover()
    page.get_by_role("button", name="Delete “One”").click()
    again = page.get_by_role("button", name="Delete “One”? Press again")
    expect(again).to_have_text("Delete?")
    page.clock.fast_forward(4_100)
    expect(again).to_have_count(0)
    page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 60)
    page.get_by_role("button", name="Delete “One”").click()
    expect(again).to_be_visible()
    page.get_by_role("searchbox").focus()
    expect(again).to_have_count(0)
    assert len(person.chats()) == 2


def test_the_second_click_deletes_and_undo_brings_it_back(person: Person, tab: Page) -> None:
    [id, _] = make_chats(person, ["One", "Other"])
    reopen(tab, person)
    expect(tab).to_have_url(f"{person.house.url}/#{id}")
    with tab.expect_response(lambda answer: answer.request.method == "DELETE"):
        _delete(tab, "One")
    expect(line(tab, "One")).to_have_count(0)
    expect(tab).to_have_url(f"{person.house.url}/#new")
    assert [chat["title"] for chat in person.chats()] == ["Other"]
    with tab.expect_response("**/restore"):
        tab.get_by_role("button", name="Undo").click()
    expect(line(tab, "One")).to_be_visible()
    expect(tab).to_have_url(f"{person.house.url}/#{id}")
    assert titles(tab) == ["One", "Other"]
    assert [chat["title"] for chat in person.chats()] == ["One", "Other"]


def test_haste_deletes_nothing(person: Person, tab: Page) -> None:
    make_chats(person, ["One", "Other"])
    reopen(tab, person)
    again = tab.get_by_role("button", name="Delete “One”? Press again")
    line(tab, "One").hover()
    tab.get_by_role("button", name="Delete “One”").dblclick()
    expect(again).to_be_focused()
    tab.keyboard.press("Escape")
    line(tab, "One").get_by_role("link").focus()
    for _ in range(3):  # held
        tab.keyboard.down("Delete")
    tab.keyboard.up("Delete")
    expect(again).to_be_visible()
    line(tab, "One").get_by_role("button", name="More about").click()
    tab.get_by_role("menuitem", name="Delete").dblclick()
    expect(tab.get_by_role("menuitem", name="Delete?")).to_be_visible()
    tab.keyboard.press("Escape")
    tab.get_by_role("button", name="Delete “One”").focus()
    for _ in range(3):
        tab.keyboard.down("Enter")
    tab.keyboard.up("Enter")
    expect(again).to_be_focused()
    assert [chat["title"] for chat in person.chats()] == ["One", "Other"]


def test_undo_is_offered_for_ten_seconds_and_then_among_the_deleted_ones(
    person: Person, profile: Profile
) -> None:
    make_chats(person, ["One", "Other"])
    page = profile(person).new_page()
    page.clock.install()
    page.goto(person.house.url)
    _delete(page, "One")
    undo = page.get_by_role("button", name="Undo")
    expect(undo).to_be_visible()
    page.clock.run_for(9_500)
    expect(undo).to_be_visible()
    page.clock.run_for(1_000)
    expect(undo).to_have_count(0)
    page.reload()
    page.get_by_role("button", name="More chats").click()
    page.get_by_role("menuitem", name="Recently deleted").click()
    expect(listed(page)).to_have_count(1)
    page.get_by_role("button", name="Restore “One”").click()
    expect(page.get_by_text("Nothing was deleted lately.")).to_be_visible()
    page.get_by_role("button", name="Back to the chats").click()
    expect(line(page, "One")).to_be_visible()


def test_it_is_done_by_keys(person: Person, tab: Page) -> None:
    make_chats(person, ["One", "Other"])
    reopen(tab, person)
    line(tab, "Other").get_by_role("link").focus()
    tab.keyboard.press("Delete")
    expect(tab.get_by_text("Press again to delete this chat.")).to_be_attached()
    tab.keyboard.press("Escape")
    expect(tab.get_by_text("Press again to delete this chat.")).to_have_count(0)
    tab.keyboard.press("Delete")
    tab.keyboard.press("Delete")
    expect(line(tab, "Other")).to_have_count(0)
    expect(line(tab, "One").get_by_role("link")).to_be_focused()


def test_the_menu_asks_twice_too(person: Person, tab: Page) -> None:
    make_chats(person, ["One", "Other"])
    reopen(tab, person)
    line(tab, "Other").hover()
    line(tab, "Other").get_by_role("button", name="More about").click()
    tab.get_by_role("menuitem", name="Delete").click()
    expect(line(tab, "Other")).to_be_visible()
    tab.get_by_role("menuitem", name="Delete?").click()
    expect(line(tab, "Other")).to_have_count(0)


def test_who_may_not_is_told_and_it_stays(person: Person, tab: Page) -> None:
    make_chats(person, ["One"])
    reopen(tab, person)
    expect(line(tab, "One")).to_be_visible()
    tab.route(
        "**/api/chats/*", lambda route: route.fulfill(status=400, json={"error": {"message": "Not now."}})
    )
    _delete(tab, "One")
    expect(notice(tab, "could not be deleted: Not now.")).to_be_visible()
    expect(line(tab, "One")).to_be_visible()


def _delete(page: Page, title: str) -> None:
    line(page, title).hover()
    page.get_by_role("button", name=f"Delete “{title}”").click()
    page.get_by_role("button", name=f"Delete “{title}”? Press again").click()
