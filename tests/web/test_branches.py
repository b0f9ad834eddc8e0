"""Other wordings, other answers, and the way back to what was there before."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from tests.web.chatting import answers, chat_of, committed, messages, said, show, write
from tests.web.house import Person
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import Status


@pytest.fixture
def spoken(tab: Page, person: Person) -> Page:
    """The page, where two things were said."""
    for number, text in enumerate(("One", "Two"), 1):
        person.house.model.says(f"{text}.")
        write(tab, text)
        expect(committed(tab)).to_have_count(number)
    return tab


def test_an_edited_message_takes_the_place_of_the_first_which_is_not_lost(
    spoken: Page, person: Person
) -> None:
    person.house.model.says("Eins.")
    spoken.get_by_role("button", name="Edit message").first.click()
    field = spoken.get_by_role("textbox", name="Edit message")
    expect(field).to_be_focused()
    expect(field).to_have_value("One")
    field.fill("Ein")
    field.press("Shift+Enter")
    field.type("s")
    field.press("Enter")
    expect(answers(spoken)).to_have_text(["Eins."])
    expect(messages(spoken)).to_have_text(["Ein\ns"])
    expect(spoken.locator(".siblings")).to_have_text("2/2")
    spoken.get_by_role("button", name="Previous version").press("Enter")
    expect(messages(spoken)).to_have_text(["One", "Two"])
    expect(spoken.locator(".siblings")).to_have_text("1/2")
    expect(spoken.get_by_role("button", name="Previous version")).to_be_focused()
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("One", "One."), ("Two", "Two.")]


def test_escape_leaves_the_message_as_it_was(spoken: Page) -> None:
    spoken.get_by_role("button", name="Edit message").first.click()
    spoken.get_by_role("textbox", name="Edit message").fill("Something else")
    spoken.keyboard.press("Escape")
    expect(messages(spoken)).to_have_text(["One", "Two"])
    expect(spoken.get_by_role("button", name="Edit message").first).to_be_focused()


def test_an_edit_that_fails_leaves_all_as_it_was(spoken: Page, person: Person) -> None:
    person.house.model.says(Status(400))
    spoken.get_by_role("button", name="Edit message").first.click()
    spoken.get_by_role("textbox", name="Edit message").fill("Eins")
    spoken.keyboard.press("Enter")
    expect(spoken.locator("[data-failed]")).to_be_visible()
    expect(messages(spoken)).to_have_text(["One", "Two"])
    person.house.model.says("Eins.")
    spoken.get_by_role("button", name="Retry").click()
    expect(messages(spoken)).to_have_text(["Eins"])
    expect(answers(spoken)).to_have_text(["Eins."])


def test_any_answer_can_be_asked_for_again_and_by_another_model(spoken: Page, person: Person) -> None:
    gate = Gate()
    person.house.model.says("Uno", gate, ".")
    spoken.get_by_role("button", name="Answer again").first.click()
    expect(answers(spoken)).to_have_text(["Uno"])
    person.house.model.release(gate)
    expect(spoken.locator(".siblings")).to_have_text("2/2")
    person.house.model.says("Ichi.")
    spoken.get_by_role("button", name="More about this answer").click()
    spoken.get_by_role("menuitem", name="Answer again with other").click()
    expect(answers(spoken)).to_have_text(["Ichi."])
    expect(spoken.locator(".siblings")).to_have_text("3/3")


def test_a_fork_is_a_chat_of_its_own_that_begins_alike(spoken: Page, person: Person) -> None:
    before = spoken.url
    spoken.get_by_role("button", name="More about this answer").first.click()
    spoken.get_by_role("menuitem", name="Fork from here").click()
    expect(messages(spoken)).to_have_text(["One"])
    assert spoken.url != before
    assert len(person.chats()) == 2


def test_the_last_turn_can_be_taken_back(spoken: Page, person: Person) -> None:
    spoken.get_by_role("button", name="More about this answer").last.click()
    spoken.get_by_role("menuitem", name="Take back this message").click()
    expect(messages(spoken)).to_have_text(["One"])
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("One", "One.")]


def test_a_switch_far_up_stays_where_the_reader_is(tab: Page, person: Person) -> None:
    turns = [
        {"input": [said(f"Question {n}")], "output": [said(f"Answer {n}. " * 30, "assistant")]}
        for n in range(60)
    ]
    chat = chat_of(person, turns)
    first = person.ask("GET", f"/api/chats/{chat}?before=12&limit=1")["turns"][0]["id"]
    person.house.model.says("Another answer.")
    person.say("Another question", chat, replaces=first)
    show(tab, person, chat)
    expect(messages(tab).last).to_have_text("Another question")
    tab.get_by_role("button", name="Previous version").click()
    expect(messages(tab).filter(has_text="Question 10")).to_be_in_viewport()
    expect(tab.locator(".siblings")).to_have_text("1/2")


def test_the_chat_can_be_saved_as_text_and_as_data(spoken: Page, person: Person) -> None:
    [chat] = person.chats()
    person.ask("PATCH", f"/api/chats/{chat['id']}", {"title": "One/Two: ..\\numbers?"})
    expect(spoken.get_by_role("heading", level=1)).to_contain_text("numbers")
    spoken.get_by_role("button", name="About this chat").click()
    with spoken.expect_download() as text:
        spoken.get_by_role("menuitem", name="Save as text").click()
    assert text.value.suggested_filename == "One Two numbers.md"
    assert "One." in text.value.path().read_text()
    spoken.get_by_role("button", name="About this chat").click()
    with spoken.expect_download() as data:
        spoken.get_by_role("menuitem", name="Save as data").click()
    assert data.value.suggested_filename == "One Two numbers.jsonl"
    lines = [json.loads(line) for line in data.value.path().read_text().splitlines()]
    assert [line["type"] for line in lines] == ["chat", "turn", "turn"]
