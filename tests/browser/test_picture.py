"""The frame for images from elsewhere, in a real browser: it shows one image to the page around it, and does
nothing else for anybody."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, Request, Route

from tests.browser.conftest import Open, Sites
from tests.browser.victim import Victim, attacked
from turnledger.server.chat_page.built import POLICY

IMAGE = "http://pictures.test/one image.png?a=1&b=#c"
HOLDER = "/holder"
FRAMED = """([url, isSandboxed]) => new Promise(resolve => {
    addEventListener("message", event => resolve({told: event.data.turnledgerPicture, origin: event.origin}));
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


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.fixture(scope="module")
def server(sites: Sites, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    folder = tmp_path_factory.mktemp("pictures")
    with attacked(folder, frames=(sites.of("friend.test"),)) as victim:
        yield victim


def holding(page: Page, server: Victim, frames: str) -> list[Request]:
    """A page of the server's own with its policy, and an image elsewhere; who asks for the image."""
    asked: list[Request] = []

    def give(route: Route) -> None:
        asked.append(route.request)
        route.fulfill(status=200, content_type="image/png", body=png(30, 20))

    policy = f"{POLICY.decode()}; frame-ancestors {frames}"
    head = {"content-security-policy": policy, "content-type": "text/html"}
    page.context.route(f"**{HOLDER}", lambda route: route.fulfill(status=200, headers=head, body="<p>Holder"))
    page.context.route("http://pictures.test/**", give)
    return asked


def address(url: str) -> str:
    return f"/picture#{quote(url, safe='')}"


@pytest.mark.parametrize("is_sandboxed", [True, False])
def test_an_image_is_shown_to_the_page_and_told_apart_from_everything_else(
    is_sandboxed: bool, server: Victim, visit: Open
) -> None:
    page = visit("about:blank")
    asked = holding(page, server, "'none'")
    page.goto(server.url(HOLDER))
    told = page.evaluate(FRAMED, [address(IMAGE), is_sandboxed])
    assert told == {"told": {"width": 30, "height": 20}, "origin": "null"}
    [request] = asked
    assert request.url.startswith("http://pictures.test/one%20image.png?a=1&b=")
    assert "referer" not in request.all_headers()
    frame = page.frames[1]
    assert frame.evaluate("document.querySelector('img').naturalWidth") == 30
    denied = """() => { const out = {};
        try { localStorage.length; out.storage = "there"; } catch (problem) { out.storage = problem.name; }
        try { parent.document; out.parent = "there"; } catch (problem) { out.parent = problem.name; }
        return out; }"""
    assert frame.evaluate(denied) == {"storage": "SecurityError", "parent": "SecurityError"}
    send = "url => fetch(url).then(() => 'sent', problem => problem.name)"
    assert frame.evaluate(send, "http://pictures.test/sent") == "TypeError"
    assert frame.evaluate(send, server.url("/healthz")) == "TypeError"


@pytest.mark.parametrize(
    "url", ["javascript:parent.ran = 1", "data:image/png;base64,AA", "file:///etc/passwd", "", "%"]
)
def test_what_is_no_address_of_an_image_is_not_followed(url: str, server: Victim, visit: Open) -> None:
    page = visit("about:blank")
    asked = holding(page, server, "'none'")
    page.goto(server.url(HOLDER))
    src = address(url) if url != "%" else "/picture#%"
    assert page.evaluate(FRAMED, [src, True]) == {"told": None, "origin": "null"}
    assert (asked, page.evaluate("window.ran")) == ([], None)


def test_what_is_no_image_is_told(server: Victim, visit: Open) -> None:
    page = visit("about:blank")
    holding(page, server, "'none'")
    page.context.route("http://text.test/**", lambda route: route.fulfill(status=200, body="no image"))
    page.goto(server.url(HOLDER))
    assert page.evaluate(FRAMED, [address("http://text.test/x"), True])["told"] is None


def test_the_page_itself_may_not_load_it(server: Victim, visit: Open) -> None:
    page = visit("about:blank")
    asked = holding(page, server, "'none'")
    page.goto(server.url(HOLDER))
    load = """url => new Promise(resolve => { const image = new Image();
        image.onload = () => resolve("shown"); image.onerror = () => resolve("refused");
        image.src = url; })"""
    assert (page.evaluate(load, IMAGE), asked) == ("refused", [])


@pytest.mark.parametrize(("name", "is_shown"), [("friend.test", True), ("evil.test", False)])
def test_it_is_shown_where_the_page_is_framed_and_not_to_others(
    name: str, is_shown: bool, server: Victim, sites: Sites, visit: Open
) -> None:
    page = visit(sites.of(name))
    asked = holding(page, server, sites.of("friend.test"))
    if not is_shown:
        with page.expect_console_message(lambda said: "frame-ancestors" in said.text):
            page.evaluate(LOADED, server.url(address(IMAGE)))
        assert asked == []
        return
    page.evaluate(LOADED, server.url(HOLDER))
    told: Any = page.frames[1].evaluate(FRAMED, [address(IMAGE), True])
    assert told["told"] == {"width": 30, "height": 20}


def test_in_a_window_of_its_own_it_shows_nothing(server: Victim, visit: Open) -> None:
    page = visit("about:blank")
    asked = holding(page, server, "'none'")
    page.goto(server.url(address(IMAGE)))
    assert page.evaluate("document.images.length") == 0
    assert asked == []
