"""The chat page in a real browser: injected scripts, framing, share links and image frames.

Behaviour that people see is tested in tests/web.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Page, Request, Route

from tests.browser.conftest import Guarded, Open, Sites
from turnledger.server.chat_page.files import POLICY

PATHS = ("/", "/share")


EXCHANGE = "/api/shares/exchange"


def test_chat_page_runs_no_injected_script_and_sends_no_foreign_request(
    guarded: Guarded, visit: Open
) -> None:
    page = visit("about:blank")
    for path in PATHS:
        page.goto(guarded.victim.url(path))
        page.evaluate("""() => {
            for (const add of [
                () => { const s = document.createElement("script"); s.textContent = "window.ran = 1";
                        document.body.append(s); },
                () => { document.body.insertAdjacentHTML(
                            "beforeend", "<img src=x onerror='window.ran = 2'>"); },
                () => { const s = document.createElement("script"); s.src = "/openapi.json";
                        document.body.append(s); },
                () => { document.body.innerHTML = "<b>taken over</b>"; },
            ]) { try { add(); } catch {} }
        }""")
        result = page.evaluate("fetch('http://evil.test/').then(() => 'sent', problem => problem.name)")
        assert (page.evaluate("window.ran"), result) == (None, "TypeError"), path
        assert "taken over" not in page.inner_text("body"), path


def test_chat_page_is_framed_only_by_configured_ancestors(
    guarded: Guarded, sites: Sites, visit: Open
) -> None:
    add = """url => { const frame = document.createElement("iframe"); frame.src = url;
        document.body.append(frame); }"""
    page = visit("about:blank")
    for url in map(guarded.victim.url, PATHS):
        page.goto(sites.of("friend.test"))
        page.evaluate(add, url)
        page.wait_for_function("frames.length === 1")
        page.frames[1].wait_for_url(f"{url}**")
        assert page.frames[1].query_selector("#page") is not None, url
        page.goto(sites.of("evil.test"))
        with page.expect_console_message(lambda message: "frame-ancestors" in message.text):
            page.evaluate(add, url)
        assert not page.frames[1].url.startswith(guarded.victim.url()), url


def test_share_link_exchange_by_a_foreign_page_is_blocked_and_counts_no_use(
    guarded: Guarded, page_of: Open
) -> None:
    link = guarded.fetch("POST", "/api/shares", {"chat": guarded.victim.chat})
    result = page_of("evil.test").evaluate(
        """([url, code]) => tried(async () => read(await fetch(url, {method: "POST", headers: {
            "Content-Type": "application/json"}, body: JSON.stringify({code, nonce: "n".repeat(32)})})))""",
        [guarded.victim.url(EXCHANGE), link["code"]],
    )
    assert result == {"error": "TypeError"}
    [left] = [each for each in guarded.fetch("GET", "/api/shares")["data"] if each["id"] == link["id"]]
    assert left["uses"] == 0


IMAGE = "http://pictures.test/one image.png?a=1&b=#c"


HOLDER = "/holder"


FRAMED = """([url, isSandboxed]) => new Promise(resolve => {
    addEventListener("message", event => resolve({size: event.data.turnledgerPicture, origin: event.origin}));
    const frame = document.createElement("iframe");
    if (isSandboxed) frame.sandbox = "allow-scripts";
    frame.src = url;
    document.body.append(frame);
})"""


LOADED = """url => new Promise(resolve => {
    const frame = document.createElement("iframe");
    frame.src = url;
    frame.onload = resolve;
    document.body.append(frame);
})"""


DENIED = """() => { const out = {};
    try { localStorage.length; out.storage = "there"; } catch (problem) { out.storage = problem.name; }
    try { parent.document; out.parent = "there"; } catch (problem) { out.parent = problem.name; }
    return out; }"""


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def holding(page: Page, frames: str) -> list[Request]:
    """Serve a page with the server's policy, and an image elsewhere; return the image requests."""
    requests: list[Request] = []

    def give(route: Route) -> None:
        requests.append(route.request)
        route.fulfill(status=200, content_type="image/png", body=png(30, 20))

    policy = f"{POLICY.decode()}; frame-ancestors {frames}"
    head = {"content-security-policy": policy, "content-type": "text/html"}
    page.context.route(f"**{HOLDER}", lambda route: route.fulfill(status=200, headers=head, body="<p>Holder"))
    page.context.route("http://pictures.test/**", give)
    return requests


def address(url: str) -> str:
    return f"/picture#{quote(url, safe='')}"


def test_image_frame_shows_an_image_and_isolates_it_from_page_storage_and_network(
    guarded: Guarded, visit: Open
) -> None:
    server, page = guarded.victim, visit("about:blank")
    requests = holding(page, "'none'")
    for is_sandboxed in (True, False):
        page.goto(server.url(HOLDER))
        result = page.evaluate(FRAMED, [address(IMAGE), is_sandboxed])
        assert result == {"size": {"width": 30, "height": 20}, "origin": "null"}
        [request] = requests
        assert request.url.startswith("http://pictures.test/one%20image.png?a=1&b=")
        assert "referer" not in request.all_headers()
        frame = page.frames[1]
        assert frame.evaluate("document.querySelector('img').naturalWidth") == 30
        assert frame.evaluate(DENIED) == {"storage": "SecurityError", "parent": "SecurityError"}
        send = "url => fetch(url).then(() => 'sent', problem => problem.name)"
        assert frame.evaluate(send, "http://pictures.test/sent") == "TypeError"
        assert frame.evaluate(send, server.url("/healthz")) == "TypeError"
        requests.clear()


def test_image_frame_with_an_invalid_address_or_a_non_image_shows_no_image(
    guarded: Guarded, visit: Open
) -> None:
    page = visit("about:blank")
    requests = holding(page, "'none'")
    for url in ("javascript:parent.ran = 1", "data:image/png;base64,AA", "file:///etc/passwd", "", "%"):
        page.goto(guarded.victim.url(HOLDER))
        src = address(url) if url != "%" else "/picture#%"
        assert page.evaluate(FRAMED, [src, True]) == {"size": None, "origin": "null"}, url
        assert (requests, page.evaluate("window.ran")) == ([], None), url
    page.context.route("http://text.test/**", lambda route: route.fulfill(status=200, body="no image"))
    page.goto(guarded.victim.url(HOLDER))
    assert page.evaluate(FRAMED, [address("http://text.test/x"), True])["size"] is None


def test_remote_image_is_blocked_on_the_page_and_in_a_top_level_image_frame(
    guarded: Guarded, visit: Open
) -> None:
    page = visit("about:blank")
    requests = holding(page, "'none'")
    page.goto(guarded.victim.url(HOLDER))
    load = """url => new Promise(resolve => { const image = new Image();
        image.onload = () => resolve("shown"); image.onerror = () => resolve("refused");
        image.src = url; })"""
    assert (page.evaluate(load, IMAGE), requests) == ("refused", [])
    page.goto(guarded.victim.url(address(IMAGE)))
    assert page.evaluate("document.images.length") == 0
    assert requests == []


def test_image_frame_shows_the_image_only_under_a_configured_ancestor(
    guarded: Guarded, sites: Sites, visit: Open
) -> None:
    server, page = guarded.victim, visit(sites.of("evil.test"))
    requests = holding(page, sites.of("friend.test"))
    with page.expect_console_message(lambda message: "frame-ancestors" in message.text):
        page.evaluate(LOADED, server.url(address(IMAGE)))
    assert requests == []
    page.goto(sites.of("friend.test"))
    page.evaluate(LOADED, server.url(HOLDER))
    result: Any = page.frames[1].evaluate(FRAMED, [address(IMAGE), True])
    assert result["size"] == {"width": 30, "height": 20}
