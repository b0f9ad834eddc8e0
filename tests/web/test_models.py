"""The model picker: selection, filtering, and the remembered model."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.long_form import long_only
from tests.web.page_server import PageServer, Person, Profile
from tests.web.thread import expect_turns, message_field, open_new_chat, send


def picker(tab: Page) -> Locator:
    return tab.get_by_role("button", name="Model: ")


def choose(tab: Page, name: str) -> None:
    picker(tab).click()
    tab.get_by_role("option", name=name, exact=True).click()


@long_only
def test_model_picker_selects_a_model_by_keyboard_or_click(tab: Page) -> None:
    picker(tab).click()
    expect(tab.get_by_role("listbox")).to_be_visible()
    tab.mouse.click(600, 200)
    expect(tab.get_by_role("listbox")).to_have_count(0)
    # However soon it comes.
    tab.evaluate(
        """() => new MutationObserver((_, watching) => {
          if (!document.querySelector("[role=listbox]")) return;
          watching.disconnect();
          document.body.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true }));
          window.hasClicked = true;
        }).observe(document.body, { childList: true, subtree: true })"""
    )
    picker(tab).click()
    tab.wait_for_function("window.hasClicked")
    expect(tab.get_by_role("listbox")).to_have_count(0)
    picker(tab).focus()
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("listbox", name="Model")).to_be_focused()
    expect(tab.get_by_role("option", name="scripted")).to_have_attribute("aria-selected", "true")
    tab.keyboard.press("Escape")
    expect(tab.get_by_role("listbox")).to_have_count(0)
    expect(picker(tab)).to_be_focused()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    expect(picker(tab)).to_have_accessible_name("Model: other")


def test_selected_model_answers_and_is_remembered(tab: Page, person: Person) -> None:
    expect(picker(tab)).to_have_accessible_name("Model: scripted")
    choose(tab, "other")
    expect(message_field(tab)).to_be_focused()
    send(tab, "Who are you?")
    expect_turns(tab, 1)
    assert person.server.model.requested_models[-1] == "other"
    open_new_chat(tab, person)
    tab.reload()
    expect(picker(tab)).to_have_accessible_name("Model: other")


@long_only
def test_model_picker_in_a_chat_selects_the_model_that_answered_last(
    person: Person, profile: Profile
) -> None:
    chat = person.run_turn("Here")["chat"]["id"]
    tab = profile(person).new_page()
    open_new_chat(tab, person)
    choose(tab, "other")
    tab.goto(f"{person.server.url}#{chat}")
    expect(picker(tab)).to_have_accessible_name("Model: scripted")
    choose(tab, "other")
    expect(picker(tab)).to_have_accessible_name("Model: other")
    open_new_chat(tab, person)
    expect(picker(tab)).to_have_accessible_name("Model: other")


@long_only
def test_selected_model_that_no_longer_exists_is_replaced_with_a_notice(
    page_server: PageServer, profile: Profile
) -> None:
    person = page_server.person()
    context = profile(person)
    tab = context.new_page()
    open_new_chat(tab, person)
    choose(tab, "other")
    send(tab, "Hello")
    expect_turns(tab, 1)
    name = tab.evaluate("Object.keys(localStorage).find(name => name.endsWith(':model'))")
    tab.evaluate("name => localStorage.setItem(name, 'former')", name)
    tab.reload()
    open_new_chat(tab, person)
    expect(tab.get_by_text("former is no longer available. Using ")).to_be_visible()
    send(tab, "Go on")
    expect_turns(tab, 1)
    expect(tab.get_by_text("former")).to_have_count(0)
    open_new_chat(tab, person)
    tab.reload()
    expect(picker(tab)).to_have_accessible_name("Model: scripted")
    expect(tab.get_by_text("former")).to_have_count(0)


@long_only
def test_single_available_model_is_shown_without_a_picker(page_server: PageServer, profile: Profile) -> None:
    person = page_server.person(models=("other",))
    tab = profile(person).new_page()
    open_new_chat(tab, person)
    expect(tab.get_by_text("Model: other")).to_be_visible()
    expect(picker(tab)).to_have_count(0)


@long_only
def test_model_picker_with_many_models_filters_by_name(person: Person, profile: Profile) -> None:
    many = {"object": "list", "data": [{"id": f"model-{number}"} for number in range(40)]}
    tab = profile(person).new_page()
    tab.route("**/v1/models", lambda route: route.fulfill(json=many))
    open_new_chat(tab, person)
    picker(tab).click()
    sought = tab.get_by_role("combobox", name="Find a model")
    expect(sought).to_be_focused()
    sought.fill("MODEL-2")
    expect(tab.get_by_role("option")).to_have_count(11)
    sought.press("ArrowDown")
    sought.press("Enter")
    expect(picker(tab)).to_have_accessible_name("Model: model-20")
    picker(tab).click()
    sought.fill("no such thing")
    expect(tab.get_by_text("No matching models")).to_be_visible()
    sought.press("Enter")
    sought.press("Escape")
    expect(picker(tab)).to_have_accessible_name("Model: model-20")
