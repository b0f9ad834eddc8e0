"""The dialogs of the page: the same in two tabs, after a reload, and with the keyboard alone."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, Route, expect

from tests.long_form import IS_LONG, long_only
from tests.web.axe import violations_in_each_theme
from tests.web.chats import chat_line, make_chats, notice
from tests.web.page_server import Person, Profile
from tests.web.sign_in import create_link
from tests.web.thread import message_field, open_chat, send

PHONE = {"width": 360, "height": 640}
ZOOMED = {"width": 320, "height": 256}
"""A window of 1280 by 1024 at 400% zoom."""


def open_from_menu(page: Page, entry: str) -> None:
    """Choose an entry of the menu above the chat, with the keyboard."""
    page.get_by_role("button", name="Chat options").press("Enter")
    page.get_by_role("menuitem", name=entry, exact=True).press("Enter")


def import_file(page: Page, content: bytes) -> None:
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Import").press("Enter")
    chooser.value.set_files({"name": "chats.jsonl", "mimeType": "application/x-ndjson", "buffer": content})


def expect_sound(page: Page, dialog: Locator) -> None:
    """Expect no sideways scrolling, large, on a phone and zoomed, and no violations in either theme; in the
    long form at each size."""
    expect(dialog).to_have_attribute("aria-busy", "false")  # loaded
    size = page.viewport_size
    assert size is not None
    for each in (size, PHONE, ZOOMED):
        page.set_viewport_size({"width": each["width"], "height": each["height"]})
        expect(dialog).to_be_visible()
        if IS_LONG or each is size:
            assert violations_in_each_theme(page) == {}
        assert dialog.evaluate("it => it.firstChild.scrollWidth <= it.clientWidth")
        box = dialog.bounding_box()
        assert box is not None
        assert (box["x"] >= 0, box["y"] >= 0, box["y"] + box["height"] <= each["height"]) == (True,) * 3
    page.set_viewport_size({"width": size["width"], "height": size["height"]})
    expect(page.locator(".page.narrow")).to_have_count(0)  # the list is back


def test_share_dialog_creates_copies_lists_and_revokes_links_in_two_tabs(
    person: Person, profile: Profile
) -> None:
    chat = str(person.run_turn("Dinner")["chat"]["id"])
    create_link(person, chat=str(person.run_turn("Breakfast")["chat"]["id"]), name="Of another chat")
    context = profile(person, permissions=["clipboard-read", "clipboard-write"])
    page, other = context.new_page(), context.new_page()
    dialogs = [each.get_by_role("dialog", name="Share “Dinner”") for each in (page, other)]
    dialog, beside = dialogs
    for each in (page, other):
        open_chat(each, person, chat)
        open_from_menu(each, "Share")
    for each in dialogs:
        expect(each).to_contain_text("No links yet.")

    # With the keyboard: the close button has the focus; what visitors may, the name and the time follow.
    page.bring_to_front()
    expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("Tab")
    expect(dialog.get_by_role("combobox", name="Visitors may")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.type("/ For Ann?")  # no shortcuts of the page behind
    page.keyboard.press("Tab")
    page.keyboard.type("7")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    address = dialog.get_by_role("textbox", name="New link")
    expect(address).to_be_focused()
    expect(dialog.get_by_role("status")).to_have_text("Link copied.")
    link = page.evaluate("navigator.clipboard.readText()")
    expect(address).to_have_value(link)
    for each in dialogs:
        expect(each.get_by_role("listitem")).to_have_count(1)
        expect(each.get_by_role("listitem")).to_contain_text("/ For Ann?")
        expect(each.get_by_role("listitem")).to_contain_text("0 visitors · Valid until")
    expect(beside.get_by_role("textbox", name="New link")).to_have_count(0)
    expect_sound(page, dialog)
    [share] = [each for each in person.fetch("GET", "/api/shares")["data"] if each["chat"] == chat]
    assert share["expires_at"] - share["created_at"] == 7 * 86_400_000

    visitor = profile().new_page()
    visitor.goto(link)
    expect(visitor.get_by_role("log")).to_contain_text("Dinner")
    visitor.get_by_role("button", name="Chat options").click()
    expect(visitor.get_by_role("menuitem", name="Save as Markdown")).to_be_visible()
    expect(visitor.get_by_role("menuitem", name="Share")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Chat options")).to_be_focused()

    # After a reload, from the list: the link is there, but not its address.
    page.reload()
    chat_line(page, "Dinner").get_by_role("link").focus()
    options = chat_line(page, "Dinner").get_by_role("button", name="Options for")
    options.press("Enter")
    page.get_by_role("menuitem", name="Share").press("Enter")
    expect(dialog.get_by_role("listitem")).to_contain_text("1 visitor ·")
    expect(dialog.get_by_role("textbox", name="New link")).to_have_count(0)
    dialog.get_by_role("button", name="Revoke / For Ann?").press("Enter")
    expect(dialog.get_by_role("status")).to_have_text("The link no longer works.")
    for each in dialogs:
        expect(each).to_contain_text("No links yet.")
    late = profile().new_page()
    late.goto(link)
    expect(late.get_by_role("heading", name="This link does not work")).to_be_visible()
    dialog.get_by_role("button", name="Close").press("Enter")
    expect(options).to_be_focused()

    # A refusal is shown in the dialog.
    person.fetch("DELETE", f"/api/chats/{chat}")
    other.bring_to_front()
    beside.get_by_role("button", name="Create link").click()
    expect(beside.get_by_role("alert")).to_be_visible()


@long_only
def test_share_dialog_of_an_administrator_invites_guests_who_chat_on_their_own(
    person: Person, profile: Profile
) -> None:
    chat = str(person.run_turn("Dinner")["chat"]["id"])
    page = profile(person).new_page()
    open_chat(page, person, chat)
    open_from_menu(page, "Share")
    dialog = page.get_by_role("dialog", name="Share “Dinner”")
    choice = dialog.get_by_role("combobox", name="Visitors may")
    choice.select_option("Chat on their own")
    expect(dialog).to_contain_text("in the scope “guests”. They see none of yours.")
    dialog.get_by_role("button", name="Create link").press("Enter")
    expect(dialog.get_by_role("listitem")).to_contain_text("For guests · ")
    expect_sound(page, dialog)
    address = dialog.get_by_role("textbox", name="New link").input_value()
    guest = profile().new_page()
    guest.goto(address)
    expect(guest.get_by_text("No chats yet.")).to_be_visible()
    person.server.model.add_script("Welcome.")
    send(guest, "Hello")
    expect(guest.get_by_role("log")).to_contain_text("Welcome.")
    guest.reload()
    expect(guest.get_by_role("log")).to_contain_text("Welcome.")
    assert [each["title"] for each in person.chats()] == ["Dinner"]

    # After a reload it is still there, in every chat of that scope; revoking it ends the visit.
    page.reload()
    open_from_menu(page, "Share")
    expect(dialog.get_by_role("listitem")).to_contain_text("1 visitor")
    dialog.get_by_role("button", name="Revoke Link").press("Enter")
    expect(dialog).to_contain_text("No links yet.")
    expect(guest.get_by_role("heading", name="Your visit has ended")).to_be_visible()

    # Others share for reading only.
    plain = person.server.person(scopes=("chats:read", "chats:write", "turns:run"), owner=person.owner)
    other = profile(plain).new_page()
    open_chat(other, plain, chat)
    open_from_menu(other, "Share")
    expect(other.get_by_role("button", name="Create link")).to_be_visible()
    expect(other.get_by_role("combobox", name="Visitors may")).to_have_count(0)


@long_only
def test_share_is_not_offered_to_guests_and_tokens_that_may_not(person: Person, profile: Profile) -> None:
    reader = person.server.person(scopes=("chats:read",), owner=person.owner)
    make_chats(person, ["Dinner"])
    page = profile(reader).new_page()
    page.goto(person.server.url)
    chat_line(page, "Dinner").get_by_role("link").click()
    expect(page.get_by_role("heading", name="Dinner", level=1)).to_be_visible()
    expect(page.get_by_role("button", name="Chat options")).to_have_count(0)

    guest = profile().new_page()
    guest.goto(create_link(person, scope="fair")["url"])
    guest.get_by_role("textbox", name="Message", exact=True).fill("Hello")
    guest.keyboard.press("Enter")
    guest.get_by_role("button", name="Chat options").click()
    expect(guest.get_by_role("menuitem", name="Rename")).to_be_visible()
    expect(guest.get_by_role("menuitem", name="Share")).to_have_count(0)


@long_only
def test_settings_apply_at_once_in_two_tabs_and_after_a_reload(person: Person, profile: Profile) -> None:
    context = profile(person)
    page, other = context.new_page(), context.new_page()
    for each in (page, other):
        each.goto(person.server.url)
        expect(message_field(each)).to_be_visible()
    page.bring_to_front()
    button, dialog = (page.get_by_role(role, name="Settings") for role in ("button", "dialog"))
    button.press("Enter")
    expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    expect(dialog).to_have_attribute("aria-busy", "false")
    # With the keyboard alone: from field to field, a letter chooses.
    page.keyboard.press("Tab")
    expect(dialog.get_by_role("combobox", name="Language")).to_be_focused()
    for name, letter, chosen in (
        ("Theme", "D", "dark"),
        ("Text size", "L", "large"),
        ("Send messages with", "C", "Mod+Enter"),
        ("Keyboard shortcuts", "Of", "none"),
        ("Model for new chats", "ot", "other"),
    ):
        page.keyboard.press("Tab")
        field = dialog.get_by_role("combobox", name=name)
        expect(field).to_be_focused()
        page.keyboard.type(letter)
        expect(field).to_have_value(chosen)
    expect_sound(page, dialog)
    page.keyboard.press("Escape")
    expect(button).to_be_focused()

    for at, each in enumerate((page, other)):
        if at == 0:
            each.reload()
        each.bring_to_front()
        expect(each.locator("html")).to_have_attribute("data-theme", "dark")
        expect(each.locator("html")).to_have_css("font-size", "18px")
        expect(each.get_by_role("button", name="Model: other")).to_be_visible()
        field = message_field(each)
        field.press("Control+k")
        expect(field).to_be_focused()
        field.fill("One")
        field.press("Enter")
        field.press_sequentially("Two")
        expect(field).to_have_value("One\nTwo")
        field.press("Control+Enter")
        expect(each.locator("[data-turn]")).to_have_count(1)
        each.goto(person.server.url + "#new")
    assert [each["title"] for each in person.chats()] == ["One Two"] * 2


@long_only
def test_settings_export_import_and_delete_all_chats(person: Person, profile: Profile) -> None:
    chat = str(person.run_turn("Dinner")["chat"]["id"])
    archived = str(person.run_turn("Breakfast")["chat"]["id"])
    person.fetch("PATCH", f"/api/chats/{archived}", {"archived": True})
    context = profile(person)
    page, other = context.new_page(), context.new_page()
    for each in (page, other):
        each.goto(person.server.url)
        expect(chat_line(each, "Dinner")).to_be_visible()
    page.bring_to_front()
    page.get_by_role("button", name="Settings").press("Enter")
    dialog = page.get_by_role("dialog", name="Settings")
    status = dialog.get_by_role("status")
    with page.expect_download() as saved:
        dialog.get_by_role("button", name="Export").press("Enter")
    assert saved.value.suggested_filename == "chats.jsonl"
    exported = saved.value.path().read_bytes()
    expect(status).to_have_text("Exported all chats.")

    # Two steps; the first can be taken back.
    dialog.get_by_role("button", name="Delete all").press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("Delete 2 chats, including archived ones?")
    expect(dialog.get_by_role("button", name="Keep chats")).to_be_focused()
    expect_sound(page, dialog)
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_have_count(0)
    page.reload()
    expect(chat_line(page, "Dinner")).to_be_visible()
    page.get_by_role("button", name="Settings").press("Enter")
    dialog.get_by_role("button", name="Delete all").press("Enter")
    expect(dialog.get_by_role("button", name="Keep chats")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(status).to_have_text("Deleted 2 chats.")
    for each in (page, other):
        expect(chat_line(each, "Dinner")).to_have_count(0)
    assert person.fetch("GET", "/api/chats?archived=any")["data"] == []

    # The import reports what it did not take, too: chats that can be restored, and invalid lines.
    content = exported + b'{"kind": "nonsense"}\n'
    import_file(page, content)
    expect(status).to_have_text("No chats were imported.")
    expect(dialog.get_by_role("listitem").filter(has_text="2 chats not imported")).to_be_visible()
    for id in (chat, archived):
        person.fetch("DELETE", f"/api/chats/{id}?purge=true")
    import_file(page, content)
    expect(status).to_have_text("Imported 2 chats.")
    expect(dialog.get_by_role("listitem").filter(has_text="1 refused")).to_be_visible()
    dialog.get_by_text("Details").click()
    expect(dialog.get_by_role("listitem").filter(has_text="Line 5: ")).to_be_visible()
    expect_sound(page, dialog)
    for each in (page, other):
        expect(chat_line(each, "Dinner")).to_be_visible()
    assert len(person.fetch("GET", "/api/chats?archived=any")["data"]) == 2


@long_only
def test_settings_offer_a_token_that_only_reads_only_what_it_may(person: Person, profile: Profile) -> None:
    make_chats(person, ["Dinner"])
    page = profile(person.server.person(scopes=("chats:read",), owner=person.owner)).new_page()
    page.goto(person.server.url)
    page.get_by_role("button", name="Settings").click()
    dialog = page.get_by_role("dialog", name="Settings")
    expect(dialog.get_by_role("button", name="Export")).to_be_visible()
    for name in ("Import", "Delete all"):
        expect(dialog.get_by_role("button", name=name)).to_have_count(0)
    expect(dialog.get_by_role("combobox", name="Model for new chats")).to_have_count(0)


def test_dialog_opened_right_after_another_was_closed_stays_open(person: Person, profile: Profile) -> None:
    page = profile(person).new_page()
    page.goto(person.server.url)
    button, dialog = (page.get_by_role(role, name="Settings") for role in ("button", "dialog"))
    button.press("Enter")
    expect(dialog.get_by_role("combobox", name="Theme")).to_be_visible()
    # Both before the browser reports that the first one was closed.
    button.evaluate("""it => { document.querySelector("dialog").close(); it.click(); }""")
    expect(dialog).to_have_attribute("aria-busy", "false")
    page.keyboard.press("Tab")
    expect(dialog.get_by_role("combobox", name="Language")).to_be_focused()


def test_keys_pressed_while_a_dialog_is_loaded_do_not_reach_the_page_behind(
    person: Person, profile: Profile
) -> None:
    page = profile(person).new_page()
    held: list[Route] = []
    page.route("**/assets/settings-dialog-*", lambda route: held.append(route))
    page.goto(person.server.url)
    button, dialog = (page.get_by_role(role, name="Settings") for role in ("button", "dialog"))
    with page.expect_request("**/assets/settings-dialog-*"):
        button.press("Enter")
    page.keyboard.press("/")
    page.keyboard.press("ControlOrMeta+j")
    page.keyboard.type("a")
    expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()
    held[0].continue_()
    button.press("Enter")
    expect(dialog.get_by_role("combobox", name="Theme")).to_be_visible()
    expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    expect(page.get_by_role("searchbox")).to_have_value("")
    expect(message_field(page)).to_have_value("")


def test_dialog_that_cannot_be_loaded_leaves_a_notice_that_opens_it_later(
    person: Person, profile: Profile
) -> None:
    page = profile(person).new_page()
    page.route("**/assets/settings-dialog-*", lambda route: route.abort("internetdisconnected"))
    page.goto(person.server.url)
    page.get_by_role("button", name="Settings").press("Enter")
    failed = notice(page, "This dialog could not be loaded. Check your connection.")
    expect(failed).to_be_visible()
    again, dialog = page.get_by_role("button", name="Try again"), page.get_by_role("dialog", name="Settings")
    again.press("Enter")
    expect(failed).to_have_count(1)
    expect(dialog).to_have_count(0)
    page.unroute_all(behavior="wait")
    again.press("Enter")
    expect(dialog).to_be_visible()
    expect(failed).to_have_count(0)


def test_dialog_opened_again_right_after_it_could_not_be_loaded_stays_open(
    person: Person, profile: Profile
) -> None:
    page = profile(person).new_page()
    lost: list[Route] = []

    def lose_first(route: Route) -> None:
        lost.append(route)
        if len(lost) == 1:
            route.abort("internetdisconnected")
        else:
            route.continue_()

    page.route("**/assets/settings-dialog-*", lose_first)
    page.goto(person.server.url)
    # Before the browser reports that the dialog was closed.
    page.evaluate(
        """() => new MutationObserver((_, watch) => {
            const buttons = [...document.querySelectorAll("button")];
            const again = buttons.find((each) => each.innerText === "Try again");
            if (!again) return;
            watch.disconnect();
            again.click();
        }).observe(document.body, {childList: true, subtree: true})"""
    )
    page.get_by_role("button", name="Settings").press("Enter")
    expect(page.get_by_role("dialog", name="Settings").get_by_role("combobox", name="Theme")).to_be_visible()
