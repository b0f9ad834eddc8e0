"""Reloads, lost connections and dead servers lose no text and double none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import apsw
from playwright.sync_api import Locator, Page, Route, expect

from tests.long_form import long_only
from tests.web.page_server import PageServer, Person, Profile
from tests.web.thread import answers, messages, open_second_tab, send, set_hidden, turns_in_history
from turnledger.testing.fault_proxy import Fault, FaultProxy
from turnledger.testing.gates import Gate

WATCH = """
  window.seen = [];
  const look = () => {
    for (const { textContent } of document.querySelectorAll(".message.assistant"))
      if (window.seen.at(-1) !== textContent) window.seen.push(textContent);
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true, characterData: true });
"""
"""Notes each state in which the answer is ever seen."""


def test_streamed_answer_resumes_after_reloads_and_a_lost_connection(tab: Page, person: Person) -> None:
    """Nothing that is ever seen of it is anything but its beginning."""
    words = ["Zero one ", "two three ", "four five ", "six seven ", "eight."]
    gates = [Gate() for _ in words[1:]]
    seen: list[str] = []
    tab.context.add_init_script(WATCH)
    tab.reload()
    pauses = [step for gate, word in zip(gates, words[1:], strict=True) for step in (gate, word)]
    person.server.model.add_script(words[0], *pauses)
    send(tab, "Count")
    for number, gate in enumerate(gates):
        so_far = "".join(words[: number + 1]).strip()
        expect(answers(tab)).to_have_text(so_far)
        if number < 2:
            seen += tab.evaluate("window.seen")
            tab.reload()
            expect(answers(tab)).to_have_text(so_far)
            expect(messages(tab)).to_have_text(["Count"])
        if number == 2:
            tab.context.set_offline(True)
            expect(tab.locator(".turn-state")).to_contain_text("Connection lost.")
        person.server.model.release(gate)
        tab.context.set_offline(False)
    expect(turns_in_history(tab)).to_have_count(1)
    expect(answers(tab)).to_have_text("".join(words))
    seen += tab.evaluate("window.seen")
    assert seen[-1].strip() == "".join(words)
    assert [each for each in seen if not "".join(words).startswith(each.strip())] == []
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("Count", "".join(words))]


def all_are_queued(page_server: PageServer, count: int) -> None:
    """Wait until so many turns wait in line."""
    store = apsw.Connection(f"{page_server.process.folder}/served.db", flags=apsw.SQLITE_OPEN_READONLY)
    while store.execute("SELECT count(*) FROM ticket").get != count:
        pass
    store.close()


def banner(page: Page) -> Locator:
    return page.get_by_role("main").get_by_text("No connection. Reconnecting…")


def spoken(page: Page, words: str) -> None:
    expect(page.get_by_role("status").filter(has_text=words)).to_have_count(1)


def test_turn_whose_server_is_killed_restarts_and_is_committed_once(tab: Page, person: Person) -> None:
    """The page reports the missing server until it is back, and that the turn restarted."""
    page_server, first, second = person.server, Gate(), Gate()
    page_server.model.add_script("This never ", first, "happened.")
    send(tab, "What happened?")
    expect(answers(tab)).to_have_text("This never")
    # Those that wait stay in their order, though the server has forgotten its line.
    waiting = ["And then?", "And in the end?"]
    for text in waiting:
        send(tab, text)
    expect(tab.get_by_role("button", name="Cancel")).to_have_count(2)
    all_are_queued(page_server, 2)  # one that was never sent could not know what the server forgot
    page_server.model.add_script("This ", second, "happened.")
    with page_server.stopped():
        expect(banner(tab)).to_be_visible()
    expect(tab.locator(".turn-state").first).to_contain_text("this answer started over.")
    expect(answers(tab)).to_have_text("This")
    expect(banner(tab)).to_have_count(0)
    page_server.model.release(second)
    expect(turns_in_history(tab)).to_have_count(3)
    expect(answers(tab)).to_have_text(["This happened.", "Well.", "Well."])
    page_server.model.release(first)
    [chat] = person.chats()
    assert [question for question, _ in person.turns(chat["id"])] == ["What happened?", *waiting]


def test_offline_page_shows_a_banner_and_sends_waiting_messages_when_back_online(
    tab: Page, person: Person
) -> None:
    """What runs goes on, what is sent waits or is taken back, what is written stays."""
    gate = Gate()
    person.server.model.add_script("Before and ", gate, "after.")
    send(tab, "When?")
    expect(answers(tab)).to_have_text("Before and")
    expect(banner(tab)).to_have_count(0)
    tab.context.set_offline(True)
    expect(banner(tab)).to_be_visible()
    spoken(tab, "No connection. Reconnecting…")
    expect(tab.locator(".turn-state")).to_contain_text("Connection lost.")
    person.server.model.release(gate)
    tab.get_by_role("textbox", name="Message").fill("Meanwhile")
    tab.context.set_offline(False)
    expect(turns_in_history(tab)).to_have_count(1)
    expect(answers(tab)).to_have_text("Before and after.")
    expect(banner(tab)).to_have_count(0)
    spoken(tab, "Back online.")
    expect(tab.get_by_role("textbox", name="Message")).to_have_value("Meanwhile")
    tab.context.set_offline(True)
    for text in ("Are you there?", "And then?", "Never mind"):
        send(tab, text)
        expect(tab.get_by_role("textbox", name="Message")).to_have_value("")
    expect(tab.locator(".turn-state").first).to_contain_text("Waiting for a connection.")
    tab.get_by_role("button", name="Cancel").last.click()
    expect(messages(tab)).to_have_text(["When?", "Are you there?", "And then?"])
    [chat] = person.chats()
    turns = [("When?", "Before and after.")]
    assert person.turns(chat["id"]) == turns
    for number, text in enumerate(("Are you there?", "And then?")):
        person.server.model.add_script(f"Answer {number}.")
        turns.append((text, f"Answer {number}."))
    tab.context.set_offline(False)
    expect(turns_in_history(tab)).to_have_count(3)
    tab.reload()
    expect(turns_in_history(tab)).to_have_count(3)
    assert person.turns(chat["id"]) == turns


def test_unsent_message_is_sent_once_after_a_reload(tab: Page, person: Person) -> None:
    person.server.model.add_script("Hello.")
    send(tab, "Good morning")
    expect(turns_in_history(tab)).to_have_count(1)
    tab.route("**/api/turns", lambda route: route.abort())
    send(tab, "Are you there?")
    expect(tab.locator(".turn-state")).to_contain_text("Sending…")
    person.server.model.add_script("I am.")  # before the page can try again
    tab.unroute("**/api/turns")
    tab.reload()
    expect(turns_in_history(tab)).to_have_count(2)
    expect(messages(tab)).to_have_text(["Good morning", "Are you there?"])
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("Good morning", "Hello."), ("Are you there?", "I am.")]


def test_chat_created_during_a_reload_is_shown_after_it(tab: Page, person: Person) -> None:
    person.server.model.add_script("Hello.")
    held: dict[str, Route] = {}

    def hold(route: Route) -> None:
        held["loading" if route.request.is_navigation_request() else "creating"] = route
        if len(held) == 2:
            held["creating"].continue_()

    tab.route(
        "**/api/chats", lambda route: hold(route) if route.request.method == "POST" else route.continue_()
    )
    send(tab, "Good morning")
    expect(messages(tab)).to_have_text(["Good morning"])
    tab.route(f"{person.server.url}/", hold)
    with tab.expect_response("**/api/turns"):
        tab.evaluate("setTimeout(() => location.reload())")
    tab.unroute("**/api/chats")
    held["loading"].continue_()
    expect(turns_in_history(tab)).to_have_count(1)
    expect(messages(tab)).to_have_text(["Good morning"])
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("Good morning", "Hello.")]
    assert tab.url.endswith(f"#{chat['id']}")


def test_unsent_message_of_a_closed_tab_is_sent_by_another_tab(tab: Page, person: Person) -> None:
    other = open_second_tab(tab, person)
    tab.route("**/api/turns", lambda route: route.abort())
    send(tab, "Are you there?")
    expect(tab.locator(".turn-state")).to_contain_text("Sending…")
    expect(turns_in_history(other)).to_have_count(1)
    person.server.model.add_script("I am.")
    tab.close()
    expect(turns_in_history(other)).to_have_count(2)
    expect(messages(other)).to_have_text(["Good morning", "Are you there?"])
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("Good morning", "Hello."), ("Are you there?", "I am.")]


def test_hidden_tab_drops_the_stream_and_resumes_it_at_its_last_event(tab: Page, person: Person) -> None:
    gates = [Gate(), Gate()]
    person.server.model.add_script("Zero one ", gates[0], "two three ", gates[1], "four.")
    send(tab, "Count")
    expect(answers(tab)).to_have_text("Zero one")
    with tab.expect_event("requestfailed", lambda request: request.url.endswith("/api/turns")):
        set_hidden(tab)
    person.server.model.release(gates[0])
    with tab.expect_request("**/api/turns/*/events") as taken_up:
        set_hidden(tab, hidden=False)
    assert int(taken_up.value.headers["last-event-id"]) > 0
    expect(answers(tab)).to_have_text("Zero one two three")
    person.server.model.release(gates[1])
    expect(turns_in_history(tab)).to_have_count(1)
    expect(answers(tab)).to_have_text("Zero one two three four.")

    # A turn that ends in a hidden tab is shown when the tab is visible again.
    gate = Gate()
    person.server.model.add_script("Five six ", gate, "seven.")
    send(tab, "Go on")
    expect(answers(tab).last).to_have_text("Five six")
    set_hidden(tab)
    person.server.model.release(gate)
    expect(turns_in_history(tab)).to_have_count(2)
    set_hidden(tab, hidden=False)
    expect(answers(tab).last).to_have_text("Five six seven.")
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("Count", "Zero one two three four."), ("Go on", "Five six seven.")]


@long_only
def test_streamed_answer_over_breaking_connections_loses_and_doubles_no_text(
    person: Person, profile: Profile
) -> None:
    words = [f"word{number} é😀 " for number in range(7)]
    gates = [Gate() for _ in words[1:]]
    pauses = [step for gate, word in zip(gates, words[1:], strict=True) for step in (gate, word)]
    with wire(person) as (url, proxy, loop):
        tab = profile(person).new_page()
        tab.goto(url)
        person.server.model.add_script(words[0], *pauses)
        send(tab, "Say all of it")
        for number, gate in enumerate(gates):
            expect(answers(tab)).to_have_text("".join(words[: number + 1]).strip())
            # The next responses are cut, too: within the head, and at a byte within a character.
            loop.call_soon_threadsafe(proxy.plan, Fault(received=40 * number), Fault(received=700 + number))
            loop.call_soon_threadsafe(proxy.cut)
            person.server.model.release(gate)
        expect(turns_in_history(tab)).to_have_count(1)
        expect(answers(tab)).to_have_text("".join(words).strip())
    [chat] = person.chats()
    assert person.turns(chat["id"]) == [("Say all of it", "".join(words))]


@contextmanager
def wire(person: Person) -> Iterator[tuple[str, FaultProxy, asyncio.AbstractEventLoop]]:
    """A way to the server that breaks on command."""
    loop = asyncio.new_event_loop()
    running = threading.Thread(target=loop.run_forever, name="wire")
    running.start()
    proxy = FaultProxy(urlsplit(person.server.url).port or 0)
    try:
        asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop).result(10)
        yield f"http://127.0.0.1:{proxy.port}", proxy, loop
    finally:
        asyncio.run_coroutine_threadsafe(proxy.__aexit__(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        running.join()
        loop.close()
