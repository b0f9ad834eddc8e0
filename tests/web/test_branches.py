"""Edited messages, regenerated answers, siblings, forks and undo in the page."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from tests.long_form import long_only
from tests.web.axe import violations_in_each_theme
from tests.web.page_server import MODELS, Person, Profile
from tests.web.thread import answers, import_chat, message_item, messages, open_chat, send, turns_in_history
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import Status


@pytest.fixture
def spoken(tab: Page, person: Person) -> Page:
    """The page, with a chat of two turns."""
    for number, text in enumerate(("One", "Two"), 1):
        person.server.model.add_script(f"{text}.")
        send(tab, text)
        expect(turns_in_history(tab)).to_have_count(number)
    return tab


def test_edited_message_or_regenerated_answer_replaces_the_first_and_keeps_it_as_a_sibling(
    spoken: Page, person: Person
) -> None:
    model, field = person.server.model, spoken.get_by_role("textbox", name="Edit message")
    missing: list[str] = []
    spoken.on("response", lambda response: missing.append(response.url) if response.status == 404 else None)
    edit = spoken.get_by_role("button", name="Edit message").first
    siblings = spoken.locator(".siblings")
    edit.click()
    expect(field).to_be_focused()
    expect(field).to_have_value("One")
    field.fill("Something else")
    spoken.keyboard.press("Escape")
    expect(messages(spoken)).to_have_text(["One", "Two"])
    expect(edit).to_be_focused()

    # An edit that fails leaves all as it was.
    model.add_script(Status(400))
    edit.click()
    field.fill("Ein")
    field.press("Shift+Enter")
    field.type("s")
    field.press("Enter")
    expect(spoken.locator("[data-failed]")).to_be_visible()
    expect(messages(spoken)).to_have_text(["One", "Two"])
    model.add_script("Eins.")
    spoken.get_by_role("button", name="Retry").click()
    expect(messages(spoken)).to_have_text(["Ein\ns"])
    expect(answers(spoken)).to_have_text(["Eins."])
    expect(siblings).to_have_text(["2/2"])
    expect(spoken.get_by_role("group", name="Versions of the message")).to_have_text("2/2")
    spoken.get_by_role("button", name="Previous version").press("Enter")
    expect(messages(spoken)).to_have_text(["One", "Two"])
    expect(siblings).to_have_text(["1/2"])
    expect(spoken.get_by_role("button", name="Previous version")).to_be_focused()
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("One", "One."), ("Two", "Two.")]

    # Any answer can be regenerated, also by another model.
    gate = Gate()
    model.add_script("Uno", gate, ".")
    spoken.get_by_role("button", name="Regenerate").first.click()
    expect(answers(spoken)).to_have_text(["Uno"])
    model.release(gate)
    expect(siblings).to_have_text(["1/2", "2/2"])
    expect(spoken.get_by_role("group", name="Versions of the answer")).to_have_text("2/2")
    model.add_script("Ichi.")
    spoken.get_by_role("button", name="More actions").press("Enter")
    expect(spoken.get_by_role("menuitem", name="Regenerate with…")).to_be_focused()
    spoken.keyboard.press("ArrowRight")
    offered = spoken.get_by_role("menu", name="Regenerate with…").get_by_role("menuitem")
    expect(offered).to_have_text(list(MODELS))
    assert violations_in_each_theme(spoken) == {}
    spoken.keyboard.press("ArrowLeft")
    expect(spoken.get_by_role("menu")).to_have_count(1)
    spoken.keyboard.press("Enter")
    spoken.keyboard.type("o")
    spoken.keyboard.press("Enter")
    expect(spoken.get_by_role("menu")).to_have_count(0)
    expect(answers(spoken)).to_have_text(["Ichi."])
    expect(siblings).to_have_text(["1/2", "3/3"])
    assert model.requested_models[-1] == "other"
    assert missing == []


def test_chat_menu_saves_and_forks_a_chat_and_undoes_its_last_turn(spoken: Page, person: Person) -> None:
    [chat] = person.chats()
    person.fetch("PATCH", f"/api/chats/{chat['id']}", {"title": "One/Two: ..\\numbers?"})
    expect(spoken.get_by_role("heading", level=1)).to_contain_text("numbers")
    spoken.get_by_role("button", name="Chat options").click()
    with spoken.expect_download() as text:
        spoken.get_by_role("menuitem", name="Save as Markdown").click()
    assert text.value.suggested_filename == "One Two numbers.md"
    assert "One." in text.value.path().read_text()
    spoken.get_by_role("button", name="Chat options").click()
    with spoken.expect_download() as data:
        spoken.get_by_role("menuitem", name="Save as JSON Lines").click()
    assert data.value.suggested_filename == "One Two numbers.jsonl"
    lines = [json.loads(line) for line in data.value.path().read_text().splitlines()]
    assert [line["type"] for line in lines] == ["chat", "turn", "turn"]

    before = spoken.url
    spoken.get_by_role("button", name="More actions").first.click()
    spoken.get_by_role("menuitem", name="Fork from here").click()
    expect(messages(spoken)).to_have_text(["One"])
    assert spoken.url != before
    assert len(person.chats()) == 2
    person.server.model.add_script("Deux.")
    send(spoken, "Otherwise")
    expect(turns_in_history(spoken)).to_have_count(2)
    expect(spoken.get_by_role("heading", level=1)).to_contain_text("numbers")

    spoken.goto(before)
    expect(messages(spoken)).to_have_text(["One", "Two"])
    spoken.get_by_role("button", name="More actions").last.click()
    spoken.get_by_role("menuitem", name="Undo this turn").click()
    expect(messages(spoken)).to_have_text(["One"])
    assert person.turns(chat["id"]) == [("One", "One.")]


def test_turn_hidden_from_the_model_is_marked_in_all_tabs_and_left_out_of_later_answers(
    spoken: Page, person: Person, profile: Profile
) -> None:
    mark = spoken.get_by_text("The model no longer sees this turn.")
    other = profile(person).new_page()
    other.goto(spoken.url)
    there = other.get_by_text("The model no longer sees this turn.")
    expect(messages(other)).to_have_count(2)
    spoken.get_by_role("button", name="More actions").first.click()
    spoken.get_by_role("menuitem", name="Hide from the model").click()
    for each in (mark, there):
        expect(each).to_have_count(1)
    spoken.reload()
    expect(mark).to_have_count(1)
    [chat] = person.chats()
    context = person.fetch("GET", f"/api/chats/{chat['id']}/context")
    assert "Two" in str(context)
    assert "One" not in str(context["items"])
    spoken.get_by_role("button", name="More actions").first.click()
    spoken.get_by_role("menuitem", name="Show to the model").click()
    for each in (mark, there):
        expect(each).to_have_count(0)
    assert "One" in str(person.fetch("GET", f"/api/chats/{chat['id']}/context")["items"])


@long_only
def test_single_item_is_hidden_from_the_model_and_named(spoken: Page, person: Person) -> None:
    spoken.get_by_role("button", name="More actions").first.click()
    spoken.get_by_role("menuitem", name="Hide answer from the model").click()
    mark = spoken.get_by_text("The model no longer sees: answer.")
    expect(mark).to_have_count(1)
    [chat] = person.chats()
    shown = person.fetch("GET", f"/api/chats/{chat['id']}/context")["items"]
    assert [item["content"][0]["text"] for item in shown] == ["One", "Two", "Two."]
    spoken.get_by_role("button", name="More actions").first.click()
    spoken.get_by_role("menuitem", name="Show answer to the model").click()
    expect(mark).to_have_count(0)


@long_only
def test_switch_to_an_early_sibling_keeps_the_scroll_position(tab: Page, person: Person) -> None:
    turns = [
        {
            "input": [message_item(f"Question {n}")],
            "output": [message_item(f"Answer {n}. " * 30, "assistant")],
        }
        for n in range(60)
    ]
    chat = import_chat(person, turns)
    first = person.fetch("GET", f"/api/chats/{chat}?before=12&limit=1")["turns"][0]["id"]
    person.server.model.add_script("Another answer.")
    person.run_turn("Another question", chat, replaces=first)
    open_chat(tab, person, chat)
    expect(messages(tab).last).to_have_text("Another question")
    tab.get_by_role("button", name="Previous version").click()
    expect(messages(tab).filter(has_text="Question 10")).to_be_in_viewport()
    expect(tab.locator(".siblings")).to_have_text("1/2")
