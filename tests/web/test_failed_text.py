"""What was said and failed is written again, so that nobody writes it twice."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.web.coming_in import field
from tests.web.composing import said, send, shows, stop
from tests.web.house import Person
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import Status

REFUSED = Status(400)


def failed_meanwhile(tab: Page, person: Person) -> Locator:
    """Have a message fail while something else is written, and return where it is offered."""
    gate = Gate()
    person.house.model.says(gate, REFUSED)
    send(tab, "Will fail")
    expect(stop(tab)).to_be_visible()
    field(tab).fill("Something else")
    person.house.model.release(gate)
    return tab.get_by_role("group", name="Message that was not answered")


def test_it_is_back_where_it_was_written_and_the_history_knows_nothing_of_it(
    tab: Page, person: Person
) -> None:
    person.house.model.says(REFUSED)
    send(tab, "Will fail")
    expect(field(tab)).to_have_value("Will fail")
    shows(tab, 0)
    [chat] = person.chats()
    assert person.turns(chat["id"]) == []


def test_it_is_there_after_a_reload(tab: Page, person: Person) -> None:
    person.house.model.says(REFUSED)
    send(tab, "Will fail")
    expect(field(tab)).to_have_value("Will fail")
    tab.reload()
    expect(field(tab)).to_have_value("Will fail")


def test_it_can_be_sent_from_there(tab: Page, person: Person) -> None:
    person.house.model.says(REFUSED)
    send(tab, "Will fail")
    expect(field(tab)).to_have_value("Will fail")
    field(tab).press("End")
    field(tab).press_sequentially(" no more")
    field(tab).press("Enter")
    shows(tab, 1)
    assert said(person) == [["Will fail no more"]]


def test_it_is_offered_where_something_else_is_written(tab: Page, person: Person) -> None:
    offered = failed_meanwhile(tab, person)
    expect(offered).to_contain_text("Will fail")
    expect(field(tab)).to_have_value("Something else")
    tab.reload()
    expect(field(tab)).to_have_value("Something else")
    offered.get_by_role("button", name="Put it back").click()
    expect(field(tab)).to_have_value("Will fail\n\nSomething else")
    expect(offered).to_have_count(0)
    expect(field(tab)).to_be_focused()


def test_it_can_be_done_without(tab: Page, person: Person) -> None:
    offered = failed_meanwhile(tab, person)
    offered.get_by_role("button", name="Do without it").click()
    expect(offered).to_have_count(0)
    expect(field(tab)).to_have_value("Something else")


def test_asking_again_takes_it_away(tab: Page, person: Person) -> None:
    person.house.model.says(REFUSED)
    send(tab, "Will fail")
    expect(field(tab)).to_have_value("Will fail")
    tab.get_by_role("button", name="Retry").click()
    expect(field(tab)).to_have_value("")
    shows(tab, 1)
    assert said(person) == [["Will fail"]]


def test_it_stays_when_the_next_message_is_answered(tab: Page, person: Person) -> None:
    gate = Gate()
    person.house.model.says(gate, REFUSED)
    send(tab, "Will fail", "Will not")
    person.house.model.release(gate)
    shows(tab, 1)
    expect(field(tab)).to_have_value("Will fail")
    assert said(person) == [["Will not"]]
