"""States of a turn in the page: sending, queued, running, interrupted, failed, taken back.

Messages can be sent during an answer, and the user chooses whether to queue, interrupt or roll back.
"""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.web.page_server import Person, Profile
from tests.web.sign_in import create_link
from tests.web.thread import (
    answers,
    expect_turns,
    inputs_by_chat,
    message_field,
    messages,
    send,
    start_new_chat,
    stop_button,
    turns_in_history,
)
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import End, Status


def test_streamed_answer_is_committed_in_the_same_elements_and_announced(tab: Page, person: Person) -> None:
    """In the same elements. A status for screen readers reports the start and the end."""
    gate = Gate()
    person.server.model.add_script("Half of ", gate, "it.")
    send(tab, "Tell me")
    status = tab.locator(".page > [role=status]")
    expect(status).to_contain_text("Answering")
    assert status.get_attribute("aria-atomic") == "false"
    expect(answers(tab)).to_have_text("Half of")
    tab.evaluate(
        """() => [".turn", ".message.user", ".markdown", ".markdown > *"].forEach(
             each => { document.querySelector(".turn").parentElement.querySelector(each).known = true; })"""
    )
    person.server.model.release(gate)
    expect(turns_in_history(tab)).to_have_count(1)
    expect(answers(tab)).to_have_text("Half of it.")
    known = tab.evaluate(
        """() => ["[data-turn]", ".message.user", ".markdown"].map(
             each => document.querySelector(".rows").querySelector(each).known === true)"""
    )
    assert known == [True, True, True]
    expect(status).to_contain_text("Answer complete.")
    expect(tab.get_by_role("log", name="Messages")).to_have_attribute("aria-live", "off")
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("Tell me", "Half of it.")]
    assert tab.url.endswith(f"#{chat['id']}")


def test_failed_turn_is_removed_and_its_reason_shown_until_retried_or_dismissed(
    tab: Page, person: Person
) -> None:
    model, failure = person.server.model, tab.locator("[data-failed]")
    model.add_script("Hello.")
    send(tab, "Good morning")
    expect(turns_in_history(tab)).to_have_count(1)
    model.add_script(Status(400))
    send(tab, "What is the weather?")
    expect(failure).to_contain_text("The model refused this request.")
    expect(turns_in_history(tab)).to_have_count(1)
    expect(messages(tab)).to_have_count(1)
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("Good morning", "Hello.")]
    model.add_script("Fine.")
    failure.get_by_role("button", name="Retry").click()
    expect(failure).to_have_count(0)
    expect(turns_in_history(tab)).to_have_count(2)
    assert person.turns(chat["id"])[1] == ("What is the weather?", "Fine.")
    model.add_script(Status(400))
    send(tab, "And tomorrow?")
    expect(failure).to_be_visible()
    tab.reload()
    expect(failure).to_contain_text("And tomorrow?")
    failure.get_by_role("button", name="Dismiss").click()
    expect(failure).to_have_count(0)
    tab.reload()
    expect(turns_in_history(tab)).to_have_count(2)
    expect(failure).to_have_count(0)


def test_answer_at_the_length_limit_says_so_and_can_be_continued(
    tab: Page, person: Person, profile: Profile
) -> None:
    person.server.model.add_script("Once upon", End("length"))
    send(tab, "Tell me a story")
    cut = "The answer reached the model’s length limit."
    expect(turns_in_history(tab)).to_contain_text(cut)
    visitor = profile().new_page()
    visitor.goto(create_link(person, chat=person.chats()[0]["id"])["url"])
    expect(turns_in_history(visitor)).to_contain_text(cut)
    expect(visitor.get_by_role("button", name="Continue")).to_have_count(0)
    tab.bring_to_front()
    tab.reload()
    person.server.model.add_script("a time.")
    tab.get_by_role("button", name="Continue").click()
    expect_turns(tab, 2)
    expect(tab.get_by_role("button", name="Continue")).to_have_count(0)
    expect(answers(tab)).to_have_text(["Once upon", "a time."])


def begin(tab: Page, person: Person, text: str = "Half") -> Gate:
    """Begin a chat with an answer that goes on when the gate is released."""
    gate = Gate()
    person.server.model.add_script(text, gate, " of it.")
    start_new_chat(tab)
    send(tab, "Begin")
    expect(answers(tab)).to_have_text(text)
    return gate


def choose(tab: Page, policy: str, text: str) -> None:
    """Choose what happens to a text, which has to be written first."""
    message_field(tab).fill(text)
    tab.get_by_role("radio", name=policy).check()


def test_queued_messages_are_answered_in_order_unless_taken_back(tab: Page, person: Person) -> None:
    gate = begin(tab, person)
    choices = tab.get_by_role("group", name="If you send now").get_by_role("radio")
    expect(choices).to_have_count(0)
    message_field(tab).fill("on")
    expect(choices).to_have_count(3)
    expect(tab.get_by_role("radio", name="Send next")).to_be_checked()
    expect(tab.get_by_text("Your message waits for the current answer.")).to_be_visible()
    standing = tab.locator(".turn-state")
    send(tab, "on second thoughts")
    expect(standing.nth(1)).to_contain_text("Queued: next in line.")
    standing.nth(1).get_by_role("button", name="Cancel").click()
    expect(tab.locator("[data-failed]")).to_contain_text("Stopped. Nothing was kept.")
    expect(messages(tab)).to_have_text(["Begin"])
    expect(message_field(tab)).to_have_value("on second thoughts")
    texts = ["second", "third", "fourth"]
    for text in texts:
        person.server.model.add_script(f"The {text}.")
    send(tab, *texts)
    expect(message_field(tab)).to_have_value("")
    expect(standing.nth(1)).to_contain_text("Queued: next in line.")
    expect(standing.nth(2)).to_contain_text("Queued: 2 messages ahead.")
    person.server.model.release(gate)
    expect_turns(tab, 4)
    expect(choices).to_have_count(0)
    expect(messages(tab)).to_have_text(["Begin", *texts])
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("Begin", "Half of it."), *((each, f"The {each}.") for each in texts)]


def test_message_sent_during_an_answer_queues_interrupts_or_rolls_back_as_chosen(
    tab: Page, person: Person
) -> None:
    # What is interrupted is kept, and the message goes first.
    begin(tab, person)
    send(tab, "waits")
    choose(tab, "Interrupt", "goes first")
    send(tab, "goes first")
    expect_turns(tab, 3)
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("Begin", "Half"), ("goes first", "Well."), ("waits", "Well.")]

    # The choice stays, in other chats too, and is made with the keyboard.
    begin(tab, person, "Again")
    message_field(tab).fill("now")
    expect(tab.get_by_role("radio", name="Interrupt")).to_be_checked()
    send(tab, "now")
    expect_turns(tab, 2)
    assert inputs_by_chat(person)[0] == ["Begin", "now"]
    begin(tab, person, "Gone")
    message_field(tab).fill("instead")
    tab.get_by_role("radio", name="Interrupt").focus()
    tab.keyboard.press("ArrowRight")
    expect(tab.get_by_role("radio", name="Replace")).to_be_checked()

    # What is rolled back leaves nothing.
    send(tab, "instead")
    expect_turns(tab, 1)
    expect(message_field(tab)).to_have_value("")
    expect(tab.locator("[data-failed]")).to_have_count(0)
    assert person.turns(person.chats()[0]["id"]) == [("instead", "Well.")]

    # Where something waits in line, stopping lets it begin.
    begin(tab, person, "As far as")
    choose(tab, "Send next", "next")
    send(tab, "next")
    stop_button(tab).click()
    expect_turns(tab, 2)
    assert person.turns(person.chats()[0]["id"]) == [("Begin", "As far as"), ("next", "Well.")]


def test_background_turns_are_shown_with_their_place_after_a_reload_and_can_be_cancelled(
    tab: Page, person: Person
) -> None:
    model, gate = person.server.model, Gate()
    model.add_script("Half of ", gate, "it.")
    send(tab, "Tell me")
    expect(answers(tab)).to_have_text("Half of")
    [chat] = person.chats()
    for text in ("Second", "Third", "Fourth"):
        person.run_turn(text, chat["id"], background=True)
    queued = tab.locator('[data-state="queued"]')
    for _ in range(2):
        expect(messages(tab)).to_have_text(["Tell me", "Second", "Third", "Fourth"])
        expect(queued.nth(0)).to_contain_text("Queued: next in line.")
        expect(queued.nth(2)).to_contain_text("Queued: 3 messages ahead.")
        tab.reload()
    queued.nth(1).get_by_role("button", name="Cancel").click()
    expect(queued.nth(1)).to_contain_text("Queued: 2 messages ahead.")
    assert [job["before"] for job in person.fetch("GET", "/api/jobs")["data"]] == [1, 2]
    for text in ("Two.", "Four."):
        model.add_script(text)
    model.release(gate)
    expect_turns(tab, 3)
    expect(answers(tab)).to_have_text(["Half of it.", "Two.", "Four."])
    assert person.turns(chat["id"])[1:] == [("Second", "Two."), ("Fourth", "Four.")]


def test_turn_beside_the_shown_branch_causes_no_request_of_the_page(tab: Page, person: Person) -> None:
    model, requests = person.server.model, list[str]()
    for text in ("Hello.", "Next.", "Beside."):
        model.add_script(text)
    send(tab, "Good morning")
    expect_turns(tab, 1)
    [chat] = person.chats()
    path = f"/api/chats/{chat['id']}"
    first = person.fetch("GET", path)["turns"][0]["id"]
    person.run_turn("Go on", chat["id"])
    expect_turns(tab, 2)
    tab.on("request", lambda request: requests.append(request.url))
    assert person.run_turn("Otherwise", chat["id"], after=first)["state"] == "branched"
    person.fetch("PATCH", path, {"title": "Renamed"})
    expect(tab).to_have_title(re.compile("Renamed"))
    assert len([url for url in requests if path in url]) == 1, requests  # for the title
