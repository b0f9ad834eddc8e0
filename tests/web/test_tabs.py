"""Tabs, browsers and programs at the same chats show the same.

The tabs of a browser share one event stream, and miss no change when its leader ends.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from urllib import request as web

from playwright.sync_api import BrowserContext, Page, Request, Route, expect

from tests.long_form import long_only
from tests.web.chats import (
    chat_line,
    chat_lines,
    choose_from_menu,
    delete_chat,
    make_chats,
    scroll_to,
    titles,
)
from tests.web.page_server import FAST_TIMERS, PATIENCE, PageServer, Person, Profile
from tests.web.thread import answers, messages, open_second_tab, send, turns_in_history
from turnledger import Ledger
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import Status


def test_streamed_answer_is_shown_in_two_tabs_whichever_sent_the_message(tab: Page, person: Person) -> None:
    other = open_second_tab(tab, person)
    pages, model, gates = (tab, other), person.server.model, [Gate(), Gate(), Gate()]
    model.add_script("Half of ", gates[0], "it.")
    send(tab, "Tell me")
    for page in pages:
        expect(answers(page).nth(1)).to_have_text("Half of")
        expect(messages(page)).to_have_text(["Good morning", "Tell me"])
    expect(other.locator(".turn-state")).to_contain_text("Sent from another tab or device.")

    # What the second tab sends meanwhile waits in line in both.
    model.add_script("Two.")
    send(other, "Second")
    for page in pages:
        expect(page.locator(".turn-state").nth(1)).to_contain_text("Queued: next in line.")
    model.release(gates[0])
    for page in pages:
        expect(turns_in_history(page)).to_have_count(3)
        expect(messages(page)).to_have_text(["Good morning", "Tell me", "Second"])
        expect(answers(page)).to_have_text(["Hello.", "Half of it.", "Two."])

    # A turn of another program.
    model.add_script("Said ", gates[1], "elsewhere.")
    [chat] = person.chats()
    elsewhere = threading.Thread(target=_stream_turn, args=(person, "From afar", chat["id"]))
    elsewhere.start()
    try:
        expect(answers(tab).nth(3)).to_have_text("Said")
        expect(messages(tab).last).to_have_text("From afar")
    finally:
        model.release(gates[1])
        elsewhere.join()
    for page in pages:
        expect(turns_in_history(page)).to_have_count(4)
        expect(answers(page).last).to_have_text("Said elsewhere.")

    # What one tab stops is stopped in the other.
    model.add_script("As far as ", gates[2], "this.")
    send(tab, "How far?")
    expect(answers(other).nth(4)).to_have_text("As far as")
    other.get_by_role("button", name="Stop").first.click()
    for page in pages:
        expect(page.locator('[data-kind="interrupted"]')).to_contain_text("As far as")
    model.release(gates[2])


def test_edits_switches_and_failures_appear_in_the_other_tab(tab: Page, person: Person) -> None:
    other = open_second_tab(tab, person)
    pages, model = (tab, other), person.server.model
    model.add_script("Good evening.")
    turn = tab.locator("[data-turn]")
    turn.get_by_role("button", name="Edit message").click()
    tab.get_by_role("textbox", name="Edit message").fill("Good evening")
    tab.keyboard.press("Enter")
    for page in pages:
        expect(messages(page)).to_have_text(["Good evening"])
        expect(answers(page)).to_have_text(["Good evening."])
        expect(page.locator(".siblings")).to_have_text("2/2")
    model.add_script("And to you.")
    # An edit in progress survives when its turn is replaced elsewhere.
    turn.get_by_role("button", name="Edit message").click()
    tab.get_by_role("textbox", name="Edit message").fill("Good night")
    other.get_by_role("button", name="Regenerate").click()
    for page in pages:
        expect(answers(page)).to_have_text(["And to you."])
        expect(page.locator(".siblings")).to_have_text(["2/2", "2/2"])
    expect(tab.get_by_role("group", name="Unanswered message")).to_contain_text("Good night")
    tab.get_by_role("button", name="Previous version").last.click()
    expect(tab.locator(".siblings")).to_have_text(["2/2", "1/2"])
    tab.get_by_role("button", name="Previous version").first.click()
    for page in pages:
        expect(messages(page)).to_have_text(["Good morning"])
        expect(answers(page)).to_have_text(["Hello."])
        expect(page.locator(".siblings")).to_have_text(["1/2"])

    model.add_script(Status(400))
    send(tab, "What is the weather?")
    for page in pages:
        expect(page.locator("[data-failed]")).to_contain_text("The model refused this request.")
        expect(turns_in_history(page)).to_have_count(1)
    model.add_script("Fine.")
    other.locator("[data-failed]").get_by_role("button", name="Retry").click()
    for page in pages:
        expect(turns_in_history(page)).to_have_count(2)
        expect(page.locator("[data-failed]")).to_have_count(0)


def _stream_turn(person: Person, text: str, chat: str) -> None:
    """Run a turn as a program that reads the streamed answer."""
    body = json.dumps({"model": "scripted", "input": text, "chat": chat, "stream": True}).encode()
    headers = {"Authorization": f"Bearer {person.token}", "Content-Type": "application/json"}
    with web.urlopen(
        web.Request(person.server.url + "/api/turns", body, headers), timeout=PATIENCE
    ) as answer:
        answer.read()


def test_chat_changes_and_running_turns_appear_in_other_tabs_and_browsers(
    person: Person, profile: Profile
) -> None:
    """In two tabs of a browser, and in another browser."""
    make_chats(person, ["One", "Other"])
    context = profile(person)
    pages = first, second, elsewhere = context.new_page(), context.new_page(), profile(person).new_page()
    for page in pages:
        page.goto(person.server.url)
        expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    others = (second, elsewhere)
    requests: list[Request] = []
    for page in others:
        page.on("request", lambda request: requests.append(request))
        expect(chat_lines(page)).to_have_count(2)
    link = chat_line(first, "One").get_by_role("link")
    link.focus()
    first.keyboard.press("F2")
    first.get_by_role("textbox", name="Chat name").fill("Renamed")
    first.keyboard.press("Enter")
    for page in others:
        expect(chat_line(page, "Renamed")).to_be_visible()
    choose_from_menu(first, "Other", "Pin")
    for page in others:
        expect(chat_line(page, "Other")).to_have_attribute("aria-posinset", "1")
        assert titles(page) == ["Other", "Renamed"]
    choose_from_menu(first, "Other", "Archive")
    for page in others:
        expect(chat_line(page, "Other")).to_have_count(0)
    delete_chat(first, "Renamed")
    for page in others:
        expect(chat_line(page, "Renamed")).to_have_count(0)
    # The events themselves carried all of that.
    assert [request.url for request in requests if request.url.endswith("?limit=1")] == []
    # The other tabs may receive the event before this one has its answer.
    expect(first.get_by_role("button", name="Undo")).to_have_count(2)
    first.get_by_role("button", name="Undo").last.click()
    for page in others:
        expect(chat_line(page, "Renamed")).to_be_visible()

    # A running chat is marked, and then its new answer.
    [_, chat] = make_chats(person, ["Last", "Runs elsewhere"])
    gate = Gate()
    person.server.model.add_script("Half", gate, " and whole.")
    elsewhere.goto(f"{person.server.url}/#{chat}")
    elsewhere.get_by_role("textbox", name="Message").fill("Go")
    elsewhere.keyboard.press("Enter")
    for page in (first, second):
        expect(chat_line(page, "Runs elsewhere").get_by_label("Answering:")).to_be_visible()
    second.reload()
    expect(chat_line(second, "Runs elsewhere").get_by_label("Answering:")).to_be_visible()
    person.server.model.release(gate)
    for page in (first, second):
        expect(chat_line(page, "Runs elsewhere").get_by_label("New answer:")).to_be_visible()
        expect(chat_line(page, "Runs elsewhere")).to_have_attribute("aria-posinset", "1")
    chat_line(first, "Runs elsewhere").get_by_role("link").click()
    expect(chat_line(first, "Runs elsewhere").get_by_label("New answer:")).to_have_count(0)


@long_only
def test_chat_list_after_a_gap_in_the_feed_reloads_without_flicker_or_scrolling(
    page_server: PageServer, person: Person, profile: Profile
) -> None:
    ids = make_chats(person, [f"Chat number {at}" for at in range(150)])
    context = profile(person)
    pages = [context.new_page(), context.new_page()]
    for page in pages:
        page.goto(page_server.url)
        expect(chat_line(page, "Chat number 0")).to_be_visible()
        scroll_to(page, "Chat number 85")
        expect(chat_line(page, "Chat number 68")).to_be_in_viewport()
        page.evaluate(WATCH)
    before = [chat_line(page, "Chat number 68").bounding_box() for page in pages]

    async def change(ledger: Ledger) -> None:
        chat = await ledger.for_owner(person.owner).conversation(ids[69])
        await chat.update(title="Renamed meanwhile")
        await (await ledger.for_owner(person.owner).conversation(ids[70])).delete()

    with page_server.stopped():
        page_server.on_ledger(change)
        for page in pages:
            expect(page.locator(".banner", has_text="No connection")).to_be_visible()
        with closing(sqlite3.connect(page_server.process.folder / "served.db")) as store, store:
            store.execute("DELETE FROM change")  # as after a long time
    for page, place in zip(pages, before, strict=True):
        expect(chat_line(page, "Renamed meanwhile")).to_be_visible()
        expect(chat_line(page, "Chat number 70")).to_have_count(0)
        expect(page.locator(".banner", has_text="No connection")).to_have_count(0)
        assert chat_line(page, "Chat number 68").bounding_box() == place
        assert page.evaluate("window.fewest") > 20


WATCH = """() => {
  window.fewest = Infinity;
  const count = () => document.querySelectorAll(".lines li").length;
  new MutationObserver(() => { window.fewest = Math.min(window.fewest, count()) })
    .observe(document.querySelector(".lines"), { childList: true, subtree: true, attributes: true });
}"""


"""Have the page count the lines that are there, whenever they change."""


class Browser:
    """Tabs of one browser, and how many streams they read."""

    def __init__(self, person: Person, context: BrowserContext) -> None:
        self.person = person
        self.context = context
        self.pages: list[Page] = []
        self.streams: dict[Request, Page] = {}
        context.on("request", self._requested)
        context.on("requestfinished", self._ended)
        context.on("requestfailed", self._ended)

    def open(self, path: str = "") -> Page:
        page = self.context.new_page()
        page.goto(self.person.server.url + path)
        expect(page.get_by_role("textbox", name="Message")).to_be_visible()
        page.on("close", self._closed)
        self.pages.append(page)
        return page

    @property
    def leader(self) -> Page:
        [leader] = self.streams.values()
        return leader

    def check_updates(self, title: str) -> None:
        """Each tab shows a chat that is made now."""
        make_chats(self.person, [title])
        for page in self.pages:
            expect(chat_line(page, title)).to_have_count(1)

    def _requested(self, request: Request) -> None:
        if request.url.endswith("/api/events"):
            self.streams[request] = request.frame.page

    def _closed(self, page: Page) -> None:
        self.streams = {request: of for request, of in self.streams.items() if of is not page}

    def _ended(self, request: Request) -> None:
        self.streams.pop(request, None)


@long_only
def test_six_tabs_share_one_event_stream(person: Person, profile: Profile) -> None:
    """Browsers give a server six connections, for all their tabs."""
    browser = Browser(person, profile(person))
    for _ in range(6):
        browser.open()
    browser.check_updates("Heard by all")
    assert len(browser.streams) == 1
    seventh = browser.open("/#new")
    seventh.get_by_role("textbox", name="Message").fill("Is there room for me?")
    seventh.keyboard.press("Enter")
    expect(seventh.locator("[data-turn]")).to_have_count(1)
    for page in browser.pages:
        expect(chat_line(page, "Is there room for me?")).to_have_count(1)
    assert len(browser.streams) == 1


def test_closed_leader_tab_is_replaced_and_no_change_is_lost(person: Person, profile: Profile) -> None:
    browser = Browser(person, profile(person))
    for _ in range(3):
        browser.open()
    browser.check_updates("Before")
    held: list[Route] = []
    is_held = False

    # It stays to the end: a route without its handler continues at some time.
    def hold(route: Route) -> None:
        if is_held:
            held.append(route)
        else:
            route.continue_()

    browser.context.route("**/api/events", hold)
    for number in range(2):
        leader = browser.leader
        browser.pages.remove(leader)
        is_held = True
        with browser.context.expect_event("request", lambda request: request.url.endswith("/api/events")):
            leader.close()
        # No tab reads the stream now. The change arrives later all the same.
        make_chats(person, [f"Said while nobody listened, {number}"])
        is_held = False
        while held:
            held.pop().continue_()
        browser.check_updates(f"Behind the end of leader {number}")
        for page in browser.pages:
            expect(chat_line(page, f"Said while nobody listened, {number}")).to_have_count(1)
        assert browser.leader is not leader
    assert len(browser.streams) == 1


def test_frozen_leader_tab_is_replaced(person: Person, profile: Profile) -> None:
    browser = Browser(person, profile(person))
    frozen, other = browser.open(), browser.open()
    other.add_init_script(FAST_TIMERS)
    other.reload()
    browser.check_updates("Before")
    assert browser.leader is frozen
    # Nothing runs there, as in a tab that the browser has frozen; and it holds the lock.
    debugger = browser.context.new_cdp_session(frozen)
    debugger.send("Debugger.enable")
    debugger.send("Debugger.pause")
    make_chats(person, ["While it was frozen"])
    expect(chat_line(other, "While it was frozen")).to_have_count(1)
    debugger.send("Debugger.disable")
    browser.check_updates("When it was back")
    expect(chat_line(frozen, "While it was frozen")).to_have_count(1)
    assert len(browser.streams) == 1


@long_only
def test_tab_restored_from_history_shows_changes_made_meanwhile(person: Person, profile: Profile) -> None:
    browser = Browser(person, profile(person))
    away, stays = browser.open(), browser.open()
    browser.check_updates("Before")
    away.goto(person.server.url + "/livez")
    make_chats(person, ["While it was away"])
    expect(chat_line(stays, "While it was away")).to_have_count(1)
    away.go_back()
    expect(chat_line(away, "While it was away")).to_have_count(1)
    browser.check_updates("When it was back")
    assert len(browser.streams) == 1


def test_event_stream_is_separate_for_each_credential(person: Person, profile: Profile) -> None:
    browser = Browser(person, profile(person))
    browser.open()
    made = person.fetch("POST", "/api/shares", {"scope": "shop"})
    guest = browser.open(made["path"])
    browser.pages.remove(guest)
    browser.check_updates("Of this person")
    assert len(browser.streams) == 2
    expect(chat_line(guest, "Of this person")).to_have_count(0)
    guest.get_by_role("textbox", name="Message").fill("Of a guest")
    guest.keyboard.press("Enter")
    expect(chat_line(guest, "Of a guest")).to_have_count(1)
    browser.check_updates("Of this person, later")
    expect(chat_line(browser.pages[0], "Of a guest")).to_have_count(0)


@long_only
def test_browser_without_locks_opens_one_event_stream_per_tab(person: Person, profile: Profile) -> None:
    context = profile(person)
    context.add_init_script("delete Navigator.prototype.locks")
    browser = Browser(person, context)
    browser.open()
    browser.open()
    browser.check_updates("Heard by both")
    assert len(browser.streams) == 2
