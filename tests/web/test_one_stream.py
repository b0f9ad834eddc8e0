"""All tabs of a browser share one stream, whoever of them reads it, and miss nothing when that one ends."""

from __future__ import annotations

from playwright.sync_api import BrowserContext, Page, Request, Route, expect

from tests.web.chats import line, make_chats
from tests.web.house import HASTE, Person, Profile


class Browser:
    """Tabs of one browser, and how many streams they read."""

    def __init__(self, person: Person, context: BrowserContext) -> None:
        self.person = person
        self.context = context
        self.pages: list[Page] = []
        self.streams: dict[Request, Page] = {}
        context.on("request", self._asked)
        context.on("requestfinished", self._ended)
        context.on("requestfailed", self._ended)

    def open(self, path: str = "") -> Page:
        page = self.context.new_page()
        page.goto(self.person.house.url + path)
        expect(page.get_by_role("textbox", name="Message")).to_be_visible()
        page.on("close", self._closed)
        self.pages.append(page)
        return page

    @property
    def leader(self) -> Page:
        [leader] = self.streams.values()
        return leader

    def hears(self, title: str) -> None:
        """Each tab shows a chat that is made now."""
        make_chats(self.person, [title])
        for page in self.pages:
            expect(line(page, title)).to_have_count(1)

    def _asked(self, request: Request) -> None:
        if request.url.endswith("/api/events"):
            self.streams[request] = request.frame.page

    def _closed(self, page: Page) -> None:
        self.streams = {request: of for request, of in self.streams.items() if of is not page}

    def _ended(self, request: Request) -> None:
        self.streams.pop(request, None)


def test_six_tabs_read_one_stream_and_there_is_room_for_more(person: Person, profile: Profile) -> None:
    """Browsers give a server six connections, for all their tabs."""
    browser = Browser(person, profile(person))
    for _ in range(6):
        browser.open()
    browser.hears("Heard by all")
    assert len(browser.streams) == 1
    seventh = browser.open("/#new")
    seventh.get_by_role("textbox", name="Message").fill("Is there room for me?")
    seventh.keyboard.press("Enter")
    expect(seventh.locator("[data-turn]")).to_have_count(1)
    for page in browser.pages:
        expect(line(page, "Is there room for me?")).to_have_count(1)
    assert len(browser.streams) == 1


def test_when_the_tab_that_reads_is_closed_another_goes_on_where_it_was(
    person: Person, profile: Profile
) -> None:
    browser = Browser(person, profile(person))
    for _ in range(3):
        browser.open()
    browser.hears("Before")
    held: list[Route] = []
    for number in range(2):
        leader = browser.leader
        browser.pages.remove(leader)
        browser.context.route("**/api/events", lambda route: held.append(route))
        with browser.context.expect_event("request", lambda request: request.url.endswith("/api/events")):
            leader.close()
        # Nobody reads by now: it is told later all the same.
        make_chats(person, [f"Said while nobody listened, {number}"])
        browser.context.unroute_all()
        while held:
            held.pop().continue_()
        browser.hears(f"Behind the end of leader {number}")
        for page in browser.pages:
            expect(line(page, f"Said while nobody listened, {number}")).to_have_count(1)
        assert browser.leader is not leader
    assert len(browser.streams) == 1


def test_a_tab_that_is_frozen_with_the_stream_is_relieved(person: Person, profile: Profile) -> None:
    browser = Browser(person, profile(person))
    frozen, other = browser.open(), browser.open()
    other.add_init_script(HASTE)
    other.reload()
    browser.hears("Before")
    assert browser.leader is frozen
    # Nothing runs there, as in a tab that the browser has frozen; and it holds the lock.
    debugger = browser.context.new_cdp_session(frozen)
    debugger.send("Debugger.enable")
    debugger.send("Debugger.pause")
    make_chats(person, ["While it was frozen"])
    expect(line(other, "While it was frozen")).to_have_count(1)
    debugger.send("Debugger.disable")
    browser.hears("When it was back")
    expect(line(frozen, "While it was frozen")).to_have_count(1)
    assert len(browser.streams) == 1


def test_a_tab_that_comes_back_from_another_page_has_missed_nothing(person: Person, profile: Profile) -> None:
    browser = Browser(person, profile(person))
    away, stays = browser.open(), browser.open()
    browser.hears("Before")
    away.goto(person.house.url + "/livez")
    make_chats(person, ["While it was away"])
    expect(line(stays, "While it was away")).to_have_count(1)
    away.go_back()
    expect(line(away, "While it was away")).to_have_count(1)
    browser.hears("When it was back")
    assert len(browser.streams) == 1


def test_each_credential_has_a_stream_of_its_own(person: Person, profile: Profile) -> None:
    browser = Browser(person, profile(person))
    browser.open()
    made = person.ask("POST", "/api/shares", {"scope": "shop"})
    guest = browser.open(made["path"])
    browser.pages.remove(guest)
    browser.hears("Of this person")
    assert len(browser.streams) == 2
    expect(line(guest, "Of this person")).to_have_count(0)
    guest.get_by_role("textbox", name="Message").fill("Of a guest")
    guest.keyboard.press("Enter")
    expect(line(guest, "Of a guest")).to_have_count(1)
    browser.hears("Of this person, later")
    expect(line(browser.pages[0], "Of a guest")).to_have_count(0)


def test_without_locks_each_tab_that_is_seen_reads_for_itself(person: Person, profile: Profile) -> None:
    context = profile(person)
    context.add_init_script("delete Navigator.prototype.locks")
    browser = Browser(person, context)
    browser.open()
    browser.open()
    browser.hears("Heard by both")
    assert len(browser.streams) == 2
