"""Share links: the code leaves the address before the exchange, and a repeated exchange counts once.

Readers read and guests chat until the visit ends.
"""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, Route, expect

from tests.long_form import long_only
from tests.web.axe import violations
from tests.web.page_server import FAST_TIMERS, PageServer, Person, Profile
from tests.web.sign_in import browser_storage, create_link, expire_token, visit_note
from tests.web.thread import message_field

EXCHANGE = "**/api/shares/exchange"
SECRET = "Nightingale marmalade"


def uses(person: Person, link: dict[str, Any]) -> int:
    [found] = [each for each in person.fetch("GET", "/api/shares")["data"] if each["id"] == link["id"]]
    return int(found["uses"])


def chat_of(person: Person, text: str = SECRET) -> str:
    return str(person.run_turn(text)["chat"]["id"])


def follow(profile: Profile, link: dict[str, Any], init: str = "") -> Page:
    page = profile().new_page()
    page.add_init_script(init)
    page.goto(link["url"])
    return page


def test_share_code_is_removed_from_the_address_before_the_exchange(person: Person, profile: Profile) -> None:
    link = create_link(person, chat=chat_of(person))
    page = profile().new_page()
    seen: list[str] = []
    requests: list[str] = []
    page.on("request", lambda request: requests.append(f"{request.url} {request.headers}"))

    def exchanged(route: Route) -> None:
        seen.append(page.evaluate("location.href"))
        route.continue_()

    page.route(EXCHANGE, exchanged)
    page.goto(link["url"])
    expect(page.get_by_role("log").get_by_text(SECRET)).to_be_visible()
    assert seen == [f"{person.server.url}/share"]
    assert page.evaluate("location.href") == f"{person.server.url}/share"
    assert not [each for each in requests if link["code"] in each.partition("#")[0]]
    assert link["code"] not in page.content() + page.title()
    assert link["code"] not in browser_storage(page)
    page.go_back()
    page.go_forward()
    assert link["code"] not in page.evaluate("location.href")


@long_only
def test_shared_chat_opens_at_its_beginning_with_later_turns_on_demand_and_no_composer(
    person: Person, profile: Profile
) -> None:
    chat = chat_of(person, "The first of many")
    for number in range(40):
        person.run_turn(f"Question {number}", chat)
    page = follow(profile, create_link(person, chat=chat))
    first, last = (page.get_by_role("log").get_by_text(text) for text in ("The first of many", "Question 39"))
    expect(first).to_be_in_viewport()
    expect(last).to_have_count(0)
    expect(visit_note(page)).to_contain_text("You can read this chat until")
    expect(page.get_by_role("textbox")).to_have_count(0)
    expect(page.get_by_role("navigation")).to_have_count(0)
    assert person.owner not in page.content()
    # Scrolling down reads on; the button goes to the end, from where scrolling up reads back.
    page.get_by_role("log").evaluate("log => log.scrollTop = log.scrollHeight")
    expect(last).to_be_visible()
    expect(last).not_to_be_in_viewport()
    page.reload()
    expect(first).to_be_in_viewport()
    page.get_by_role("button", name="Latest").click()
    expect(last).to_be_in_viewport()
    page.get_by_role("log").evaluate("log => log.scrollTop = 0")
    expect(first).to_be_visible()
    person.run_turn("And then he said more", chat)
    expect(page.get_by_role("log").get_by_text("And then he said more")).to_be_visible()
    oldest = person.fetch("GET", f"/api/chats/{chat}?before=2")["turns"][0]["id"]
    person.fetch("PATCH", f"/api/chats/{chat}/turns/{oldest}", {"to_user": False})
    expect(first).to_have_count(0)
    expect(page.get_by_role("region", name="Notifications")).to_be_empty()
    person.fetch("DELETE", f"/api/chats/{chat}")
    expect(page.get_by_role("alert")).to_be_visible()
    assert all(each["id"] != chat for each in person.chats())


def test_share_link_for_one_visitor_works_in_one_browser_only(person: Person, profile: Profile) -> None:
    link = create_link(person, chat=chat_of(person), max_uses=1)
    page = follow(profile, link)
    expect(page.get_by_role("log").get_by_text(SECRET)).to_be_visible()
    page.reload()
    expect(page.get_by_role("log").get_by_text(SECRET)).to_be_visible()
    beside = page.context.new_page()
    beside.goto(link["url"])
    expect(beside.get_by_role("log").get_by_text(SECRET)).to_be_visible()
    elsewhere = follow(profile, link)
    expect(elsewhere.get_by_role("heading", name="This link does not work")).to_be_visible()
    assert SECRET not in elsewhere.content()
    assert violations(elsewhere) == []
    assert browser_storage(elsewhere) == "[{},{}]"
    assert uses(person, link) == 1


def test_share_exchange_whose_answer_was_lost_is_repeated_as_the_same_use(
    person: Person, profile: Profile
) -> None:
    link = create_link(person, chat=chat_of(person), max_uses=1)
    page = profile().new_page()
    lost = {"count": 0}

    def lose(route: Route) -> None:
        lost["count"] += 1
        route.fetch()
        route.abort()

    page.route(EXCHANGE, lose)
    page.goto(link["url"])
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    page.reload()  # the code is not in the address any more
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    page.unroute(EXCHANGE, lose)
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("log").get_by_text(SECRET)).to_be_visible()
    assert lost["count"] >= 2
    assert uses(person, link) == 1


def test_share_link_with_too_many_visitors_waits_and_retries(person: Person, profile: Profile) -> None:
    link = create_link(person, chat=chat_of(person))
    page = profile().new_page()
    refusal = {"error": {"code": "too_many_visitors", "message": "Too many.", "type": "rate_limit_error"}}
    headers, crowd = {"retry-after": "1"}, {"is": True}
    page.route(
        EXCHANGE,
        lambda route: (
            route.fulfill(status=429, headers=headers, json=refusal) if crowd["is"] else route.continue_()
        ),
    )
    page.goto(link["url"])
    expect(page.get_by_role("heading", name="Too many visitors right now")).to_be_visible()
    crowd["is"] = False
    expect(page.get_by_role("log").get_by_text(SECRET)).to_be_visible()


def test_second_share_link_in_a_tab_removes_all_data_of_the_first(person: Person, profile: Profile) -> None:
    first = create_link(person, scope="fair", name="The fair")
    page = follow(profile, first)
    expect(visit_note(page)).to_contain_text("guest_")
    guest = page.evaluate("JSON.stringify(localStorage)")
    message_field(page).fill(SECRET)
    page.keyboard.press("Enter")
    expect(page.locator("[data-turn]")).to_have_count(1)
    seen: list[str] = []
    page.on("request", lambda request: seen.append(page.url) if "exchange" in request.url else None)
    second = create_link(person, chat=chat_of(person, "Something else"))
    page.evaluate("url => { location.href = url }", second["url"])
    expect(page.get_by_role("log").get_by_text("Something else")).to_be_visible()
    assert page.url == f"{person.server.url}/share"
    assert seen == [page.url]
    assert SECRET not in page.content()
    left = browser_storage(page)
    assert first["code"][-6:] in guest
    assert first["code"][-6:] not in left
    assert SECRET not in left


def test_guest_sees_the_terms_of_the_visit_and_chats_with_the_allowed_models(
    person: Person, profile: Profile
) -> None:
    link = create_link(person, scope="fair", name="The fair", models=["other"])
    page = follow(profile, link)
    expect(visit_note(page)).to_contain_text("You are guest_")
    expect(visit_note(page)).to_contain_text("a guest of The fair until")
    expect(visit_note(page)).to_contain_text("Available models: other.")
    assert violations(page) == []
    message_field(page).fill("A guest's question")
    page.keyboard.press("Enter")
    expect(page.locator("[data-turn]")).to_have_count(1)
    assert person.server.model.requested_models[-1] == "other"
    chat = page.evaluate("location.hash")
    assert chat.startswith("#conv_")
    page.reload()
    expect(page.get_by_role("log").get_by_text("A guest's question")).to_be_visible()
    assert all("guest" not in str(each) for each in person.chats())
    # Another visitor of the link is another owner.
    other = follow(profile, link)
    expect(visit_note(other)).to_contain_text("guest_")
    assert "A guest's question" not in other.content()


def test_signed_in_user_keeps_their_token_while_visiting_a_share_link(
    person: Person, profile: Profile
) -> None:
    mine = person.server.person()
    mine.run_turn("My own business")
    page = profile(mine).new_page()
    page.goto(create_link(person, chat=chat_of(person))["url"])
    expect(page.get_by_role("log").get_by_text(SECRET)).to_be_visible()
    assert "My own business" not in page.content()
    page.goto(person.server.url)
    expect(page.get_by_role("link", name="My own business")).to_be_visible()
    assert SECRET not in page.content()


def test_visit_ends_when_its_share_link_is_revoked(person: Person, profile: Profile) -> None:
    readers, guests = create_link(person, chat=chat_of(person)), create_link(person, scope="fair")
    reader, guest = follow(profile, readers, FAST_TIMERS), follow(profile, guests, FAST_TIMERS)
    expect(reader.get_by_role("log").get_by_text(SECRET)).to_be_visible()
    expect(visit_note(guest)).to_be_visible()
    for page, link in ((reader, readers), (guest, guests)):
        person.fetch("DELETE", f"/api/shares/{link['id']}")
        page.bring_to_front()
        expect(page.get_by_role("heading", name="Your visit has ended")).to_be_visible()
        assert SECRET not in page.content()
        assert browser_storage(page) == "[{},{}]"


def test_visit_that_expires_in_an_open_page_shows_that_it_has_ended(person: Person, profile: Profile) -> None:
    page = profile().new_page()
    page.clock.install()
    page.goto(create_link(person, scope="fair", visitor_expires_in=3_600)["url"])
    expect(visit_note(page)).to_be_visible()
    expire_token(page)
    expect(page.get_by_role("heading", name="Your visit has ended")).to_be_visible()


def test_leaving_a_visit_removes_its_data_in_every_tab(person: Person, profile: Profile) -> None:
    link = create_link(person, scope="fair")
    page = follow(profile, link)
    expect(visit_note(page)).to_be_visible()
    beside = page.context.new_page()
    beside.goto(f"{person.server.url}/share")  # the link that was followed last
    expect(visit_note(beside)).to_be_visible()
    page.get_by_role("button", name="Leave").click()
    expect(page.get_by_role("heading", name="You have left")).to_be_visible()
    expect(visit_note(beside)).to_have_count(0)
    for each in (page, beside):
        assert each.evaluate("JSON.stringify([{...localStorage}])") == "[{}]"


@long_only
def test_share_page_without_a_complete_link_asks_to_open_the_link_again(
    page_server: PageServer, profile: Profile
) -> None:
    page = profile().new_page()
    page.goto(f"{page_server.url}/share")
    expect(page.get_by_role("alert")).to_contain_text("Open your link again")
    page.goto(f"{page_server.url}/share#tls_cut-off")
    expect(page.get_by_role("alert")).to_contain_text("incomplete")
    assert page.url == f"{page_server.url}/share"
