"""The chat list: groups by day, any length, changes in place, search, deletion in two steps with undo."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from playwright.sync_api import APIResponse, Page, Route, expect

from tests.long_form import long_only
from tests.web.chats import (
    DAY,
    chat_line,
    chat_lines,
    choose_from_menu,
    delete_chat,
    make_chats,
    notice,
    reopen,
    scroll_to,
    set_last_use,
    titles,
)
from tests.web.page_server import Person, Profile


@long_only
def test_chat_list_groups_chats_by_day_of_use_below_the_pinned_ones(person: Person, profile: Profile) -> None:
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
    set_last_use(person, {id: noon - age * DAY for id, age in zip(ids, ages, strict=True)})
    person.fetch("PATCH", f"/api/chats/{ids[5]}", {"pinned": True})
    page = profile(person, timezone_id="UTC", locale="en-GB").new_page()
    page.clock.install(time=noon / 1000)
    page.goto(person.server.url)
    expect(chat_lines(page)).to_have_count(6)
    shown = page.locator(".lines li").evaluate_all(
        "(lines) => lines.sort((one, other) => one.offsetTop - other.offsetTop)"
        ".map((line) => line.querySelector('h3, .title').textContent)"
    )
    assert shown == [
        *("Pinned", "An old one that matters", "Today", "Of today", "Yesterday", "Of yesterday"),
        *("Previous 7 days", "Of this week", "August 2026", "Of last month", "May 2025", "Of long ago"),
    ]
    page.clock.fast_forward(12 * 3_600_000 + 60_000)
    expect(page.get_by_role("heading", name="Today", exact=True)).to_have_count(0)
    assert titles(page)[1] == "Of today"
    expect(page.get_by_role("heading", name="Yesterday", exact=True)).to_be_visible()


@long_only
def test_chat_list_of_thousands_scrolls_with_few_rows_in_the_page(person: Person, tab: Page) -> None:
    make_chats(person, [f"Chat number {at}" for at in range(2_000)])
    reopen(tab, person)
    expect(chat_line(tab, "Chat number 0")).to_be_visible()
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
    last = chat_line(tab, "Chat number 1999")
    expect(last).to_have_attribute("aria-posinset", "2000")
    expect(last).to_have_attribute("aria-setsize", "2000")
    numbers = [int(name.removeprefix("Chat number ")) for name in titles(tab)]
    assert numbers == list(range(numbers[0], 2_000))
    tab.locator(".lines").evaluate("(list) => { list.scrollTop = list.scrollHeight / 2 }")
    expect(chat_line(tab, "Chat number 1000")).to_be_visible()
    assert chat_lines(tab).count() < 80


@long_only
def test_chat_list_focus_and_scroll_position_survive_scrolling_and_changes(person: Person, tab: Page) -> None:
    ids = make_chats(person, [f"Chat number {at}" for at in range(100)])
    reopen(tab, person)
    first = chat_line(tab, "Chat number 0").get_by_role("link")
    first.focus()
    for _ in range(30):
        tab.keyboard.press("ArrowDown")
    expect(chat_line(tab, "Chat number 30").get_by_role("link")).to_be_focused()
    tab.locator(".lines").evaluate("(list) => { list.scrollTop = 0 }")
    expect(chat_line(tab, "Chat number 0")).to_be_visible()
    expect(chat_line(tab, "Chat number 30").get_by_role("link")).to_be_focused()
    person.run_turn("It is used again", ids[30])
    expect(chat_line(tab, "Chat number 30")).to_have_attribute("aria-posinset", "1")
    expect(chat_line(tab, "Chat number 30").get_by_role("link")).to_be_focused()
    tab.keyboard.press("ArrowDown")
    expect(chat_line(tab, "Chat number 0").get_by_role("link")).to_be_focused()
    tab.keyboard.press("End")
    tab.keyboard.press("Home")
    tab.keyboard.press("Enter")
    expect(tab).to_have_url(f"{person.server.url}/#{ids[30]}")
    # Where the line with the focus goes, the next one has it.
    person.fetch("DELETE", f"/api/chats/{ids[30]}")
    expect(chat_line(tab, "Chat number 0").get_by_role("link")).to_be_focused()
    # What is seen stays in its place when chats come above it.
    scroll_to(tab, "Chat number 60")
    expect(chat_line(tab, "Chat number 50")).to_be_visible()
    before = chat_line(tab, "Chat number 50").bounding_box()
    top = tab.locator(".lines").evaluate("(list) => list.scrollTop")
    person.fetch("POST", "/api/chats", {"title": "Another one"})
    expect(tab.locator(".lines")).not_to_have_js_property("scrollTop", top)
    assert chat_line(tab, "Chat number 50").bounding_box() == before


def test_chat_list_renames_a_chat_in_place_and_offers_to_resolve_a_conflict(
    person: Person, tab: Page
) -> None:
    ids = make_chats(person, ["Before", *(f"Chat number {at}" for at in range(3))])
    reopen(tab, person)
    field = tab.get_by_role("textbox", name="Chat name")
    chat_line(tab, "Before").get_by_role("link").focus()
    tab.keyboard.press("F2")
    expect(field).to_be_focused()
    field.fill("Never")
    tab.keyboard.press("Escape")
    expect(chat_line(tab, "Before").get_by_role("link")).to_be_focused()
    tab.keyboard.press("F2")
    field.fill("After <b>")
    with _changed(tab):
        tab.keyboard.press("Enter")
    expect(chat_line(tab, "After <b>").get_by_role("link")).to_be_focused()
    assert person.fetch("GET", f"/api/chats/{ids[0]}")["title"] == "After <b>"
    tab.keyboard.press("F2")
    field.fill("By going elsewhere")
    with _changed(tab):
        tab.get_by_role("searchbox").focus()
    expect(chat_line(tab, "By going elsewhere")).to_be_visible()
    assert person.fetch("GET", f"/api/chats/{ids[0]}")["title"] == "By going elsewhere"

    # The input keeps the focus when the renamed chat moves.
    chat_line(tab, "Chat number 2").get_by_role("link").focus()
    tab.keyboard.press("F2")
    tab.keyboard.type("Half of")
    person.run_turn("It is used meanwhile", ids[3])
    expect(chat_lines(tab).filter(has=field)).to_have_attribute("aria-posinset", "1")
    tab.keyboard.type(" a name")
    expect(field).to_have_value("Half of a name")
    with _changed(tab):
        tab.keyboard.press("Enter")
    expect(chat_line(tab, "Half of a name").get_by_role("link")).to_be_focused()
    assert titles(tab) == ["Half of a name", "By going elsewhere", "Chat number 0", "Chat number 1"]

    # A rename after a rename elsewhere reports the conflict.
    chat_line(tab, "Chat number 0").get_by_role("link").focus()
    tab.keyboard.press("F2")
    person.fetch("PATCH", f"/api/chats/{ids[1]}", {"title": "Theirs"})
    field.fill("Mine")
    tab.keyboard.press("Enter")
    expect(notice(tab, "Its name is “Theirs”")).to_be_visible()
    expect(chat_line(tab, "Theirs")).to_be_visible()
    with _changed(tab):
        tab.get_by_role("button", name="Rename to “Mine”").click()
    expect(chat_line(tab, "Mine")).to_be_visible()
    assert person.fetch("GET", f"/api/chats/{ids[1]}")["title"] == "Mine"


@long_only
def test_chat_list_menu_pins_and_archives_a_chat_and_undoes_the_archiving(person: Person, tab: Page) -> None:
    ids = make_chats(person, ["One", "Other"])
    reopen(tab, person)
    choose_from_menu(tab, "Other", "Pin")
    expect(tab.get_by_role("heading", name="Pinned")).to_be_visible()
    assert titles(tab) == ["Other", "One"]
    choose_from_menu(tab, "One", "Archive")
    expect(chat_line(tab, "One")).to_have_count(0)
    tab.get_by_role("button", name="Undo").click()
    expect(chat_line(tab, "One")).to_be_visible()
    choose_from_menu(tab, "One", "Archive")
    expect(chat_line(tab, "One")).to_have_count(0)
    older: list[tuple[Route, APIResponse]] = []

    def read(route: Route) -> None:
        older.append((route, route.fetch()))
        person.fetch("PATCH", f"/api/chats/{ids[1]}", {"archived": True})

    # A change arrives while the archive is being read, and the answer is older.
    tab.route("**/api/chats?*archived=true*", read)
    tab.get_by_role("button", name="More chats").click()
    with tab.expect_response(f"**/api/chats/{ids[1]}?limit=1"):
        tab.get_by_role("menuitem", name="Archive").click()
    expect(tab.get_by_role("heading", name="Archive")).to_be_visible()
    [(route, response)] = older
    route.fulfill(response=response)
    expect(chat_line(tab, "One")).to_be_visible()
    expect(chat_line(tab, "Other")).to_be_visible()
    choose_from_menu(tab, "One", "Unarchive")
    expect(chat_line(tab, "One")).to_have_count(0)
    tab.get_by_role("button", name="Back to chats").click()
    expect(chat_line(tab, "One")).to_be_visible()


@long_only
def test_chat_list_shows_the_menu_of_the_chat_under_the_pointer_or_with_the_focus(
    person: Person, tab: Page
) -> None:
    make_chats(person, ["One", "Other"])
    reopen(tab, person)
    menus = tab.get_by_role("navigation").get_by_role("button", name="Options for")
    one = chat_line(tab, "One")
    expect(one).to_be_visible()
    expect(menus).to_have_count(0)
    one.get_by_role("link").focus()
    expect(menus).to_have_count(1)
    tab.keyboard.press("Tab")
    expect(one.get_by_role("button", name="Options for “One”")).to_be_focused()
    tab.get_by_role("textbox", name="Message").focus()
    expect(menus).to_have_count(0)
    chat_line(tab, "Other").hover()
    expect(menus).to_have_count(1)


@long_only
def test_notices_cover_nothing_however_long_a_title_is(person: Person, profile: Profile) -> None:
    long = "Donaudampfschifffahrt " * 23
    overlaps = """() => {
      const notice = document.querySelector(".notice").getBoundingClientRect();
      const covered = [...document.querySelectorAll(".bar, .thread, .empty, .composer, .empty-foot, .lines")]
        .map((each) => [each.className, each.getBoundingClientRect()])
        .filter(([, box]) => box.width && box.left < notice.right && notice.left < box.right
          && box.top < notice.bottom - 1 && notice.top + 1 < box.bottom);
      return [notice.height, covered.map(([name]) => name)];
    }"""
    for width, height in ((1280, 800), (390, 780)):
        [chat, _] = make_chats(person, [f"{long}{width}", f"Other {width}"])
        page = profile(person, viewport={"width": width, "height": height}).new_page()
        page.goto(f"{person.server.url}/#{chat}")
        page.get_by_role("button", name="Chat options").click()
        page.get_by_role("menuitem", name="Archive").click()
        expect(page.get_by_role("button", name="Undo")).to_be_in_viewport()
        tall, covered = page.evaluate(overlaps)
        assert covered == []
        assert tall < 100
        if width < 832:
            page.get_by_role("button", name="Show chats").click()
            expect(page.get_by_role("navigation", name="Chats")).to_be_visible()
            expect(page.get_by_role("button", name="Undo")).to_be_in_viewport()
            assert "lines" not in page.evaluate(overlaps)[1]
        page.get_by_role("button", name="Undo").click()
        expect(page.get_by_role("button", name="Undo").and_(page.locator(".notice .button"))).to_be_visible()


@long_only
def test_menu_above_the_chat_renames_pins_archives_and_deletes_it(person: Person, profile: Profile) -> None:
    chat = person.run_turn("Dinner")["chat"]["id"]
    page = profile(person).new_page()
    page.goto(f"{person.server.url}/#{chat}")
    expect(page.locator("[data-turn]")).to_have_count(1)

    def choose(entry: str) -> None:
        page.get_by_role("button", name="Chat options").click()
        page.get_by_role("menuitem", name=entry, exact=True).click()

    name = page.get_by_role("textbox", name="Chat name")
    for key, title in (("Escape", "Dinner"), ("Enter", "Supper")):
        choose("Rename")
        expect(name).to_be_focused()
        name.fill("Supper")
        name.press(key)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
    expect(chat_line(page, "Supper")).to_be_visible()
    choose("Pin")
    expect(page.get_by_role("heading", name="Pinned")).to_be_visible()
    choose("Unpin")
    expect(page.get_by_role("heading", name="Pinned")).to_have_count(0)
    choose("Archive")
    expect(chat_line(page, "Supper")).to_have_count(0)
    choose("Unarchive")
    expect(chat_line(page, "Supper")).to_be_visible()

    choose("Delete")
    page.get_by_role("menuitem", name="Delete?").click()
    expect(notice(page, "Deleted “Supper”.")).to_be_visible()
    assert person.chats() == []


@long_only
def test_chat_list_scope_is_selectable_among_several_and_remembered(person: Person, profile: Profile) -> None:
    make_chats(person, ["Of the shop"], scope="shop")
    context = profile(person)
    page = context.new_page()
    page.goto(person.server.url)
    expect(chat_line(page, "Of the shop")).to_be_visible()
    scope = page.get_by_role("button", name="Scope:")
    expect(scope).to_have_count(0)
    make_chats(person, ["Of the wiki"], scope="wiki")
    expect(chat_line(page, "Of the wiki")).to_be_visible()
    scope.click()
    page.get_by_role("menuitemradio", name="wiki").click()
    expect(chat_line(page, "Of the shop")).to_have_count(0)
    page.reload()
    expect(chat_line(page, "Of the wiki")).to_be_visible()
    expect(chat_line(page, "Of the shop")).to_have_count(0)
    make_chats(person, ["Later, of the shop"], scope="shop")
    make_chats(person, ["Later, of the wiki"], scope="wiki")
    expect(chat_line(page, "Later, of the wiki")).to_be_visible()
    expect(chat_line(page, "Later, of the shop")).to_have_count(0)
    fixed = context.new_page()
    fixed.goto(person.server.url + "/?scope=shop")
    expect(chat_line(fixed, "Later, of the shop")).to_be_visible()
    expect(chat_line(fixed, "wiki")).to_have_count(0)
    expect(fixed.get_by_role("button", name="Scope:")).to_have_count(0)


def _changed(page: Page) -> AbstractContextManager[Any]:
    """Wait until the server has answered a change."""
    return page.expect_response(lambda answer: answer.request.method == "PATCH")


@long_only
def test_chat_list_delete_confirmation_and_undo_expire(person: Person, profile: Profile) -> None:
    make_chats(person, ["One", "Other"])
    page = profile(person).new_page()
    page.clock.install()
    page.goto(person.server.url)
    choose_from_menu(page, "One", "Delete")
    again = page.get_by_text("Delete?")
    expect(page.get_by_role("menuitem", name="Delete?")).to_be_focused()
    page.clock.fast_forward(4_100)
    expect(again).to_have_count(0)
    page.keyboard.press("Escape")
    page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 60)
    chat_line(page, "One").get_by_role("link").press("Delete")
    expect(again).to_be_visible()
    page.get_by_role("searchbox").focus()
    expect(again).to_have_count(0)
    assert len(person.chats()) == 2
    page.clock.resume()
    delete_chat(page, "One")
    undo = page.get_by_role("button", name="Undo")
    expect(undo).to_be_visible()
    page.clock.run_for(9_500)
    expect(undo).to_be_visible()
    page.clock.run_for(1_000)
    expect(undo).to_have_count(0)
    page.reload()
    page.get_by_role("button", name="More chats").click()
    page.get_by_role("menuitem", name="Recently deleted").click()
    expect(chat_lines(page)).to_have_count(1)
    page.get_by_role("button", name="Restore “One”").click()
    expect(page.get_by_text("No recently deleted chats.")).to_be_visible()
    page.get_by_role("button", name="Back to chats").click()
    expect(chat_line(page, "One")).to_be_visible()


def test_chat_list_deletes_a_chat_in_two_steps_and_undo_restores_it(person: Person, tab: Page) -> None:
    [id, _] = make_chats(person, ["One", "Other"])
    reopen(tab, person)
    again = chat_line(tab, "One").get_by_text("Delete?")
    chat_line(tab, "One").get_by_role("link").focus()
    for _ in range(3):  # held
        tab.keyboard.down("Delete")
    tab.keyboard.up("Delete")
    expect(again).to_be_visible()
    chat_line(tab, "One").get_by_role("button", name="Options for").click()
    tab.get_by_role("menuitem", name="Delete").dblclick()
    expect(tab.get_by_role("menuitem", name="Delete?")).to_be_visible()
    tab.keyboard.press("Escape")
    chat_line(tab, "One").get_by_role("button", name="Options for").press("ArrowUp")
    for _ in range(3):
        tab.keyboard.down("Enter")
    tab.keyboard.up("Enter")
    expect(tab.get_by_role("menuitem", name="Delete?")).to_be_focused()
    assert [chat["title"] for chat in person.chats()] == ["One", "Other"]
    tab.keyboard.press("Escape")

    # What the server refuses is taken back.
    refusal = {"error": {"message": "Not now."}}
    tab.route("**/api/chats/*", lambda route: route.fulfill(status=400, json=refusal))
    choose_from_menu(tab, "One", "Archive")
    expect(notice(tab, "Could not archive “One”: Not now.")).to_be_visible()
    expect(chat_line(tab, "One")).to_be_visible()
    delete_chat(tab, "One")
    expect(notice(tab, "Could not delete “One”: Not now.")).to_be_visible()
    expect(chat_line(tab, "One")).to_be_visible()
    tab.unroute_all()

    chat_line(tab, "One").get_by_role("link").click()
    expect(tab).to_have_url(f"{person.server.url}/#{id}")
    with tab.expect_response(lambda answer: answer.request.method == "DELETE"):
        delete_chat(tab, "One")
    expect(chat_line(tab, "One")).to_have_count(0)
    expect(tab).to_have_url(f"{person.server.url}/#new")
    assert [chat["title"] for chat in person.chats()] == ["Other"]
    with tab.expect_response("**/restore"):
        tab.get_by_role("button", name="Undo").click()
    expect(chat_line(tab, "One")).to_be_visible()
    expect(tab).to_have_url(f"{person.server.url}/#{id}")
    assert titles(tab) == ["One", "Other"]
    assert [chat["title"] for chat in person.chats()] == ["One", "Other"]

    # By keys, and by the menu.
    chat_line(tab, "Other").get_by_role("link").focus()
    tab.keyboard.press("Delete")
    expect(tab.get_by_text("Press again to delete this chat.")).to_be_attached()
    tab.keyboard.press("Escape")
    expect(tab.get_by_text("Press again to delete this chat.")).to_have_count(0)
    tab.keyboard.press("Delete")
    tab.keyboard.press("Delete")
    expect(chat_line(tab, "Other")).to_have_count(0)
    expect(chat_line(tab, "One").get_by_role("link")).to_be_focused()
    chat_line(tab, "One").hover()
    chat_line(tab, "One").get_by_role("button", name="Options for").click()
    tab.get_by_role("menuitem", name="Delete").click()
    expect(chat_line(tab, "One")).to_be_visible()
    tab.get_by_role("menuitem", name="Delete?").click()
    expect(chat_line(tab, "One")).to_have_count(0)


@long_only
def test_search_hit_marks_the_words_in_a_snippet_shown_as_plain_text(person: Person, tab: Page) -> None:
    person.server.model.add_script("A 🦩 <img src=x onerror=alert(1)> flamingo it is.")
    person.run_turn("Which bird is pink?")
    person.server.model.add_script("A heron.")
    person.run_turn("And grey?")
    expect(chat_lines(tab)).to_have_count(2)
    tab.keyboard.press("Control+k")
    expect(tab.get_by_role("searchbox", name="Search chats")).to_be_focused()
    tab.keyboard.type("flamingo")
    expect(chat_lines(tab)).to_have_count(1)
    hit = chat_lines(tab)
    expect(hit.locator("mark")).to_have_text("flamingo")
    expect(hit).to_contain_text("…onerror=alert(1)> flamingo it is.")
    assert hit.locator("img").count() == 0
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    expect(tab.locator("[data-turn]")).to_contain_text("Which bird is pink?")
    expect(tab.get_by_text("1 chat found.")).to_be_visible()
    tab.get_by_role("button", name="Clear search").click()
    expect(chat_lines(tab)).to_have_count(2)

    # A slash begins a search, but not in a message.
    tab.get_by_role("textbox", name="Message").fill("")
    tab.get_by_role("textbox", name="Message").press("/")
    expect(tab.get_by_role("textbox", name="Message")).to_have_value("/")
    tab.get_by_role("textbox", name="Message").fill("")
    tab.get_by_role("button", name="New chat").focus()
    tab.keyboard.press("/")
    expect(tab.get_by_role("searchbox")).to_be_focused()
    tab.keyboard.type("nothing of the kind")
    expect(tab.get_by_text("No results for “nothing of the kind”.")).to_be_visible()
    tab.keyboard.press("Escape")
    expect(tab.get_by_role("searchbox")).to_have_value("")


@long_only
def test_search_shows_the_result_of_the_last_input_and_warns_when_incomplete(
    person: Person, tab: Page
) -> None:
    make_chats(person, ["Slow herons", "Quick flamingos"])
    held: list[Route] = []
    tab.route("**/api/search?q=herons*", lambda route: held.append(route))
    field = tab.get_by_role("searchbox")
    with tab.expect_request("**/api/search?q=herons*"):
        field.fill("herons")
    field.fill("flamingos")
    expect(chat_line(tab, "Quick flamingos")).to_be_visible()
    for route in held:
        route.continue_()
    tab.unroute_all(behavior="wait")
    with tab.expect_response("**/api/search?q=quick*"):
        field.fill("quick")
    expect(chat_line(tab, "Quick flamingos")).to_be_visible()
    expect(chat_line(tab, "Slow herons")).to_have_count(0)

    # The index may be behind.
    def answer(route: Route) -> None:
        body: dict[str, Any] = route.fetch().json()
        route.fulfill(json={**body, "complete": False})

    tab.route("**/api/search*", answer)
    tab.get_by_role("searchbox").fill("herons")
    expect(tab.get_by_text("The newest messages are not searchable yet")).to_be_visible()
    expect(chat_line(tab, "Slow herons")).to_be_visible()


def test_search_hit_opens_its_branch_and_scrolls_to_the_turn(person: Person, tab: Page) -> None:
    person.server.model.add_script("Flamingos are pink.")
    answer = person.run_turn("Which bird?")
    chat, turn = answer["chat"]["id"], answer["turn"]["id"]
    person.server.model.add_script("Herons are grey.")
    person.fetch(
        "POST", "/api/turns", {"model": "scripted", "chat": chat, "input": "Another bird?", "replaces": turn}
    )
    reopen(tab, person)
    chat_lines(tab).get_by_role("link").click()
    expect(tab.locator("[data-turn]")).to_contain_text("Herons are grey.")
    tab.get_by_role("searchbox").fill("flamingos")
    chat_lines(tab).get_by_role("link").click()
    expect(tab.locator("[data-turn]")).to_contain_text("Flamingos are pink.")

    # However far above it is.
    person.server.model.add_script("Pelicans are white.")
    chat = person.run_turn("Which else?")["chat"]["id"]
    for number in range(40):
        person.run_turn(f"Something else, {number}", chat)
    tab.get_by_role("button", name="Clear search").click()
    reopen(tab, person)
    chat_line(tab, "Which else?").get_by_role("link").click()
    expect(tab.get_by_text("Something else, 39", exact=True).last).to_be_visible()
    tab.get_by_role("searchbox").fill("pelicans")
    chat_lines(tab).get_by_role("link").click()
    expect(tab.get_by_text("Pelicans are white.").last).to_be_in_viewport()


@long_only
def test_search_hits_load_page_by_page(person: Person, tab: Page) -> None:
    make_chats(person, [f"Heron {number}" for number in range(120)])
    tab.get_by_role("searchbox").fill("heron")
    expect(chat_lines(tab).first).to_be_visible()
    assert chat_lines(tab).count() < 60
    tab.evaluate(
        """() => {
          const list = document.querySelector(".lines");
          const scroll = () => { list.scrollTop = list.scrollHeight; requestAnimationFrame(scroll) };
          scroll();
        }"""
    )
    expect(tab.get_by_text("120 chats found.")).to_be_visible()
    expect(chat_line(tab, "Heron 0")).to_be_visible()


@long_only
def test_page_opened_without_a_chat_shows_the_one_it_showed_last_and_no_other_program_s(
    person: Person, profile: Profile
) -> None:
    def run_program(name: str) -> None:
        messages = [{"role": "user", "content": name}]
        body = {"model": "scripted", "messages": messages}
        person.fetch("POST", "/v1/chat/completions", body, X_Conversation_Id=name)

    url = person.server.url
    run_program("From a program")
    person.run_turn("From another program")
    page = profile(person).new_page()
    page.goto(url)
    expect(chat_lines(page)).to_have_count(2)
    expect(page).to_have_url(f"{url}/#new")
    page.get_by_role("textbox", name="Message").fill("From the page")
    page.keyboard.press("Enter")
    own = chat_line(page, "From the page").get_by_role("link")
    expect(own).to_have_attribute("aria-current", "page")
    run_program("From a program")
    run_program("From a later program")
    expect(chat_lines(page)).to_have_count(4)
    page.goto(f"{url}/?again")
    expect(own).to_have_attribute("aria-current", "page")
    expect(page.locator("[data-turn]")).to_have_count(1)
    page.get_by_role("button", name="New chat").click()
    person.run_turn("Somebody else begins")
    expect(chat_lines(page)).to_have_count(5)
    expect(page).to_have_url(f"{url}/?again#new")
    [chat] = [each["id"] for each in person.chats() if each["title"] == "From the page"]
    person.fetch("DELETE", f"/api/chats/{chat}")
    page.goto(f"{url}/?deleted")
    expect(chat_lines(page)).to_have_count(4)
    expect(page).to_have_url(f"{url}/?deleted#new")


@long_only
def test_new_chat_sent_in_another_tab_leaves_this_tab_on_its_new_chat(
    person: Person, profile: Profile
) -> None:
    context = profile(person)
    one, other = context.new_page(), context.new_page()
    for page in (one, other):
        page.goto(person.server.url)
        expect(page).to_have_url(f"{person.server.url}/#new")
    other.get_by_role("textbox", name="Message").fill("Hello from the other tab")
    other.keyboard.press("Enter")
    expect(chat_line(one, "Hello from the other tab")).to_be_visible()
    expect(one).to_have_url(f"{person.server.url}/#new")
    expect(one.locator("[data-turn]")).to_have_count(0)


@long_only
def test_new_chat_button_pressed_twice_opens_one_new_chat(person: Person, tab: Page) -> None:
    [id] = make_chats(person, ["One"])
    tab.goto(f"{person.server.url}/?again#{id}")
    expect(chat_line(tab, "One").get_by_role("link")).to_have_attribute("aria-current", "page")
    tab.get_by_role("button", name="New chat").click()
    tab.get_by_role("textbox", name="Message").fill("Half of a thought")
    tab.get_by_role("textbox", name="Message").evaluate("(field) => { window.field = field }")
    tab.get_by_role("button", name="New chat").click()
    assert tab.get_by_role("textbox", name="Message").evaluate("(field) => field === window.field")
    expect(tab.get_by_role("textbox", name="Message")).to_have_value("Half of a thought")
    tab.go_back()
    expect(chat_line(tab, "One").get_by_role("link")).to_have_attribute("aria-current", "page")
    tab.go_forward()
    tab.get_by_role("textbox", name="Message").fill("Said")
    tab.keyboard.press("Enter")
    expect(tab.locator("[data-turn]")).to_have_count(1)
    tab.get_by_role("button", name="New chat").click()
    expect(tab).to_have_url(f"{person.server.url}/?again#new")
    expect(tab.locator("[data-turn]")).to_have_count(0)
