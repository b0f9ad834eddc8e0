"""Everybody can use the page: axe finds nothing wrong in any of its states, and no mouse is needed."""

from __future__ import annotations

from typing import Literal

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from tests.web.axe import violations
from tests.web.house import House, Person, Profile
from tests.web.scenes import SCENES, WITH_DEMO, staged
from turnledger.testing.gates import Gate

SIZES = {"desktop": ViewportSize(width=1280, height=800), "phone": ViewportSize(width=390, height=844)}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
NOT_ON_PHONES = {"shortcuts"}
"""There are no keys to learn of."""
OTHERWISE_ON_PHONES = {"chats", "search", "menu", "rename", "deleted"}
"""The list is reached another way there, and goes when the window gets narrow."""


@pytest.mark.parametrize("name", SCENES)
def test_nothing_is_wrong_in_any_state(
    name: str, house: House, profile: Profile, request: pytest.FixtureRequest
) -> None:
    person = (request.getfixturevalue("demo") if name in WITH_DEMO else house).person()
    with staged(name, profile(person, viewport=SIZES["desktop"]).new_page(), person) as scene:
        assert wrong(scene.page) == {}
        if name not in NOT_ON_PHONES | OTHERWISE_ON_PHONES:
            scene.page.set_viewport_size(SIZES["phone"])
            expect(scene.page.get_by_role("navigation", name="Chats")).to_have_count(0)
            assert wrong(scene.page) == {}


@pytest.mark.parametrize("name", sorted(OTHERWISE_ON_PHONES))
def test_nothing_is_wrong_in_the_list_on_a_phone(name: str, person: Person, profile: Profile) -> None:
    with staged(name, profile(person, viewport=SIZES["phone"]).new_page(), person) as scene:
        assert wrong(scene.page) == {}


def wrong(page: Page) -> dict[str, list[str]]:
    """What is wrong in the page, in each theme in which something is."""
    found = {}
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        found[theme] = violations(page)
    return {theme: each for theme, each in found.items() if each}


def reach(page: Page, target: Locator, key: str = "Tab") -> None:
    """Press a key until this has the focus."""
    for _ in range(60):
        page.keyboard.press(key)
        if target.count() == 1 and target.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError(f"{target} is not reached with {key}")


def test_everything_is_done_without_a_mouse(tab: Page, person: Person) -> None:
    model, keys, log = person.house.model, tab.keyboard, tab.get_by_role("log")
    turns = tab.locator("[data-turn]")

    # Sending: who opens the page can write at once.
    expect(tab.get_by_role("textbox", name="Message")).to_be_focused()
    model.says("An answer to the first.")
    keys.type("The first")
    keys.press("Enter")
    expect(turns).to_have_count(1)

    # Stopping, and what there is of it is kept.
    gate = Gate()
    model.says("As far as this", gate, " and further.")
    keys.type("The second")
    keys.press("Enter")
    expect(log).to_contain_text("As far as this")
    keys.press("Escape")
    expect(tab.locator("[data-kind=interrupted]")).to_have_count(1)
    model.release(gate)

    # Editing, on a branch of its own, and back to the former one.
    model.says("An answer to the other.")
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

    # Renaming.
    keys.press("ControlOrMeta+K")
    expect(tab.get_by_role("searchbox")).to_be_focused()
    chats = tab.get_by_role("navigation", name="Chats")
    expect(chats.get_by_role("link", name="The first")).to_be_visible()
    keys.press("ArrowDown")
    expect(chats.get_by_role("link", name="The first")).to_be_focused()
    keys.press("F2")
    expect(tab.get_by_role("textbox", name="Name of the chat")).to_be_focused()
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
    reach(tab, tab.get_by_role("button", name="Undo"))
    with tab.expect_response("**/restore"):
        keys.press("Enter")
    expect(line).to_be_visible()
    assert [each["title"] for each in person.chats()] == ["Renamed"]


def test_what_happens_is_said_in_one_place(tab: Page, person: Person) -> None:
    """To those who do not see it: words at the edge of the page, what begins, and what is complete."""
    person.house.model.says("An answer.")
    tab.get_by_role("textbox", name="Message").fill("A question")
    tab.keyboard.press("Enter")
    spoken = tab.locator(".page > [role=status]")
    expect(spoken).to_contain_text("The answer is complete.")
    assert spoken.get_attribute("aria-atomic") == "false"
    log = tab.get_by_role("log")
    assert log.get_attribute("aria-live") == "off"


def test_the_first_key_leads_past_the_list(tab: Page, person: Person) -> None:
    tab.evaluate("document.activeElement.blur()")
    skip = tab.get_by_role("button", name="Skip to the chat")
    reach(tab, skip)
    expect(skip).to_be_in_viewport()
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("main")).to_be_focused()
    landmarks = {role: tab.get_by_role(role).count() for role in ("main", "navigation", "search")}  # type: ignore[arg-type]
    assert landmarks == {"main": 1, "navigation": 1, "search": 1}
    assert tab.get_by_role("heading", level=1).count() == 1
