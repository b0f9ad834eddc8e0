"""Appearance: both themes, any window size, both directions, print, motion and focus."""

from __future__ import annotations

import re
from typing import Any, Literal

from playwright.sync_api import Browser, Page, Route, ViewportSize, expect

from tests.long_form import long_only
from tests.web.page_server import Person, Profile
from tests.web.thread import open_chat
from turnledger.testing.gates import Gate

SIZES = [(320, 568), (390, 844), (844, 390), (768, 1024), (1280, 800), (3840, 2160)]
FORCED_COLOURS: tuple[Literal["none", "active"], ...] = ("none", "active")
WORD = "Donaudampfschifffahrtselektrizitäten" * 30
RTL = "مرحبا بالعالم، هذا نص يكتب من اليمين"
HOSTILE = f"""\
{WORD}

`{WORD}`

```
{WORD} and a line of code that never ends {WORD}
```

| {WORD} | b | c | d | e | f | g | h | i | j | k | l |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| 1 | {WORD} | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 | 11 | 12 |

> {WORD}

- {WORD}
  - {WORD}
    1. https://far.example/{WORD}

# {WORD}
"""

FOCUSED = """() => {
  const here = document.activeElement;
  const isRinged = (element) => {
    const { outlineStyle, outlineWidth } = getComputedStyle(element);
    return outlineStyle !== "none" && parseFloat(outlineWidth) >= 1;
  };
  const around = here.closest(".composer-box, .search") ?? here;
  const name = here.tagName + (here.getAttribute("aria-label") ?? here.textContent);
  return [name, isRinged(here) || isRinged(around)];
}"""
"""What has the focus, and whether it shows."""

MOVING = """async button => {
  button.click();
  const seen = [];
  for (let frame = 0; frame < 3; frame += 1) {
    await new Promise(requestAnimationFrame);
    for (const each of document.getAnimations())
      if (each.playState === "running" && each.effect.getComputedTiming().activeDuration > 20)
        seen.push(`${each.animationName ?? each.transitionProperty} of ${each.effect.target.className}`);
  }
  return seen;
}"""
"""Press the button; return what moves."""


def opened(
    profile: Profile, person: Person, width: int = 1280, height: int = 800, at: str = "", **more: Any
) -> Page:
    page = profile(person, viewport=ViewportSize(width=width, height=height), **more).new_page()
    page.goto(f"{person.server.url}/{at}")
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    return page


def hostile_chat(person: Person) -> str:
    person.server.model.add_script(HOSTILE)
    chat = person.run_turn(f"{WORD} {RTL}")["chat"]["id"]
    person.fetch("PATCH", f"/api/chats/{chat}", {"title": WORD[:500]})
    return str(chat)


def sideways(page: Page) -> dict[str, int]:
    """How far one could scroll sideways in what must not move so."""
    found: dict[str, int] = page.evaluate(
        """() => Object.fromEntries(["html", "body", ".page", "main", ".thread", ".side"]
          .map((each) => [each, document.querySelector(each)])
          .filter(([, element]) => element && element.getClientRects().length)
          .map(([each, element]) => [each, element.scrollWidth - element.clientWidth]))"""
    )
    return {name: by for name, by in found.items() if by > 0}


def paper(page: Page) -> tuple[int, int, int]:
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
    return red, green, blue


def is_dark(page: Page) -> bool:
    return sum(paper(page)) < 200


def test_theme_follows_the_system_until_one_is_chosen(person: Person, profile: Profile) -> None:
    page = opened(profile, person, color_scheme="dark")
    assert is_dark(page)
    page.get_by_role("button", name="Theme").click()
    page.get_by_role("menuitemradio", name="Light").click()
    assert not is_dark(page)
    page.reload()
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    assert not is_dark(page)
    page.get_by_role("button", name="Theme").click()
    expect(page.get_by_role("menuitemradio", name="Light")).to_be_checked()
    page.get_by_role("menuitemradio", name="System").click()
    assert is_dark(page)
    # The address can set the theme, too.
    for theme in ("light", "dark"):
        page.goto(f"{person.server.url}/?theme={theme}")
        expect(page.get_by_role("textbox", name="Message")).to_be_visible()
        assert is_dark(page) is (theme == "dark")
        page.emulate_media(color_scheme="light")


CONTRAST = """([one, other]) => {
  const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const [dark, light] = [one, other].map((element) => {
    context.fillStyle = getComputedStyle(element).backgroundColor;
    context.fillRect(0, 0, 1, 1);
    const [red, green, blue] = [...context.getImageData(0, 0, 1, 1).data].map((each) => (each / 255) ** 2.2);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
  }).sort((a, b) => a - b);
  return light / dark;
}"""
"""Of the backgrounds of two elements."""


def test_pointed_entry_of_a_menu_stands_out_in_each_theme(person: Person, profile: Profile) -> None:
    page = opened(profile, person)
    page.get_by_role("button", name="More chats").click()
    entry = page.get_by_role("menuitem", name="Select chats")
    entry.hover()
    pair = [page.get_by_role("menu").element_handle(), entry.element_handle()]
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        assert page.evaluate(CONTRAST, pair) > 1.1, theme


@long_only
def test_layout_has_no_horizontal_overflow_at_any_size_and_direction(
    person: Person, profile: Profile
) -> None:
    page = profile(person).new_page()
    chat = hostile_chat(person)
    for width, height in SIZES:
        size = f"{width} x {height}"
        page.set_viewport_size({"width": width, "height": height})
        open_chat(page, person, chat)
        expect(page.get_by_role("heading", level=1, name=WORD[:500])).to_be_visible()
        expect(page.locator("[data-turn]")).to_have_count(1)
        for direction in ("ltr", "rtl"):
            turn(page, direction)
            assert sideways(page) == {}, f"{size}, {direction}"
        if page.get_by_role("button", name="Show chats").is_visible():
            page.get_by_role("button", name="Show chats").click()
        expect(page.get_by_role("navigation", name="Chats")).to_be_visible()
        for direction in ("rtl", "ltr"):
            turn(page, direction)
            side, main = page.locator(".side").bounding_box(), page.get_by_role("main").bounding_box()
            assert side is not None
            assert main is not None
            assert sideways(page) == {}, f"{size}, {direction}, with the chats"
            is_first = side["x"] <= main["x"] + (1 if side["width"] < main["width"] else width)
            assert is_first is (direction == "ltr") or side["width"] >= width, f"{size}, {direction}"
            box = page.get_by_role("textbox", name="Message").bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= height, f"{size}, {direction}"


def turn(page: Page, direction: str) -> None:
    """Have lines run this way, and wait until what moves has come to rest."""
    page.evaluate(
        """direction => {
          document.documentElement.dir = direction;
          const side = document.querySelector(".side");
          return Promise.all(side ? side.getAnimations().map((each) => each.finished) : []);
        }""",
        direction,
    )


@long_only
def test_text_keeps_its_direction_in_short_lines_and_is_printed_whole(
    person: Person, profile: Profile
) -> None:
    person.server.model.add_script(f"{RTL}\n\n{'Many words. ' * 200}" + "\n\nA long answer." * 60)
    chat = person.run_turn(RTL)["chat"]["id"]
    page = opened(profile, person, 3840, 2160, at=f"#{chat}")
    of = "element => getComputedStyle(element).direction"
    assert page.get_by_text(RTL, exact=True).last.evaluate(of) == "rtl"
    assert page.get_by_text("Many words.").evaluate(of) == "ltr"
    box = page.get_by_text("Many words.").bounding_box()
    assert box is not None
    assert 500 <= box["width"] <= 48 * 16
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(media="print")
    expect(page.get_by_role("navigation", name="Chats")).not_to_be_visible()
    expect(page.get_by_role("textbox", name="Message")).not_to_be_visible()
    assert page.evaluate("document.documentElement.scrollHeight") > 1200


@long_only
def test_chat_drawer_opened_while_the_list_loads_stays_open(person: Person, profile: Profile) -> None:
    chat = person.run_turn("Something to find")["chat"]["id"]
    context = profile(person, viewport={"width": 390, "height": 844})
    before = context.new_page()
    before.goto(f"{person.server.url}/#{chat}")
    expect(before.locator("[data-turn]")).to_have_count(1)
    page = context.new_page()
    held: list[Route] = []
    page.route("**/api/chats?*", lambda route: route.continue_() if held else held.append(route))
    with page.expect_request("**/api/chats?*"):
        page.goto(person.server.url)
    page.get_by_role("button", name="Show chats").click()
    expect(page.get_by_role("navigation", name="Chats")).to_be_visible()
    held[0].continue_()
    # The chat that is opened first was not chosen by the user.
    expect(page.locator("main h1")).to_have_text("Something to find")
    expect(page.get_by_role("link", name="Something to find")).to_be_visible()


@long_only
def test_chat_drawer_on_a_phone_makes_the_page_behind_it_inert(person: Person, profile: Profile) -> None:
    chat = hostile_chat(person)
    page = opened(profile, person, 390, 844, at=f"#{chat}")
    expect(page.locator("[data-turn]")).to_have_count(1)
    # The keyboard of a phone leaves the field in sight.
    page.set_viewport_size({"width": 390, "height": 420})
    expect(page.get_by_role("textbox", name="Message")).to_be_in_viewport(ratio=1)
    expect(page.get_by_role("heading", level=1)).to_be_in_viewport()
    page.set_viewport_size({"width": 390, "height": 844})
    button = page.get_by_role("button", name="Show chats")
    expect(page.get_by_role("navigation", name="Chats")).to_have_count(0)
    button.click()
    expect(page.get_by_role("navigation", name="Chats")).to_be_visible()
    expect(page.locator("main")).to_have_attribute("inert", "")
    assert page.evaluate("document.querySelector('.side').contains(document.activeElement)")
    page.keyboard.press("Escape")
    expect(page.get_by_role("navigation", name="Chats")).to_have_count(0)
    expect(button).to_be_focused()
    button.click()
    page.mouse.click(380, 400)
    expect(page.locator("main")).not_to_have_attribute("inert", "")
    button.click()
    page.get_by_role("navigation", name="Chats").get_by_role("link", name=WORD[:60]).click()
    expect(page.get_by_role("navigation", name="Chats")).to_have_count(0)
    expect(page.locator("main")).not_to_have_attribute("inert", "")
    searches(page)


def searches(page: Page) -> None:
    """A search shows the list that was put away."""
    page.get_by_role("button", name="Show chats").focus()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    expect(page.get_by_role("searchbox")).to_have_value("")


@long_only
def test_hidden_chat_list_stays_hidden_after_a_reload(person: Person, profile: Profile) -> None:
    page = opened(profile, person)
    page.get_by_role("button", name="Hide chats").click()
    expect(page.get_by_role("navigation", name="Chats")).to_have_count(0)
    assert page.get_by_role("main").evaluate("main => main.clientWidth") == 1280
    expect(page.get_by_role("button", name="Show chats")).to_be_focused()
    page.reload()
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    expect(page.get_by_role("navigation", name="Chats")).to_have_count(0)
    page.get_by_role("button", name="Show chats").click()
    expect(page.get_by_role("navigation", name="Chats")).to_be_visible()
    page.get_by_role("button", name="Hide chats").click()
    searches(page)


@long_only
def test_chats_are_shown_and_hidden_by_a_button_in_one_place_with_new_chat_beside_it(
    person: Person, profile: Profile
) -> None:
    chat = person.run_turn("Something old")["chat"]["id"]
    for width in (1280, 390):
        page = opened(profile, person, width, at=f"#{chat}")
        expect(page.locator("[data-turn]")).to_have_count(1)
        if width > 832:
            page.get_by_role("button", name="Hide chats").click()
        new = page.get_by_role("main").get_by_role("button", name="New chat")
        expect(new).to_be_visible()
        shows = page.get_by_role("button", name="Show chats")
        place = shows.bounding_box()
        shows.click()
        hides = page.get_by_role("button", name="Hide chats")
        page.locator(".side").evaluate(
            "side => Promise.all(side.getAnimations().map((each) => each.finished))"
        )
        assert hides.bounding_box() == place
        expect(page.get_by_role("banner")).to_contain_text("Turnledger")
        hides.click()
        new.click()
        expect(page.locator("[data-turn]")).to_have_count(0)
        expect(page.get_by_role("textbox", name="Message")).to_be_focused()


@long_only
def test_composer_of_an_empty_chat_is_in_the_middle_and_keeps_its_focus_when_it_moves_down(
    person: Person, profile: Profile
) -> None:
    for width, height in ((1280, 800), (390, 780)):
        page = opened(profile, person, width, height)
        field = page.get_by_role("textbox", name="Message")
        expect(page.get_by_text("What would you like to talk about?")).to_be_in_viewport()
        box = field.bounding_box()
        assert box is not None
        assert 0.35 * height < box["y"] < 0.65 * height
        field.fill("A question")
        page.keyboard.press("Enter")
        expect(page.locator("[data-turn]")).to_have_count(1)
        expect(field).to_be_focused()
        box = field.bounding_box()
        assert box is not None
        assert box["y"] > 0.8 * height
        page.goto("about:blank")


@long_only
def test_answer_has_room_while_it_streams_at_400_percent_zoom(person: Person, profile: Profile) -> None:
    gate = Gate()
    person.server.model.add_script("Slowly " * 200, gate, "said.")
    page = opened(profile, person, 320, 256)
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_in_viewport(ratio=1)
    page.get_by_role("textbox", name="Message").fill("A question")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Slowly")).to_be_visible()
    page.get_by_role("textbox", name="Message").fill("Another one")
    expect(page.get_by_role("radio", name="Send next")).to_be_in_viewport()
    assert page.locator(".thread").evaluate("thread => thread.clientHeight") >= 80
    person.server.model.release(gate)


@long_only
def test_chats_can_be_selected_and_messages_edited_at_400_percent_zoom(
    person: Person, profile: Profile
) -> None:
    for name in ("Dinner", "Supper"):
        person.server.model.add_script("A long answer. " * 50)
        person.run_turn(name)
    page = opened(profile, person, 320, 256, at=f"#{person.chats()[0]['id']}")
    # Nothing covers the buttons of the form.
    page.get_by_role("button", name="Edit message").press("Enter")
    cancel = page.get_by_role("button", name="Cancel")
    expect(page.get_by_role("textbox", name="Edit message")).to_be_focused()
    expect(cancel).to_be_in_viewport(ratio=1)
    expect(page.get_by_role("button", name="Latest")).not_to_be_visible()
    cancel.click()
    page.get_by_role("button", name="Show chats").click()
    lines = page.locator(".lines")
    page.get_by_role("button", name="More chats").click()
    page.get_by_role("menuitem", name="Select chats").click()
    assert lines.evaluate("lines => lines.clientHeight") >= 100
    for name in ("Supper", "Dinner"):
        page.get_by_role("checkbox", name=name).check()
    expect(page.get_by_text("2 selected")).to_be_visible()


@long_only
def test_shared_chat_uses_the_full_width_and_can_change_its_theme(person: Person, profile: Profile) -> None:
    chat = person.run_turn("To be read")["chat"]["id"]
    link = person.fetch("POST", "/api/shares", {"chat": chat})
    page = profile(viewport=ViewportSize(width=1280, height=800)).new_page()
    page.goto(person.server.url + link["path"])
    expect(page.get_by_role("log")).to_contain_text("To be read")
    assert page.get_by_role("main").evaluate("main => main.clientWidth") == 1280
    page.get_by_role("button", name="Theme").click()
    page.get_by_role("menuitemradio", name="Dark").click()
    assert is_dark(page)


@long_only
def test_tab_title_is_the_chat_title_with_a_dot_while_a_turn_runs(tab: Page, person: Person) -> None:
    gate = Gate()
    person.server.model.add_script("Slowly ", gate, "said.")
    tab.get_by_role("textbox", name="Message").fill("A question")
    tab.keyboard.press("Enter")
    expect(tab).to_have_title(re.compile("^● "))
    person.server.model.release(gate)
    expect(tab).to_have_title("A question · Turnledger")
    [chat] = person.chats()
    person.fetch("PATCH", f"/api/chats/{chat['id']}", {"title": "Another name"})
    expect(tab).to_have_title("Another name · Turnledger")
    expect(tab.get_by_role("heading", level=1)).to_have_text("Another name")
    tab.get_by_role("button", name="New chat").click()
    expect(tab).to_have_title("Turnledger")


@long_only
def test_page_with_reduced_motion_has_no_animation(person: Person, profile: Profile) -> None:
    gate = Gate()
    person.server.model.add_script("Slowly ", gate, "said.")
    page = opened(profile, person, 390, 844, reduced_motion="reduce")
    page.get_by_role("textbox", name="Message").fill("A question")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Slowly")).to_be_visible()
    # In the frame in which it begins: later, whatever has moved may have come to its end.
    moving = page.get_by_role("button", name="Show chats").evaluate(MOVING)
    assert moving == []
    expect(page.get_by_role("navigation", name="Chats")).to_be_in_viewport()
    person.server.model.release(gate)


@long_only
def test_focused_controls_are_visibly_marked(person: Person, profile: Profile) -> None:
    person.run_turn("One")
    page = opened(profile, person)
    for colours in FORCED_COLOURS:
        page.emulate_media(forced_colors=colours)
        seen = set()
        for _ in range(30):
            page.keyboard.press("Tab")
            name, is_shown = page.evaluate(FOCUSED)
            # At the end of the page the browser's own parts have it, for a moment.
            assert is_shown or name.startswith("BODY"), name
            seen.add(name)
        assert len(seen) >= 6


def test_thread_that_crashes_leaves_the_chat_list_and_the_draft_intact(
    person: Person, browser: Browser
) -> None:
    """Neither the other parts, nor what was written."""
    chat = hostile_chat(person)
    context = browser.new_context()
    person.sign_in_on_load(context)
    page = context.new_page()
    # An answer shows a time, which throws.
    page.add_init_script(
        """Object.defineProperty(Intl.DateTimeFormat.prototype, "format", {
             get() { throw new Error("No times today."); } });"""
    )
    page.goto(f"{person.server.url}/#{chat}")
    expect(page.get_by_text("This chat could not be displayed")).to_be_visible()
    expect(page.get_by_role("button", name="Reload page")).to_be_visible()
    expect(page.get_by_role("navigation", name="Chats")).to_be_visible()
    page.get_by_role("textbox", name="Message").fill("Kept all the same")
    page.evaluate("dispatchEvent(new Event('pagehide'))")
    page.close()
    page = context.new_page()
    page.goto(f"{person.server.url}/#{chat}")
    expect(page.locator("[data-turn]")).to_have_count(1)
    expect(page.get_by_role("textbox", name="Message")).to_have_value("Kept all the same")
    context.close()
