"""Led to the server by a page, a browser is shown nothing but a refusal: what a page has opened or framed, it
may move and measure."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Open, Sites
from tests.browser.victim import SECRET, Victim

WAYS = {
    "link": "url => { clicked({href: url}); }",
    "link without referrer": "url => { clicked({href: url, rel: 'noopener noreferrer'}); }",
    "location": "url => { location = url; }",
    "form": "url => { submitted(url, '', {a: 'b'}, 'GET', '_self'); }",
    "refresh": """url => {
        document.head.append(Object.assign(document.createElement('meta'),
            {httpEquiv: 'refresh', content: '0;url=' + url}));
    }""",
    "redirect": "url => { location = '/redirect?to=' + encodeURIComponent(url); }",
}
CLICKED = """
window.clicked = properties => {
  const link = Object.assign(document.createElement('a'), properties);
  document.body.append(link);
  link.click();
};
"""


def shown(page: Page) -> str:
    page.wait_for_url("**/api/chats/**")
    page.wait_for_load_state()
    return page.content()


@pytest.mark.parametrize("page_host", ["evil.test", "localhost"])
@pytest.mark.parametrize("way", WAYS)
def test_who_is_led_there_is_shown_a_refusal(
    way: str, page_host: str, victim: Victim, sites: Sites, visit: Open
) -> None:
    path = victim.private[0]
    host = "localhost" if page_host == "localhost" else None
    page = visit(sites.of(page_host))
    page.evaluate(CLICKED)
    with victim.unharmed(path) as seen:
        page.evaluate(WAYS[way], victim.url(path, host=host))
        content = shown(page)
    assert "cross_site_request" in content
    assert SECRET not in content
    assert {line["code"] for line in seen} == {"cross_site_request"}


def test_who_types_an_address_that_leads_there_sees_what_is_his_and_nobody_else_does(
    victim: Victim, sites: Sites, visit: Open
) -> None:
    """To the browser that is a wish of its user: there is no page that could look, and nothing is done."""
    before = victim.everything()
    with victim.watched() as seen:
        page = visit(f"{sites.of('evil.test')}/redirect?to={victim.url(victim.private[0])}")
    assert page.evaluate("[window.opener, document.referrer]") == [None, ""]
    assert [line["method"] for line in seen] == ["GET"]
    assert victim.everything() == before


def test_a_page_from_a_file_is_another_site(victim: Victim, visit: Open, tmp_path: Path) -> None:
    file, path = tmp_path / "page.html", victim.private[0]
    file.write_text("<!doctype html><body>")
    page = visit(file.as_uri())
    with victim.unharmed(path) as seen:
        told = [
            page.evaluate("(url) => tried(async () => read(await fetch(url)))", victim.url(path)),
            page.evaluate("url => loaded('script', {src: url})", victim.url(path))["event"],
        ]
        page.evaluate("url => { location = url; }", victim.url(path))
        content = shown(page)
    assert told == [{"error": "TypeError"}, "error"]
    assert SECRET not in content
    assert [line["code"] for line in seen] == [
        "origin_not_allowed",
        "cross_site_request",
        "cross_site_request",
    ]


@pytest.mark.parametrize("page_host", ["evil.test", "localhost"])
def test_a_window_that_a_page_opened_is_closed_to_it(
    page_host: str, victim: Victim, sites: Sites, visit: Open
) -> None:
    path = victim.private[0]
    host = "localhost" if page_host == "localhost" else None
    page = visit(sites.of(page_host))
    with victim.unharmed(path):
        with page.expect_popup() as opening:
            page.evaluate("url => { window.opened = open(url); }", victim.url(path, host=host))
        content = shown(opening.value)
        seen = page.evaluate(
            """() => {
                const tell = look => { try { return look(); } catch (problem) { return problem.name; } };
                return [tell(() => opened.document.body.innerText), tell(() => opened.location.href),
                        opened.length];
            }"""
        )
    assert seen == ["SecurityError", "SecurityError", 0]
    assert SECRET not in content


def test_nothing_of_the_server_can_be_framed(victim: Victim, sites: Sites, visit: Open) -> None:
    """Were it not refused for where it comes from, the browser would not show it."""
    page = visit(sites.of("evil.test"))
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    with victim.unharmed("/healthz"):
        page.evaluate(
            """url => new Promise(resolve => {
                const frame = Object.assign(document.createElement('iframe'), {src: url, onload: resolve});
                document.body.append(frame);
            })""",
            victim.url("/healthz"),
        )
    (frame,) = page.frames[1:]
    frame.wait_for_url("chrome-error://**")
    assert any("frame-ancestors 'none'" in problem for problem in problems)
