"""Signing in with a token, and leaving: the token is in the storage of the page and nowhere else."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.web.axe import violations
from tests.web.coming_in import expire, field, give_token, sign_in, sign_out
from tests.web.composing import send, shows
from tests.web.house import HASTE, PATIENCE, SCOPES, STORED, House, Person, Profile, housed
from tests.web.test_unkept import says_that_nothing_is_kept
from turnledger import Ledger


@pytest.fixture
def stranger(house: House, person: Person, profile: Profile) -> Page:
    """The page, opened by somebody who has no token, where one is needed: the person has one."""
    page = profile().new_page()
    page.goto(house.url)
    return page


def test_whoever_pastes_a_token_is_in_and_stays_in(stranger: Page, person: Person) -> None:
    asked: list[str] = []
    stranger.on("request", lambda request: asked.append(f"{request.url} {request.post_data}"))
    person.say("Something to be found again")
    expect(stranger.get_by_role("heading", name="Sign in")).to_be_visible()
    assert stranger.title() == "Turnledger"
    give_token(stranger, f"\n  {person.token} ")
    expect(stranger.get_by_text("Something to be found again").first).to_be_visible()
    stranger.reload()
    expect(stranger.get_by_text("Something to be found again").first).to_be_visible()
    assert stranger.evaluate("name => localStorage.getItem(name)", STORED) == person.token
    # It is shown to nobody, and said where it is asked for only.
    assert asked
    assert not [each for each in asked if person.token in each]
    assert person.token not in stranger.content()
    assert person.token not in stranger.url + stranger.title()
    names = stranger.evaluate("Object.keys(localStorage).concat(Object.keys(sessionStorage))")
    assert not [each for each in names if person.token in each]


def test_what_is_no_token_is_refused_with_the_reason_and_not_kept(
    stranger: Page, person: Person, tmp_path: Path
) -> None:
    """And what cannot be one is sent to nobody."""
    last = "a" if person.token[10] != "a" else "b"
    spoilt = ["", "hello", person.token[:-1], person.token[:10] + last + person.token[11:]]
    expect(stranger.get_by_label("Token")).to_be_focused()
    asked: list[str] = []
    stranger.on("request", lambda request: asked.append(request.url))
    for text in spoilt:
        give_token(stranger, text)
        expect(stranger.get_by_role("alert")).to_contain_text("not a token")
        expect(stranger.get_by_label("Token")).to_have_attribute("aria-invalid", "true")
    assert violations(stranger) == []
    assert asked == []
    give_token(stranger, of_another_server(tmp_path))
    expect(stranger.get_by_role("alert")).to_contain_text("not known here")
    assert stranger.evaluate("Object.keys(localStorage)") == []
    sign_in(stranger, person)
    expect(field(stranger)).to_be_visible()


def of_another_server(folder: Path) -> str:
    """A token that is sound, and known elsewhere."""

    async def make() -> str:
        async with await Ledger.open(f"sqlite:///{folder}/other.db") as ledger:
            return (await ledger.tokens.create(scopes=SCOPES, owner="local"))[1]

    # Playwright keeps a loop running in this thread.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(make())).result(PATIENCE)


def test_the_chat_that_the_address_names_is_shown_after_signing_in(
    house: House, person: Person, profile: Profile
) -> None:
    chat = person.say("The one that was meant")["chat"]["id"]
    person.say("A later one")
    page = profile().new_page()
    page.goto(f"{house.url}/#{chat}")
    sign_in(page, person)
    expect(page.get_by_role("log").get_by_text("The one that was meant")).to_be_visible()
    assert page.url == f"{house.url}/#{chat}"


def test_whoever_signs_out_leaves_nothing(tab: Page, person: Person) -> None:
    field(tab).fill("Nightingale marmalade")
    tab.keyboard.press("Enter")
    expect(tab.locator("[data-turn]")).to_have_count(1)
    field(tab).fill("and a draft of it")
    sign_out(tab)
    expect(tab.get_by_label("Token")).to_be_visible()
    assert tab.evaluate("[Object.keys(localStorage), Object.keys(sessionStorage)]") == [[], []]
    assert "marmalade" not in tab.content() + tab.title()
    assert tab.url == f"{person.house.url}/"
    tab.reload()
    expect(tab.get_by_label("Token")).to_be_visible()


def test_whose_token_is_revoked_is_back_at_the_door_and_can_come_in_again(
    house: House, person: Person, profile: Profile
) -> None:
    said = person.say("Nightingale marmalade")
    tab = profile(person).new_page()
    tab.add_init_script(HASTE)
    tab.goto(f"{house.url}/#{said['chat']['id']}")
    expect(tab.get_by_text("Nightingale marmalade").first).to_be_visible()
    person.ask("DELETE", "/api/tokens/self")
    expect(tab.get_by_role("heading", name="Your access has ended")).to_be_visible()
    expect(tab.get_by_role("alert")).to_contain_text("revoked")
    assert "marmalade" not in tab.content()
    again = house.person(owner=person.owner)
    sign_in(tab, again)
    expect(tab.get_by_text("Nightingale marmalade").first).to_be_visible()
    expect(tab).to_have_url(f"{house.url}/#{said['chat']['id']}")


def test_whose_token_expires_while_the_page_is_open_is_told(house: House, profile: Profile) -> None:
    brief = house.person(lifetime=3_600)
    page = profile(brief).new_page()
    page.clock.install()
    page.goto(house.url)
    expect(field(page)).to_be_visible()
    expire(page)
    expect(page.get_by_role("heading", name="Your access has ended")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("expired")
    page.get_by_role("button", name="Forget what is kept here").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert page.evaluate("Object.keys(localStorage)") == []


def test_while_the_server_is_away_it_is_asked_again(tab: Page, person: Person) -> None:
    expect(field(tab)).to_be_visible()
    away = {"is": True}
    tab.route("**/api/tokens/self", lambda route: route.abort() if away["is"] else route.continue_())
    tab.reload()
    expect(tab.get_by_role("heading", name="The server does not answer")).to_be_visible()
    assert violations(tab) == []
    tab.get_by_role("button", name="Try again").evaluate("button => { window.again = button; }")
    with tab.expect_event("requestfailed"):
        tab.get_by_role("button", name="Try again").click()
    # It is not made anew each time: what is read out is read out once, and who was at the button still is.
    assert tab.evaluate("again.isConnected && document.activeElement === again")
    away["is"] = False
    expect(field(tab)).to_be_visible()  # by itself
    away["is"] = True
    tab.reload()
    expect(tab.get_by_role("button", name="Try again")).to_be_visible()
    away["is"] = False
    tab.get_by_role("button", name="Try again").click()
    expect(field(tab)).to_be_visible()


def test_a_server_without_tokens_asks_nobody_for_one_until_it_has_some(
    tmp_path: Path, profile: Profile
) -> None:
    """This one keeps no chats, either, and takes no long messages."""
    with housed(tmp_path, "[chats]\nkeep = false", "[server.limits]\nbody_bytes = 20000") as house:
        page = profile().new_page()
        page.add_init_script(HASTE)
        page.goto(house.url)
        expect(field(page)).to_be_visible()
        expect(page.get_by_role("button", name="Signed in as")).to_have_count(0)
        says_that_nothing_is_kept(page, house)
        long = "too long " * 4_000
        send(page, long)
        expect(page.get_by_text("body_bytes").or_(page.get_by_text("too large")).first).to_be_visible()
        expect(field(page)).to_have_value(long.rstrip())
        send(page, "Short")
        shows(page, 1)
        # From the first token on everybody needs one, also who is in.
        person = house.person(owner="local")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        sign_in(page, person)
        says_that_nothing_is_kept(page, house)
        assert person.chats() == []
