"""Which proxy a request goes through, by its setting and by the environment."""

from __future__ import annotations

from base64 import b64encode

import pytest

from turnledger.errors import InvalidInput
from turnledger.runners.http.dial import Proxy, address_of, proxy_for
from turnledger.runners.http.pool import head_of

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
def test_environment_names_the_proxy_of_each_scheme(
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
def test_no_proxy_and_loopback_are_reached_directly(url: str, exceptions: str, is_direct: bool) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        environ = {"HTTPS_PROXY": "http://proxy.test:3128", name: exceptions}
        assert proxy_for(address_of(url), True, environ) == (None if is_direct else AT)


def test_named_proxy_is_used_whatever_the_environment_says() -> None:
    environ = {"HTTPS_PROXY": "http://other.test", "NO_PROXY": "*"}
    assert proxy_for(HTTPS, "http://proxy.test:3128", environ) == AT
    assert proxy_for(address_of("http://127.0.0.1"), "http://proxy.test:3128", environ) == AT


@pytest.mark.parametrize(
    ("said", "sent"), [("ann:s3cret", "ann:s3cret"), ("ann:p%40ss%3A", "ann:p@ss:"), ("ann", "ann:")]
)
def test_credentials_of_a_proxy_go_to_nobody_else(said: str, sent: str) -> None:
    proxy = proxy_for(HTTP, f"http://{said}@proxy.test:3128", {})
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
def test_wrong_proxy_is_refused_without_its_credentials(url: str) -> None:
    with pytest.raises(InvalidInput, match="not the URL of an HTTP proxy") as caught:
        proxy_for(HTTPS, url, {})
    assert "s3cret" not in str(caught.value)
    if url:
        with pytest.raises(InvalidInput, match=r"^HTTPS_PROXY is not"):
            proxy_for(HTTPS, True, {"HTTPS_PROXY": url})
