"""Drafts persist per chat, across reloads and tabs.

The first messages of a new chat create one chat, however fast they are sent and despite lost requests.
"""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, Route, expect

from tests.web.composing import begin_another, open_new, said, send, shows, until
from tests.web.page_server import Person, Profile
from tests.web.sign_in import field
from turnledger.testing.gates import Gate

DRAFTS = "Object.keys(localStorage).filter(name => name.includes(':draft:'))"
FIVE = ["one", "two", "three", "four", "five"]


def made(person: Person, *texts: str) -> list[str]:
    """Chats in which this was said."""
    return [person.say(text)["chat"]["id"] for text in texts]


def at(tab: Page, person: Person, chat: str) -> None:
    tab.goto(f"{person.house.url}#{chat}")
    expect(tab.locator("[data-turn]")).to_have_count(1)


def kept(tab: Page) -> Any:
    return tab.evaluate(DRAFTS)


def test_draft_is_stored_per_chat_and_deleted_with_its_chat(person: Person, profile: Profile) -> None:
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
    until(tab, f"{DRAFTS}.length === 3")
    person.ask("DELETE", f"/api/chats/{one}")
    until(tab, f"{DRAFTS}.length === 2")


def test_draft_survives_a_reload_until_it_is_sent(tab: Page, person: Person) -> None:
    expect(field(tab)).to_be_visible()
    field(tab).press_sequentially("almost")
    field(tab).press("Shift+Enter")
    field(tab).press_sequentially("lost")
    tab.reload()  # however soon that is
    expect(field(tab)).to_have_value("almost\nlost")
    field(tab).press("Enter")
    shows(tab, 1)
    assert kept(tab) == []
    tab.reload()
    shows(tab, 1)
    expect(field(tab)).to_have_value("")

    # What is written while a chat is made stays with it.
    gate = Gate()
    person.house.model.says("Half", gate)
    begin_another(tab)
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


def test_draft_of_a_chat_is_shared_between_tabs_and_that_of_a_new_chat_is_not(
    person: Person, profile: Profile
) -> None:
    [chat] = made(person, "Here")
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

    for tab in (one, other):
        at(tab, person, chat)
        expect(tab.locator("[data-turn]")).to_contain_text("Here")
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


def test_first_messages_of_a_new_chat_create_one_chat_in_order_despite_delays_and_failures(
    person: Person, profile: Profile
) -> None:
    tab = profile(person).new_page()
    open_new(tab, person)
    send(tab, *FIVE)
    shows(tab, 5)
    assert said(person) == [FIVE]
    assert tab.url.endswith("#" + person.chats()[0]["id"])

    posts: list[Route] = []

    def lose(route: Route) -> None:
        if route.request.method != "POST":
            return route.continue_()
        posts.append(route)
        if len(posts) == 2:
            return route.abort()
        if len(posts) == 3:  # this one is made, and nobody hears of it
            route.fetch()
            return route.abort()
        return None if len(posts) == 1 else route.continue_()

    tab.route("**/api/chats", lose)
    begin_another(tab)
    with tab.expect_request(lambda request: request.method == "POST" and request.url.endswith("/api/chats")):
        send(tab, *FIVE)
    expect(field(tab)).to_have_value("")
    assert len(posts) == 1
    posts[0].continue_()  # they have waited for it
    shows(tab, 5)
    assert said(person) == [FIVE, FIVE]

    begin_another(tab)
    send(tab, *FIVE)
    shows(tab, 5)
    assert said(person) == [FIVE] * 3
    assert len(posts) == 4


def test_unsent_messages_of_new_chats_survive_a_reload_in_their_own_chats(
    person: Person, profile: Profile
) -> None:
    tab = profile(person).new_page()
    open_new(tab, person)
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
    for text in ("three", "four"):
        begin_another(tab)
        send(tab, text)
    shows(tab, 1)
    expect(tab.locator("[data-turn]").get_by_text("four")).to_be_visible()
    tab.get_by_role("link", name="three").click()
    expect(tab.locator("[data-turn]").get_by_text("three")).to_be_visible()
    shows(tab, 1)
    assert sorted(said(person)) == [["four"], ["one", "two"], ["three"]]


def test_message_sent_before_the_models_are_loaded_waits_and_becomes_a_draft_on_reload(
    person: Person, profile: Profile
) -> None:
    tab = profile(person).new_page()
    held: list[Route] = []
    tab.route("**/v1/models", lambda route: route.continue_() if len(held) == 2 else held.append(route))
    with tab.expect_request("**/v1/models"):
        open_new(tab, person)
    send(tab, "one", "two")
    expect(tab.get_by_text("2 messages will be sent")).to_be_visible()
    expect(field(tab)).to_have_value("")
    assert person.chats() == []
    held[0].continue_()
    shows(tab, 2)
    assert said(person) == [["one", "two"]]
    assert kept(tab) == []
    begin_another(tab)
    with tab.expect_request("**/v1/models"):
        tab.reload()
    send(tab, "three", "four")
    expect(tab.get_by_text("2 messages will be sent")).to_be_visible()
    tab.reload()
    expect(field(tab)).to_have_value("three\n\nfour")
    assert said(person) == [["one", "two"]]
