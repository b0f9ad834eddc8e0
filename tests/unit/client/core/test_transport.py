"""What both edges tell httpx2, and hear from it."""

from __future__ import annotations

import ssl

import httpx2
import pytest

from turnledger.client import AsyncClient, Client
from turnledger.client.core.exchange import Timeouts
from turnledger.client.core.steps import Request
from turnledger.client.core.transport import PROBLEMS, Address
from turnledger.errors import InvalidInput, RequestFailed


def address(base_url: str) -> Address:
    return Address(base_url, None, Timeouts())


@pytest.mark.parametrize(
    ("problem", "may_have_arrived"),
    [
        (httpx2.ConnectError("Refused."), False),
        (httpx2.ConnectTimeout(""), False),
        (httpx2.PoolTimeout(""), False),
        (httpx2.ReadError(""), True),
        (httpx2.ReadTimeout(""), True),
        (httpx2.WriteError(""), True),
        (httpx2.WriteTimeout(""), True),
        (httpx2.RemoteProtocolError(""), True),
        (httpx2.DecodingError(""), True),
        (httpx2.StreamClosed(), True),
    ],
)
def test_what_may_have_arrived_is_told_from_what_cannot_have(
    problem: Exception, may_have_arrived: bool
) -> None:
    assert isinstance(problem, PROBLEMS)
    broken = Address.broken_by(problem)
    assert (broken.may_have_arrived, broken.is_hopeless) == (may_have_arrived, False)
    assert broken.reason
    assert not broken.reason.endswith(".")


def test_token_is_not_sent_over_plain_http_to_another_machine() -> None:
    remedy = "unencrypted. Use https://, or allow it: allow_http=True"
    for url in ("http://chat.example.com", "http://10.0.0.5:1", "http://[2001:db8::1]", "http://localhost.a"):
        for kind in (Client, AsyncClient):
            with pytest.raises(InvalidInput, match=remedy):
                kind(url, "tlt_secret")
        Client(url).close()
        Client(url, "tlt_secret", allow_http=True).close()
    for url in (
        "http://127.0.0.2:1",
        "http://localhost",
        "http://a.localhost",
        "http://[::1]",
        "https://a.example",
    ):
        Client(url, "tlt_secret").close()


def test_a_certificate_that_is_not_trusted_is_hopeless() -> None:
    problem = httpx2.ConnectError("certificate verify failed")
    problem.__cause__ = OSError()
    problem.__cause__.__context__ = ssl.SSLCertVerificationError()
    assert Address.broken_by(problem).is_hopeless
    assert Address.broken_by(httpx2.UnsupportedProtocol("no")).is_hopeless


@pytest.mark.parametrize(
    ("base_url", "asks_proxies"),
    [
        ("http://127.0.0.1:8383", False),
        ("http://localhost", False),
        ("http://[::1]:1", False),
        ("https://localhost", True),
        ("http://server.test", True),
    ],
)
def test_a_server_of_this_machine_is_asked_directly(base_url: str, asks_proxies: bool) -> None:
    options = address(base_url).http_options
    assert options["trust_env"] is asks_proxies
    assert asks_proxies is ("verify" not in options)  # all authorities are, by default


def test_for_a_server_without_tls_no_certificates_are_read() -> None:
    trusted = address("http://localhost").http_options["verify"]
    assert (trusted.cert_store_stats()["x509"], trusted.verify_mode) == (0, ssl.CERT_REQUIRED)


def test_a_request_carries_what_was_said() -> None:
    request = Request(
        method="GET", path="/api/chats", query=[("q", "a b"), ("tag", "x")], headers={"accept": "y"}
    )
    arguments = address("http://server.test/below/").arguments(request)
    built = httpx2.Client().build_request(**arguments)
    assert str(built.url) == "http://server.test/below/api/chats?q=a+b&tag=x"
    assert built.headers["accept"] == "y"
    assert "authorization" not in built.headers


@pytest.mark.parametrize("port", [0, 65536, 99999])
def test_a_port_that_there_is_not_is_refused_at_once(port: int) -> None:
    with pytest.raises(InvalidInput, match="port"):
        address(f"http://127.0.0.1:{port}")


def test_a_server_that_points_elsewhere_is_not_followed() -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.host)
        return httpx2.Response(307, headers={"location": "http://elsewhere.example/api/turns"})

    with httpx2.Client(transport=httpx2.MockTransport(answer), follow_redirects=True) as http:
        client = Client(http=http, api_key="tl_secret", model="demo")
        with pytest.raises(RequestFailed, match="307"):
            client.chats.open(conversation_key="x").send("Between us.")
        with pytest.raises(RequestFailed, match="307"):
            client.models()
    assert set(asked) == {"127.0.0.1"}
