"""Host, origin and content-type checks: local programs and configured origins pass, cross-site requests do
not."""

from __future__ import annotations

import pytest

from tests.unit.server.asgi import HOST, JSON, Reply, echo, fetch, run_app
from turnledger.server.access.guard import is_loopback
from turnledger.server.config.settings import Settings

PAGE = b"http://localhost:3000"
OWN = (b"origin", b"http://localhost:8383")


async def reply_to(
    *headers: tuple[bytes, bytes], settings: Settings | None = None, **options: object
) -> Reply:
    settings = settings or Settings()
    async with run_app(settings, echo(settings)) as app:
        return await fetch(app, headers=headers, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "host",
    [b"localhost", b"localhost:8383", b"LOCALHOST:1", b"127.0.0.1:8383", b"[::1]:8383", b"chat.example:80"],
)
async def test_host_of_this_machine_or_of_the_configured_list_is_accepted(host: bytes) -> None:
    reply = await reply_to((b"host", host), settings=Settings(hosts=("Chat.Example",)))
    assert reply.status == 200


@pytest.mark.parametrize(
    "host",
    [
        b"evil.example",
        b"evil.example:8383",
        b"localhost.evil.example",
        b"evil.example#localhost",
        b"localhost@evil.example",
        b"localhost:8383:80",
        b"localhost:",
        b"127.0.0.1.nip.io",
        b"127.0.0.2",
        b"10.0.0.7:8383",
        b"",
        b"\xff",
    ],
)
async def test_unlisted_host_name_is_refused_against_dns_rebinding(host: bytes) -> None:
    reply = await reply_to((b"host", host))
    assert (reply.status, reply.code) == (403, "host_not_allowed")


async def test_request_without_exactly_one_host_header_is_refused() -> None:
    assert (await reply_to()).code == "host_not_allowed"
    for other in (HOST, (b"host", b"evil.example")):
        reply = await reply_to(HOST, other)
        assert (reply.status, reply.code) == (400, "ambiguous_headers")


async def test_public_server_accepts_ip_address_hosts_and_refuses_unlisted_names() -> None:
    settings = Settings(host="0.0.0.0", insecure=True)
    assert (await reply_to((b"host", b"10.0.0.7:8383"), settings=settings)).status == 200
    assert (await reply_to((b"host", b"[fd00::1]:8383"), settings=settings)).status == 200
    assert (await reply_to((b"host", b"evil.example"), settings=settings)).code == "host_not_allowed"


async def test_same_origin_page_may_call_the_server() -> None:
    assert (await reply_to(HOST, OWN, (b"sec-fetch-site", b"same-origin"))).status == 200
    assert (await reply_to(HOST, (b"sec-fetch-site", b"none"))).status == 200


@pytest.mark.parametrize(
    "origin",
    [
        b"http://evil.example",
        b"http://localhost",  # another port
        b"http://localhost:3000",
        b"https://localhost:8383",  # another scheme
        b"http://127.0.0.1:8383",  # another name
        b"http://localhost:8383.evil.example",
        b"null",
        b"",
    ],
)
async def test_a_page_of_another_origin_is_refused(origin: bytes) -> None:
    reply = await reply_to(HOST, (b"origin", origin))
    assert (reply.status, reply.code) == (403, "origin_not_allowed")
    assert reply.header(b"access-control-allow-origin") is None


async def test_request_with_two_origin_headers_is_refused() -> None:
    both = [OWN, (b"origin", PAGE)]
    for order in (both, both[::-1]):
        reply = await reply_to(HOST, *order, settings=Settings(origins=(PAGE.decode(),)))
        assert (reply.status, reply.code) == (400, "ambiguous_headers")
        assert reply.header(b"access-control-allow-origin") is None


@pytest.mark.parametrize("name", [b"content-type", b"content-length", b"sec-fetch-site"])
async def test_repeated_security_header_is_refused(name: bytes) -> None:
    reply = await reply_to(HOST, (name, b"0"), (name, b"1"))
    assert (reply.status, reply.code) == (400, "ambiguous_headers")


async def test_repeated_unchecked_header_is_accepted() -> None:
    assert (await reply_to(HOST, (b"accept", b"a"), (b"accept", b"b"))).status == 200


@pytest.mark.parametrize("site", [b"cross-site", b"same-site"])
async def test_cross_site_browser_request_is_refused(site: bytes) -> None:
    reply = await reply_to(HOST, (b"sec-fetch-site", site))
    assert (reply.status, reply.code) == (403, "cross_site_request")
    assert (await reply_to(HOST, OWN, (b"sec-fetch-site", site))).code == "cross_site_request"


async def test_page_of_a_configured_origin_may_call_and_read_the_answer() -> None:
    settings = Settings(origins=(PAGE.decode(),))
    reply = await reply_to(HOST, (b"origin", PAGE), (b"sec-fetch-site", b"cross-site"), settings=settings)
    assert reply.status == 200
    assert reply.header(b"access-control-allow-origin") == PAGE
    exposed = reply.header(b"access-control-expose-headers") or b""
    assert {b"x-turn-id", b"retry-after", b"x-should-retry", b"x-context-reduced"} <= set(
        exposed.split(b", ")
    )
    assert reply.header(b"vary") == b"origin"
    assert reply.header(b"access-control-allow-credentials") is None
    for origin in (b"http://localhost:3001", b"http://localhost:30001", b"http://localhost:3000/"):
        assert (await reply_to(HOST, (b"origin", origin), settings=settings)).status == 403


async def test_preflight_of_a_configured_origin_is_answered_with_the_allowed_headers() -> None:
    settings = Settings(origins=(PAGE.decode(),))
    preflight = (
        (b"access-control-request-method", b"POST"),
        (b"access-control-request-headers", b"content-type,x-conversation-id"),
    )
    reply = await reply_to(
        HOST, (b"origin", PAGE), *preflight, settings=settings, method="OPTIONS", path="/echo"
    )
    assert (reply.status, reply.body, reply.is_whole) == (204, b"", True)
    assert reply.header(b"access-control-allow-headers") == b"content-type,x-conversation-id"
    assert b"POST" in (reply.header(b"access-control-allow-methods") or b"")
    refused = await reply_to(
        HOST, (b"origin", b"http://evil.example"), *preflight, method="OPTIONS", path="/echo"
    )
    assert refused.status == 403
    hostile = (b"access-control-request-headers", b"a\r\nset-cookie: b")
    cut = await reply_to(HOST, (b"origin", PAGE), preflight[0], hostile, settings=settings, method="OPTIONS")
    assert cut.header(b"access-control-allow-headers") is None


async def test_options_request_without_preflight_headers_is_answered_405() -> None:
    reply = await reply_to(HOST, method="OPTIONS", path="/echo")
    assert (reply.status, reply.code) == (405, "method_not_allowed")


@pytest.mark.parametrize(
    "body_type",
    [
        b"application/json",
        b"application/json; charset=utf-8",
        b'Application/JSON;charset="UTF-8"',
        b"application/x-ndjson",
    ],
)
async def test_json_body_is_accepted_for_each_json_content_type(body_type: bytes) -> None:
    headers = (HOST, (b"content-type", body_type), (b"content-length", b"2"))
    reply = await reply_to(*headers, method="POST", path="/echo", parts=[b"{}"])
    assert (reply.status, reply.body) == (200, b"{}")


@pytest.mark.parametrize(
    "body_type",
    [
        None,
        b"text/plain",
        b"application/x-www-form-urlencoded",
        b"multipart/form-data",
        b"text/plain; application/json",
        b"application/json-seq",
        b"application/json; charset=utf-16",
    ],
)
@pytest.mark.parametrize("length", [(b"content-length", b"2"), (b"transfer-encoding", b"chunked")])
async def test_body_of_a_type_that_needs_no_preflight_is_refused(
    body_type: bytes | None, length: tuple[bytes, bytes]
) -> None:
    headers = [HOST, length, *([(b"content-type", body_type)] if body_type is not None else [])]
    reply = await reply_to(*headers, method="POST", path="/echo", parts=[b"{}"])
    assert (reply.status, reply.code) == (415, "unsupported_media_type")


async def test_request_without_a_body_needs_no_content_type() -> None:
    reply = await reply_to(HOST, (b"content-length", b"0"), method="POST", path="/echo")
    assert reply.status == 200


async def test_valid_request_id_is_echoed() -> None:
    reply = await reply_to(HOST, (b"x-request-id", b"trace-1:a.B_2"))
    assert reply.header(b"x-request-id") == b"trace-1:a.B_2"


@pytest.mark.parametrize(
    "request_id",
    [b"", b"a\r\nset-cookie: b=c", b"a b", b"\x1b[2J", b"<script>", b"a" * 129, b"\xc3\xa9", b"a\n"],
)
async def test_unsafe_request_id_is_replaced(request_id: bytes) -> None:
    reply = await reply_to(HOST, (b"x-request-id", request_id))
    made = reply.header(b"x-request-id") or b""
    assert made.startswith(b"req_")
    assert made != (await reply_to(HOST)).header(b"x-request-id")


async def test_every_answer_forbids_sniffing_framing_and_caching() -> None:
    for reply in (await reply_to(HOST), await reply_to((b"host", b"evil.example"))):
        assert reply.header(b"x-content-type-options") == b"nosniff"
        assert reply.header(b"cache-control") == b"no-store"
        assert b"frame-ancestors 'none'" in (reply.header(b"content-security-policy") or b"")
        assert reply.header(b"x-request-id")


async def test_refused_request_does_not_echo_its_body_or_origin() -> None:
    headers = (HOST, JSON, (b"content-length", b"6"), (b"origin", b"http://evil.example"))
    reply = await reply_to(*headers, method="POST", path="/echo", parts=[b"secret"])
    assert reply.status == 403
    assert b"secret" not in reply.body
    assert b"evil" not in reply.body


def test_is_loopback_accepts_only_loopback_addresses() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "localhost.example", "", "example.org"]))
