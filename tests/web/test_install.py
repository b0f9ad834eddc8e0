"""The page can be installed, and says so when the server cannot be reached, without storing anything."""

from __future__ import annotations

import json
import re
import struct
from urllib.parse import urljoin

from playwright.sync_api import expect

from tests.long_form import long_only
from tests.web.axe import violations_in_each_theme
from tests.web.page_server import Person, Profile

COLOURS = """() => {
  const all = [...document.querySelectorAll("meta[name=theme-color]")];
  const shown = all.filter(({media}) => matchMedia(media).matches);
  const probe = document.createElement("i");
  probe.style.color = shown[0].content;
  document.body.append(probe);
  const wanted = getComputedStyle(probe).color;
  probe.remove();
  return [shown.length, wanted, getComputedStyle(document.body).backgroundColor];
}"""
CONTROLLED = "navigator.serviceWorker.ready.then(() => true)"


def test_manifest_names_icons_of_its_own_origin_and_theme_colours_follow_the_theme(
    profile: Profile, person: Person
) -> None:
    page = profile(person).new_page()
    page.goto(person.server.url)
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    session = page.context.new_cdp_session(page)
    read = session.send("Page.getAppManifest")
    assert read["errors"] == []
    manifest = json.loads(read["data"])
    assert manifest["name"] == page.title()
    assert urljoin(read["url"], manifest["start_url"]) == urljoin(read["url"], manifest["scope"])
    assert urljoin(read["url"], manifest["start_url"]) == f"{person.server.url}/"
    assert {each.get("purpose") for each in manifest["icons"]} == {None, "maskable"}
    touch = page.evaluate("document.querySelector('link[rel=apple-touch-icon]').href")
    pngs = {
        urljoin(read["url"], each["src"]): each["sizes"] for each in manifest["icons"] if "png" in each["src"]
    }
    for url, sizes in {**pngs, touch: "180x180"}.items():
        reply = page.request.get(url)
        assert (reply.status, reply.headers["content-type"]) == (200, "image/png")
        assert "{}x{}".format(*struct.unpack(">II", reply.body()[16:24])) == sizes
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        for theme in ("", "?theme=light", "?theme=dark"):
            page.goto(f"{person.server.url}/{theme}")
            expect(page.get_by_role("textbox", name="Message")).to_be_visible()
            count, wanted, ground = page.evaluate(COLOURS)
            assert (count, wanted) == (1, ground), (scheme, theme)


@long_only
def test_offline_page_is_shown_without_a_connection_and_gives_way_to_the_page(
    profile: Profile, person: Person
) -> None:
    context = profile(person, service_workers="allow")
    chat = person.run_turn("Remember me")["chat"]["id"]
    page = context.new_page()
    address = f"{person.server.url}/#{chat}"
    page.goto(address)
    expect(page.get_by_role("log")).to_contain_text("Remember me")
    assert page.evaluate(CONTROLLED)

    # With a connection each visit shows the newest page and chat.
    person.run_turn("And this", chat=chat)
    page.reload()
    expect(page.get_by_role("log")).to_contain_text("And this")
    assert page.evaluate("navigator.serviceWorker.controller !== null")
    page.get_by_role("textbox", name="Message").fill("From the page")
    page.keyboard.press("Enter")
    expect(page.get_by_role("log")).to_contain_text("From the page")

    context.set_offline(True)
    for url in (f"{person.server.url}/share#code", address):
        page.goto("about:blank")
        page.goto(url)
        expect(page.get_by_role("heading", name="You are offline")).to_be_visible()
        assert page.url == url
        assert page.evaluate("caches.keys()") == []
    assert violations_in_each_theme(page) == {}
    page.evaluate("window.isFormer = true")
    page.get_by_role("button", name="Try again").click()
    page.wait_for_function("!window.isFormer")
    expect(page.get_by_role("heading", name="You are offline")).to_be_visible()
    # It returns to the chat by itself.
    context.set_offline(False)
    expect(page.get_by_role("log")).to_contain_text("From the page")
    assert page.url == address
    assert page.evaluate("caches.keys()") == []
    # Calls of the API fail as they do without a worker, and other documents are left to the browser.
    context.set_offline(True)
    assert page.evaluate("fetch('/api/chats').then(() => 'answered', () => 'failed')") == "failed"
    context.set_offline(False)


@long_only
def test_service_worker_is_not_registered_in_frames(profile: Profile, person: Person, operator: str) -> None:
    context = profile(person, service_workers="allow")
    page = context.new_page()
    page.goto(operator)
    page.set_content(f'<iframe src="{person.server.url}/?embed=1"></iframe>')
    frame = page.frame_locator("iframe")
    expect(frame.get_by_role("main")).to_be_visible()
    [embedded] = [each for each in page.frames if re.search("embed", each.url)]
    assert embedded.evaluate("navigator.serviceWorker.getRegistrations().then(all => all.length)") == 0
