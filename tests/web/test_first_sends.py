"""The first messages of a new chat make one chat, however fast they come, and whatever is lost on the way."""

from __future__ import annotations

from playwright.sync_api import Page, Route, expect

from tests.web.coming_in import field
from tests.web.composing import open_new, said, send, shows
from tests.web.house import Person, Profile

FIVE = ["one", "two", "three", "four", "five"]


def opened(person: Person, profile: Profile) -> Page:
    tab = profile(person).new_page()
    open_new(tab, person)
    return tab


def test_five_at_once_make_one_chat_with_five_turns_in_order(person: Person, profile: Profile) -> None:
    tab = opened(person, profile)
    send(tab, *FIVE)
    shows(tab, 5)
    assert said(person) == [FIVE]
    assert tab.url.endswith("#" + person.chats()[0]["id"])


def test_they_wait_while_the_chat_is_being_made(person: Person, profile: Profile) -> None:
    tab = opened(person, profile)
    held: list[Route] = []
    tab.route(
        "**/api/chats",
        lambda route: held.append(route) if route.request.method == "POST" else route.continue_(),
    )
    with tab.expect_request(lambda request: request.method == "POST" and request.url.endswith("/api/chats")):
        send(tab, *FIVE)
    expect(field(tab)).to_have_value("")
    assert len(held) == 1
    held[0].continue_()
    shows(tab, 5)
    assert said(person) == [FIVE]


def test_a_chat_whose_making_failed_on_the_way_is_made_once(person: Person, profile: Profile) -> None:
    tab = opened(person, profile)
    tries: list[str] = []

    def lose(route: Route) -> None:
        if route.request.method != "POST":
            return route.continue_()
        tries.append(route.request.url)
        if len(tries) == 1:
            return route.abort()
        if len(tries) == 2:  # this one is made, and nobody hears of it
            route.fetch()
            return route.abort()
        return route.continue_()

    tab.route("**/api/chats", lose)
    send(tab, *FIVE)
    shows(tab, 5)
    assert said(person) == [FIVE]
    assert len(tries) == 3


def test_messages_for_a_chat_that_is_being_made_survive_a_reload(person: Person, profile: Profile) -> None:
    tab = opened(person, profile)
    tab.route(
        "**/api/chats", lambda route: route.abort() if route.request.method == "POST" else route.continue_()
    )
    send(tab, "one", "two")
    expect(tab.get_by_text("two")).to_be_visible()
    tab.unroute_all()
    tab.reload()
    expect(tab.get_by_text("two").first).to_be_visible()
    shows(tab, 2)
    assert said(person) == [["one", "two"]]


def test_two_new_chats_are_two(person: Person, profile: Profile) -> None:
    tab = opened(person, profile)
    send(tab, "one")
    tab.get_by_role("button", name="New chat").first.click()
    send(tab, "two")
    shows(tab, 1)
    expect(tab.locator("[data-turn]").get_by_text("two")).to_be_visible()
    tab.go_back()
    shows(tab, 1)
    assert sorted(said(person)) == [["one"], ["two"]]


def test_what_is_sent_before_the_models_are_known_waits_for_them(person: Person, profile: Profile) -> None:
    tab = profile(person).new_page()
    held: list[Route] = []
    tab.route("**/v1/models", lambda route: held.append(route))
    with tab.expect_request("**/v1/models"):
        open_new(tab, person)
    send(tab, "one", "two")
    expect(tab.get_by_text("2 messages wait")).to_be_visible()
    expect(field(tab)).to_have_value("")
    assert person.chats() == []
    held[0].continue_()
    shows(tab, 2)
    assert said(person) == [["one", "two"]]
    assert tab.evaluate("Object.keys(localStorage).filter(name => name.includes(':draft:'))") == []


def test_what_waits_for_the_models_is_a_draft_after_a_reload(person: Person, profile: Profile) -> None:
    tab = profile(person).new_page()
    held: list[Route] = []
    tab.route("**/v1/models", lambda route: route.continue_() if held else held.append(route))
    open_new(tab, person)
    send(tab, "one", "two")
    expect(tab.get_by_text("2 messages wait")).to_be_visible()
    tab.reload()
    expect(field(tab)).to_have_value("one\n\ntwo")
    assert person.chats() == []
