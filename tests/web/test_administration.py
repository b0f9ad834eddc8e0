"""Administration of tokens, and usage, for tokens that may: in two tabs, by keyboard, and after a reload."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.long_form import long_only
from tests.web.page_server import PageServer, Person, Profile, run_page_server
from tests.web.scenes import TURNS
from tests.web.sign_in import create_link
from tests.web.test_dialogs import expect_sound
from tests.web.thread import import_chat, message_field

ADMIN = ("chats:read", "chats:write", "turns:run", "admin")


def open_administration(page: Page) -> Locator:
    expect(message_field(page)).to_be_focused()
    page.get_by_role("button", name="Settings").press("Enter")
    page.get_by_role("button", name="Tokens and usage").press("Enter")
    return page.get_by_role("dialog", name="Administration")


def token_line(dialog: Locator, name: str) -> Locator:
    return dialog.get_by_role("listitem").filter(has_text=name)


def test_administration_creates_lists_and_revokes_tokens_in_two_tabs(
    page_server: PageServer, profile: Profile
) -> None:
    boss = page_server.person(scopes=ADMIN)
    guest_owner = page_server.person().owner
    context = profile(boss, permissions=["clipboard-read", "clipboard-write"])
    page, other = context.new_page(), context.new_page()
    dialogs = []
    for each in (page, other):
        each.goto(boss.server.url)
        expect(message_field(each)).to_be_visible()
        dialogs.append(open_administration(each))
    dialog, beside = dialogs
    for each in dialogs:
        expect(token_line(each, "Token (this one)")).to_contain_text(f"For {boss.owner}")

    # With the keyboard alone, from field to field.
    page.bring_to_front()
    expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("Tab")
    expect(dialog.get_by_role("button", name="Count usage")).to_be_focused()
    page.keyboard.press("Tab")
    expect(dialog.get_by_role("textbox", name="Owner")).to_have_value(boss.owner)
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type(guest_owner)
    page.keyboard.press("Tab")
    page.keyboard.type("/ Phone?")  # no shortcuts of the page behind
    for name, is_chosen in (("read chats", True), ("change chats", True), ("send messages", True)):
        page.keyboard.press("Tab")
        box = dialog.get_by_role("checkbox", name=name)
        expect(box).to_be_focused()
        expect(box).to_be_checked(checked=is_chosen)
        if name != "read chats":
            page.keyboard.press("Space")
    page.keyboard.press("Tab")
    expect(dialog.get_by_role("checkbox", name="administer")).not_to_be_checked()
    page.keyboard.press("Tab")
    page.keyboard.type("7")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    secret = dialog.get_by_role("textbox", name="New token")
    expect(secret).to_be_focused()
    expect(dialog.get_by_role("status").last).to_have_text("Token copied.")
    text = page.evaluate("navigator.clipboard.readText()")
    expect(secret).to_have_value(text)
    for each in dialogs:
        line = token_line(each, "/ Phone?")
        expect(line).to_contain_text(f"For {guest_owner} · read chats · Created")
        expect(line).to_contain_text("Never used · Valid until")
    expect(beside.get_by_role("textbox", name="New token")).to_have_count(0)
    expect_sound(page, dialog)
    bearer = Person(page_server, guest_owner, text)
    own = bearer.fetch("GET", "/api/tokens/self")
    assert (own["owner"], own["scopes"]) == (guest_owner, ["chats:read"])
    assert own["expires_at"] - own["created_at"] == 7 * 86_400_000

    # After a reload the token is there, but not its text. Two presses revoke it.
    page.reload()
    expect(message_field(page)).to_be_visible()
    open_administration(page)
    expect(token_line(dialog, "/ Phone?")).to_be_visible()
    expect(dialog.get_by_role("textbox", name="New token")).to_have_count(0)
    assert text not in page.content()
    dialog.get_by_role("button", name="Revoke / Phone?").press("Enter")
    expect(dialog.get_by_role("status").last).to_contain_text("Press again")
    assert bearer.fetch("GET", "/api/tokens/self")["id"] == own["id"]
    expect(dialog.get_by_role("button", name="Revoke?")).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("status").last).to_have_text("Revoked 1 token.")
    for each in dialogs:
        expect(token_line(each, "/ Phone?")).to_have_count(0)

    # Nothing is created without a permission.
    for name in ("read chats", "change chats", "send messages"):
        dialog.get_by_role("checkbox", name=name).uncheck()
    dialog.get_by_role("button", name="Create token").click()
    expect(dialog.get_by_role("status").last).to_have_text("Choose what the token may do.")

    # Revoking the own token signs out, in both tabs.
    own_line = token_line(dialog, "(this one)").get_by_role("button")
    own_line.press("Enter")
    expect(own_line).to_have_text("Revoke and sign out?")
    own_line.press("Enter")
    for tab in (page, other):
        expect(tab.get_by_role("heading", name="Your access has ended")).to_be_visible()


@long_only
def test_usage_is_counted_by_owner_and_model(page_server: PageServer, profile: Profile) -> None:
    boss, ann = page_server.person(scopes=ADMIN), page_server.person()
    for who in (ann, ann, ann, boss):
        who.run_turn("Hello")
    import_chat(ann, TURNS, "From elsewhere")
    page = profile(boss).new_page()
    page.goto(boss.server.url)
    dialog = open_administration(page)
    dialog.get_by_role("button", name="Count usage").press("Enter")
    expect(dialog.get_by_role("button", name="Count again")).to_be_focused()
    expect(dialog.get_by_role("status").first).to_contain_text("counted.")
    rows = dialog.get_by_role("row").filter(has_text=ann.owner)
    expect(rows).to_have_count(2)
    cells = [row.get_by_role("cell").all_inner_texts() for row in rows.all()]
    assert [each[1] for each in cells] == ["3", "3"]
    [imported] = [each for each in cells if each[0] == "demo"]
    assert (imported[2], imported[3], imported[4][-2:]) == ("1,916", "265", "kB")
    expect_sound(page, dialog)
    # The same numbers, in German.
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Settings").press("Enter")
    page.get_by_role("combobox", name="Language").select_option("de")
    page.get_by_role("button", name="Tokens und Nutzung").press("Enter")
    german = page.get_by_role("dialog", name="Verwaltung")
    german.get_by_role("button", name="Nutzung zählen").press("Enter")
    expect(german.get_by_role("row").filter(has_text=ann.owner)).to_have_count(2)
    expect_sound(page, german)


@long_only
def test_administration_is_not_offered_to_readers_guests_and_other_tokens(
    page_server: PageServer, person: Person, profile: Profile
) -> None:
    chat = str(person.run_turn("Dinner")["chat"]["id"])
    user = page_server.person(scopes=ADMIN[:3], owner=person.owner)
    reader = page_server.person(scopes=("chats:read",), owner=person.owner)
    for who in (user, reader):
        page = profile(who).new_page()
        page.goto(person.server.url)
        page.get_by_role("button", name="Settings").click()
        dialog = page.get_by_role("dialog", name="Settings")
        expect(dialog.get_by_role("button", name="Export")).to_be_visible()
        expect(dialog.get_by_text("Administration")).to_have_count(0)
    guest = profile().new_page()
    guest.goto(create_link(person, scope="fair")["url"])
    guest.get_by_role("button", name="Settings").click()
    expect(guest.get_by_role("dialog", name="Settings")).to_be_visible()
    expect(guest.get_by_text("Administration")).to_have_count(0)
    visitor = profile().new_page()
    visitor.goto(create_link(person, chat=chat)["url"])
    expect(visitor.get_by_role("log")).to_contain_text("Dinner")
    expect(visitor.get_by_role("button", name="Settings")).to_have_count(0)


@long_only
def test_settings_say_that_access_without_a_token_never_administers(tmp_path: Path, profile: Profile) -> None:
    with run_page_server(tmp_path) as open_to_all:
        page = profile().new_page()
        page.goto(open_to_all.url)
        page.get_by_role("button", name="Settings").click()
        dialog = page.get_by_role("dialog", name="Settings")
        expect(dialog).to_contain_text("Access without a token never has it.")
        expect(dialog.get_by_role("button", name="Tokens and usage")).to_have_count(0)
        expect_sound(page, dialog)
