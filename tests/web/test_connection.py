"""Who loses the server is told so, for as long as it is so, and goes on where he was."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.web.chatting import write
from tests.web.house import Person, Profile, housed


def banner(page: Page) -> Locator:
    return page.get_by_role("main").get_by_text("No connection. Trying again…")


def spoken(page: Page, words: str) -> None:
    expect(page.get_by_role("status").filter(has_text=words)).to_have_count(1)


def test_a_device_that_is_offline_says_so_until_it_is_back(tab: Page, person: Person) -> None:
    write(tab, "Before")
    expect(tab.locator("[data-turn]")).to_have_count(1)
    expect(banner(tab)).to_have_count(0)
    tab.context.set_offline(True)
    expect(banner(tab)).to_be_visible()
    spoken(tab, "No connection. Trying again…")
    tab.get_by_role("textbox", name="Message").fill("Meanwhile")
    tab.context.set_offline(False)
    expect(banner(tab)).to_have_count(0)
    spoken(tab, "Connected again.")
    expect(tab.get_by_role("textbox", name="Message")).to_have_value("Meanwhile")
    tab.keyboard.press("Enter")
    expect(tab.locator("[data-turn]")).to_have_count(2)


def test_a_server_that_is_away_is_missed_until_it_is_back(tmp_path: Path, profile: Profile) -> None:
    with housed(tmp_path) as house:
        person = house.person()
        page = profile(person).new_page()
        page.goto(house.url)
        write(page, "Before")
        expect(page.locator("[data-turn]")).to_have_count(1)
        house.serving.kill()
        expect(banner(page)).to_be_visible()
        house.serving.start()
        expect(banner(page)).to_have_count(0)
        write(page, "After")
        expect(page.locator("[data-turn]")).to_have_count(2)
        [chat] = person.chats()
        assert [asked for asked, _ in person.turns(chat["id"])] == ["Before", "After"]
