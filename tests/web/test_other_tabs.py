"""Two tabs, and programs elsewhere, at one chat: all of them see the same."""

from __future__ import annotations

import json
import threading
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Page, expect

from tests.web.chatting import answers, committed, messages, second_tab, write
from tests.web.house import PATIENCE, Person
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import Status


@pytest.fixture
def other(tab: Page, person: Person) -> Page:
    """A second tab at the same chat, in which one thing was said."""
    return second_tab(tab, person)


def test_both_tabs_show_an_answer_as_it_comes(tab: Page, other: Page, person: Person) -> None:
    gate = Gate()
    person.house.model.says("Half of ", gate, "it.")
    write(tab, "Tell me")
    for page in (tab, other):
        expect(answers(page).nth(1)).to_have_text("Half of")
        expect(messages(page)).to_have_text(["Good morning", "Tell me"])
    expect(other.locator(".turn-state")).to_contain_text("Asked in another tab or on another device.")
    person.house.model.release(gate)
    for page in (tab, other):
        expect(committed(page)).to_have_count(2)
        expect(answers(page)).to_have_text(["Hello.", "Half of it."])


def test_what_the_second_tab_sends_waits_in_line_in_both(tab: Page, other: Page, person: Person) -> None:
    gate = Gate()
    person.house.model.says("One", gate, ".")
    write(tab, "First")
    expect(answers(other).nth(1)).to_have_text("One")
    person.house.model.says("Two.")
    write(other, "Second")
    for page in (tab, other):
        expect(page.locator(".turn-state").nth(1)).to_contain_text("Waiting in line: next.")
    person.house.model.release(gate)
    for page in (tab, other):
        expect(committed(page)).to_have_count(3)
        expect(messages(page)).to_have_text(["Good morning", "First", "Second"])
        expect(answers(page)).to_have_text(["Hello.", "One.", "Two."])


def test_what_one_tab_stops_is_stopped_in_the_other(tab: Page, other: Page, person: Person) -> None:
    gate = Gate()
    person.house.model.says("As far as ", gate, "this.")
    write(tab, "How far?")
    expect(answers(other).nth(1)).to_have_text("As far as")
    other.get_by_role("button", name="Stop").first.click()
    for page in (tab, other):
        expect(page.locator('[data-kind="interrupted"]')).to_contain_text("As far as")
    person.house.model.release(gate)


def test_what_fails_in_one_tab_is_gone_in_both(tab: Page, other: Page, person: Person) -> None:
    person.house.model.says(Status(400))
    write(tab, "What is the weather?")
    for page in (tab, other):
        expect(page.locator("[data-failed]")).to_contain_text("The model refused this request.")
        expect(committed(page)).to_have_count(1)
    person.house.model.says("Fine.")
    other.locator("[data-failed]").get_by_role("button", name="Retry").click()
    for page in (tab, other):
        expect(committed(page)).to_have_count(2)
        expect(page.locator("[data-failed]")).to_have_count(0)


def test_edit_regenerate_and_switch_are_seen_in_the_other_tab(tab: Page, other: Page, person: Person) -> None:
    person.house.model.says("Good evening.")
    turn = tab.locator("[data-turn]")
    turn.get_by_role("button", name="Edit message").click()
    tab.get_by_role("textbox", name="Edit message").fill("Good evening")
    tab.keyboard.press("Enter")
    for page in (tab, other):
        expect(messages(page)).to_have_text(["Good evening"])
        expect(answers(page)).to_have_text(["Good evening."])
        expect(page.locator(".siblings")).to_have_text("2/2")
    person.house.model.says("And to you.")
    # What somebody is about to say in the place of what is replaced elsewhere is not lost.
    turn.get_by_role("button", name="Edit message").click()
    tab.get_by_role("textbox", name="Edit message").fill("Good night")
    other.get_by_role("button", name="Answer again").click()
    for page in (tab, other):
        expect(answers(page)).to_have_text(["And to you."])
        expect(page.locator(".siblings")).to_have_text("3/3")
    expect(tab.get_by_role("group", name="Message that was not answered")).to_contain_text("Good night")
    tab.get_by_role("button", name="Previous version").click()
    expect(tab.locator(".siblings")).to_have_text("2/3")
    tab.get_by_role("button", name="Previous version").click()
    for page in (tab, other):
        expect(messages(page)).to_have_text(["Good morning"])
        expect(answers(page)).to_have_text(["Hello."])
        expect(page.locator(".siblings")).to_have_text("1/3")


def test_what_a_program_elsewhere_asks_is_shown_as_it_comes(tab: Page, other: Page, person: Person) -> None:
    gate = Gate()
    person.house.model.says("Half of ", gate, "it.")
    [chat] = person.chats()
    elsewhere = threading.Thread(target=_ask, args=(person, "Tell me", chat["id"]))
    elsewhere.start()
    try:
        expect(answers(tab).nth(1)).to_have_text("Half of")
        expect(messages(tab)).to_have_text(["Good morning", "Tell me"])
    finally:
        person.house.model.release(gate)
        elsewhere.join()
    for page in (tab, other):
        expect(committed(page)).to_have_count(2)
        expect(answers(page)).to_have_text(["Hello.", "Half of it."])


def _ask(person: Person, text: str, chat: str) -> None:
    """Ask as a program does that reads the answer as it comes."""
    body = json.dumps({"model": "scripted", "input": text, "chat": chat, "stream": True}).encode()
    headers = {"Authorization": f"Bearer {person.token}", "Content-Type": "application/json"}
    with urlopen(Request(person.house.url + "/api/turns", body, headers), timeout=PATIENCE) as answer:
        answer.read()
