"""Supervisor and worker understand each other, and notice when the other one is gone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from turnledger.server.config.settings import ModelSettings, ServerLimits, Settings
from turnledger.server.listen.channel import (
    Channel,
    Failed,
    Handover,
    Order,
    Ready,
    handovers,
    orders,
    reports,
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Channel, Channel]]:
    ends = [await Channel.over(end) for end in socket.socketpair()]
    yield ends[0], ends[1]
    for end in ends:
        await end.close()


async def test_settings_arrive_as_they_were_however_large() -> None:
    models = {f"model-{number}": ModelSettings(upstream="http://localhost/v1") for number in range(5_000)}
    settings = Settings(store="sqlite:///x", limits=ServerLimits(requests=7), models=models, hosts=("a", "b"))
    sent = Handover(
        settings=settings, part=3, listening=4, board=5, metrics_folder="/tmp/x", log_format="json"
    )
    async with pair() as (supervisor, worker):
        supervisor.send(sent)
        supervisor.send(Order.RECOVER)
        supervisor.send(Order.END)
        assert await worker.receive(handovers) == sent
        assert [await worker.receive(orders) for _ in range(2)] == [Order.RECOVER, Order.END]


async def test_what_a_worker_reports_is_told_apart() -> None:
    async with pair() as (supervisor, worker):
        worker.send(Ready(["demo"]))
        worker.send(Failed("not_a_store", "It is\nnone."))
        assert await supervisor.receive(reports) == Ready(["demo"])
        assert await supervisor.receive(reports) == Failed("not_a_store", "It is\nnone.", None)


async def test_the_end_of_the_other_one_is_noticed_and_nothing_is_sent_to_the_dead() -> None:
    async with pair() as (supervisor, worker):
        waiting = asyncio.create_task(worker.receive(orders))
        await supervisor.close()
        assert await waiting is None
        supervisor.send(Order.END)
        assert await worker.receive(orders) is None


async def test_half_a_message_is_none() -> None:
    ours, theirs = socket.socketpair()
    worker = await Channel.over(theirs)
    ours.sendall(b'"end"')
    ours.close()
    assert await worker.receive(orders) is None
    await worker.close()
