"""Experiments for new users of the demo model: a failed turn, a kept stop, two tabs."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.long_form import long_only
from tests.web.conftest import OPERATOR
from tests.web.page_server import PageServer, Person, Profile
from tests.web.thread import answers, messages

VANISH, STOP, TABS = "See a failed turn vanish", "Stop an answer and keep it", "Keep two tabs in sync"


@pytest.fixture
def newcomer(demo: PageServer) -> Person:
    return demo.person()


@pytest.fixture
def page(newcomer: Person, profile: Profile) -> Page:
    page = profile(newcomer).new_page()
    page.goto(newcomer.server.url)
    return page


def begin(page: Page, name: str) -> None:
    """Begin an experiment, from wherever it is offered."""
    page.get_by_role("button", name=name).click()


def expect_instruction(page: Page, words: str) -> None:
    """Expect the text in the panel, and in a status for screen readers."""
    expect(page.get_by_role("complementary", name="Experiments")).to_contain_text(words)
    expect(page.get_by_role("status").filter(has_text=words)).to_have_count(1)


def test_stop_experiment_keeps_the_partial_answer(page: Page, newcomer: Person) -> None:
    begin(page, STOP)
    expect_instruction(page, "Press Stop")
    expect(page.get_by_role("log")).to_contain_text("You said")
    page.get_by_role("main").get_by_role("button", name="Stop", exact=True).click()
    expect_instruction(page, "its text so far is in the history")
    [chat] = newcomer.chats()
    [(question, answered)] = newcomer.turns(chat["id"])
    assert question.startswith("/slow ")
    assert answered.startswith("You said")
    assert not answered.endswith(".")


@long_only
def test_tabs_experiment_shows_the_same_turns_in_both_tabs(page: Page, newcomer: Person) -> None:
    begin(page, TABS)
    expect_instruction(page, "Open this chat in a second tab")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Open a second tab").click()
    second = opened.value
    expect_instruction(second, "This is the second tab")
    assert second.evaluate("window.opener") is None
    second.get_by_role("textbox", name="Message").fill("Over there")
    second.keyboard.press("Enter")
    expect_instruction(page, "came from the other tab")
    for each in (page, second):
        expect(each.locator("[data-turn]")).to_have_count(2)
    assert messages(page).all_inner_texts() == messages(second).all_inner_texts()
    assert answers(page).all_inner_texts() == answers(second).all_inner_texts()


@long_only
def test_failure_experiment_leaves_no_turn_and_is_marked_as_tried_until_closed(
    page: Page, newcomer: Person
) -> None:
    begin(page, VANISH)
    expect_instruction(page, "the turn never happened")
    expect(page.get_by_role("textbox", name="Message")).to_have_value("")
    expect(page.locator("[data-failed]")).to_contain_text("/slow /fail after 5")
    expect(page.locator("[data-turn]")).to_have_count(0)
    [chat] = newcomer.chats()
    assert newcomer.turns(chat["id"]) == []
    page.reload()
    # The turn is gone, and so the chat is empty: the experiments are large in it.
    tried = page.get_by_role("button", name=f"Tried: {VANISH}")
    expect(tried).to_be_visible()
    begin(page, STOP)
    expect_instruction(page, "Press Stop")
    page.get_by_role("button", name="Close experiments").click()
    page.get_by_role("main").get_by_role("button", name="Stop", exact=True).click()
    page.reload()
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    expect(page.get_by_role("button", name=STOP)).to_have_count(0)


@long_only
def test_experiments_disappear_after_the_first_chat(page: Page) -> None:
    expect(page.get_by_role("button", name=VANISH)).to_be_visible()
    page.get_by_role("textbox", name="Message").fill("Just talking")
    page.keyboard.press("Enter")
    expect(page.locator("[data-turn]")).to_have_count(1)
    expect(page.get_by_role("button", name=VANISH)).to_have_count(0)
    page.get_by_role("button", name="New chat").click()
    expect(page.get_by_text("What would you like to talk about?")).to_be_visible()
    expect(page.get_by_role("button", name=VANISH)).to_have_count(0)


@long_only
def test_experiments_are_not_offered_without_the_demo_model(tab: Page) -> None:
    expect(tab.get_by_text("What would you like to talk about?")).to_be_visible()
    expect(tab.get_by_role("button", name=VANISH)).to_have_count(0)


@long_only
def test_tabs_experiment_in_a_frame_without_popups_offers_the_address(
    newcomer: Person, profile: Profile
) -> None:
    context = profile()
    frame = f'<iframe sandbox="allow-scripts allow-same-origin" src="{newcomer.server.url}/?embed=1">'
    context.route(f"{OPERATOR}/**", lambda route: route.fulfill(body=frame, content_type="text/html"))
    page = context.new_page()
    page.goto(OPERATOR)
    inside = page.frame_locator("iframe")
    inside.get_by_label("Token").fill(newcomer.token)
    inside.get_by_role("button", name="Sign in").click()
    inside.get_by_role("button", name=TABS).click()
    expect(inside.get_by_text("If nothing opens")).to_be_visible()
    expect(inside.get_by_role("button", name="Copy address")).to_be_visible()
