"""The page embedded in another origin: with and without storage, and in a sandbox without dialogs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, BrowserContext, Frame, FrameLocator, Page, expect

from tests.browser.chromium import installed
from tests.long_form import long_only
from tests.web.page_server import PATIENCE, PageServer, Person, Profile
from tests.web.sign_in import create_link, sign_in, sign_out, visit_note
from tests.web.thread import message_field

BARE = "allow-scripts allow-same-origin allow-downloads"
"""What a frame needs for the page to work: no forms, dialogs or windows. It saves files where it may."""
NO_DIALOGS = """
    for (const name of ["alert", "confirm", "prompt"]) window[name] = () => { throw new Error(name); };
    HTMLDialogElement.prototype.showModal = () => { throw new Error("showModal"); };
"""


@pytest.fixture(scope="module")
def denying(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """A browser that gives no storage, and no locks, to frames of other sites."""
    folder = tmp_path_factory.mktemp("denying")
    (folder / "Default").mkdir()
    wanted = {"profile": {"block_third_party_cookies": True, "cookie_controls_mode": 1}}
    (folder / "Default" / "Preferences").write_text(json.dumps(wanted))
    context = browser.browser_type.launch_persistent_context(
        folder, executable_path=installed(), chromium_sandbox=False, args=["--disable-dev-shm-usage"]
    )
    context.set_default_timeout(PATIENCE * 1000)
    wrong: list[str] = []
    context.on("weberror", lambda error: wrong.append(str(error.error)))
    yield context
    context.close()
    assert wrong == []


def embedded(
    context: BrowserContext, operator: str, url: str, **attributes: str
) -> tuple[Page, FrameLocator]:
    """A page of the operator's with the chat page in it, and that."""
    page = context.new_page()
    markup = " ".join(f'{name}="{value}"' for name, value in attributes.items())
    html = f'<!doctype html><title>Shop</title><input id=own autofocus><iframe src="{url}" {markup}></iframe>'
    page.goto(f"{operator}/?html={quote(html)}")
    return page, page.frame_locator("iframe")


@long_only
def test_embedding_page_sets_colours_and_corner_radius_by_variables(
    operator: str, person: Person, profile: Profile
) -> None:
    query = "?embed=1&theme=light&--accent=rgb(102%2C51%2C153)&--paper=ivory&--radius=0px&--ink=url(x)"
    _, within = embedded(profile(), operator, person.server.url + query)
    sign_in(within, person)
    message_field(within).fill("Hello")
    send = within.get_by_role("button", name="Send", exact=True)
    of = "(element, name) => getComputedStyle(element)[name]"
    expect(send).to_have_css("background-color", "rgb(102, 51, 153)")
    assert within.locator("body").evaluate(of, "backgroundColor") == "rgb(255, 255, 240)"
    assert within.locator("body").evaluate(of, "color") == "rgb(27, 29, 34)"
    assert within.locator(".composer-box").evaluate(of, "borderTopLeftRadius") == "0px"


def inner(page: Page) -> Frame:
    return page.frames[1]


def test_embedded_page_signs_in_and_chats_without_taking_the_focus(
    page_server: PageServer, operator: str, person: Person, profile: Profile
) -> None:
    page, within = embedded(profile(), operator, page_server.url)
    expect(within.get_by_label("Token")).to_be_visible()
    expect(page.locator("#own")).to_be_focused()  # the frame does not take the focus from the operator's page
    sign_in(within, person)
    message_field(within).fill("From within")
    message_field(within).press("Enter")
    expect(within.locator("[data-turn]")).to_have_count(1)
    page.reload()
    expect(within.get_by_role("log").get_by_text("From within")).to_be_visible()
    assert person.token not in page.content() + page.url
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("From within", "Well.")]


@long_only
def test_embedded_page_without_storage_works_until_it_is_reloaded(
    page_server: PageServer, operator: str, person: Person, denying: BrowserContext
) -> None:
    page, within = embedded(denying, operator, page_server.url, width="1000", height="700")
    expect(within.get_by_label("Token")).to_be_visible()
    result = inner(page).evaluate(
        "() => { try { return localStorage.length } catch (problem) { return problem.name } }"
    )
    assert result == "SecurityError"
    sign_in(within, person)
    for number, text in enumerate(("First", "Second"), 1):
        message_field(within).fill(text)
        message_field(within).press("Enter")
        expect(within.locator("[data-turn]")).to_have_count(number)
    # What others do is seen here, too.
    person.run_turn("From elsewhere")
    expect(within.get_by_role("navigation").get_by_text("From elsewhere")).to_be_visible()
    sign_out(within)
    sign_in(within, person)
    page.reload()
    expect(within.get_by_label("Token")).to_be_visible()


@pytest.mark.parametrize("storage", ["its own", "none"])
def test_embedded_share_link_admits_a_guest_with_and_without_storage(
    storage: str,
    page_server: PageServer,
    operator: str,
    person: Person,
    profile: Profile,
    request: pytest.FixtureRequest,
) -> None:
    context = profile() if storage == "its own" else request.getfixturevalue("denying")
    link = create_link(person, scope="shop", name="The shop")
    page, within = embedded(context, operator, link["url"])
    expect(visit_note(within)).to_contain_text("a guest of The shop")
    assert link["code"] not in inner(page).evaluate("location.href")
    message_field(within).fill("Where is my order?")
    message_field(within).press("Enter")
    expect(within.locator("[data-turn]")).to_have_count(1)


@long_only
def test_embedded_page_in_a_bare_sandbox_works_without_dialogs_forms_and_windows(
    page_server: PageServer, operator: str, person: Person, profile: Profile
) -> None:
    context = profile()
    context.add_init_script(NO_DIALOGS)
    opened: list[str] = []
    context.on("dialog", lambda dialog: (opened.append(dialog.message), dialog.dismiss()))
    person.run_turn("To be deleted")
    page, within = embedded(context, operator, page_server.url, sandbox=BARE, width="1000", height="700")
    within.get_by_label("Token").fill(person.token)
    within.get_by_label("Token").press("Enter")
    chats = within.get_by_role("navigation", name="Chats")
    expect(chats.get_by_role("link", name="To be deleted")).to_be_visible()

    message_field(within).fill("To be renamed")
    within.get_by_role("button", name="Send").click()
    expect(within.locator("[data-turn]")).to_have_count(1)

    chats.get_by_role("link", name="To be renamed").hover()
    chats.get_by_role("button", name="Options for “To be renamed”").click()
    within.get_by_role("menuitem", name="Rename").click()
    name = chats.get_by_role("textbox", name="Name")
    name.fill("Renamed")
    name.press("Enter")
    expect(chats.get_by_role("link", name="Renamed")).to_be_visible()

    chats.get_by_role("link", name="To be deleted").hover()
    chats.get_by_role("button", name="Options for “To be deleted”").click()
    within.get_by_role("menuitem", name="Delete").click()
    within.get_by_role("menuitem", name="Delete?").click()
    expect(chats.get_by_role("link", name="To be deleted")).to_have_count(0)
    within.get_by_role("button", name="Undo").click()
    expect(chats.get_by_role("link", name="To be deleted")).to_be_visible()

    within.get_by_role("button", name="Chat options").click()
    with page.expect_download() as saved:
        within.get_by_role("menuitem", name="Save as Markdown").click()
    assert "To be renamed" in Path(saved.value.path()).read_text()
    sign_out(within)
    assert opened == []


def test_embedded_page_hides_the_chat_list_until_requested(
    page_server: PageServer, operator: str, person: Person, profile: Profile
) -> None:
    person.run_turn("Something to find")
    _, within = embedded(profile(), operator, f"{page_server.url}/?embed=1", width="1000", height="600")
    sign_in(within, person)
    row = within.get_by_role("link", name="Something to find")
    expect(row).to_be_hidden()
    within.get_by_role("button", name="Show chats").click()
    expect(row).to_be_visible()
