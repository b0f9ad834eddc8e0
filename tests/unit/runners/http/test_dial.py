"""The first address that answers is taken, and none is waited for alone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from turnledger.runners.http import dial as dial_module
from turnledger.runners.http.dial import dial, in_turns

pytestmark = pytest.mark.anyio

Address = tuple[int, int, int, str, Any]


def address(port: int, family: int = socket.AF_INET) -> Address:
    return (family, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def refusing() -> int:
    """A port where nobody listens."""
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
    monkeypatch.setattr(dial_module, "resolved", found)


async def test_a_connected_socket_is_given(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    with closing(await dial("localhost", port)) as dialed:
        assert dialed.getpeername()[1] == port
        assert dialed.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert not dialed.getblocking()


async def test_an_address_that_refuses_is_passed_over_at_once(
    monkeypatch: pytest.MonkeyPatch, listening: socket.socket, refusing: int
) -> None:
    resolve(monkeypatch, refusing, listening.getsockname()[1])
    with closing(await dial("host", 1, head_start=1e9)) as dialed:
        assert dialed.getpeername() == listening.getsockname()


async def test_an_address_that_does_not_answer_is_not_waited_for(
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


async def test_who_comes_second_is_closed(monkeypatch: pytest.MonkeyPatch, listening: socket.socket) -> None:
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


async def test_where_nobody_answers_the_first_address_says_why(
    monkeypatch: pytest.MonkeyPatch, refusing: int
) -> None:
    resolve(monkeypatch, refusing, refusing)
    with pytest.raises(ConnectionRefusedError):
        await dial("host", 1)


async def test_who_gives_up_leaves_no_socket(
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


def test_both_kinds_of_addresses_take_turns() -> None:
    six, four = socket.AF_INET6, socket.AF_INET
    found = [address(1, six), address(2, six), address(3, four), address(4, six)]
    assert [each[4][1] for each in in_turns(found)] == [1, 3, 2, 4]
