"""A server listens where it was told, or says what is wrong with that place.

A server may have as many connections as the system lets it have without more rights.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator

import pytest

from tests.unit.server.processes import request, rest_of, started
from turnledger.server.config.file import InvalidSettings
from turnledger.server.config.settings import ServerLimits, Settings
from turnledger.server.listen.socket import allow_open_files, allowed_files, bind, needed_for, url_of


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


resource = pytest.importorskip("resource")

FEW = 256


@pytest.fixture
def few_allowed() -> Iterator[int]:
    """This process may have few files open, and allow itself more; it tells how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_it_allows_itself_what_it_needs(few_allowed: int) -> None:
    assert allow_open_files(FEW + 44) == FEW + 44
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (FEW + 44, few_allowed)
    assert allow_open_files(10) == 10
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (FEW + 44, few_allowed)


def test_more_than_there_may_be_is_not_had(few_allowed: int) -> None:
    if few_allowed == resource.RLIM_INFINITY:
        pytest.skip("there is no bound here")
    assert allowed_files(few_allowed + 1) == few_allowed
    assert allowed_files(few_allowed - 1) == few_allowed - 1


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux tells of other processes")
def test_a_server_as_it_is_run_does_so(few_allowed: int) -> None:
    with started("turnledger", "serve", "--port", "0", "--store", "memory:") as server:
        soft, _ = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        assert soft == allowed_files(needed_for(ServerLimits().requests))
        assert os.listdir(f"/proc/{server.process.pid}/fd")


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the limit of another process cannot be set")
def test_connections_beyond_the_open_files_wait_and_the_log_says_so_once() -> None:
    with started("turnledger", "serve", "--port", "0", "--store", "memory:") as server:
        used = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (used + 30, used + 30))
        clients = [server.connect() for _ in range(100)]
        line = server.wait_for("connection_not_taken")
        assert "Too many open files" in line
        for client in clients:
            client.sendall(request("/healthz", "Connection: close"))
        for client in clients:
            assert '{"status":"ok"}' in rest_of(client)
            client.close()
        code, _, log = server.end(signal.SIGTERM)
        assert (code, log.count("connection_not_taken")) == (0, 0)
