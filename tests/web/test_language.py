"""The languages of the page: as the browser prefers, or as the user chooses, at once and in all tabs."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.long_form import long_only
from tests.web.chats import chat_line
from tests.web.page_server import Person, Profile
from tests.web.scenes import TURNS
from tests.web.sign_in import create_link
from tests.web.test_dialogs import expect_sound
from tests.web.thread import import_chat, message_field, open_chat
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import CUT

STRINGS = Path(__file__).parents[2] / "web" / "src" / "strings"
LITERAL = re.compile(r'"((?:[^"\\]|\\.)+)"')
SHOWN = """() => [...document.querySelectorAll("body *")].flatMap((each) => [
  ...["aria-label", "title", "placeholder", "alt"].map((name) => each.getAttribute(name)),
  ...[...each.childNodes].filter(({nodeType}) => nodeType === 3).map(({data}) => data.trim()),
]).filter(Boolean)"""


def texts_of(language: str) -> set[str]:
    return set(LITERAL.findall((STRINGS / f"{language}.ts").read_text()))


def english_in(page: Page) -> set[str]:
    """Texts of the English page that this page shows or reads aloud, and the German one does not have. Words
    in lower case may be those of the chat."""
    english = {text for text in texts_of("english") if not text.islower()}
    return set(page.evaluate(SHOWN)) & (english - texts_of("german"))


def field_of(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Nachricht", exact=True)


def test_page_speaks_the_language_that_the_browser_prefers(person: Person, profile: Profile) -> None:
    chat = import_chat(person, TURNS, "Was ein Turn ist")
    page = profile(person, locale="de-AT", timezone_id="Europe/Vienna").new_page()
    open_chat(page, person, chat)
    expect(page.locator("html")).to_have_attribute("lang", "de")
    expect(page.locator("[data-turn]")).to_have_count(len(TURNS))
    assert english_in(page) == set()
    expect(page.get_by_role("log")).to_contain_text("1 204 Tokens · 0,9 s")  # as in Austria
    expect(page.get_by_role("button", name="Code (Python) kopieren")).to_have_count(1)
    expect(page.locator("[data-turn] time").first).to_have_text(re.compile(r"\d\d\.\d\d\.\d{4}, \d\d:\d\d"))
    # Menus and dialogs open with the keyboard, and are German, too.
    page.get_by_role("button", name="Optionen des Chats").press("Enter")
    expect(page.get_by_role("menuitem", name="Teilen")).to_be_visible()
    assert english_in(page) == set()
    page.get_by_role("menuitem", name="Teilen").press("Enter")
    dialog = page.get_by_role("dialog", name="Teilen: „Was ein Turn ist“")
    dialog.get_by_role("button", name="Link erstellen").press("Enter")
    expect(dialog.get_by_role("listitem")).to_contain_text("0 Besucher")
    assert english_in(page) == set()
    expect_sound(page, dialog)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Einstellungen").press("Enter")
    expect_sound(page, page.get_by_role("dialog", name="Einstellungen"))
    assert english_in(page) == set()


def test_foreign_or_deleted_chat_is_reported_once_in_the_language_of_the_page(
    person: Person, profile: Profile
) -> None:
    page = profile(person, locale="de").new_page()
    deleted = str(person.run_turn("Supper")["chat"]["id"])
    person.fetch("DELETE", f"/api/chats/{deleted}")
    foreign = str(person.server.person().run_turn("Dinner")["chat"]["id"])
    for chat, reason in ((deleted, "Dieser Chat wurde gelöscht."), (foreign, "Diesen Chat gibt es nicht.")):
        open_chat(page, person, chat)
        expect(page.get_by_text(reason)).to_have_count(1)
        field_of(page).fill("Hallo?")
        field_of(page).press("Enter")
        expect(field_of(page)).to_have_value("Hallo?")
        assert [each for each in page.evaluate(SHOWN) if "onversation" in each] == []


def lines(element: Locator) -> int:
    """How many lines its text takes."""
    return int(
        element.evaluate(
            """element => {
              const range = document.createRange();
              range.selectNodeContents(document.createTreeWalker(element, NodeFilter.SHOW_TEXT).nextNode());
              return range.getClientRects().length;
            }"""
        )
    )


@long_only
def test_german_words_are_whole_where_there_is_little_room(person: Person, profile: Profile) -> None:
    gate = Gate()
    person.server.model.add_script("Langsam", gate, ".")
    page = profile(person, locale="de", viewport={"width": 320, "height": 640}).new_page()
    page.goto(person.server.url)
    field_of(page).fill("Hallo")
    field_of(page).press("Enter")
    expect(page.get_by_text("Langsam")).to_be_visible()
    field_of(page).fill("Und dann")
    policies = page.locator(".segments label")
    expect(policies).to_have_count(3)
    assert [lines(each) for each in policies.all()] == [1, 1, 1]
    person.server.model.release(gate)
    page.get_by_role("button", name="Chats einblenden").click()
    page.get_by_role("button", name="Weitere Chats").click()
    page.get_by_role("menuitem", name="Chats auswählen").click()
    page.get_by_role("checkbox", name="Hallo").check()
    page.get_by_role("button", name="Löschen", exact=True).click()
    for name in ("1 Chat löschen?", "Auswahl beenden"):
        expect(page.get_by_role("button", name=name)).to_be_in_viewport(ratio=1)
    page.get_by_role("button", name="Einstellungen").click()
    page.get_by_role("button", name="Tokens und Nutzung").click()
    page.get_by_role("button", name="Nutzung zählen").click()
    assert lines(page.get_by_role("columnheader", name="Besitzer")) == 1


@long_only
def test_page_of_another_language_is_english(person: Person, profile: Profile) -> None:
    page = profile(person, locale="fr-FR").new_page()
    page.goto(person.server.url)
    expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_visible()
    expect(page.locator("html")).to_have_attribute("lang", "en")


@long_only
def test_visitors_and_sign_in_speak_the_language_of_the_browser(person: Person, profile: Profile) -> None:
    chat = str(person.run_turn("Abendessen")["chat"]["id"])
    reader = profile(locale="de").new_page()
    reader.goto(create_link(person, chat=chat)["url"])
    expect(reader.get_by_text(re.compile(r"^Du kannst diesen Chat bis .+ lesen\.$"))).to_be_visible()
    assert english_in(reader) == set()
    for link, reason in (("", "Öffne deinen Link noch einmal."), ("#half", "Dieser Link ist unvollständig.")):
        late = profile(locale="de").new_page()
        late.goto(f"{person.server.url}/share{link}")
        expect(late.get_by_role("alert")).to_contain_text(reason)
    stranger = profile(locale="de").new_page()
    stranger.goto(person.server.url)
    expect(stranger.get_by_role("button", name="Anmelden")).to_be_visible()
    stranger.get_by_role("textbox", name="Token").fill("tlt_wrong")
    stranger.keyboard.press("Enter")
    expect(stranger.get_by_role("alert").last).to_contain_text("Das ist kein gültiges Token.")


@long_only
def test_language_setting_applies_at_once_in_two_tabs_while_an_answer_streams(
    person: Person, profile: Profile
) -> None:
    chat = import_chat(person, TURNS, "What a turn is")
    model = person.server.model
    context = profile(person)
    page, other = context.new_page(), context.new_page()
    for each in (page, other):
        open_chat(each, person, chat)
        expect(each.locator("[data-turn]")).to_have_count(len(TURNS))
    gate = Gate()
    model.add_script("First words. ", gate, "Last words.")
    page.bring_to_front()
    expect(message_field(page)).to_be_focused()
    page.keyboard.type("Go on")
    page.keyboard.press("Enter")
    expect(page.get_by_role("log")).to_contain_text("First words.")
    page.keyboard.type("A draft")

    page.get_by_role("button", name="Settings").press("Enter")
    expect(page.get_by_role("dialog", name="Settings")).to_have_attribute("aria-busy", "false")
    page.keyboard.press("Tab")
    page.keyboard.type("Deu")
    choice = page.get_by_role("combobox", name="Sprache")
    expect(choice).to_be_focused()
    expect(page.get_by_role("dialog", name="Einstellungen")).to_be_visible()
    page.keyboard.press("Escape")
    for each in (page, other):
        expect(each.locator("html")).to_have_attribute("lang", "de")
        expect(each.get_by_role("button", name="Code (Python) kopieren")).to_have_count(1)
        expect(field_of(each)).to_have_value("A draft")
        expect(each.get_by_text("Antwortet …").first).to_be_in_viewport()  # it stays at the end
        assert english_in(each) == set()
    model.release(gate)
    for each in (page, other):
        expect(each.get_by_role("log")).to_contain_text("First words. Last words.")

    # The choice outlives a reload, and ends with the session.
    page.reload()
    expect(field_of(page)).to_have_value("A draft")
    expect(chat_line(page, "What a turn is")).to_be_visible()
    page.get_by_role("button", name=f"Angemeldet als {person.owner}").press("Enter")
    page.get_by_role("menuitem", name="Abmelden").press("Enter")
    for each in (page, other):
        expect(each.get_by_role("button", name="Sign in")).to_be_visible()
        expect(each.locator("html")).to_have_attribute("lang", "en")


@long_only
def test_language_setting_changes_a_failure_that_is_shown(tab: Page, person: Person) -> None:
    person.server.model.add_script("Half an ", CUT)
    tab.get_by_role("textbox", name="Message", exact=True).fill("Hello")
    tab.keyboard.press("Enter")
    reason = tab.get_by_role("log").locator("strong")
    expect(reason).to_have_text("The model stopped before its answer was complete.")
    tab.get_by_role("button", name="Settings").press("Enter")
    tab.get_by_role("combobox", name="Language").select_option("de")
    tab.keyboard.press("Escape")
    expect(reason).to_have_text("Das Modell hat aufgehört, bevor seine Antwort vollständig war.")
    expect(tab.get_by_role("button", name="Erneut versuchen")).to_be_visible()
    assert english_in(tab) == set()


@long_only
def test_offline_page_speaks_the_language_of_the_browser(person: Person, profile: Profile) -> None:
    context = profile(person, service_workers="allow", locale="de-DE")
    page = context.new_page()
    page.goto(person.server.url)
    assert page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    page.reload()
    context.set_offline(True)
    page.reload()
    expect(page.get_by_role("heading")).to_have_text(["Du bist offline"])
    expect(page.locator("html")).to_have_attribute("lang", "de")
    expect(page.get_by_role("button", name="Erneut versuchen")).to_be_visible()
    context.set_offline(False)
    expect(field_of(page)).to_be_visible()
