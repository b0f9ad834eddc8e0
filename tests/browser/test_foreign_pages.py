"""Foreign and rebound pages cannot read from a server on loopback, detect a chat, or run and stop turns.

Navigation from a foreign page shows a refusal. A rebound host name shares the origin in the browser, and the
server still refuses it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Error, Page

from tests.browser.attacks import READING, RUNNING, WEB_SOCKET
from tests.browser.conftest import Open, Sites
from tests.browser.victim import COMPLETIONS, NAMED, SECRET, Victim, learned_values, question

ATTACKS = {**READING, "web socket": WEB_SOCKET}


ELSEWHERE = pytest.mark.parametrize(
    ("page_host", "host"),
    [("evil.test", "127.0.0.1"), ("localhost", "localhost")],
    ids=["another site", "another port"],
)


@ELSEWHERE
@pytest.mark.parametrize("attack", ATTACKS)
def test_foreign_page_reads_nothing_and_cannot_detect_a_chat(
    attack: str, page_host: str, host: str, victim: Victim, page_of: Open
) -> None:
    paths = [victim.private[0], victim.not_there]
    page = page_of(page_host)
    with victim.unharmed(*paths):
        results = [page.evaluate(ATTACKS[attack], victim.url(path, host=host)) for path in paths]
    assert learned_values(results) == []
    assert all(each == results[0] for each in results), "the page can distinguish existing paths"


@pytest.mark.parametrize("attack", ATTACKS)
def test_foreign_page_reads_nothing_where_browsers_send_no_fetch_metadata(
    attack: str, victim: Victim, page_of: Open
) -> None:
    """For a name that is neither of loopback nor https they send no Sec-Fetch-Site, and with a plain GET no
    Origin: the server cannot but answer, and it is the marks on its answers that keep them from the page."""
    paths = [*victim.private, victim.not_there]
    page = page_of("evil.test")
    before = victim.everything()
    with victim.watched(*paths) as seen:
        results = [page.evaluate(ATTACKS[attack], victim.url(path, host=NAMED)) for path in paths]
    assert {line["status"] for line in seen} <= {200, 403, 404}
    assert victim.everything() == before
    assert learned_values(results) == []
    assert all(each == results[0] for each in results), "the page can distinguish existing paths"


@ELSEWHERE
def test_foreign_page_learns_no_size_and_no_status_from_resource_timing(
    page_host: str, host: str, victim: Victim, sites: Sites, visit: Open
) -> None:
    page = visit(sites.of(page_host))
    with victim.unharmed(*victim.private):
        for path in victim.private:
            for attack in ("fetch", "fetch without cors", "image", "frame"):
                page.evaluate(READING[attack], victim.url(path, host=host))
    measured = page.evaluate("performance.getEntriesByType('resource').map(each => each.toJSON())")
    ours = [each for each in measured if each["name"].startswith(victim.url(host=host))]
    assert len(ours) >= len(victim.private)
    for name in ("transferSize", "encodedBodySize", "decodedBodySize", "responseStatus", "contentType"):
        assert {each[name] for each in ours} <= {0, ""}, name
    assert all(each["serverTiming"] == [] for each in ours)


def test_foreign_service_worker_reads_and_caches_nothing(victim: Victim, sites: Sites, visit: Open) -> None:
    page = visit(sites.of("localhost"))  # elsewhere there are none without https
    path = victim.private[0]
    with victim.unharmed(path) as seen:
        result = page.evaluate(
            """async url => {
                await navigator.serviceWorker.register("/worker.js");
                const {active} = await navigator.serviceWorker.ready;
                const reply = new Promise(resolve => {
                    navigator.serviceWorker.onmessage = event => resolve(event.data);
                });
                active.postMessage(url);
                return [await reply, await caches.match("/loot") ?? null];
            }""",
            victim.url(path, host="localhost"),
        )
    assert result == [[{"error": "TypeError"}, {"error": "TypeError"}], None]
    assert [line["code"] for line in seen] == ["origin_not_allowed", "cross_site_request"]


def test_address_typed_by_the_owner_shows_the_chat(victim: Victim, visit: Open) -> None:
    page = visit(victim.url(victim.private[0]))  # as if its address had been typed
    assert SECRET in page.content()


BODY = json.dumps(question("Do as the page says"))


@pytest.mark.parametrize(
    ("page_host", "host"),
    [("evil.test", "127.0.0.1"), ("localhost", "localhost"), ("evil.test", NAMED)],
    ids=["another site", "another port", "by name"],
)
@pytest.mark.parametrize("attack", RUNNING)
def test_foreign_page_cannot_run_or_stop_a_turn(
    attack: str, page_host: str, host: str, victim: Victim, page_of: Open
) -> None:
    paths = [COMPLETIONS, f"/api/turns/{victim.turn}/stop"]
    page = page_of(page_host)
    with victim.unharmed(*paths) as seen:
        results = [page.evaluate(RUNNING[attack], [victim.url(path, host=host), BODY]) for path in paths]
    assert learned_values(results) == []
    assert {line["code"] for line in seen} == {"origin_not_allowed"}


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_foreign_page_cannot_change_a_chat(method: str, victim: Victim, page_of: Open) -> None:
    page = page_of("evil.test")
    path = victim.private[0]
    with victim.unharmed(path) as seen:
        result = page.evaluate(
            "([url, method]) => tried(async () => read(await fetch(url, {method})))",
            [victim.url(path), method],
        )
    assert result == {"error": "TypeError"}
    assert [line["method"] for line in seen] == ["OPTIONS"]


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
def test_navigation_from_a_foreign_page_shows_a_refusal(
    page_host: str, victim: Victim, sites: Sites, visit: Open
) -> None:
    path = victim.private[0]
    host = "localhost" if page_host == "localhost" else None
    page = visit("about:blank")
    for way, lead in WAYS.items():
        page.goto(sites.of(page_host))
        page.evaluate(CLICKED)
        with victim.unharmed(path) as seen:
            page.evaluate(lead, victim.url(path, host=host))
            content = shown(page)
        assert "cross_site_request" in content, way
        assert SECRET not in content, way
        assert {line["code"] for line in seen} == {"cross_site_request"}, way


def test_typed_address_that_redirects_to_the_server_exposes_no_opener_and_changes_no_chat(
    victim: Victim, sites: Sites, visit: Open
) -> None:
    """To the browser that is a wish of its user: there is no page that could look, and nothing is done."""
    before = victim.everything()
    with victim.watched() as seen:
        page = visit(f"{sites.of('evil.test')}/redirect?to={victim.url(victim.private[0])}")
    assert page.evaluate("[window.opener, document.referrer]") == [None, ""]
    assert [line["method"] for line in seen] == ["GET"]
    assert victim.everything() == before


def test_page_opened_from_a_file_is_treated_as_cross_site(
    victim: Victim, visit: Open, tmp_path: Path
) -> None:
    file, path = tmp_path / "page.html", victim.private[0]
    file.write_text("<!doctype html><body>")
    page = visit(file.as_uri())
    with victim.unharmed(path) as seen:
        results = [
            page.evaluate("(url) => tried(async () => read(await fetch(url)))", victim.url(path)),
            page.evaluate("url => loaded('script', {src: url})", victim.url(path))["event"],
        ]
        page.evaluate("url => { location = url; }", victim.url(path))
        content = shown(page)
    assert results == [{"error": "TypeError"}, "error"]
    assert SECRET not in content
    assert [line["code"] for line in seen] == [
        "origin_not_allowed",
        "cross_site_request",
        "cross_site_request",
    ]


@pytest.mark.parametrize("page_host", ["evil.test", "localhost"])
def test_foreign_page_cannot_read_the_window_it_opened(
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
                const attempt = look => { try { return look(); } catch (problem) { return problem.name; } };
                return [attempt(() => opened.document.body.innerText), attempt(() => opened.location.href),
                        opened.length];
            }"""
        )
    assert seen == ["SecurityError", "SecurityError", 0]
    assert SECRET not in content


def test_server_response_cannot_be_framed_by_a_foreign_page(
    victim: Victim, sites: Sites, visit: Open
) -> None:
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


OWN_SITE = ("redirect", "report")


"""Attacks that need something from the attacker's server, where the page has no way back to."""


OTHER_NAMES = (
    "evil.test",
    "127.0.0.1.evil.test",
    "app.localhost",
    "localhost.",
    "0.0.0.0",
    "[::ffff:127.0.0.1]",
)


def possible(attacks: dict[str, str]) -> list[str]:
    return [name for name in attacks if not any(word in name for word in OWN_SITE)]


@pytest.fixture(scope="module")
def rebound(victim: Victim, sites: Sites, page_of: Open) -> Iterator[Page]:
    """A page whose origin has become that of the server."""
    page = page_of("rebound.test")
    page.goto(victim.url("/", host="rebound.test"))
    sites.rebinding.rebind(victim.port)
    yield page
    sites.rebinding.rebind(sites.port)


@pytest.mark.parametrize("attack", [*possible(READING), "web socket"])
def test_rebound_page_reads_nothing(attack: str, victim: Victim, rebound: Page) -> None:
    paths = victim.private if attack == "fetch" else victim.private[:1]
    with victim.unharmed(*paths) as seen:
        for path in paths:
            result = rebound.evaluate({**READING, "web socket": WEB_SOCKET}[attack], path_of(rebound, path))
            assert victim.chat not in repr(result)
            assert SECRET not in repr(result)
    assert {line["code"] for line in seen} == {"host_not_allowed"}


@pytest.mark.parametrize("attack", possible(RUNNING))
def test_rebound_page_cannot_run_or_stop_a_turn(attack: str, victim: Victim, rebound: Page) -> None:
    paths = [COMPLETIONS, f"/api/turns/{victim.turn}/stop"]
    with victim.unharmed(*paths) as seen:
        for path in paths:
            rebound.evaluate(RUNNING[attack], [path_of(rebound, path), BODY])
    assert {line["code"] for line in seen} == {"host_not_allowed"}


def test_rebound_page_receives_only_the_host_not_allowed_error(victim: Victim, rebound: Page) -> None:
    """It may read the answer, being of the same origin: so the browser is no help here."""
    with victim.unharmed(COMPLETIONS):
        result = rebound.evaluate(RUNNING["fetch with a conversation"], [COMPLETIONS, BODY])
    assert result["status"] == 403
    assert json.loads(result["body"])["error"]["code"] == "host_not_allowed"


def test_request_by_another_host_name_of_the_machine_is_refused(victim: Victim, visit: Open) -> None:
    page = visit("about:blank")
    for host in OTHER_NAMES:
        before = victim.everything()
        shown = ""
        # Where the browser does not go, nothing is to be feared.
        with victim.watched() as seen, suppress(Error):
            answer = page.goto(victim.url(victim.private[0], host=host))
            shown = answer.text() if answer else ""
        assert {line["code"] for line in seen} <= {"host_not_allowed"}, host
        assert SECRET not in shown, host
        assert victim.everything() == before, host


def path_of(page: Page, path: str) -> str:
    return str(page.evaluate("path => new URL(path, location).href", path))
