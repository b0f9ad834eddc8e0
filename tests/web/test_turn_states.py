"""How a turn stands is seen: sending, queued, running, interrupted, failed, taken back."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.web.chatting import answers, committed, messages, write
from tests.web.house import Person
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import Status


def test_a_failed_turn_is_gone_its_reason_is_told_and_a_retry_makes_it_happen(
    tab: Page, person: Person
) -> None:
    model = person.house.model
    model.says("Hello.")
    write(tab, "Good morning")
    expect(committed(tab)).to_have_count(1)
    model.says(Status(400))
    write(tab, "What is the weather?")
    failure = tab.locator("[data-failed]")
    expect(failure).to_contain_text("The model refused this request.")
    expect(committed(tab)).to_have_count(1)
    expect(messages(tab)).to_have_count(1)
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("Good morning", "Hello.")]
    model.says("Fine.")
    failure.get_by_role("button", name="Retry").click()
    expect(failure).to_have_count(0)
    expect(committed(tab)).to_have_count(2)
    assert person.turns(chat["id"])[1] == ("What is the weather?", "Fine.")


def test_what_failed_last_is_told_after_a_reload_until_it_is_dismissed(tab: Page, person: Person) -> None:
    person.house.model.says("Hello.")
    write(tab, "Good morning")
    expect(committed(tab)).to_have_count(1)
    person.house.model.says(Status(400))
    write(tab, "What is the weather?")
    failure = tab.locator("[data-failed]")
    expect(failure).to_be_visible()
    tab.reload()
    expect(failure).to_contain_text("What is the weather?")
    failure.get_by_role("button", name="Dismiss").click()
    expect(failure).to_have_count(0)
    tab.reload()
    expect(committed(tab)).to_have_count(1)
    expect(failure).to_have_count(0)


def test_a_stopped_turn_is_kept_as_far_as_it_got_and_says_so(tab: Page, person: Person) -> None:
    gate = Gate()
    person.house.model.says("As far as ", gate, "this.")
    write(tab, "How far?")
    expect(answers(tab)).to_have_text("As far as")
    tab.get_by_role("button", name="Stop").first.click()
    expect(tab.locator('[data-kind="interrupted"]')).to_contain_text(
        "Interrupted. It is kept as far as it got."
    )
    person.house.model.release(gate)
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("How far?", "As far as ")]


def test_the_same_element_shows_a_turn_while_it_runs_and_when_it_is_committed(
    tab: Page, person: Person
) -> None:
    gate = Gate()
    person.house.model.says("Half of ", gate, "it.")
    write(tab, "Tell me")
    expect(answers(tab)).to_have_text("Half of")
    tab.evaluate(
        """() => [".turn", ".message.user", ".markdown", ".markdown > *"].forEach(
             each => { document.querySelector(".turn").parentElement.querySelector(each).known = true; })"""
    )
    person.house.model.release(gate)
    expect(committed(tab)).to_have_count(1)
    expect(answers(tab)).to_have_text("Half of it.")
    known = tab.evaluate(
        """() => ["[data-turn]", ".message.user", ".markdown"].map(
             each => document.querySelector(".rows").querySelector(each).known === true)"""
    )
    assert known == [True, True, True]


def test_a_second_message_waits_in_line_and_runs_behind_the_first(tab: Page, person: Person) -> None:
    gate = Gate()
    person.house.model.says("One", gate, ".")
    write(tab, "First")
    expect(answers(tab)).to_have_text("One")
    person.house.model.says("Two.")
    person.house.model.says("Three.")
    write(tab, "Second")
    write(tab, "Third")
    standing = tab.locator(".turn-state")
    expect(standing.nth(1)).to_contain_text("Waiting in line: next.")
    expect(standing.nth(2)).to_contain_text("Waiting in line: 2 before this one.")
    person.house.model.release(gate)
    expect(committed(tab)).to_have_count(3)
    expect(messages(tab)).to_have_text(["First", "Second", "Third"])
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("First", "One."), ("Second", "Two."), ("Third", "Three.")]


def test_what_waits_in_line_can_be_taken_back_and_never_runs(tab: Page, person: Person) -> None:
    gate = Gate()
    person.house.model.says("One", gate, ".")
    write(tab, "First")
    expect(answers(tab)).to_have_text("One")
    write(tab, "Second")
    standing = tab.locator(".turn-state")
    expect(standing.nth(1)).to_contain_text("Waiting in line")
    standing.nth(1).get_by_role("button", name="Take back").click()
    expect(tab.locator("[data-failed]")).to_contain_text("Stopped. Nothing of it was kept.")
    expect(messages(tab)).to_have_text(["First"])
    person.house.model.release(gate)
    expect(committed(tab)).to_have_count(1)
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("First", "One.")]


def test_who_does_not_see_it_hears_that_an_answer_began_and_that_it_is_there(
    tab: Page, person: Person
) -> None:
    gate = Gate()
    person.house.model.says("Half of ", gate, "it.")
    write(tab, "Tell me")
    heard = tab.get_by_role("status")
    expect(heard.filter(has_text="Answering")).to_have_count(1)
    person.house.model.release(gate)
    expect(heard.filter(has_text="The answer is complete.")).to_have_count(1)
    expect(tab.get_by_role("log", name="Messages")).to_have_attribute("aria-live", "off")
