"""Chats are found by what was said in them."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, Route, expect

from tests.web.chats import line, listed, make_chats, reopen
from tests.web.house import Person


def test_what_was_sought_is_marked_in_a_snippet_and_is_text(person: Person, tab: Page) -> None:
    person.house.model.says("A 🦩 <img src=x onerror=alert(1)> flamingo it is.")
    person.say("Which bird is pink?")
    person.house.model.says("A heron.")
    person.say("And grey?")
    expect(listed(tab)).to_have_count(2)
    tab.keyboard.press("Control+k")
    expect(tab.get_by_role("searchbox", name="Search chats")).to_be_focused()
    tab.keyboard.type("flamingo")
    expect(listed(tab)).to_have_count(1)
    hit = listed(tab)
    expect(hit.locator("mark")).to_have_text("flamingo")
    expect(hit).to_contain_text("A 🦩 <img src=x onerror=alert(1)> flamingo it is.")
    assert hit.locator("img").count() == 0
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    expect(tab.locator("[data-turn]")).to_contain_text("Which bird is pink?")
    expect(tab.get_by_text("1 chat found.")).to_be_visible()
    tab.get_by_role("button", name="Clear the search").click()
    expect(listed(tab)).to_have_count(2)


def test_a_slash_begins_a_search_but_not_in_a_message(person: Person, tab: Page) -> None:
    tab.get_by_role("textbox", name="Message").fill("")
    tab.get_by_role("textbox", name="Message").press("/")
    expect(tab.get_by_role("textbox", name="Message")).to_have_value("/")
    tab.get_by_role("textbox", name="Message").fill("")
    tab.get_by_role("button", name="New chat").focus()
    tab.keyboard.press("/")
    expect(tab.get_by_role("searchbox")).to_be_focused()
    tab.keyboard.type("nothing of the kind")
    expect(tab.get_by_text("Nothing found for “nothing of the kind”.")).to_be_visible()
    tab.keyboard.press("Escape")
    expect(tab.get_by_role("searchbox")).to_have_value("")


def test_the_answer_to_what_was_typed_before_never_replaces_a_later_one(person: Person, tab: Page) -> None:
    make_chats(person, ["Slow herons", "Quick flamingos"])
    held: list[Route] = []
    tab.route("**/api/search?q=herons*", lambda route: held.append(route))
    field = tab.get_by_role("searchbox")
    with tab.expect_request("**/api/search?q=herons*"):
        field.fill("herons")
    field.fill("flamingos")
    expect(line(tab, "Quick flamingos")).to_be_visible()
    for route in held:
        route.continue_()
    tab.unroute_all(behavior="wait")
    with tab.expect_response("**/api/search?q=quick*"):
        field.fill("quick")
    expect(line(tab, "Quick flamingos")).to_be_visible()
    expect(line(tab, "Slow herons")).to_have_count(0)


def test_a_search_that_cannot_find_everything_yet_says_so(person: Person, tab: Page) -> None:
    make_chats(person, ["A heron"])

    def answer(route: Route) -> None:
        told: dict[str, Any] = route.fetch().json()
        route.fulfill(json={**told, "complete": False})

    tab.route("**/api/search*", answer)
    tab.get_by_role("searchbox").fill("heron")
    expect(tab.get_by_text("The newest messages cannot be found yet")).to_be_visible()
    expect(line(tab, "A heron")).to_be_visible()


def test_a_hit_that_was_edited_away_is_opened_on_the_branch_that_has_it(person: Person, tab: Page) -> None:
    person.house.model.says("Flamingos are pink.")
    said = person.say("Which bird?")
    chat, turn = said["chat"]["id"], said["turn"]["id"]
    person.house.model.says("Herons are grey.")
    person.ask(
        "POST", "/api/turns", {"model": "scripted", "chat": chat, "input": "Another bird?", "replaces": turn}
    )
    reopen(tab, person)
    expect(tab.locator("[data-turn]")).to_contain_text("Herons are grey.")
    tab.get_by_role("searchbox").fill("flamingos")
    listed(tab).get_by_role("link").click()
    expect(tab.locator("[data-turn]")).to_contain_text("Flamingos are pink.")


def test_a_hit_far_above_is_scrolled_to(person: Person, tab: Page) -> None:
    person.house.model.says("Flamingos are pink.")
    chat = person.say("Which bird?")["chat"]["id"]
    for number in range(40):
        person.say(f"Something else, {number}", chat)
    reopen(tab, person)
    expect(tab.get_by_text("Something else, 39", exact=True).last).to_be_visible()
    tab.get_by_role("searchbox").fill("flamingos")
    listed(tab).get_by_role("link").click()
    expect(tab.get_by_text("Flamingos are pink.").last).to_be_in_viewport()


def test_hits_come_page_by_page(person: Person, tab: Page) -> None:
    make_chats(person, [f"Heron {number}" for number in range(120)])
    tab.get_by_role("searchbox").fill("heron")
    expect(listed(tab).first).to_be_visible()
    assert listed(tab).count() < 60
    tab.evaluate(
        """() => {
          const list = document.querySelector(".lines");
          const scroll = () => { list.scrollTop = list.scrollHeight; requestAnimationFrame(scroll) };
          scroll();
        }"""
    )
    expect(tab.get_by_text("120 chats found.")).to_be_visible()
    expect(line(tab, "Heron 0")).to_be_visible()
