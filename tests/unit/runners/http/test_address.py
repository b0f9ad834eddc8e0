"""A URL is taken apart once, and nothing in it can say more than where the upstream is."""

from __future__ import annotations

import pytest

from turnledger.errors import InvalidInput
from turnledger.runners.http.dial import address_of, checked_api_key


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
def test_the_parts_of_a_url(url: str, host: str, port: int, authority: str, target: str) -> None:
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
        "unix:/run/model.sock",
    ],
)
def test_what_cannot_be_a_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="no URL of a model"):
        address_of(url)


@pytest.mark.parametrize("url", ["http://me:secret@a/v1", "http://me:secret@a b/v1", "http://me:secret@[/v1"])
def test_a_password_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        address_of(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("api_key", ["sk-a\r\nX-Injected: 1", "sk-a\n", " sk-a", "sk-\x00", "sk-é", "\x7f"])
def test_an_api_key_that_no_header_can_carry_is_refused_and_not_repeated(api_key: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        checked_api_key(api_key)
    assert "sk-" not in str(caught.value)


def test_other_api_keys_are_as_they_are() -> None:
    assert checked_api_key("sk-proj_A.b/c+d=:~") == "sk-proj_A.b/c+d=:~"
