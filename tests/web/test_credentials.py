"""Another credential in the place of a former one: nothing of that is left, in any tab, in what is stored, or
in what comes late."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Route, expect

from tests.web.chats import make_chats
from tests.web.chatting import write
from tests.web.coming_in import field, is_in, opened, replace_elsewhere, sign_in, sign_out
from tests.web.house import House, Person, Profile
from turnledger.testing.gates import Gate

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
    // Answers that nothing ends on their way, and that come when the test says so.
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
def other(house: House) -> Person:
    """Somebody else, who has a chat."""
    other = house.person()
    other.say("Good morning")
    return other


def traces(page: Page, former: Person, *more: str) -> list[str]:
    """What of the former one can be found."""
    found = page.evaluate(EVERYTHING)
    told = (
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
    return [each for each in told if each in found]


def test_nothing_of_the_former_remains_in_any_tab(person: Person, other: Person, profile: Profile) -> None:
    chat = person.say(TITLE)["chat"]["id"]
    person.say("Second", chat)
    make_chats(person, ["Somewhere else"], scope=SCOPE)
    person.ask("PATCH", f"/api/chats/{chat}", {"pinned": True})
    context = profile(person)
    tabs = [opened(context, f"{person.house.url}/#{chat}") for _ in range(2)]
    for tab in tabs:
        expect(tab.get_by_role("log").get_by_text(TITLE)).to_be_visible()
    first, second = tabs
    # What he likes to see, and whom he likes to ask.
    second.get_by_role("button", name="Scope:").click()
    second.get_by_role("menuitemradio", name=SCOPE).click()
    expect(second.get_by_role("navigation").get_by_text(TITLE)).to_have_count(0)
    second.get_by_role("searchbox").fill(SOUGHT)
    first.get_by_role("button", name="Model: scripted").click()
    first.get_by_role("option", name="other").click()
    expect(first.get_by_role("button", name="Model: other")).to_be_visible()
    # A message whose fate nobody knows, a draft, and a turn that runs.
    second.route("**/api/turns", lambda route: route.abort())
    write(second, UNSENT)
    expect(second.get_by_role("log").get_by_text(UNSENT)).to_be_visible()
    second.wait_for_function("text => JSON.stringify({...localStorage}).includes(text)", arg=UNSENT)
    gate = Gate()
    person.house.model.says("Half of ", gate, ANSWER)
    write(first, RUNNING)
    expect(first.get_by_role("log").get_by_text("Half of")).to_be_visible()
    field(first).fill(DRAFT)
    first.wait_for_function("text => JSON.stringify({...localStorage}).includes(text)", arg=DRAFT)
    assert len(traces(first, person, chat)) > 5

    sign_out(first)
    expect(second.get_by_label("Token")).to_be_visible()
    for tab in tabs:
        assert traces(tab, person, chat) == []
        assert tab.evaluate("[localStorage.length, sessionStorage.length]") == [0, 0]
    sign_in(first, other)
    is_in(second, other)
    person.house.model.release(gate)
    second.unroute_all()
    for tab in tabs:
        expect(tab.get_by_text("Good morning").first).to_be_visible()
        tab.get_by_role("button", name="New chat").click()
        expect(field(tab)).to_have_value("")
        expect(tab.get_by_role("button", name="Model: scripted")).to_be_visible()
        assert traces(tab, person, chat) == []
    write(second, "Mine")
    expect(first.get_by_role("navigation").get_by_text("Mine")).to_be_visible()
    for tab in tabs:
        assert traces(tab, person, chat) == []
        tab.reload()
        is_in(tab, other)
        assert traces(tab, person, chat) == []
    assert sorted(text for each in other.chats() for text, _ in other.turns(each["id"])) == [
        "Good morning",
        "Mine",
    ]


def test_an_answer_to_the_former_that_comes_late_is_shown_nowhere(
    person: Person, other: Person, profile: Profile
) -> None:
    chat = person.say(TITLE)["chat"]["id"]
    context = profile(person)
    page = context.new_page()
    page.add_init_script(LATE)
    page.goto(f"{person.house.url}/#{chat}")
    is_in(page, person)
    wanted = ["/api/chats?", "/api/chats/", "/v1/models"]
    page.wait_for_function("wanted => wanted.every(each => String(late.urls).includes(each))", arg=wanted)
    page.evaluate("late.isHolding = false")
    replace_elsewhere(context, other)
    is_in(page, other)
    expect(page.get_by_text("Good morning").first).to_be_visible()
    page.evaluate("late.release()")
    assert traces(page, person, chat) == []
    page.get_by_role("button", name="New chat").click()
    expect(field(page)).to_be_visible()
    assert traces(page, person, chat) == []


def test_what_is_sent_while_another_tab_signs_in_is_not_said_in_the_name_of_the_other(
    person: Person, other: Person, profile: Profile
) -> None:
    context = profile(person)
    page = opened(context, person.house.url)
    expect(field(page)).to_be_visible()
    held: list[Route] = []
    page.route(
        "**/api/*s", lambda route: held.append(route) if route.request.method == "POST" else route.continue_()
    )
    write(page, UNSENT)
    page.wait_for_function("text => JSON.stringify({...localStorage}).includes(text)", arg=UNSENT)
    replace_elsewhere(context, other)
    is_in(page, other)
    assert {each.request.header_value("authorization") for each in held} == {f"Bearer {person.token}"}
    for route in held:
        route.continue_()
    page.unroute_all()
    page.reload()
    expect(page.get_by_text("Good morning").first).to_be_visible()
    assert traces(page, person) == []
    assert [text for each in other.chats() for text, _ in other.turns(each["id"])] == ["Good morning"]


def test_what_a_tab_writes_down_that_has_not_heard_yet_is_removed(
    person: Person, other: Person, profile: Profile
) -> None:
    context = profile(person)
    page = opened(context, person.house.url)
    expect(field(page)).to_be_visible()
    field(page).fill(DRAFT)
    page.wait_for_function("text => JSON.stringify({...localStorage}).includes(text)", arg=DRAFT)
    names = page.evaluate(
        "text => Object.keys(localStorage).filter(each => localStorage[each].includes(text))", DRAFT
    )
    assert names
    sign_out(page)
    sign_in(page, other)
    late = opened(context, f"{person.house.url}/favicon.svg")
    for name in names:
        late.evaluate("([name, text]) => localStorage.setItem(name, text)", [name, DRAFT])
    page.wait_for_function("text => !JSON.stringify({...localStorage}).includes(text)", arg=DRAFT)
    # What is of somebody who came by a link is not touched.
    elsewhere = "turnledger page:link-abcdef.ghijkl:drafts"
    late.evaluate("name => localStorage.setItem(name, 'kept')", elsewhere)
    sign_out(page)
    assert page.evaluate("Object.keys(localStorage)") == [elsewhere]


def test_the_same_token_again_is_the_same_corner(person: Person, profile: Profile) -> None:
    context = profile(person)
    page = opened(context, person.house.url)
    expect(field(page)).to_be_visible()
    field(page).fill(DRAFT)
    page.wait_for_function("text => JSON.stringify({...localStorage}).includes(text)", arg=DRAFT)
    replace_elsewhere(context, person)
    page.reload()
    expect(field(page)).to_have_value(DRAFT)
