"""Writing and sending goes on while an answer comes, and people choose what becomes of it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.web.coming_in import field
from tests.web.composing import said, send, shows, stop
from tests.web.house import Person
from turnledger.testing.gates import Gate


@pytest.fixture
def busy(tab: Page, person: Person) -> Gate:
    """An answer has begun, and goes on when the gate is released."""
    gate = Gate()
    person.house.model.says("Half", gate, " of it.")
    send(tab, "Begin")
    expect(tab.get_by_text("Half")).to_be_visible()
    return gate


def choose(tab: Page, policy: str) -> None:
    tab.get_by_role("radio", name=policy).check()


def test_there_is_a_choice_while_something_runs_and_none_otherwise(
    tab: Page, person: Person, busy: Gate
) -> None:
    choices = tab.get_by_role("group", name="If you send now").get_by_role("radio")
    expect(choices).to_have_count(3)
    expect(tab.get_by_role("radio", name="Queue")).to_be_checked()
    expect(tab.get_by_role("radio", name="Steer")).to_have_count(0)
    person.house.model.release(busy)
    shows(tab, 1)
    expect(choices).to_have_count(0)


def test_queued_messages_are_answered_in_order_and_each_once(tab: Page, person: Person, busy: Gate) -> None:
    send(tab, "second", "third", "fourth")
    expect(field(tab)).to_have_value("")
    person.house.model.release(busy)
    shows(tab, 4)
    assert said(person) == [["Begin", "second", "third", "fourth"]]


def test_interrupting_keeps_what_was_said_and_goes_first(tab: Page, person: Person, busy: Gate) -> None:
    send(tab, "waits")
    choose(tab, "Interrupt")
    send(tab, "goes first")
    shows(tab, 3)
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("Begin", "Half"), ("goes first", "Well."), ("waits", "Well.")]


def test_rolling_back_leaves_nothing_of_what_ran(tab: Page, person: Person, busy: Gate) -> None:
    choose(tab, "Roll back")
    send(tab, "instead")
    shows(tab, 1)
    expect(field(tab)).to_have_value("")
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("instead", "Well.")]


def test_the_choice_is_made_with_the_keyboard_and_stays_in_other_chats(
    tab: Page, person: Person, busy: Gate
) -> None:
    tab.get_by_role("radio", name="Queue").focus()
    tab.keyboard.press("ArrowRight")
    expect(tab.get_by_role("radio", name="Interrupt")).to_be_checked()
    person.house.model.release(busy)
    shows(tab, 1)
    tab.get_by_role("button", name="New chat").first.click()
    again = Gate()
    person.house.model.says("Again", again)
    send(tab, "Elsewhere")
    expect(tab.get_by_text("Again")).to_be_visible()
    expect(tab.get_by_role("radio", name="Interrupt")).to_be_checked()
    send(tab, "now")
    shows(tab, 2)
    assert said(person)[0] == ["Elsewhere", "now"]


def test_what_is_queued_can_be_taken_back_and_is_written_again(tab: Page, person: Person, busy: Gate) -> None:
    send(tab, "on second thoughts")
    expect(tab.get_by_text("on second thoughts")).to_be_visible()
    tab.get_by_role("button", name="Take back", exact=True).click()
    expect(field(tab)).to_have_value("on second thoughts")
    person.house.model.release(busy)
    shows(tab, 1)
    assert said(person) == [["Begin"]]


def test_stopping_lets_the_next_one_begin(tab: Page, person: Person, busy: Gate) -> None:
    send(tab, "next")
    stop(tab).click()
    shows(tab, 2)
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("Begin", "Half"), ("next", "Well.")]
