"""Instructions and parameters of a chat: sent with its turns, the same in all tabs and after a reload."""

from __future__ import annotations

from typing import Any
from urllib.error import HTTPError

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.long_form import long_only
from tests.web.chats import chat_line
from tests.web.page_server import Person, Profile
from tests.web.sign_in import create_link
from tests.web.test_dialogs import expect_sound
from tests.web.thread import answers, expect_turns, open_chat, open_new_chat, send, start_new_chat

TITLE = "Instructions and parameters"


def settings_button(page: Page) -> Locator:
    return page.get_by_role("button", name=TITLE)


def settings_dialog(page: Page) -> Locator:
    return page.get_by_role("dialog", name=TITLE)


def set_by_keyboard(page: Page, *texts: str) -> None:
    """Replace instructions, temperature and maximum tokens, from the button on."""
    settings_button(page).press("Enter")
    expect(settings_dialog(page)).to_have_attribute("aria-busy", "false")
    for text in texts:
        page.keyboard.press("Tab")
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.press("Delete")
        page.keyboard.type(text)
    page.keyboard.press("ControlOrMeta+Enter")


def sent(person: Person) -> dict[str, Any]:
    """Return instructions and parameters of the last request to the model."""
    body = person.server.model.received[-1].body
    system = [each["content"] for each in body["messages"] if each["role"] == "system"]
    return {"system": system, **{name: body[name] for name in ("temperature", "max_tokens") if name in body}}


def metadata(person: Person, chat: str) -> dict[str, str]:
    return dict(person.fetch("GET", f"/api/chats/{chat}")["metadata"])


def test_settings_of_a_chat_survive_reloads_and_apply_in_two_tabs(tab: Page, person: Person) -> None:
    open_new_chat(tab, person)
    expect(settings_button(tab)).to_have_text("")
    set_by_keyboard(tab, "Be brief. / Or not?", "0.2", "500")
    expect(settings_dialog(tab)).to_have_count(0)
    expect(settings_button(tab)).to_be_focused()
    expect(settings_button(tab)).to_have_text("Instructions · Temperature 0.2 · At most 500 tokens")
    assert person.chats() == []

    # Before the chat exists, in this browser; afterwards on the server.
    tab.reload()
    expect(settings_button(tab)).to_have_text("Instructions · Temperature 0.2 · At most 500 tokens")
    send(tab, "Hello")
    expect_turns(tab, 1)
    assert sent(person) == {"system": ["Be brief. / Or not?"], "temperature": 0.2, "max_tokens": 500}
    [chat] = person.chats()
    assert metadata(person, chat["id"]) == {
        "turn.instructions": "Be brief. / Or not?",
        "turn.temperature": "0.2",
        "turn.max_tokens": "500",
    }
    start_new_chat(tab)
    expect(settings_button(tab)).to_have_text("")
    chat_line(tab, "Hello").get_by_role("link").click()
    tab.reload()
    expect(settings_button(tab)).to_contain_text("Temperature 0.2")

    # Another tab changes them, while another program changes the metadata.
    other = tab.context.new_page()
    open_chat(other, person, chat["id"])
    settings_button(other).click()
    body = {"metadata": {**metadata(person, chat["id"]), "ticket": "4711"}}
    person.fetch("PATCH", f"/api/chats/{chat['id']}", body)
    settings_dialog(other).get_by_role("textbox", name="Instructions").fill("Be kind.\n" + "x" * 600)
    settings_dialog(other).get_by_role("spinbutton", name="Temperature").fill("")
    settings_dialog(other).get_by_role("button", name="Save").click()
    for page in (tab, other):
        expect(settings_button(page)).to_have_text("Instructions · At most 500 tokens")
    assert metadata(person, chat["id"])["ticket"] == "4711"
    tab.bring_to_front()
    tab.get_by_role("button", name="Regenerate", exact=True).click()
    expect(tab.get_by_role("group", name="Versions of the answer")).to_have_text("2/2")
    assert sent(person) == {"system": ["Be kind.\n" + "x" * 600], "max_tokens": 500}

    # A fork has them, too.
    tab.get_by_role("button", name="More actions").click()
    tab.get_by_role("menuitem", name="Fork from here").click()
    expect(tab).not_to_have_url(f"{person.server.url}/#{chat['id']}")
    expect(settings_button(tab)).to_have_text("Instructions · At most 500 tokens")

    # Removed ones are not sent any more.
    settings_button(other).click()
    settings_dialog(other).get_by_role("button", name="Clear").click()
    settings_dialog(other).get_by_role("button", name="Save").click()
    expect(settings_button(other)).to_have_text("")
    send(other, "And now?")
    expect_turns(other, 2)
    assert sent(person) == {"system": []}
    assert metadata(person, chat["id"]) == {"turn.instructions": "", "ticket": "4711"}


@long_only
def test_settings_dialog_refuses_invalid_numbers_and_is_accessible(tab: Page, person: Person) -> None:
    open_new_chat(tab, person)
    settings_button(tab).click()
    dialog = settings_dialog(tab)
    expect_sound(tab, dialog)
    for name, value, message in (
        ("Temperature", "2.1", "Enter a temperature from 0 to 2, or nothing."),
        ("Maximum tokens", "0", "Enter a whole number of tokens, at least 1, or nothing."),
        ("Maximum tokens", "1.5", "Enter a whole number of tokens, at least 1, or nothing."),
    ):
        field = dialog.get_by_role("spinbutton", name=name)
        field.fill(value)
        field.press("Enter")
        expect(dialog.get_by_role("alert")).to_have_text(message)
        expect(field).to_be_focused()
        field.fill("")
    expect_sound(tab, dialog)
    dialog.get_by_role("spinbutton", name="Temperature").fill("0.25")
    dialog.get_by_role("spinbutton", name="Temperature").press("Escape")
    expect(settings_button(tab)).to_have_text("")
    set_by_keyboard(tab, "", "0.25")
    expect(settings_button(tab)).to_have_text("Temperature 0.25")
    # Refused by the server: reported in the dialog, which stays open.
    send(tab, "Hello")
    expect_turns(tab, 1)
    assert sent(person) == {"system": [], "temperature": 0.25}
    [chat] = person.chats()
    settings_button(tab).click()
    many = {f"of another program {number}": "x" for number in range(15)}
    person.fetch("PATCH", f"/api/chats/{chat['id']}", {"metadata": {**many, "turn.temperature": "0.25"}})
    dialog.get_by_role("spinbutton", name="Maximum tokens").fill("9")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Metadata has at most 16 pairs")
    assert metadata(person, chat["id"])["turn.temperature"] == "0.25"


@long_only
def test_settings_are_shown_to_readers_of_the_owner_only_and_changed_by_those_who_may_write(
    person: Person, profile: Profile
) -> None:
    chat = str(person.run_turn("Dinner")["chat"]["id"])
    person.fetch("PATCH", f"/api/chats/{chat}", {"metadata": {"turn.instructions": "Whisper."}})

    reader = profile(person.server.person(scopes=("chats:read",), owner=person.owner)).new_page()
    open_chat(reader, person, chat)
    settings_button(reader).click()
    field = settings_dialog(reader).get_by_role("textbox", name="Instructions")
    expect(field).to_have_value("Whisper.")
    expect(field).not_to_be_editable()
    expect(settings_dialog(reader).get_by_role("button")).to_have_count(1)
    expect_sound(reader, settings_dialog(reader))

    visitor = profile().new_page()
    visitor.goto(create_link(person, chat=chat)["url"])
    expect(answers(visitor)).to_have_count(1)
    expect(settings_button(visitor)).to_have_count(0)
    expect(visitor.get_by_text("Whisper.")).to_have_count(0)

    # A guest has settings in its own chats.
    guest = profile().new_page()
    guest.goto(create_link(person, scope="fair")["url"])
    set_by_keyboard(guest, "Sing.")
    send(guest, "Hello")
    expect_turns(guest, 1)
    assert sent(person) == {"system": ["Sing."]}
    guest.reload()
    expect(settings_button(guest)).to_have_text("Instructions")

    foreign = person.server.person()
    with pytest.raises(HTTPError, match="404"):
        foreign.fetch("PATCH", f"/api/chats/{chat}", {"metadata": {"turn.instructions": "Shout."}})
    assert metadata(person, chat) == {"turn.instructions": "Whisper."}


@long_only
def test_settings_of_a_temporary_chat_are_gone_with_it(tab: Page, person: Person) -> None:
    open_new_chat(tab, person)
    tab.get_by_role("switch", name="Temporary chat").click()
    set_by_keyboard(tab, "Be brief.", "1")
    expect(settings_button(tab)).to_have_text("Instructions · Temperature 1")
    send(tab, "Hello")
    expect_turns(tab, 1)
    assert sent(person) == {"system": ["Be brief."], "temperature": 1}
    tab.get_by_role("button", name="New chat").first.click()
    tab.get_by_role("button", name="Leave and discard").click()
    expect(settings_button(tab)).to_have_text("")
    assert person.chats() == []
