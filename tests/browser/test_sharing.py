"""A share link in a real browser: who follows it sees what it shows, and the code is gone from where it could
be seen before anything is asked; the page does nothing for anybody else."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Open, Sites
from tests.browser.victim import COMPLETIONS, PATIENCE, SECRET, Victim, attacked, question

HOSTILE = "<img src=x onerror='window.ran = true'><script>window.ran = true</script>"
EXCHANGE = "/api/shares/exchange"


class Host(NamedTuple):
    """A server whose owner shares things, and what he can ask."""

    victim: Victim
    token: str
    chat: str

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection(self.victim.address, self.victim.port, timeout=PATIENCE)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            told = json.loads(answer.read())
        finally:
            connection.close()
        assert answer.status < 300, told
        return told

    def share(self, **wish: Any) -> dict[str, Any]:
        made = self.ask("POST", "/api/shares", wish)
        return {**made, "url": self.victim.url(made["path"])}


@pytest.fixture(scope="module")
def host(sites: Sites, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("sharing")
    with attacked(folder, frames=(sites.of("friend.test"),)) as victim:
        command = [sys.executable, "-m", "turnledger", "tokens", "create"]
        scopes = ["--scopes", "admin,chats:read,chats:write,turns:run", "--owner", "local"]
        store = ["--store", f"sqlite:///{folder / 'chats.db'}"]
        made = subprocess.run([*command, *scopes, *store], capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        host = Host(victim, made.stdout.strip(), victim.chat)
        token = {"Authorization": f"Bearer {host.token}", "X-Conversation-Id": victim.chat}
        assert victim.ask("POST", COMPLETIONS, question(HOSTILE), **token).status == 200
        yield host


def shown(page: Page, state: str = "shown") -> str:
    """What the page says once it has come to an end."""
    page.wait_for_selector(f"body[data-state={state}]")
    return page.inner_text("main")


def test_a_chat_is_read_by_who_follows_its_link_from_anywhere(host: Host, sites: Sites, visit: Open) -> None:
    link = host.share(chat=host.chat, max_uses=1, name="For you")
    page = visit(sites.of("evil.test"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(f"{request.url} {request.headers}"))
    with host.victim.watched("/share", EXCHANGE) as seen:
        page.evaluate("url => { location.href = url; }", link["url"])
        page.wait_for_url("**/share")
        text = shown(page)
    assert SECRET in text
    assert HOSTILE in text  # as text
    assert page.evaluate("window.ran") is None
    assert page.evaluate("location.href") == host.victim.url("/share")
    # Not in the address, nor in any URL, header or line of the log; going back leads to no code either.
    assert not [each for each in asked if link["code"] in each and "#" not in each.split(" ", 1)[0]]
    assert all(link["code"] not in json.dumps(line) for line in seen)
    page.reload()
    assert SECRET in shown(page)
    page.go_back()
    page.go_forward()
    assert link["code"] not in page.evaluate("location.href")


def test_a_link_for_one_is_for_one(host: Host, visit: Open) -> None:
    link = host.share(chat=host.chat, max_uses=1)
    assert SECRET in shown(visit(link["url"]))
    from_elsewhere = visit(link["url"])  # another tab: nothing is shared between them
    assert "not valid" in shown(from_elsewhere, "refused")
    assert from_elsewhere.is_hidden("#again")


def test_the_same_tab_may_open_it_again(host: Host, visit: Open) -> None:
    link = host.share(chat=host.chat, max_uses=1)
    page = visit(link["url"])
    shown(page)
    page.goto("about:blank")
    page.goto(link["url"])
    assert SECRET in shown(page)


def test_another_link_that_is_opened_in_the_same_tab_is_followed_and_removed(host: Host, visit: Open) -> None:
    page = visit(host.share(chat=host.chat)["url"])
    shown(page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(page.url if EXCHANGE in request.url else ""))
    guest = host.share(scope="fair", name="Second")
    page.evaluate("url => { location.href = url }", guest["url"])
    page.wait_for_selector("text=Second")
    assert "a guest of fair" in shown(page)
    assert page.url == host.victim.url("/share")
    assert [each for each in asked if each] == [page.url]
    assert SECRET not in page.inner_text("main")


def test_an_answer_that_was_lost_is_given_again(host: Host, visit: Open) -> None:
    link = host.share(chat=host.chat, max_uses=1)
    page = visit("about:blank")
    page.route(f"**{EXCHANGE}", lambda route: (route.fetch(), route.abort()), times=1)
    page.goto(link["url"])
    shown(page, "refused")
    page.click("#again")
    assert SECRET in shown(page)


def test_a_guest_of_a_scope_is_told_who_he_is(host: Host, visit: Open) -> None:
    link = host.share(scope="fair", name="The fair", models=["demo"])
    page = visit(link["url"])
    text = shown(page)
    assert "You are guest_" in text
    assert "a guest of fair" in text
    assert "demo" in text
    assert SECRET not in text


def test_a_revoked_link_shows_nothing_any_more(host: Host, visit: Open) -> None:
    link = host.share(chat=host.chat)
    page = visit(link["url"])
    assert SECRET in shown(page)
    host.ask("DELETE", f"/api/shares/{link['id']}")
    page.reload()
    assert SECRET not in shown(page, "refused")


def test_without_a_code_it_says_what_it_is_for(host: Host, visit: Open) -> None:
    page = visit(host.victim.url("/share"))
    assert "Open the link again" in shown(page, "refused")


def test_nothing_but_its_own_script_runs_on_the_page(host: Host, visit: Open) -> None:
    page = visit(host.victim.url("/share"))
    shown(page, "refused")
    page.evaluate("""() => {
        for (const add of [
            () => { const s = document.createElement("script"); s.textContent = "window.ran = 1";
                    document.body.append(s); },
            () => { document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.ran = 2'>"); },
            () => { const s = document.createElement("script"); s.src = "/openapi.json";
                    document.body.append(s); },
            () => { document.body.innerHTML = "<b>taken over</b>"; },
        ]) { try { add(); } catch {} }
    }""")
    told = page.evaluate("fetch('http://evil.test/').then(() => 'sent', problem => problem.name)")
    assert (page.evaluate("window.ran"), told) == (None, "TypeError")
    assert "taken over" not in page.inner_text("body")


@pytest.mark.parametrize(("name", "is_shown"), [("friend.test", True), ("evil.test", False)])
def test_it_is_framed_where_the_operator_says_so(
    name: str, is_shown: bool, host: Host, sites: Sites, visit: Open
) -> None:
    link = host.share(chat=host.chat)
    page = visit(sites.of(name))
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.evaluate(
        """url => new Promise(resolve => {
            const frame = document.createElement("iframe");
            frame.onload = () => resolve();
            frame.src = url;
            document.body.append(frame);
        })""",
        link["url"],
    )
    frame = page.frames[1]
    if is_shown:
        frame.wait_for_selector("body[data-state=shown]")
        assert SECRET in frame.inner_text("main")
    else:
        assert any("frame-ancestors" in problem for problem in problems)
        assert SECRET not in frame.inner_text("body")


def test_a_foreign_page_cannot_follow_a_link_by_itself(host: Host, page_of: Open) -> None:
    link = host.share(chat=host.chat)
    told = page_of("evil.test").evaluate(
        """([url, code]) => tried(async () => read(await fetch(url, {method: "POST", headers: {
            "Content-Type": "application/json"}, body: JSON.stringify({code, nonce: "n".repeat(32)})})))""",
        [host.victim.url(EXCHANGE), link["code"]],
    )
    assert told == {"error": "TypeError"}
    [left] = [each for each in host.ask("GET", "/api/shares")["data"] if each["id"] == link["id"]]
    assert left["uses"] == 0
