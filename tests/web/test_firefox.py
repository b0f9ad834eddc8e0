"""The main paths in Firefox: sign in, write and stream, reload, stop, two tabs, the language."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.long_form import long_only
from tests.web.firefox import Firefox, Tab, run_firefox
from tests.web.page_server import STORED, PageServer
from turnledger.testing.gates import Gate

SHOWS = """(text) => document.querySelector("[role=log]")?.textContent.includes(text)"""
TURNS = """(count) => document.querySelectorAll("[data-turn]").length === Number(count)"""
ENTER, ESCAPE = "\ue007", "\ue00c"


@pytest.fixture(scope="module")
def firefox() -> Iterator[Firefox]:
    with run_firefox() as firefox:
        yield firefox


def in_field(tab: Tab) -> None:
    tab.until("""() => document.activeElement?.tagName === "TEXTAREA" """)


@long_only
def test_firefox_signs_in_streams_reloads_stops_and_keeps_two_tabs_in_sync(
    firefox: Firefox, page_server: PageServer
) -> None:
    person, model = page_server.person(), page_server.model
    tab = firefox.tab()
    tab.open(person.server.url)
    # Sign in by the keyboard.
    tab.until("""() => document.activeElement?.type === "password" """)
    tab.write(person.token)
    tab.press(ENTER)
    in_field(tab)
    assert tab.until("(name) => localStorage.getItem(name)", STORED) == person.token

    # An answer streams, goes on after a reload, and ends whole.
    gate = Gate()
    model.add_script("**First** words. ", gate, "Last words.")
    tab.write("Hello")
    tab.press(ENTER)
    tab.until(SHOWS, "First words.")
    assert tab.until("""() => document.querySelector(".markdown strong")?.textContent""") == "First"
    tab.reload()
    tab.until(SHOWS, "First words.")
    model.release(gate)
    tab.until(SHOWS, "First words. Last words.")
    tab.until(TURNS, "1")

    # The second tab shows the chat, and follows.
    other = firefox.tab()
    other.open(f"{person.server.url}/{tab.until('() => location.hash')}")
    other.until(SHOWS, "First words. Last words.")
    gate = Gate()
    model.add_script("So far. ", gate, "Never sent.")
    tab.bring_to_front()
    in_field(tab)
    tab.write("More")
    tab.press(ENTER)
    tab.until(SHOWS, "So far.")
    # Stopped by a key: the answer so far is kept, and the other tab shows it once it is seen.
    tab.press(ESCAPE)
    for each in (tab, other):
        each.bring_to_front()
        each.until("""() => document.querySelector("[data-kind=interrupted]") !== null""")
        each.until(SHOWS, "So far.")
    model.release(gate)
    [chat] = person.chats()
    assert person.turns(chat["id"])[1] == ("More", "So far. ")

    # Another language, at once in both tabs.
    tab.bring_to_front()
    tab.until(
        """() => { document.querySelector(".side-foot [aria-haspopup=dialog]").focus(); return true; }"""
    )
    tab.press(ENTER)
    tab.until("""() => document.querySelector("dialog[open][aria-busy=false]") !== null""")
    tab.press("\ue004", *"Deu")
    for each in (tab, other):
        each.bring_to_front()
        each.until("""() => document.documentElement.lang === "de" """)
        each.until("""() => document.querySelector("[role=log]").ariaLabel === "Nachrichten" """)
