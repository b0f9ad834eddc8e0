"""Long chats load from the end and load older turns on scrolling, without moving the view."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.long_form import long_only
from tests.web.page_server import Person, Profile
from tests.web.scenes import TURNS
from tests.web.thread import answers, import_chat, message_item, messages, open_chat, send, turns_in_history
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import Status

BOX = 'document.querySelector(".thread")'


def long_chat(person: Person, length: int, text: str = "Answer {}.") -> str:
    turns: list[dict[str, Any]] = [
        {
            "input": [message_item(f"Question {number}")],
            "output": [message_item(text.replace("{}", str(number)), "assistant")],
        }
        for number in range(1, length + 1)
    ]
    return import_chat(person, turns)


@long_only
def test_chat_of_ten_thousand_turns_opens_at_its_end_and_reads_only_that(tab: Page, person: Person) -> None:
    chat = long_chat(person, 10_000)
    read: list[str] = []
    tab.on(
        "request", lambda request: read.append(request.url) if f"/api/chats/{chat}" in request.url else None
    )
    open_chat(tab, person, chat)
    expect(messages(tab).last).to_be_in_viewport()
    expect(messages(tab).last).to_have_text("Question 10000")
    assert turns_in_history(tab).count() <= 60
    assert len([url for url in read if "limit=" in url]) <= 3


def test_older_messages_load_on_scrolling_up_without_moving_the_visible_ones(
    tab: Page, person: Person
) -> None:
    open_chat(tab, person, long_chat(person, 100, "Answer {}. " * 20))
    expect(messages(tab).last).to_be_in_viewport()
    before = turns_in_history(tab).count()
    place = tab.evaluate(
        f"""async () => {{
          const box = {BOX};
          box.scrollTop = 300;
          const at = document.elementFromPoint(box.getBoundingClientRect().left + box.clientWidth / 2, 200);
          const row = at.closest("[data-row]");
          window.held = row;
          return row.getBoundingClientRect().top;
        }}"""
    )
    tab.wait_for_function("count => document.querySelectorAll('[data-turn]').length > count", arg=before)
    tab.wait_for_function("place => Math.abs(window.held.getBoundingClientRect().top - place) < 4", arg=place)
    # The very beginning can be reached.
    tab.get_by_role("log", name="Messages").focus()
    while messages(tab).first.inner_text() != "Question 1":
        # Older turns are added above without moving the visible ones; scrolling up shows them.
        tab.keyboard.press("Home")
        tab.evaluate("new Promise(requestAnimationFrame)")
    expect(turns_in_history(tab)).to_have_count(100)
    expect(messages(tab)).to_have_text([f"Question {number}" for number in range(1, 101)])


PLACE = """(() => {
  const [question, answer] = document.querySelectorAll(".turn:last-of-type .message");
  const [row] = document.querySelectorAll(".turn:last-of-type");
  return [answer.getBoundingClientRect().top - question.getBoundingClientRect().top, row.offsetHeight];
})()"""
"""Where the last answer is, and how high its turn."""


def test_thread_follows_a_streamed_answer_unless_scrolled_up(tab: Page, person: Person) -> None:
    open_chat(tab, person, long_chat(person, 30))
    gate = Gate()
    person.server.model.add_script("Some words ", gate, "and a few more.")
    send(tab, "Tell me")
    expect(answers(tab).last).to_have_text("Some words")
    before = tab.evaluate(PLACE)
    person.server.model.release(gate)
    expect(answers(tab).last).to_have_text("Some words and a few more.")
    expect(tab.locator("[data-state]")).to_have_count(0)
    assert tab.evaluate(PLACE) == pytest.approx(before, abs=3)  # nothing moves when it is committed

    gates = [Gate(), Gate()]
    lines = "".join(f"Line {number}\n\n" for number in range(60))
    person.server.model.add_script("Begin\n\n", lines, gates[0], "Middle\n\n", lines, gates[1], "End")
    send(tab, "Tell me much")
    expect(answers(tab).last.get_by_text("Line 59")).to_be_in_viewport()
    end = tab.get_by_role("button", name="New messages", exact=True)
    tab.evaluate(f"{BOX}.scrollTop -= 600")
    expect(tab.get_by_role("button", name="Latest")).to_be_visible()
    top = tab.evaluate(f"{BOX}.scrollTop")
    person.server.model.release(gates[0])
    expect(answers(tab).last.get_by_text("Middle")).to_be_attached()
    assert tab.evaluate(f"{BOX}.scrollTop") == top
    expect(end).to_be_visible()
    end.click()
    expect(answers(tab).last.get_by_text("Line 59").last).to_be_in_viewport()
    person.server.model.release(gates[1])
    expect(answers(tab).last.get_by_text("End")).to_be_in_viewport()
    expect(turns_in_history(tab).last).to_contain_text("End")


@long_only
def test_long_message_is_folded_until_expanded(tab: Page, person: Person) -> None:
    chat = import_chat(
        person,
        [
            {
                "input": [message_item("\n".join(f"Line {n}" for n in range(100)))],
                "output": [message_item("Much.", "assistant")],
            }
        ],
    )
    open_chat(tab, person, chat)
    expect(messages(tab)).to_contain_text("Line 10")
    expect(messages(tab)).not_to_contain_text("Line 99")
    messages(tab).get_by_role("button", name="Show more").click()
    expect(messages(tab)).to_contain_text("Line 99")


@long_only
def test_message_at_the_upper_edge_is_edited_in_sight(person: Person, profile: Profile) -> None:
    tab = profile(person, viewport=ViewportSize(width=1200, height=760)).new_page()
    open_chat(tab, person, import_chat(person, TURNS))
    turns_in_history(tab).last.get_by_role("button", name="Edit").click()
    field = tab.get_by_role("textbox", name="Edit message")
    expect(field).to_be_in_viewport(ratio=0.9)
    field.press("Control+End")
    for number in range(6):
        field.press("Shift+Enter")
        field.press_sequentially(f"Line {number}")
        expect(field).to_be_in_viewport(ratio=0.9)
    expect(turns_in_history(tab).nth(1)).to_be_in_viewport()  # it stays where it was
    field.press("Escape")
    expect(answers(tab).last).to_be_in_viewport()


@long_only
def test_failed_message_sent_while_scrolled_up_is_scrolled_into_view(tab: Page, person: Person) -> None:
    open_chat(tab, person, long_chat(person, 30))
    expect(messages(tab).last).to_be_in_viewport()
    tab.evaluate(f"{BOX}.scrollTop = 100")
    expect(tab.get_by_role("button", name="Latest")).to_be_visible()
    person.server.model.add_script(Status(400))
    send(tab, "What is the weather?")
    expect(tab.locator("[data-failed]").get_by_role("button", name="Retry")).to_be_in_viewport()
