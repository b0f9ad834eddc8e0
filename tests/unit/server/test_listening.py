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


def test_a_name_that_stands_for_more_than_this_machine_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="which other machines can reach"):
        bind(Settings(host="0.0.0.0", port=0))
    with bind(Settings(host="0.0.0.0", port=0, insecure=True)) as listening:
        assert listening.getsockname()[0] == "0.0.0.0"


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_the_url_of_an_ipv6_address_can_be_used() -> None:
    try:
        listening = bind(Settings(host="[::1]", port=0))
    except InvalidSettings:
        pytest.skip("no IPv6 here")
    with listening:
        assert url_of(listening).startswith("http://[::1]:")
