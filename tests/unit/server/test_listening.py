"""A server listens where it was told, or says what is wrong with that place."""

from __future__ import annotations

import socket

import pytest

from turnledger.server.listening import bind, url_of
from turnledger.server.settings import Settings
from turnledger.server.settings_file import InvalidSettings


def test_a_port_in_use_is_told_with_the_remedy() -> None:
    with bind(Settings(port=0)) as first:
        first.listen()
        port = first.getsockname()[1]
        assert url_of(first) == f"http://127.0.0.1:{port}"
        with pytest.raises(InvalidSettings, match=f"--port: {port} is in use. .* Choose another, or 0"):
            bind(Settings(port=port))


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(InvalidSettings, match=r"--host: 192\.0\.2\.1 is no address of this machine"):
        bind(Settings(host="192.0.2.1", port=0, insecure=True))


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_the_url_of_an_ipv6_address_can_be_used() -> None:
    try:
        listening = bind(Settings(host="[::1]", port=0))
    except InvalidSettings:
        pytest.skip("no IPv6 here")
    with listening:
        assert url_of(listening).startswith("http://[::1]:")
