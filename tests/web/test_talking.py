"""Somebody writes, and is answered."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.web.house import Person
from turnledger.testing.gates import Gate


def test_an_answer_is_shown_as_it_comes_and_is_then_in_the_history(tab: Page, person: Person) -> None:
    gate = Gate()
    person.house.model.says("Half of ", gate, "it.")
    tab.get_by_role("textbox", name="Message").fill("Tell me")
    tab.keyboard.press("Enter")
    expect(tab.get_by_text("Half of")).to_be_visible()
    person.house.model.release(gate)
    expect(tab.get_by_text("Half of it.")).to_be_visible()
    expect(tab.locator("[data-turn]")).to_have_count(1)
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("Tell me", "Half of it.")]
    assert tab.url.endswith(f"#{chat['id']}")
