"""Sign-in, sign-out and change of user.

The token is only in the storage of the page. No data of the previous user remains in any tab or late answer.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.web.axe import violations
from tests.web.chats import make_chats
from tests.web.page_server import (
    FAST_TIMERS,
    PATIENCE,
    SCOPES,
    STORED,
    PageServer,
    Person,
    Profile,
    run_page_server,
)
from tests.web.sign_in import (
    expect_signed_in,
    expire_token,
    open_tab,
    replace_stored_token,
    sign_in,
    sign_out,
    submit_token,
)
from tests.web.test_unkept import check_nothing_is_kept
from tests.web.thread import expect_turns, message_field, send
from turnledger import Ledger
from turnledger.hosting import Host
from turnledger.testing.gates import Gate


@pytest.fixture
def stranger(page_server: PageServer, person: Person, profile: Profile) -> Page:
    """The page, opened without a token on a server that needs one; the person has one."""
    page = profile().new_page()
    page.goto(page_server.url)
    return page


def test_sign_in_with_a_token_survives_a_reload_and_does_not_leak_the_token(
    stranger: Page, person: Person
) -> None:
    requests: list[str] = []
    stranger.on("request", lambda request: requests.append(f"{request.url} {request.post_data}"))
    person.run_turn("Something to be found again")
    expect(stranger.get_by_role("heading", name="Sign in")).to_be_visible()
    assert stranger.title() == "Turnledger"
    submit_token(stranger, f"\n  {person.token} ")
    expect(stranger.get_by_text("Something to be found again").first).to_be_visible()
    stranger.reload()
    expect(stranger.get_by_text("Something to be found again").first).to_be_visible()
    assert stranger.evaluate("name => localStorage.getItem(name)", STORED) == person.token
    # The token is not displayed, and sent only to the API.
    assert requests
    assert not [each for each in requests if person.token in each]
    assert person.token not in stranger.content()
    assert person.token not in stranger.url + stranger.title()
    names = stranger.evaluate("Object.keys(localStorage).concat(Object.keys(sessionStorage))")
    assert not [each for each in names if person.token in each]


def test_sign_in_with_an_invalid_token_is_refused_with_the_reason_and_stores_nothing(
    stranger: Page, person: Person, tmp_path: Path
) -> None:
    """Text that cannot be a token is not sent."""
    last = "a" if person.token[10] != "a" else "b"
    spoilt = ["", "hello", person.token[:-1], person.token[:10] + last + person.token[11:]]
    expect(stranger.get_by_label("Token")).to_be_focused()
    requests: list[str] = []
    stranger.on("request", lambda request: requests.append(request.url))
    for text in spoilt:
        submit_token(stranger, text)
        expect(stranger.get_by_role("alert")).to_contain_text("not a valid token")
        expect(stranger.get_by_label("Token")).to_have_attribute("aria-invalid", "true")
    assert violations(stranger) == []
    assert requests == []
    submit_token(stranger, of_another_server(tmp_path))
    expect(stranger.get_by_role("alert")).to_contain_text("Unknown token")
    assert stranger.evaluate("Object.keys(localStorage)") == []
    sign_in(stranger, person)
    expect(message_field(stranger)).to_be_visible()


def of_another_server(folder: Path) -> str:
    """A token that is sound, and known elsewhere."""

    async def make() -> str:
        async with await Ledger.open(f"sqlite:///{folder}/other.db") as ledger:
            return (await Host(ledger).tokens.create(scopes=SCOPES, owner="local"))[1]

    # Playwright keeps a loop running in this thread.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(make())).result(PATIENCE)


def test_sign_in_shows_the_chat_named_by_the_address(
    page_server: PageServer, person: Person, profile: Profile
) -> None:
    chat = person.run_turn("The one that was meant")["chat"]["id"]
    person.run_turn("A later one")
    page = profile().new_page()
    page.goto(f"{page_server.url}/#{chat}")
    sign_in(page, person)
    expect(page.get_by_role("log").get_by_text("The one that was meant")).to_be_visible()
    assert page.url == f"{page_server.url}/#{chat}"


def test_sign_out_removes_all_local_data(tab: Page, person: Person) -> None:
    message_field(tab).fill("Nightingale marmalade")
    tab.keyboard.press("Enter")
    expect(tab.locator("[data-turn]")).to_have_count(1)
    message_field(tab).fill("and a draft of it")
    sign_out(tab)
    expect(tab.get_by_label("Token")).to_be_visible()
    assert tab.evaluate("[Object.keys(localStorage), Object.keys(sessionStorage)]") == [[], []]
    assert "marmalade" not in tab.content() + tab.title()
    assert tab.url == f"{person.server.url}/"
    tab.reload()
    expect(tab.get_by_label("Token")).to_be_visible()


def test_revoked_token_ends_the_session_and_a_new_token_returns_to_the_chat(
    page_server: PageServer, person: Person, profile: Profile
) -> None:
    answer = person.run_turn("Nightingale marmalade")
    tab = profile(person).new_page()
    tab.add_init_script(FAST_TIMERS)
    tab.goto(f"{page_server.url}/#{answer['chat']['id']}")
    expect(tab.get_by_text("Nightingale marmalade").first).to_be_visible()
    person.fetch("DELETE", "/api/tokens/self")
    expect(tab.get_by_role("heading", name="Your access has ended")).to_be_visible()
    expect(tab.get_by_role("alert")).to_contain_text("revoked")
    assert "marmalade" not in tab.content()
    again = page_server.person(owner=person.owner)
    sign_in(tab, again)
    expect(tab.get_by_text("Nightingale marmalade").first).to_be_visible()
    expect(tab).to_have_url(f"{page_server.url}/#{answer['chat']['id']}")


def test_token_that_expires_in_an_open_page_ends_the_session(
    page_server: PageServer, profile: Profile
) -> None:
    brief = page_server.person(lifetime=3_600)
    page = profile(brief).new_page()
    page.clock.install()
    page.goto(page_server.url)
    expect(message_field(page)).to_be_visible()
    expire_token(page)
    expect(page.get_by_role("heading", name="Your access has ended")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("expired")
    page.get_by_role("button", name="Clear data in this browser").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert page.evaluate("Object.keys(localStorage)") == []


def test_unreachable_server_at_startup_is_retried_until_the_page_opens(tab: Page, person: Person) -> None:
    expect(message_field(tab)).to_be_visible()
    away = {"is": True}
    tab.route("**/api/tokens/self", lambda route: route.abort() if away["is"] else route.continue_())
    tab.reload()
    expect(tab.get_by_role("heading", name="The server is not responding")).to_be_visible()
    assert violations(tab) == []
    tab.get_by_role("button", name="Try again").evaluate("button => { window.again = button; }")
    with tab.expect_event("requestfailed"):
        tab.get_by_role("button", name="Try again").click()
    # The message is not rebuilt each time: it is read out once, and the button keeps the focus.
    assert tab.evaluate("again.isConnected && document.activeElement === again")
    away["is"] = False
    expect(message_field(tab)).to_be_visible()  # by itself
    away["is"] = True
    tab.reload()
    expect(tab.get_by_role("button", name="Try again")).to_be_visible()
    away["is"] = False
    tab.get_by_role("button", name="Try again").click()
    expect(message_field(tab)).to_be_visible()


def test_server_without_tokens_requires_a_sign_in_once_a_token_exists(
    tmp_path: Path, profile: Profile
) -> None:
    """This one keeps no chats, either, and takes no long messages."""
    with run_page_server(
        tmp_path, "[chats]\nkeep = false", "[server.limits]\nbody_bytes = 20000"
    ) as page_server:
        page = profile().new_page()
        page.add_init_script(FAST_TIMERS)
        page.goto(page_server.url)
        expect(message_field(page)).to_be_visible()
        expect(page.get_by_role("button", name="Signed in as")).to_have_count(0)
        check_nothing_is_kept(page, page_server)
        long = "too long " * 4_000
        send(page, long)
        expect(page.get_by_text("body_bytes").or_(page.get_by_text("too large")).first).to_be_visible()
        expect(message_field(page)).to_have_value(long.rstrip())
        send(page, "Short")
        expect_turns(page, 1)
        # From the first token on every caller needs one, also an open page.
        person = page_server.person(owner="local")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        sign_in(page, person)
        check_nothing_is_kept(page, page_server)
        assert person.chats() == []


TITLE, ANSWER, DRAFT, UNSENT, RUNNING, SCOPE, SOUGHT = (
    "Saffron telescope",
    "Juniper bagpipes",
    "Cobalt porridge",
    "Velvet anchovy",
    "Marble whisper",
    "walrus-kitchen",
    "Crimson umbrella",
)


EVERYTHING = """() => JSON.stringify([
    {...localStorage}, {...sessionStorage}, location.href, document.title, document.documentElement.outerHTML,
    [...document.querySelectorAll('input, textarea')].map(each => each.value),
])"""


LATE = """
    // Answers that arrive when the test releases them, and cannot be aborted.
    const really = fetch;
    const isReleased = new Promise(resolve => {
        window.late = {urls: [], isHolding: true, async release() {
            resolve();
            for (let tick = 0; tick < 50; tick++) await new Promise(next => setTimeout(next));
        }};
    });
    window.fetch = async (url, request) => {
        const isHeld = late.isHolding && /chats|models/.test(url);
        if (isHeld) late.urls.push(url);
        const answer = await really(url, {...request, signal: isHeld ? undefined : request.signal});
        if (isHeld) await isReleased;
        return answer;
    };
"""


@pytest.fixture
def other(page_server: PageServer) -> Person:
    """Another owner with a chat."""
    other = page_server.person()
    other.run_turn("Good morning")
    return other


def traces(page: Page, former: Person, *more: str) -> list[str]:
    """What of the former one can be found."""
    found = page.evaluate(EVERYTHING)
    refusal = (
        TITLE,
        ANSWER,
        DRAFT,
        UNSENT,
        RUNNING,
        SCOPE,
        SOUGHT,
        former.owner,
        former.token,
        former.token[-6:],
        *more,
    )
    return [each for each in refusal if each in found]


def test_sign_in_as_another_user_removes_all_traces_of_the_previous_one_in_every_tab(
    person: Person, other: Person, profile: Profile
) -> None:
    chat = person.run_turn(TITLE)["chat"]["id"]
    person.run_turn("Second", chat)
    make_chats(person, ["Somewhere else"], scope=SCOPE)
    person.fetch("PATCH", f"/api/chats/{chat}", {"pinned": True})
    context = profile(person)
    tabs = [open_tab(context, f"{person.server.url}/#{chat}") for _ in range(2)]
    for tab in tabs:
        expect(tab.get_by_role("log").get_by_text(TITLE)).to_be_visible()
    first, second = tabs
    # The chosen scope, search and model.
    second.get_by_role("button", name="Scope:").click()
    second.get_by_role("menuitemradio", name=SCOPE).click()
    expect(second.get_by_role("navigation").get_by_text(TITLE)).to_have_count(0)
    second.get_by_role("searchbox").fill(SOUGHT)
    first.get_by_role("button", name="Model: scripted").click()
    first.get_by_role("option", name="other").click()
    expect(first.get_by_role("button", name="Model: other")).to_be_visible()
    # A message with an unknown outcome, a draft, and a running turn.
    second.route("**/api/turns", lambda route: route.abort())
    send(second, UNSENT)
    expect(second.get_by_role("log").get_by_text(UNSENT)).to_be_visible()
    second.wait_for_function("text => JSON.stringify({...localStorage}).includes(text)", arg=UNSENT)
    gate = Gate()
    person.server.model.add_script("Half of ", gate, ANSWER)
    send(first, RUNNING)
    expect(first.get_by_role("log").get_by_text("Half of")).to_be_visible()
    message_field(first).fill(DRAFT)
    first.wait_for_function("text => JSON.stringify({...localStorage}).includes(text)", arg=DRAFT)
    assert len(traces(first, person, chat)) > 5

    sign_out(first)
    expect(second.get_by_label("Token")).to_be_visible()
    for tab in tabs:
        assert traces(tab, person, chat) == []
        assert tab.evaluate("[localStorage.length, sessionStorage.length]") == [0, 0]
    sign_in(first, other)
    expect_signed_in(second, other)
    person.server.model.release(gate)
    second.unroute_all()
    for tab in tabs:
        expect(tab.get_by_text("Good morning").first).to_be_visible()
        tab.get_by_role("button", name="New chat").click()
        expect(message_field(tab)).to_have_value("")
        expect(tab.get_by_role("button", name="Model: scripted")).to_be_visible()
        assert traces(tab, person, chat) == []
    send(second, "Mine")
    expect(first.get_by_role("navigation").get_by_text("Mine")).to_be_visible()
    for tab in tabs:
        assert traces(tab, person, chat) == []
        tab.reload()
        expect_signed_in(tab, other)
        assert traces(tab, person, chat) == []
    assert sorted(text for each in other.chats() for text, _ in other.turns(each["id"])) == [
        "Good morning",
        "Mine",
    ]


def test_late_answer_to_the_previous_user_is_not_shown(
    person: Person, other: Person, profile: Profile
) -> None:
    chat = person.run_turn(TITLE)["chat"]["id"]
    context = profile(person)
    page = context.new_page()
    page.add_init_script(LATE)
    page.goto(f"{person.server.url}/#{chat}")
    expect_signed_in(page, person)
    wanted = ["/api/chats?", "/api/chats/", "/v1/models"]
    page.wait_for_function("wanted => wanted.every(each => String(late.urls).includes(each))", arg=wanted)
    page.evaluate("late.isHolding = false")
    replace_stored_token(context, other)
    expect_signed_in(page, other)
    expect(page.get_by_text("Good morning").first).to_be_visible()
    page.evaluate("late.release()")
    assert traces(page, person, chat) == []
    page.get_by_role("button", name="New chat").click()
    expect(message_field(page)).to_be_visible()
    assert traces(page, person, chat) == []


def test_message_sent_during_a_user_change_in_another_tab_is_not_sent_as_the_new_user(
    person: Person, other: Person, profile: Profile
) -> None:
    context = profile(person)
    page = open_tab(context, person.server.url)
    expect(message_field(page)).to_be_visible()
    held: list[Route] = []
    page.route(
        "**/api/*s", lambda route: held.append(route) if route.request.method == "POST" else route.continue_()
    )
    send(page, UNSENT)
    page.wait_for_function("text => JSON.stringify({...localStorage}).includes(text)", arg=UNSENT)
    replace_stored_token(context, other)
    expect_signed_in(page, other)
    assert {each.request.header_value("authorization") for each in held} == {f"Bearer {person.token}"}
    for route in held:
        route.continue_()
    page.unroute_all()
    page.reload()
    expect(page.get_by_text("Good morning").first).to_be_visible()
    assert traces(page, person) == []
    assert [text for each in other.chats() for text, _ in other.turns(each["id"])] == ["Good morning"]


def test_data_stored_late_for_the_previous_user_is_removed(
    person: Person, other: Person, profile: Profile
) -> None:
    context = profile(person)
    page = open_tab(context, person.server.url)
    expect(message_field(page)).to_be_visible()
    message_field(page).fill(DRAFT)
    page.wait_for_function("text => JSON.stringify({...localStorage}).includes(text)", arg=DRAFT)
    names = page.evaluate(
        "text => Object.keys(localStorage).filter(each => localStorage[each].includes(text))", DRAFT
    )
    assert names
    sign_out(page)
    sign_in(page, other)
    late = open_tab(context, f"{person.server.url}/favicon.svg")
    for name in names:
        late.evaluate("([name, text]) => localStorage.setItem(name, text)", [name, DRAFT])
    page.wait_for_function("text => !JSON.stringify({...localStorage}).includes(text)", arg=DRAFT)
    # Data of a visitor of a share link is not touched.
    elsewhere = "turnledger page:link-abcdef.ghijkl:drafts"
    late.evaluate("name => localStorage.setItem(name, 'kept')", elsewhere)
    sign_out(page)
    assert page.evaluate("Object.keys(localStorage)") == [elsewhere]


def test_sign_in_with_the_same_token_keeps_the_draft(person: Person, profile: Profile) -> None:
    context = profile(person)
    page = open_tab(context, person.server.url)
    expect(message_field(page)).to_be_visible()
    message_field(page).fill(DRAFT)
    page.wait_for_function("text => JSON.stringify({...localStorage}).includes(text)", arg=DRAFT)
    replace_stored_token(context, person)
    page.reload()
    expect(message_field(page)).to_have_value(DRAFT)
