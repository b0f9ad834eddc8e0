"""Where people write: what keys do, what is sent, and that no character is lost."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.web.coming_in import field
from tests.web.composing import open_new, said, send, shows, stop
from tests.web.house import House, Person, Profile
from turnledger.testing.gates import Gate

LINES = "\n".join(f"line {number}" for number in range(200))


def height(tab: Page) -> float:
    box = field(tab).bounding_box()
    assert box is not None
    return box["height"]


def test_it_grows_with_its_text_up_to_a_bound_and_then_scrolls(tab: Page) -> None:
    empty = height(tab)
    field(tab).fill("one\ntwo\nthree\nfour")
    some = height(tab)
    field(tab).fill(LINES)
    many = height(tab)
    assert empty < some < many < 0.4 * 720
    assert field(tab).evaluate("field => field.scrollHeight > field.clientHeight")
    field(tab).fill("")
    assert height(tab) == empty


def test_enter_sends_and_shift_enter_begins_a_line(tab: Page, person: Person) -> None:
    field(tab).press_sequentially("First")
    field(tab).press("Shift+Enter")
    field(tab).press_sequentially("second")
    field(tab).press("Enter")
    expect(field(tab)).to_have_value("")
    shows(tab, 1)
    assert said(person) == [["First\nsecond"]]


def test_a_key_that_is_held_down_sends_once(tab: Page, person: Person) -> None:
    field(tab).fill("Once")
    tab.keyboard.down("Enter")
    tab.keyboard.down("Enter")
    tab.keyboard.up("Enter")
    shows(tab, 1)
    expect(field(tab)).to_have_value("")
    assert said(person) == [["Once"]]


def test_enter_that_picks_a_word_sends_nothing(tab: Page, person: Person) -> None:
    field(tab).focus()
    keyboard = tab.context.new_cdp_session(tab)
    keyboard.send("Input.imeSetComposition", {"text": "にほ", "selectionStart": 2, "selectionEnd": 2})
    expect(field(tab)).to_have_value("にほ")
    key = {"windowsVirtualKeyCode": 229, "key": "Enter", "code": "Enter"}
    keyboard.send("Input.dispatchKeyEvent", {"type": "rawKeyDown", **key})
    keyboard.send("Input.dispatchKeyEvent", {"type": "keyUp", **key})
    keyboard.send("Input.insertText", {"text": "日本"})
    expect(field(tab)).to_have_value("日本")
    field(tab).press("Enter")
    shows(tab, 1)
    assert said(person) == [["日本"]]


def test_where_fingers_type_enter_begins_a_line_and_the_button_sends(
    person: Person, profile: Profile
) -> None:
    touch = {"has_touch": True, "is_mobile": True, "viewport": {"width": 390, "height": 844}}
    tab = profile(person, **touch).new_page()
    open_new(tab, person)
    field(tab).press_sequentially("First")
    field(tab).press("Enter")
    field(tab).press_sequentially("second")
    expect(field(tab)).to_have_value("First\nsecond")
    tab.get_by_role("button", name="Send").tap()
    shows(tab, 1)
    assert said(person) == [["First\nsecond"]]


def test_a_long_text_is_pasted_and_sent_whole(person: Person, profile: Profile) -> None:
    pasted = "".join(f"{number:07} a long line without an end " for number in range(8_000))
    tab = profile(person, permissions=["clipboard-read", "clipboard-write"]).new_page()
    open_new(tab, person)
    tab.evaluate("text => navigator.clipboard.writeText(text)", pasted)
    field(tab).press("ControlOrMeta+V")
    expect(field(tab)).to_have_value(pasted)
    assert height(tab) < 0.4 * 720
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    field(tab).press("Enter")
    shows(tab, 1)
    assert said(person) == [[pasted.rstrip()]]


def test_what_was_written_can_be_undone_also_when_it_was_sent(tab: Page, person: Person) -> None:
    field(tab).press_sequentially("Hello")
    field(tab).press("Enter")
    expect(field(tab)).to_have_value("")
    shows(tab, 1)
    field(tab).press("ControlOrMeta+Z")
    expect(field(tab)).to_have_value("Hello")


def test_a_double_click_on_send_sends_once_and_stops_nothing(tab: Page, person: Person) -> None:
    gate = Gate()
    person.house.model.says("Half", gate, " of it.")
    field(tab).fill("Once\n\nand for all\n\non five lines")
    tab.get_by_role("button", name="Send").dblclick()
    expect(tab.get_by_text("Half")).to_be_visible()
    expect(field(tab)).to_be_focused()
    person.house.model.release(gate)
    expect(tab.get_by_text("Half of it.")).to_be_visible()
    shows(tab, 1)
    assert said(person) == [["Once\n\nand for all\n\non five lines"]]


def test_nothing_is_sent_where_nothing_is_written(tab: Page, person: Person) -> None:
    expect(tab.get_by_role("button", name="Send")).to_have_attribute("aria-disabled", "true")
    send(tab, "  \n ")
    tab.get_by_role("button", name="Send").click(force=True)
    send(tab, "Something")
    shows(tab, 1)
    assert said(person) == [["Something"]]


def test_stop_keeps_what_there_is(tab: Page, person: Person) -> None:
    gate = Gate()
    person.house.model.says("Half", gate)
    send(tab, "Tell me")
    expect(tab.get_by_text("Half")).to_be_visible()
    stop(tab).click()
    shows(tab, 1)
    expect(field(tab)).to_be_focused()
    expect(field(tab)).to_have_value("")
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("Tell me", "Half")]


def test_escape_stops_too_and_what_is_written_stays(tab: Page, person: Person) -> None:
    gate = Gate()
    person.house.model.says("Half", gate)
    send(tab, "Tell me")
    expect(tab.get_by_text("Half")).to_be_visible()
    field(tab).fill("And then")
    field(tab).press("Escape")
    shows(tab, 1)
    expect(field(tab)).to_have_value("And then")
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("Tell me", "Half")]


def test_stop_and_discard_leaves_nothing_and_gives_the_message_back(tab: Page, person: Person) -> None:
    gate = Gate()
    person.house.model.says("Half", gate)
    send(tab, "Tell me")
    expect(tab.get_by_text("Half")).to_be_visible()
    tab.get_by_role("button", name="Other ways to end it").click()
    tab.get_by_role("menuitem", name="Stop and discard").click()
    expect(field(tab)).to_have_value("Tell me")
    shows(tab, 0)
    [chat] = person.chats()
    assert person.turns(chat["id"]) == []


def test_two_clicks_on_stop_stop_one_answer(tab: Page, person: Person) -> None:
    gate = Gate()
    person.house.model.says("Half", gate)
    send(tab, "Tell me")
    expect(tab.get_by_text("Half")).to_be_visible()
    person.house.model.says("The next one", gate, ", whole.")
    send(tab, "And this")
    stops: list[str] = []
    tab.on("request", lambda request: stops.append(request.url) if request.url.endswith("/stop") else None)
    stop(tab).click()
    expect(tab.get_by_text("The next one")).to_be_visible()
    stop(tab).dispatch_event("click", {"detail": 2})
    person.house.model.release(gate)
    shows(tab, 2)
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("Tell me", "Half"), ("And this", "The next one, whole.")]
    assert len(stops) == 1


def test_who_may_only_read_is_told_so(house: House, profile: Profile) -> None:
    person = house.person(scopes=("chats:read", "chats:write"))
    tab = profile(person).new_page()
    tab.goto(house.url + "#new")
    expect(tab.get_by_role("status").get_by_text("You can read here, but not write.")).to_be_visible()


def test_where_there_is_no_model_it_says_so_and_keeps_the_text(house: House, profile: Profile) -> None:
    person = house.person(models=("none-of-these",))
    tab = profile(person).new_page()
    open_new(tab, person)
    expect(tab.get_by_text("There is no model to ask.")).to_be_visible()
    send(tab, "Anybody?")
    expect(field(tab)).to_have_value("Anybody?")
    assert person.chats() == []


def test_a_message_that_cannot_be_written_down_stays_with_the_reason(tab: Page, person: Person) -> None:
    send(tab, "First")
    shows(tab, 1)
    tab.evaluate(
        """() => {
            let size = 1 << 20;
            for (let number = 0; size > 0; number += 1) {
                try { localStorage.setItem(`full ${number}`, "x".repeat(size)); } catch { size >>= 1; }
            }
        }"""
    )
    send(tab, "Second")
    expect(tab.locator("[data-failed=store_full]")).to_be_visible()
    expect(field(tab)).to_have_value("Second")
    tab.evaluate(
        "Object.keys(localStorage).filter(n => n.startsWith('full')).forEach(n => localStorage.removeItem(n))"
    )
    field(tab).press("Enter")
    shows(tab, 2)
    assert said(person) == [["First", "Second"]]
