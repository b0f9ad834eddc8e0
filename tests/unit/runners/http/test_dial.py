"""Connection targets: the parts of a URL, the proxy, and the first address that answers."""

from __future__ import annotations

import asyncio
import socket
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from turnledger.errors import InvalidInput
from turnledger.runners.http import dial as dial_module
from turnledger.runners.http.dial import Proxy, address_of, check_api_key, dial, interleave, proxy_for
from turnledger.runners.http.pool import head_of


@pytest.mark.parametrize(
    ("url", "host", "port", "authority", "target"),
    [
        ("http://localhost:11434/v1", "localhost", 11434, "localhost:11434", "/v1/models"),
        ("http://localhost", "localhost", 80, "localhost", "/models"),
        ("https://Api.Example.com/v1/", "api.example.com", 443, "api.example.com", "/v1/models"),
        ("https://api.example.com:443/v1", "api.example.com", 443, "api.example.com", "/v1/models"),
        ("https://api.example.com:80/v1", "api.example.com", 80, "api.example.com:80", "/v1/models"),
        ("http://[::1]:8000/v1", "::1", 8000, "[::1]:8000", "/v1/models"),
        ("http://bücher.example/v1", "xn--bcher-kva.example", 80, "xn--bcher-kva.example", "/v1/models"),
        ("http://a/v1?api-version=1&x=ü#part", "a", 80, "a", "/v1/models?api-version=1&x=%C3%BC"),
        ("http://a/é/%20b", "a", 80, "a", "/%C3%A9/%20b/models"),
    ],
)
def test_address_of_a_url_has_host_port_authority_and_target(
    url: str, host: str, port: int, authority: str, target: str
) -> None:
    address = address_of(url)
    assert (address.host, address.port, address.authority) == (host, port, authority)
    assert address.target("/models") == target
    assert address.is_secure is url.startswith("https")


@pytest.mark.parametrize(
    "url",
    [
        "http://a/v1\r\nX-Injected: 1",
        "http://a\r\nX-Injected: 1/v1",
        "http://a/v1\t",
        " http://a/v1",
        "http://a b/v1",
        "http://a/v1?x=\x00",
        "http://a/v1\x7f",
        "http://a:99999/v1",
        "http://a:0/v1",
        "http://a:x/v1",
        "http://a..b/v1",
        "http://" + "a" * 64 + "/v1",
        "http://a,b/v1",
        "http://[::1/v1",
        "http://[",
        "http://",
        "",
        "/v1",
        "localhost:1",
        "ftp://a/v1",
        "unix:/run/model.sock",
    ],
)
def test_malformed_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="not the URL of a model"):
        address_of(url)


@pytest.mark.parametrize("url", ["http://me:secret@a/v1", "http://me:secret@a b/v1", "http://me:secret@[/v1"])
def test_url_with_a_password_is_refused_and_the_password_not_repeated(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        address_of(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("api_key", ["sk-a\r\nX-Injected: 1", "sk-a\n", " sk-a", "sk-\x00", "sk-é", "\x7f"])
def test_an_api_key_that_no_header_can_carry_is_refused_and_not_repeated(api_key: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_api_key(api_key)
    assert "sk-" not in str(caught.value)


def test_api_key_of_printable_ascii_is_returned_unchanged() -> None:
    assert check_api_key("sk-proj_A.b/c+d=:~") == "sk-proj_A.b/c+d=:~"


HTTPS = address_of("https://api.example.com/v1")
HTTP = address_of("http://api.example.com:8000/v1")
AT = Proxy("proxy.test", 3128)


@pytest.mark.parametrize(
    ("address", "environ", "proxy"),
    [
        (HTTPS, {"HTTPS_PROXY": "http://proxy.test:3128"}, AT),
        (HTTPS, {"HTTPS_PROXY": "proxy.test:3128"}, AT),
        (HTTPS, {"HTTPS_PROXY": "http://other.test", "https_proxy": "http://proxy.test:3128/"}, AT),
        (HTTPS, {"HTTP_PROXY": "http://proxy.test:3128"}, None),
        (HTTPS, {"HTTPS_PROXY": ""}, None),
        (HTTP, {"http_proxy": "http://proxy.test"}, Proxy("proxy.test", 80)),
        (HTTP, {"HTTP_PROXY": "http://[::1]:8080"}, Proxy("::1", 8080)),
        (HTTP, {"HTTPS_PROXY": "http://proxy.test:3128"}, None),
    ],
)
def test_proxy_for_reads_the_proxy_of_each_scheme_from_the_environment(
    address: object, environ: dict[str, str], proxy: Proxy | None
) -> None:
    assert proxy_for(address, True, environ) == proxy  # type: ignore[arg-type]
    assert proxy_for(address, False, environ) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "exceptions", "is_direct"),
    [
        ("https://api.example.com", "example.com", True),
        ("https://api.example.com", "other.test, .EXAMPLE.com", True),
        ("https://api.example.com", "other.test *.example.com", True),
        ("https://example.com", ".example.com", True),
        ("https://api.example.com", "*", True),
        ("https://api.example.com", "api.example.com:443", True),
        ("https://api.example.com", "api.example.com:8443", False),
        ("https://api.example.com", "ple.com,pi.example.com,", False),
        ("https://10.1.2.3", "10.0.0.0/8", True),
        ("https://10.1.2.3:8443", "10.1.2.3:8443", True),
        ("https://11.1.2.3", "10.0.0.0/8,1.2.3", False),
        ("https://[fd00::7]", "fd00::/8", True),
        ("https://[fd00::7]:8443", "[fd00::7]:8443", True),
        ("https://[fd00::7]", "[fd00::8],10.0.0.0/8", False),
        ("https://127.0.0.1:8443", "", True),
        ("https://[::1]:8443", "", True),
        ("https://localhost", "", True),
        ("https://model.localhost", "", True),
        ("https://localhost.example.com", "", False),
    ],
)
def test_proxy_for_a_no_proxy_host_or_loopback_returns_none(
    url: str, exceptions: str, is_direct: bool
) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        environ = {"HTTPS_PROXY": "http://proxy.test:3128", name: exceptions}
        assert proxy_for(address_of(url), True, environ) == (None if is_direct else AT)


def test_proxy_given_explicitly_overrides_the_environment() -> None:
    environ = {"HTTPS_PROXY": "http://other.test", "NO_PROXY": "*"}
    assert proxy_for(HTTPS, "http://proxy.test:3128", environ) == AT
    assert proxy_for(address_of("http://127.0.0.1"), "http://proxy.test:3128", environ) == AT


@pytest.mark.parametrize(
    ("credentials", "sent"), [("ann:s3cret", "ann:s3cret"), ("ann:p%40ss%3A", "ann:p@ss:"), ("ann", "ann:")]
)
def test_proxy_credentials_are_sent_only_to_the_proxy(credentials: str, sent: str) -> None:
    proxy = proxy_for(HTTP, f"http://{credentials}@proxy.test:3128", {})
    assert proxy is not None
    assert proxy[:2] == ("proxy.test", 3128)
    line = b"\r\nProxy-Authorization: Basic " + b64encode(sent.encode()) + b"\r\n"
    assert line in head_of("GET", HTTP, "/models", None, proxy)
    assert b"Proxy-" not in head_of("GET", HTTPS, "/models", None, proxy)
    assert "Basic" not in repr(proxy)


@pytest.mark.parametrize(
    "url",
    ["https://ann:s3cret@proxy.test", "socks5://ann:s3cret@proxy.test", "http://ann:s3cret@", "http://x y",
     "http://ann:s3cret@proxy.test\r\nX: y", "http://ann:s3cret@proxy.test:0", "http://ann:%ff@p.test", ""],
)  # fmt: skip
def test_invalid_proxy_url_is_refused_without_repeating_its_credentials(url: str) -> None:
    with pytest.raises(InvalidInput, match="not the URL of an HTTP proxy") as caught:
        proxy_for(HTTPS, url, {})
    assert "s3cret" not in str(caught.value)
    if url:
        with pytest.raises(InvalidInput, match=r"^HTTPS_PROXY is not"):
            proxy_for(HTTPS, True, {"HTTPS_PROXY": url})


Address = tuple[int, int, int, str, Any]


def address(port: int, family: int = socket.AF_INET) -> Address:
    return (family, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def refusing() -> int:
    """A port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Addresses:
    """Stands for the resolver."""

    def __init__(self, *found: Address) -> None:
        self._found = found

    async def __call__(self, *_: Any, **__: Any) -> list[Address]:
        return list(self._found)


def resolve(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    found = Addresses(*map(address, ports))
    monkeypatch.setattr(dial_module, "resolve_host", found)


async def test_dial_returns_a_connected_nonblocking_socket_with_nodelay(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    with closing(await dial("localhost", port)) as dialed:
        assert dialed.getpeername()[1] == port
        assert dialed.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert not dialed.getblocking()


async def test_dial_skips_an_address_that_refuses_at_once(
    monkeypatch: pytest.MonkeyPatch, listening: socket.socket, refusing: int
) -> None:
    resolve(monkeypatch, refusing, listening.getsockname()[1])
    with closing(await dial("host", 1, head_start=1e9)) as dialed:
        assert dialed.getpeername() == listening.getsockname()


async def test_dial_does_not_wait_for_an_address_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, listening: socket.socket
) -> None:
    silent, port = 9, listening.getsockname()[1]
    connect, given_up = dial_module._connect, asyncio.Event()

    async def connect_unless_silent(loop: Any, to: Address) -> socket.socket:
        if to[4][1] == silent:
            try:
                await asyncio.Event().wait()
            finally:
                given_up.set()
        return await connect(loop, to)

    monkeypatch.setattr(dial_module, "_connect", connect_unless_silent)
    resolve(monkeypatch, silent, port)
    with closing(await dial("host", 1, head_start=0.0)) as dialed:
        assert dialed.getpeername()[1] == port
    await given_up.wait()


async def test_dial_closes_the_socket_that_connects_second(
    monkeypatch: pytest.MonkeyPatch, listening: socket.socket
) -> None:
    made: list[socket.socket] = []
    connect = dial_module._connect

    async def noted(loop: Any, to: Address) -> socket.socket:
        made.append(await connect(loop, to))
        return made[-1]

    monkeypatch.setattr(dial_module, "_connect", noted)
    port = listening.getsockname()[1]
    resolve(monkeypatch, port, port)
    with closing(await dial("host", 1, head_start=0.0)) as dialed:
        for _ in range(10):
            await asyncio.sleep(0)
        assert [each.fileno() == -1 for each in made if each is not dialed] in ([], [True])


async def test_dial_with_every_address_refusing_raises_the_first_error(
    monkeypatch: pytest.MonkeyPatch, refusing: int
) -> None:
    resolve(monkeypatch, refusing, refusing)
    with pytest.raises(ConnectionRefusedError):
        await dial("host", 1)


async def test_cancelled_dial_leaves_no_socket_open(
    monkeypatch: pytest.MonkeyPatch, listening: socket.socket
) -> None:
    port = listening.getsockname()[1]
    resolve(monkeypatch, port, port)
    dialing_on = asyncio.create_task(dial("host", 1))
    await asyncio.sleep(0)
    dialing_on.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dialing_on

    # A socket left open would be a warning, and warnings are errors.


def test_addresses_alternate_between_ipv6_and_ipv4() -> None:
    six, four = socket.AF_INET6, socket.AF_INET
    found = [address(1, six), address(2, six), address(3, four), address(4, six)]
    assert [each[4][1] for each in interleave(found)] == [1, 3, 2, 4]
