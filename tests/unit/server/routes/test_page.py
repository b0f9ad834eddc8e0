"""/ and /share: the chat page and its files, their access and their caching."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.unit.server.asgi import HOST, Reply, fetch
from tests.unit.server.fake_page import ASSET, FILES, PAGE
from turnledger import Ledger
from turnledger.hosting import Host
from turnledger.server.app import App, make_app
from turnledger.server.chat_page.files import POLICY, BuiltPage
from turnledger.server.config.settings import Settings
from turnledger.server.models.models import Models
from turnledger.server.routes.page import PICTURE_PAGE, UNBUILT_PAGE, accepts_gzip, has_version

PAGES = ("/", "/share")
CROSS = [HOST, (b"sec-fetch-site", b"cross-site"), (b"sec-fetch-mode", b"navigate")]
GZIP = (b"accept-encoding", b"gzip, deflate, br")


@asynccontextmanager
async def showing(page: BuiltPage = PAGE, settings: Settings | None = None) -> AsyncIterator[App]:
    async with await Ledger.open("memory:") as ledger:
        yield make_app(ledger, Models({}), settings or Settings(), chat_page=page)


def policy_of(reply: Reply) -> bytes:
    return reply.header(b"content-security-policy") or b""


async def test_chat_page_is_served_cross_site_and_its_policy_restricts_it_to_its_own_origin() -> None:
    async with showing() as app:
        for path in PAGES:
            reply = await fetch(app, path, headers=CROSS)
            assert (reply.status, reply.body) == (200, FILES["index.html"])
            assert policy_of(reply) == POLICY + b"; frame-ancestors 'none'"
            assert reply.header(b"content-type") == b"text/html; charset=utf-8"
            assert reply.header(b"referrer-policy") == b"no-referrer"
            assert (await fetch(app, path, method="POST", headers=CROSS)).status == 403
            assert (await fetch(app, path, headers=[(b"host", b"evil.example")])).status == 403


async def test_chat_page_is_served_without_a_token_where_tokens_exist() -> None:
    async with await Ledger.open("memory:") as ledger:
        await Host(ledger).tokens.create(owner="ann", scopes=["chats:read"])
        app = make_app(ledger, Models({}), Settings(), chat_page=PAGE)
        for path in (*PAGES, f"/assets/{ASSET}", "/favicon.svg", "/service-worker.js"):
            assert (await fetch(app, path)).status == 200


async def test_frame_ancestors_setting_appears_in_every_policy() -> None:
    ancestors = ("https://shop.example.com", "http://localhost:3000")
    for page in (PAGE, BuiltPage({})):
        async with showing(page, Settings(frame_ancestors=ancestors)) as app:
            for path in (*PAGES, f"/assets/{ASSET}", "/healthz", "/nothing"):
                policy = policy_of(await fetch(app, path))
                assert policy.endswith(b"frame-ancestors https://shop.example.com http://localhost:3000")


async def test_picture_frame_policy_allows_images_and_framing_by_the_page() -> None:
    for ancestors, framing in (
        ((), b"'self'"),
        (("https://shop.example.com",), b"'self' https://shop.example.com"),
    ):
        async with showing(settings=Settings(frame_ancestors=ancestors)) as app:
            reply = await fetch(app, "/picture")
            assert (reply.status, reply.body.decode()) == (200, PICTURE_PAGE.text)
            assert policy_of(reply) == PICTURE_PAGE.policy + b"; frame-ancestors " + framing
            assert reply.header(b"referrer-policy") == b"no-referrer"
    allowed = dict(each.split(" ", 1) for each in PICTURE_PAGE.policy.decode().split("; "))
    assert (allowed["img-src"], allowed["sandbox"]) == ("http: https:", "allow-scripts")
    assert "connect-src" not in allowed


async def test_page_assets_are_served_same_origin_and_refused_cross_site() -> None:
    async with showing() as app:
        path = f"/assets/{ASSET}"
        own = await fetch(app, path, headers=[HOST, (b"sec-fetch-site", b"same-origin")])
        assert (own.status, own.body) == (200, FILES[f"assets/{ASSET}"])
        assert own.header(b"content-type") == b"text/javascript; charset=utf-8"
        assert own.header(b"x-content-type-options") == b"nosniff"
        assert policy_of(own).startswith(b"default-src 'none';")
        foreign = await fetch(app, path, headers=[HOST, (b"sec-fetch-site", b"cross-site")])
        assert (foreign.status, foreign.code) == (403, "cross_site_request")


async def test_page_assets_are_cached_immutably_and_pages_are_revalidated() -> None:
    async with showing() as app:
        for path, cache_control in (
            ("/", b"no-cache"),
            ("/share", b"no-cache"),
            ("/favicon.svg", b"no-cache"),
            ("/service-worker.js", b"no-cache"),
            (f"/assets/{ASSET}", b"public, max-age=31536000, immutable"),
        ):
            reply = await fetch(app, path)
            tag = reply.header(b"etag") or b""
            assert (reply.status, reply.header(b"cache-control")) == (200, cache_control)
            again = await fetch(app, path, headers=[HOST, (b"if-none-match", b'"other", W/' + tag)])
            assert (again.status, again.body, again.header(b"etag")) == (304, b"", tag)
            assert again.header(b"cache-control") == cache_control
            changed = await fetch(app, path, headers=[HOST, (b"if-none-match", b'"other"')])
            assert (changed.status, changed.body) == (200, reply.body)


async def test_service_worker_is_a_script_that_may_request_the_page_only_from_its_server() -> None:
    async with showing() as app:
        reply = await fetch(app, "/service-worker.js")
        assert (reply.status, reply.body) == (200, FILES["service-worker.js"])
        assert reply.header(b"content-type") == b"text/javascript; charset=utf-8"
        assert policy_of(reply) == b"default-src 'none'; connect-src 'self'; frame-ancestors 'none'"


async def test_missing_page_asset_is_answered_404_and_not_cached() -> None:
    async with showing() as app:
        for path in (
            "/assets/index-Ab11.js",
            "/assets/",
            "/assets/../index.html",
            "/assets/..%2findex.html",
            "/assets/../../settings.py",
            "/assets//etc/passwd",
        ):
            reply = await fetch(app, path)
            assert (reply.status, reply.code) == (404, "unknown_url")
            assert reply.header(b"cache-control") == b"no-store"


async def test_page_asset_is_compressed_for_clients_that_accept_gzip() -> None:
    async with showing() as app:
        path = f"/assets/{ASSET}"
        plain, packed = await fetch(app, path), await fetch(app, path, headers=[HOST, GZIP])
        assert packed.header(b"content-encoding") == b"gzip"
        assert plain.header(b"content-encoding") is None
        assert gzip.decompress(packed.body) == plain.body
        assert packed.header(b"content-length") == b"%d" % len(packed.body)
        assert packed.header(b"etag") != plain.header(b"etag")
        assert packed.header(b"vary") == plain.header(b"vary") == b"accept-encoding"
        had = (b"if-none-match", packed.header(b"etag") or b"")
        assert (await fetch(app, path, headers=[HOST, GZIP, had])).status == 304
        assert (await fetch(app, path, headers=[HOST, had])).status == 200


async def test_unbuilt_page_explains_how_to_build_it() -> None:
    async with showing(BuiltPage({})) as app:
        for path in PAGES:
            reply = await fetch(app, path, headers=CROSS)
            assert (reply.status, reply.body.decode()) == (200, UNBUILT_PAGE.text)
            assert policy_of(reply) == UNBUILT_PAGE.policy + b"; frame-ancestors 'none'"
            assert all(word in UNBUILT_PAGE.text for word in ("make page", "Node 20.19", "/openapi.json"))
        assert (await fetch(app, f"/assets/{ASSET}")).status == 404
        for path in ("/favicon.svg", "/service-worker.js"):
            assert (await fetch(app, path)).status == 404


@pytest.mark.parametrize(
    ("accepted", "is_welcome"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5, br", True),
        ("*", True),
        ("gzip;q=1.0", True),
        ("", False),
        ("br, zstd", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000, *", False),
        ("*;q=0", False),
        ("xgzip", False),
    ],
)
def test_accept_encoding_is_parsed_for_gzip(accepted: str, is_welcome: bool) -> None:
    assert accepts_gzip(accepted) is is_welcome


@pytest.mark.parametrize(
    ("had", "has_it"),
    [('"a"', True), ('W/"a"', True), ('"b", "a"', True), ("*", True), ('"b"', False), ("", False)],
)
def test_if_none_match_is_compared_with_the_etag(had: str, has_it: bool) -> None:
    assert has_version(had, '"a"') is has_it
