"""Drafts persist per chat, across reloads and tabs.

The first messages of a new chat create one chat, however fast they are sent and despite lost requests.
"""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, Route, expect

from tests.long_form import long_only
from tests.web.page_server import Person, Profile
from tests.web.thread import (
    expect_turns,
    inputs_by_chat,
    message_field,
    open_new_chat,
    send,
    start_new_chat,
    wait_until,
)
from turnledger.testing.gates import Gate

DRAFTS = "Object.keys(localStorage).filter(name => name.includes(':draft:'))"
FIVE = ["one", "two", "three", "four", "five"]


def made(person: Person, *texts: str) -> list[str]:
    """Make chats with these messages."""
    return [person.run_turn(text)["chat"]["id"] for text in texts]


def at(tab: Page, person: Person, chat: str) -> None:
    tab.goto(f"{person.server.url}#{chat}")
    expect(tab.locator("[data-turn]")).to_have_count(1)


def kept(tab: Page) -> Any:
    return tab.evaluate(DRAFTS)


@long_only
def test_draft_is_stored_per_chat_and_deleted_with_its_chat(person: Person, profile: Profile) -> None:
    one, other = made(person, "One", "Other")
    tab = profile(person).new_page()
    at(tab, person, one)
    message_field(tab).fill("for one ")
    at(tab, person, other)
    expect(message_field(tab)).to_have_value("")
    message_field(tab).fill("for the other")
    open_new_chat(tab, person)
    expect(message_field(tab)).to_have_value("")
    message_field(tab).fill("for a new one")
    at(tab, person, one)
    expect(message_field(tab)).to_have_value("for one ")
    at(tab, person, other)
    expect(message_field(tab)).to_have_value("for the other")
    open_new_chat(tab, person)
    expect(message_field(tab)).to_have_value("for a new one")
    wait_until(tab, f"{DRAFTS}.length === 3")
    person.fetch("DELETE", f"/api/chats/{one}")
    wait_until(tab, f"{DRAFTS}.length === 2")


def test_draft_survives_a_reload_until_it_is_sent(tab: Page, person: Person) -> None:
    expect(message_field(tab)).to_be_visible()
    message_field(tab).press_sequentially("almost")
    message_field(tab).press("Shift+Enter")
    message_field(tab).press_sequentially("lost")
    tab.reload()  # however soon that is
    expect(message_field(tab)).to_have_value("almost\nlost")
    message_field(tab).press("Enter")
    expect_turns(tab, 1)
    assert kept(tab) == []
    tab.reload()
    expect_turns(tab, 1)
    expect(message_field(tab)).to_have_value("")

    # What is written while a chat is made stays with it.
    gate = Gate()
    person.server.model.add_script("Half", gate)
    start_new_chat(tab)
    send(tab, "First")
    message_field(tab).press_sequentially("and the next")
    expect(tab.get_by_text("Half")).to_be_visible()
    person.server.model.release(gate)
    expect_turns(tab, 1)
    expect(message_field(tab)).to_have_value("and the next")
    tab.reload()
    expect(message_field(tab)).to_have_value("and the next")
    tab.get_by_role("button", name="New chat").first.click()
    expect(message_field(tab)).to_have_value("")


@long_only
def test_draft_of_a_chat_is_shared_between_tabs_and_that_of_a_new_chat_is_not(
    person: Person, profile: Profile
) -> None:
    [chat] = made(person, "Here")
    context = profile(person)
    one, other = context.new_page(), context.new_page()
    for tab in (one, other):
        open_new_chat(tab, person)
    message_field(one).press_sequentially("One")
    message_field(other).press_sequentially("Other")
    message_field(one).press("Enter")
    expect_turns(one, 1)
    expect(message_field(other)).to_have_value("Other")
    other.reload()
    expect(message_field(other)).to_have_value("Other")

    for tab in (one, other):
        at(tab, person, chat)
        expect(tab.locator("[data-turn]")).to_contain_text("Here")
    one.bring_to_front()
    message_field(one).press_sequentially("Begun here")
    expect(message_field(other)).to_have_value("Begun here")
    other.bring_to_front()
    message_field(other).press("End")
    message_field(other).press_sequentially(", gone on there")
    expect(message_field(one)).to_have_value("Begun here, gone on there")
    message_field(other).press("Enter")
    expect(message_field(other)).to_have_value("")
    expect(message_field(one)).to_have_value("")
    expect(one.locator("[data-turn]")).to_have_count(2)


def test_first_messages_of_a_new_chat_create_one_chat_in_order_despite_delays_and_failures(
    person: Person, profile: Profile
) -> None:
    tab = profile(person).new_page()
    open_new_chat(tab, person)
    send(tab, *FIVE)
    expect_turns(tab, 5)
    assert inputs_by_chat(person) == [FIVE]
    assert tab.url.endswith("#" + person.chats()[0]["id"])

    posts: list[Route] = []

    def lose(route: Route) -> None:
        if route.request.method != "POST":
            return route.continue_()
        posts.append(route)
        if len(posts) == 2:
            return route.abort()
        if len(posts) == 3:  # the chat is created, and the answer is lost
            route.fetch()
            return route.abort()
        return None if len(posts) == 1 else route.continue_()

    tab.route("**/api/chats", lose)
    start_new_chat(tab)
    with tab.expect_request(lambda request: request.method == "POST" and request.url.endswith("/api/chats")):
        send(tab, *FIVE)
    expect(message_field(tab)).to_have_value("")
    assert len(posts) == 1
    posts[0].continue_()  # they have waited for it
    expect_turns(tab, 5)
    assert inputs_by_chat(person) == [FIVE, FIVE]

    start_new_chat(tab)
    send(tab, *FIVE)
    expect_turns(tab, 5)
    assert inputs_by_chat(person) == [FIVE] * 3
    assert len(posts) == 4


@long_only
def test_unsent_messages_of_new_chats_survive_a_reload_in_their_own_chats(
    person: Person, profile: Profile
) -> None:
    tab = profile(person).new_page()
    open_new_chat(tab, person)
    tab.route(
        "**/api/chats", lambda route: route.abort() if route.request.method == "POST" else route.continue_()
    )
    send(tab, "one", "two")
    expect(tab.get_by_text("two")).to_be_visible()
    tab.unroute_all()
    tab.reload()
    expect(tab.get_by_text("two").first).to_be_visible()
    expect_turns(tab, 2)
    assert inputs_by_chat(person) == [["one", "two"]]
    for text in ("three", "four"):
        start_new_chat(tab)
        send(tab, text)
    expect_turns(tab, 1)
    expect(tab.locator("[data-turn]").get_by_text("four")).to_be_visible()
    tab.get_by_role("link", name="three").click()
    expect(tab.locator("[data-turn]").get_by_text("three")).to_be_visible()
    expect_turns(tab, 1)
    assert sorted(inputs_by_chat(person)) == [["four"], ["one", "two"], ["three"]]


@long_only
def test_message_sent_before_the_models_are_loaded_waits_and_becomes_a_draft_on_reload(
    person: Person, profile: Profile
) -> None:
    tab = profile(person).new_page()
    held: list[Route] = []
    tab.route("**/v1/models", lambda route: route.continue_() if len(held) == 2 else held.append(route))
    with tab.expect_request("**/v1/models"):
        open_new_chat(tab, person)
    send(tab, "one", "two")
    expect(tab.get_by_text("2 messages will be sent")).to_be_visible()
    expect(message_field(tab)).to_have_value("")
    assert person.chats() == []
    held[0].continue_()
    expect_turns(tab, 2)
    assert inputs_by_chat(person) == [["one", "two"]]
    assert kept(tab) == []
    start_new_chat(tab)
    with tab.expect_request("**/v1/models"):
        tab.reload()
    send(tab, "three", "four")
    expect(tab.get_by_text("2 messages will be sent")).to_be_visible()
    tab.reload()
    expect(message_field(tab)).to_have_value("three\n\nfour")
    assert inputs_by_chat(person) == [["one", "two"]]
