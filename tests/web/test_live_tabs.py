"""What is done in one tab, or on another machine, is seen in all of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from playwright.sync_api import Page, Request, expect

from tests.web.chats import choose, line, listed, make_chats, scroll_to, titles
from tests.web.house import House, Person, Profile
from turnledger import Ledger
from turnledger.testing.gates import Gate


def _tabs(person: Person, profile: Profile, count: int = 2) -> list[Page]:
    """Tabs of one browser, and last the page in another browser."""
    context = profile(person)
    pages = [*(context.new_page() for _ in range(count)), profile(person).new_page()]
    for page in pages:
        page.goto(person.house.url)
        expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    return pages


def test_renaming_pinning_archiving_and_deleting_are_seen_everywhere(
    person: Person, profile: Profile
) -> None:
    make_chats(person, ["One", "Other"])
    first, *others = _tabs(person, profile)
    asked: list[Request] = []
    for page in others:
        page.on("request", lambda request: asked.append(request))
        expect(listed(page)).to_have_count(2)
    link = line(first, "One").get_by_role("link")
    link.focus()
    first.keyboard.press("F2")
    first.get_by_role("textbox", name="Name of the chat").fill("Renamed")
    first.keyboard.press("Enter")
    for page in others:
        expect(line(page, "Renamed")).to_be_visible()
    choose(first, "Other", "Pin")
    for page in others:
        expect(line(page, "Other")).to_have_attribute("aria-posinset", "1")
        assert titles(page) == ["Other", "Renamed"]
    choose(first, "Other", "Archive")
    for page in others:
        expect(line(page, "Other")).to_have_count(0)
    line(first, "Renamed").hover()
    first.get_by_role("button", name="Delete “Renamed”").click()
    first.get_by_role("button", name="Delete “Renamed”? Press again").click()
    for page in others:
        expect(line(page, "Renamed")).to_have_count(0)
    # All of that was told by the changes themselves.
    assert [request.url for request in asked if request.url.endswith("?limit=1")] == []
    first.get_by_role("button", name="Undo").last.click()
    for page in others:
        expect(line(page, "Renamed")).to_be_visible()


def test_a_chat_that_runs_says_so_and_then_that_there_is_an_answer(person: Person, profile: Profile) -> None:
    make_chats(person, ["Last", "Runs elsewhere"])
    chat = person.chats()[1]["id"]
    gate = Gate()
    first, second, elsewhere = _tabs(person, profile)
    person.house.model.says("Half", gate, " and whole.")
    elsewhere.goto(f"{person.house.url}/#{chat}")
    elsewhere.get_by_role("textbox", name="Message").fill("Go")
    elsewhere.keyboard.press("Enter")
    for page in (first, second):
        expect(line(page, "Runs elsewhere").get_by_label("Answering:")).to_be_visible()
    second.reload()
    expect(line(second, "Runs elsewhere").get_by_label("Answering:")).to_be_visible()
    person.house.model.release(gate)
    for page in (first, second):
        expect(line(page, "Runs elsewhere").get_by_label("New answer:")).to_be_visible()
        expect(line(page, "Runs elsewhere")).to_have_attribute("aria-posinset", "1")
    line(first, "Runs elsewhere").get_by_role("link").click()
    expect(line(first, "Runs elsewhere").get_by_label("New answer:")).to_have_count(0)


def test_after_a_gap_everything_is_read_anew_and_nothing_flickers_or_moves(
    house: House, person: Person, profile: Profile
) -> None:
    ids = make_chats(person, [f"Chat number {at}" for at in range(150)])
    context = profile(person)
    pages = [context.new_page(), context.new_page()]
    for page in pages:
        page.goto(house.url)
        expect(line(page, "Chat number 0")).to_be_visible()
        scroll_to(page, "Chat number 85")
        expect(line(page, "Chat number 68")).to_be_in_viewport()
        page.evaluate(WATCH)
    before = [line(page, "Chat number 68").bounding_box() for page in pages]

    async def change(ledger: Ledger) -> None:
        chat = await ledger.conversation(ids[69], owner=person.owner)
        await chat.update(title="Renamed meanwhile")
        await (await ledger.conversation(ids[70], owner=person.owner)).delete()

    with house.away():
        house.on_ledger(change)
        for page in pages:
            expect(page.locator(".banner", has_text="No connection")).to_be_visible()
        with closing(sqlite3.connect(house.serving.folder / "served.db")) as store, store:
            store.execute("DELETE FROM change")  # as after a long time
    for page, place in zip(pages, before, strict=True):
        expect(line(page, "Renamed meanwhile")).to_be_visible()
        expect(line(page, "Chat number 70")).to_have_count(0)
        expect(page.locator(".banner", has_text="No connection")).to_have_count(0)
        assert line(page, "Chat number 68").bounding_box() == place
        assert page.evaluate("window.fewest") > 20


WATCH = """() => {
  window.fewest = Infinity;
  const count = () => document.querySelectorAll(".lines li").length;
  new MutationObserver(() => { window.fewest = Math.min(window.fewest, count()) })
    .observe(document.querySelector(".lines"), { childList: true, subtree: true, attributes: true });
}"""
"""Have the page count the lines that are there, whenever they change."""
