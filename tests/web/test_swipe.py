"""A swipe opens and closes the list of chats on phones, and leaves other gestures alone."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.web.page_server import Person, Profile
from tests.web.watched_page import WatchedPage

PHONE = {"has_touch": True, "is_mobile": True, "viewport": {"width": 390, "height": 780}}
CODE = "```\n" + "wide " * 100 + "\n```\n\n" + "A line of text.\n\n" * 60


def swipe(page: Page, start: tuple[float, float], by: tuple[float, float], fingers: int = 1) -> None:
    session = page.context.new_cdp_session(page)

    def touch(kind: str, part: float) -> None:
        x, y = start[0] + by[0] * part, start[1] + by[1] * part
        points = [{"x": x, "y": y + 60 * finger, "id": finger} for finger in range(fingers)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 0)
    for step in range(1, 9):
        touch("touchMove", step / 8)
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    session.detach()


def middle(place: Locator) -> tuple[float, float]:
    box = place.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_swipe_opens_and_closes_the_chat_list_without_taking_other_gestures(
    profile: Profile, person: Person
) -> None:
    watched = WatchedPage(lambda who: profile(who, **PHONE), person)
    page = watched.page
    shown = watched.show_texts(CODE)
    side, code = page.locator("#side"), shown.get_by_role("group", name="code")
    code.scroll_into_view_if_needed()
    expect(side).to_have_attribute("inert", "")
    # Gestures of the browser at the edge, of two fingers, of wide code, of the field, and of the thread.
    swipe(page, (5, 400), (250, 0))
    swipe(page, (60, 300), (250, 0), fingers=2)
    swipe(page, middle(code), (150, 0))  # it is at its beginning
    swipe(page, middle(code), (-120, 0))
    page.wait_for_function("code => code.scrollLeft > 0", arg=code.element_handle())
    swipe(page, middle(code), (100, 0))
    swipe(page, middle(page.get_by_role("textbox", name="Message")), (150, 0))
    swipe(page, (200, 300), (80, 300))
    swipe(page, (300, 400), (-200, 0))
    expect(side).to_have_attribute("inert", "")
    swipe(page, (60, 500), (200, 10))
    expect(side).not_to_have_attribute("inert", "")
    expect(side.get_by_role("link", name="Said 0")).to_be_visible()
    swipe(page, (200, 500), (150, 0))
    expect(side).not_to_have_attribute("inert", "")
    swipe(page, (300, 500), (-200, 10))
    expect(side).to_have_attribute("inert", "")
    expect(page.get_by_role("button", name="Show chats")).to_be_focused()
    watched.expect_unharmed()
