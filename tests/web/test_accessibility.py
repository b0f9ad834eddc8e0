"""Accessibility: no axe violation in any scene, and full use by keyboard."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from tests.long_form import IS_LONG, long_only
from tests.web.axe import violations, violations_in_each_theme
from tests.web.chats import chat_line, chat_lines, make_chats
from tests.web.page_server import PageServer, Person, Profile
from tests.web.scenes import SCENES, WITH_DEMO, staged
from tests.web.thread import message_field, open_chat
from turnledger.testing.gates import Gate

DESKTOP, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=390, height=844)
ZOOMED = ViewportSize(width=320, height=256)
"""What is left of a screen of 1280 by 1024 at 400%; at 200% no other rule of the style sheets applies."""
LIST = ("chats", "search", "menu", "rename", "deleted")
"""On phones it is reached another way, and goes when the window gets narrow."""
ON_DESKTOPS = {"shortcuts", *LIST}
"""On phones there are no keys to learn of."""
NARROW = set(SCENES) if IS_LONG else {"thread", "running"}
"""Scenes that are also looked at in small windows."""
WALKS = [
    ("empty", "shortcuts", "branches", "temporary", "sign_in"),
    ("thread", "options", "edit", "steps", "failed", "offline", "embedded", "reader"),
    ("running", "queued"),
    LIST,
    ("welcome", "vanished"),
]
"""Scenes that follow each other in one page."""
SHORT_WALKS = [
    ("empty", "branches", "sign_in"),
    ("thread", "options", "failed", "reader"),
    ("running", "queued"),
]

HOLD_FRAMES = """() => {
  const set = window.setTimeout;
  window.requestAnimationFrame = () => 0;
  window.setTimeout = (work, pause) => pause === 35 ? 0 : set(work, pause); // as long as Preact waits for one
}"""


def test_accessibility_walks_cover_every_scene() -> None:
    assert sorted(name for walk in WALKS for name in walk) == sorted(SCENES)


@pytest.mark.parametrize("walk", WALKS if IS_LONG else SHORT_WALKS, ids="-".join)
def test_page_has_no_axe_violation_in_any_scene_and_theme(
    walk: tuple[str, ...], page_server: PageServer, profile: Profile, request: pytest.FixtureRequest
) -> None:
    person = (request.getfixturevalue("demo") if WITH_DEMO & set(walk) else page_server).person()
    page = profile(person, viewport=DESKTOP).new_page()
    wrong = {}
    for name, _ in staged(page, person, walk):
        wrong[name] = violations_in_each_theme(page)
        if name in NARROW - ON_DESKTOPS:
            page.set_viewport_size(PHONE)
            expect(page.get_by_role("navigation", name="Chats")).to_have_count(0)
            wrong[f"{name} on a phone"] = violations_in_each_theme(page)
            page.set_viewport_size(ZOOMED)
            wrong[f"{name} at 400%"] = violations(page)
            page.set_viewport_size(DESKTOP)
    assert {name: found for name, found in wrong.items() if found} == {}


@long_only
def test_chat_list_on_a_phone_has_no_axe_violation(person: Person, profile: Profile) -> None:
    page = profile(person, viewport=PHONE).new_page()
    wrong = {name: violations_in_each_theme(page) for name, _ in staged(page, person, LIST)}
    assert {name: found for name, found in wrong.items() if found} == {}


def reach(page: Page, target: Locator, key: str = "Tab") -> None:
    """Press a key until this has the focus."""
    for _ in range(60):
        page.keyboard.press(key)
        if target.count() == 1 and target.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError(f"{target} is not reached with {key}")


def test_page_is_fully_usable_by_keyboard(tab: Page, person: Person) -> None:
    model, keys, log = person.server.model, tab.keyboard, tab.get_by_role("log")
    turns = tab.locator("[data-turn]")

    # Sending: the page opens with the focus on the message.
    expect(tab.get_by_role("textbox", name="Message")).to_be_focused()
    model.add_script("An answer to the first.")
    keys.type("The first")
    keys.press("Enter")
    expect(turns).to_have_count(1)

    # Stopping, and what there is of it is kept.
    gate = Gate()
    model.add_script("As far as this", gate, " and further.")
    keys.type("The second")
    keys.press("Enter")
    expect(log).to_contain_text("As far as this")
    keys.press("Escape")
    expect(tab.locator("[data-kind=interrupted]")).to_have_count(1)
    model.release(gate)

    # Editing, on a branch of its own, and back to the former one.
    model.add_script("An answer to the other.")
    reach(tab, turns.last.get_by_role("button", name="Edit message"), "Shift+Tab")
    keys.press("Enter")
    expect(tab.get_by_role("textbox", name="Edit message")).to_be_focused()
    keys.press("ControlOrMeta+A")
    keys.type("The other")
    keys.press("Enter")
    expect(log).to_contain_text("An answer to the other.")
    expect(log.get_by_role("group", name="Versions")).to_contain_text("2/2")
    keys.press("ControlOrMeta+J")
    expect(tab.get_by_role("textbox", name="Message")).to_be_focused()
    reach(tab, log.get_by_role("button", name="Previous version"), "Shift+Tab")
    keys.press("Enter")
    expect(log).to_contain_text("As far as this")
    expect(log).not_to_contain_text("The other")
    expect(log.get_by_role("button", name="Previous version")).to_be_focused()

    # Renaming.
    keys.press("ControlOrMeta+K")
    expect(tab.get_by_role("searchbox")).to_be_focused()
    chats = tab.get_by_role("navigation", name="Chats")
    expect(chats.get_by_role("link", name="The first")).to_be_visible()
    keys.press("ArrowDown")
    expect(chats.get_by_role("link", name="The first")).to_be_focused()
    keys.press("F2")
    expect(tab.get_by_role("textbox", name="Chat name")).to_be_focused()
    keys.press("ControlOrMeta+A")
    keys.type("Renamed")
    with tab.expect_response(lambda answer: answer.request.method == "PATCH"):
        keys.press("Enter")
    expect(tab.get_by_role("heading", level=1)).to_have_text("Renamed")
    line = chats.get_by_role("link", name="Renamed")
    expect(line).to_be_focused()
    [chat] = person.chats()
    assert chat["title"] == "Renamed"

    # Deleting, in two steps, and bringing it back.
    keys.press("Delete")
    expect(line).to_be_visible()
    keys.press("Delete")
    expect(line).to_have_count(0)
    expect(tab.get_by_role("button", name="Undo")).to_be_visible()
    reach(tab, tab.get_by_role("button", name="Undo"))
    with tab.expect_response("**/restore"):
        keys.press("Enter")
    expect(line).to_be_visible()
    assert [each["title"] for each in person.chats()] == ["Renamed"]


def test_focus_moves_and_shortcuts_work_before_the_next_frame(person: Person, profile: Profile) -> None:
    one, _ = make_chats(person, ["One", "Two"])
    page = profile(person).new_page()
    open_chat(page, person, one)
    expect(chat_lines(page)).to_have_count(2)
    expect(page.get_by_role("heading", name="One", level=1)).to_be_visible()
    page.evaluate(HOLD_FRAMES)

    shortcuts = page.get_by_role("button", name="Keyboard shortcuts")
    shortcuts.press("Enter")
    expect(page.get_by_role("region", name="Keyboard shortcuts")).to_be_focused()
    page.keyboard.press("Escape")
    expect(shortcuts).to_be_focused()

    page.get_by_role("button", name="Hide chats").press("Enter")
    expect(page.get_by_role("button", name="Show chats")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Hide chats")).to_be_focused()
    page.get_by_role("button", name="Hide chats").press("Enter")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()

    link = chat_line(page, "Two").get_by_role("link")
    link.press("F2")
    page.keyboard.press("End")
    page.keyboard.type(" and a half")
    page.keyboard.press("Enter")
    expect(link).to_be_focused()
    expect(link).to_have_text("Two and a half")
    page.get_by_role("button", name="More chats").press("Enter")
    page.get_by_role("menuitem", name="Select chats").press("Enter")
    expect(chat_line(page, "Two").get_by_role("checkbox")).to_be_focused()
    page.keyboard.press("Escape")
    expect(link).to_be_focused()

    page.keyboard.press("ControlOrMeta+Shift+O")
    expect(page.get_by_role("heading", name="New chat", level=1)).to_be_visible()
    shortcuts.focus()
    page.keyboard.press("ControlOrMeta+J")
    expect(message_field(page)).to_be_focused()

    page.get_by_role("button", name="Settings").press("Enter")
    page.get_by_role("button", name="Delete all").press("Enter")
    expect(page.get_by_role("button", name="Keep chats")).to_be_focused()


def test_skip_link_comes_first_and_moves_focus_to_the_chat(tab: Page, person: Person) -> None:
    expect(tab.get_by_role("textbox", name="Message")).to_be_focused()
    tab.evaluate("document.activeElement.blur()")
    skip = tab.get_by_role("button", name="Skip to chat")
    reach(tab, skip)
    expect(skip).to_be_in_viewport()
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("main")).to_be_focused()
    landmarks = {role: tab.get_by_role(role).count() for role in ("main", "navigation", "search")}  # type: ignore[arg-type]
    assert landmarks == {"main": 1, "navigation": 1, "search": 1}
    assert tab.get_by_role("heading", level=1).count() == 1
