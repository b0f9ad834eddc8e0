"""The composer: keys, sending, stopping, and messages that fail; no character is lost."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.long_form import long_only
from tests.web.page_server import PageServer, Person, Profile
from tests.web.thread import expect_turns, inputs_by_chat, message_field, open_new_chat, send, stop_button
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import Status

LINES = "\n".join(f"line {number}" for number in range(200))
LONG = "".join(f"{number:07} a long line without an end " for number in range(8_000))
REFUSED = Status(400)


def height(tab: Page) -> float:
    box = message_field(tab).bounding_box()
    assert box is not None
    return box["height"]


@long_only
def test_composer_grows_with_its_text_up_to_a_bound_and_then_scrolls(tab: Page, person: Person) -> None:
    """And a long text is pasted and sent whole."""
    empty = height(tab)
    message_field(tab).fill("one\ntwo\nthree\nfour")
    some = height(tab)
    message_field(tab).fill(LINES)
    many = height(tab)
    assert empty < some < many < 0.4 * 720
    assert message_field(tab).evaluate("field => field.scrollHeight > field.clientHeight")
    message_field(tab).fill("")
    assert height(tab) == empty
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.evaluate("text => navigator.clipboard.writeText(text)", LONG)
    message_field(tab).press("ControlOrMeta+V")
    expect(message_field(tab)).to_have_value(LONG)
    assert height(tab) < 0.4 * 720
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    message_field(tab).press("Enter")
    expect_turns(tab, 1)
    assert inputs_by_chat(person) == [[LONG.rstrip()]]


def test_composer_sends_a_message_once_for_every_key_and_click_that_sends(tab: Page, person: Person) -> None:
    expect(tab.get_by_role("button", name="Send")).to_have_attribute("aria-disabled", "true")
    send(tab, "  \n ")
    tab.get_by_role("button", name="Send").click(force=True)
    message_field(tab).fill("")

    message_field(tab).press_sequentially("First")
    message_field(tab).press("Shift+Enter")
    message_field(tab).press_sequentially("second")
    message_field(tab).press("Enter")
    expect(message_field(tab)).to_have_value("")
    expect_turns(tab, 1)
    # What was written can be undone, also when it was sent.
    message_field(tab).press("ControlOrMeta+Z")
    expect(message_field(tab)).to_have_value("First\nsecond")

    # A key that is held down.
    message_field(tab).fill("Once")
    tab.keyboard.down("Enter")
    tab.keyboard.down("Enter")
    tab.keyboard.up("Enter")
    expect_turns(tab, 2)
    expect(message_field(tab)).to_have_value("")

    message_field(tab).fill("Hello")
    message_field(tab).press("ControlOrMeta+Enter")
    expect_turns(tab, 3)

    # A double click sends once, and stops nothing.
    gate = Gate()
    person.server.model.add_script("Half", gate, " of it.")
    message_field(tab).fill("Once\n\nand for all\n\non five lines")
    tab.get_by_role("button", name="Send").dblclick()
    expect(tab.get_by_text("Half")).to_be_visible()
    expect(message_field(tab)).to_be_focused()
    person.server.model.release(gate)
    expect(tab.get_by_text("Half of it.")).to_be_visible()
    expect_turns(tab, 4)

    # Enter that picks a word sends nothing.
    keyboard = tab.context.new_cdp_session(tab)
    keyboard.send("Input.imeSetComposition", {"text": "にほ", "selectionStart": 2, "selectionEnd": 2})
    expect(message_field(tab)).to_have_value("にほ")
    key = {"windowsVirtualKeyCode": 229, "key": "Enter", "code": "Enter"}
    keyboard.send("Input.dispatchKeyEvent", {"type": "rawKeyDown", **key})
    keyboard.send("Input.dispatchKeyEvent", {"type": "keyUp", **key})
    keyboard.send("Input.insertText", {"text": "日本"})
    expect(message_field(tab)).to_have_value("日本")
    message_field(tab).press("Enter")
    expect_turns(tab, 5)
    assert inputs_by_chat(person) == [
        ["First\nsecond", "Once", "Hello", "Once\n\nand for all\n\non five lines", "日本"]
    ]


def test_key_pressed_right_after_enter_begins_the_next_message(tab: Page, person: Person) -> None:
    message_field(tab).fill("First")
    # A busy page receives both key presses before its next frame.
    tab.evaluate(
        """addEventListener("keydown", () => document.execCommand("insertText", false, "a"), {once: true})"""
    )
    message_field(tab).press("Enter")
    message_field(tab).press_sequentially("nd the next")
    expect(message_field(tab)).to_have_value("and the next")
    expect_turns(tab, 1)
    assert inputs_by_chat(person) == [["First"]]


@long_only
def test_composer_on_a_touch_device_starts_a_line_on_enter_and_sends_by_button(
    person: Person, profile: Profile
) -> None:
    touch = {"has_touch": True, "is_mobile": True, "viewport": {"width": 390, "height": 844}}
    tab = profile(person, **touch).new_page()
    open_new_chat(tab, person)
    message_field(tab).press_sequentially("First")
    message_field(tab).press("Enter")
    message_field(tab).press_sequentially("second")
    expect(message_field(tab)).to_have_value("First\nsecond")
    tab.get_by_role("button", name="Send").tap()
    expect_turns(tab, 1)
    assert inputs_by_chat(person) == [["First\nsecond"]]


def test_stop_keeps_the_partial_answer_and_stop_and_discard_restores_the_message(
    tab: Page, person: Person
) -> None:
    gate = Gate()
    person.server.model.add_script("Half", gate)
    send(tab, "Tell me")
    expect(tab.get_by_text("Half")).to_be_visible()
    stop_button(tab).click()
    expect_turns(tab, 1)
    expect(tab.locator("[data-kind=interrupted]")).to_contain_text("Interrupted. The answer so far was kept.")
    expect(message_field(tab)).to_be_focused()
    expect(message_field(tab)).to_have_value("")

    # Escape stops too, and what is written stays.
    person.server.model.add_script("A quarter", gate)
    send(tab, "Tell me more")
    expect(tab.get_by_text("A quarter")).to_be_visible()
    message_field(tab).fill("And then")
    message_field(tab).press("Escape")
    expect_turns(tab, 2)
    expect(message_field(tab)).to_have_value("And then")

    # Two clicks stop one answer.
    person.server.model.add_script("An eighth", gate)
    message_field(tab).press("Enter")
    expect(tab.get_by_text("An eighth")).to_be_visible()
    person.server.model.add_script("The next one", gate, ", whole.")
    send(tab, "And this")
    stops: list[str] = []
    tab.on("request", lambda request: stops.append(request.url) if request.url.endswith("/stop") else None)
    stop_button(tab).click()
    expect(tab.get_by_text("The next one")).to_be_visible()
    stop_button(tab).dispatch_event("click", {"detail": 2})
    person.server.model.release(gate)
    expect_turns(tab, 4)
    assert len(stops) == 1

    # What is discarded leaves nothing, and the message is given back.
    person.server.model.add_script("Never said", Gate())
    send(tab, "Say nothing")
    expect(tab.get_by_text("Never said")).to_be_visible()
    tab.get_by_role("button", name="Stop options").click()
    tab.get_by_role("menuitem", name="Stop and discard").click()
    expect(message_field(tab)).to_have_value("Say nothing")
    expect_turns(tab, 4)
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [
        ("Tell me", "Half"),
        ("Tell me more", "A quarter"),
        ("And then", "An eighth"),
        ("And this", "The next one, whole."),
    ]


def test_page_without_the_scope_to_run_turns_shows_a_read_only_notice_instead_of_the_composer(
    page_server: PageServer, profile: Profile
) -> None:
    person = page_server.person(scopes=("chats:read", "chats:write"))
    tab = profile(person).new_page()
    tab.goto(page_server.url + "#new")
    expect(tab.get_by_role("status").get_by_text("You have read-only access.")).to_be_visible()
    expect(tab.get_by_role("textbox", name="Message")).to_have_count(0)
    expect(tab.get_by_role("searchbox")).to_be_visible()
    expect(tab.get_by_role("button", name="New chat")).to_have_count(0)


@long_only
def test_composer_without_a_model_shows_a_notice_and_keeps_the_text(
    page_server: PageServer, profile: Profile
) -> None:
    person = page_server.person(models=("none-of-these",))
    tab = profile(person).new_page()
    open_new_chat(tab, person)
    expect(tab.get_by_text("No model is available.")).to_be_visible()
    send(tab, "Anybody?")
    expect(message_field(tab)).to_have_value("Anybody?")
    assert person.chats() == []


@long_only
def test_message_that_cannot_be_stored_locally_stays_in_the_composer_with_the_reason(
    tab: Page, person: Person
) -> None:
    send(tab, "First")
    expect_turns(tab, 1)
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
    expect(message_field(tab)).to_have_value("Second")
    tab.evaluate(
        "Object.keys(localStorage).filter(n => n.startsWith('full')).forEach(n => localStorage.removeItem(n))"
    )
    message_field(tab).press("Enter")
    expect_turns(tab, 2)
    assert inputs_by_chat(person) == [["First", "Second"]]


def test_failed_message_returns_to_the_composer_and_is_not_in_the_history(tab: Page, person: Person) -> None:
    person.server.model.add_script(REFUSED)
    send(tab, "Will fail")
    expect(message_field(tab)).to_have_value("Will fail")
    expect_turns(tab, 0)
    [chat] = person.chats()
    assert person.turns(chat["id"]) == []
    tab.reload()
    expect(message_field(tab)).to_have_value("Will fail")
    message_field(tab).press("End")
    message_field(tab).press_sequentially(" no more")
    message_field(tab).press("Enter")
    expect_turns(tab, 1)

    # Sending again removes it.
    person.server.model.add_script(REFUSED)
    send(tab, "Fails once")
    expect(message_field(tab)).to_have_value("Fails once")
    tab.get_by_role("button", name="Retry").click()
    expect(message_field(tab)).to_have_value("")
    expect_turns(tab, 2)

    # It stays when the next message is answered.
    gate = Gate()
    person.server.model.add_script(gate, REFUSED)
    send(tab, "Fails for good", "Will not")
    person.server.model.release(gate)
    expect_turns(tab, 3)
    expect(message_field(tab)).to_have_value("Fails for good")
    assert inputs_by_chat(person) == [["Will fail no more", "Fails once", "Will not"]]


def failed_meanwhile(tab: Page, person: Person) -> Locator:
    """Have a message fail while something else is written, and return where it is offered."""
    gate = Gate()
    person.server.model.add_script(gate, REFUSED)
    send(tab, "Will fail")
    expect(stop_button(tab)).to_be_visible()
    message_field(tab).fill("Something else")
    person.server.model.release(gate)
    return tab.get_by_role("group", name="Unanswered message")


@long_only
def test_failed_message_is_offered_beside_a_newer_draft(tab: Page, person: Person) -> None:
    offered = failed_meanwhile(tab, person)
    expect(offered).to_contain_text("Will fail")
    expect(message_field(tab)).to_have_value("Something else")
    expect(tab.locator("[data-failed]")).to_contain_text("The chat is unchanged.")
    tab.reload()
    expect(message_field(tab)).to_have_value("Something else")
    offered.get_by_role("button", name="Restore").click()
    expect(message_field(tab)).to_have_value("Will fail\n\nSomething else")
    expect(offered).to_have_count(0)
    expect(message_field(tab)).to_be_focused()
    failed_meanwhile(tab, person).get_by_role("button", name="Discard").click()
    expect(offered).to_have_count(0)
    expect(message_field(tab)).to_have_value("Something else")


@long_only
def test_arrow_keys_recall_sent_messages_and_move_within_their_lines(tab: Page) -> None:
    long = "second\nof two lines"
    send(tab, "first", long, "third", "fourth")
    expect_turns(tab, 4)
    for key, text in (
        ("ArrowUp", "fourth"),
        ("ArrowUp", "third"),
        ("ArrowDown", "fourth"),
        ("ArrowDown", ""),
        ("ArrowUp", "fourth"),
        ("ArrowUp", "third"),
        ("ArrowUp", long),
        ("ArrowUp", long),
        ("ArrowUp", "first"),
    ):
        message_field(tab).press(key)
        expect(message_field(tab)).to_have_value(text)
    message_field(tab).fill("mine")
    message_field(tab).press("ArrowUp")
    expect(message_field(tab)).to_have_value("mine")


@long_only
def test_composer_controls_are_reachable_by_keyboard_and_shortcuts_are_listed(tab: Page) -> None:
    expect(message_field(tab)).to_be_focused()
    names = []
    for _ in range(4):
        tab.keyboard.press("Tab")
        names.append(tab.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert names == ["Model: scripted", "Instructions and parameters", "Keyboard shortcuts", "Send"]

    button, panel = (
        tab.get_by_role("button", name="Keyboard shortcuts"),
        tab.get_by_role("region", name="Keyboard shortcuts"),
    )
    button.click()
    expect(panel).to_be_visible()
    for what in ("Send message", "Start a new line", "New chat", "Search chats"):
        expect(panel.get_by_text(what)).to_be_visible()
    message_field(tab).fill("It is in nobody's way")
    expect(panel).to_be_visible()
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_have_count(0)
    expect(button).to_have_attribute("aria-expanded", "false")

    # A question mark opens the list unless it is typed into a field.
    message_field(tab).fill("")
    message_field(tab).press("?")
    expect(message_field(tab)).to_have_value("?")
    expect(panel).to_have_count(0)
    model = tab.get_by_role("button", name="Model: ")
    model.focus()
    tab.keyboard.press("?")
    expect(panel).to_be_focused()
    # Single keys can be switched off, for good.
    panel.get_by_role("checkbox", name="Use / and ? as shortcuts").uncheck()
    tab.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    expect(model).to_be_focused()
    tab.reload()
    model.focus()
    tab.keyboard.press("?")
    tab.keyboard.press("/")
    expect(panel).to_have_count(0)
    expect(model).to_be_focused()
    tab.keyboard.press("ControlOrMeta+/")
    expect(panel).to_be_focused()
    tab.keyboard.press("ControlOrMeta+/")
    expect(panel).to_have_count(0)

    # Keys lead to where one writes, and to a new chat.
    tab.keyboard.press("ControlOrMeta+J")
    expect(message_field(tab)).to_be_focused()
    send(tab, "Hello")
    expect_turns(tab, 1)
    tab.keyboard.press("ControlOrMeta+Shift+O")
    expect(tab.locator("[data-turn]")).to_have_count(0)
    expect(message_field(tab)).to_be_focused()
    assert tab.url.endswith("#new")
