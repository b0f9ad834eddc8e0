"""A primary dies, and its synchronous standby takes over: what was acknowledged is there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from urllib.parse import quote

import pytest

from tests.long_form import long_only
from turnledger import Chat, Ledger
from turnledger.errors import TurnledgerError, TurnReplayed
from turnledger.testing.postgresql import PostgresServer

ANSWER = "On its way."


@pytest.fixture
def cluster() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    with PostgresServer.start(settings={}) as primary, primary.start_standby() as standby:
        primary.change("synchronous_standby_names", "standby")
        yield primary, standby


def url_of(cluster: tuple[PostgresServer, ...]) -> str:
    hosts = quote(",".join(str(each.folder) for each in cluster), safe="")
    return f"postgresql://postgres@/postgres?host={hosts}&target_session_attrs=primary"


async def ask(chat: Chat, text: str) -> None:
    async with chat.turn(text) as turn:
        turn.emit(ANSWER)


async def test_ledger_finds_the_promoted_standby_and_every_acknowledged_turn(
    cluster: tuple[PostgresServer, PostgresServer],
) -> None:
    primary, standby = cluster
    async with await Ledger.open(url_of(cluster)) as ledger:
        chat = await ledger.conversation(conversation_key="lane")
        for number in range(5):
            await ask(chat, f"{number}")
        primary.kill()
        standby.promote()
        await ask(chat, "after")
        assert [each.input[0].text for each in await chat.turns()] == [*"01234", "after"]
        assert await ledger.check() == []


@long_only
async def test_turn_that_the_standby_did_not_receive_is_not_acknowledged(
    cluster: tuple[PostgresServer, PostgresServer],
) -> None:
    """PostgreSQL shows such a commit as soon as somebody cancels the wait for the standby."""
    primary, standby = cluster
    acknowledged = []
    async with AsyncExitStack() as stack:
        url = f"{url_of(cluster)}&timeout=1"
        here, there = [await stack.enter_async_context(await Ledger.open(url)) for _ in range(2)]
        chat = await here.conversation(conversation_key="lane")
        await ask(chat, "before")

        async def ask_meanwhile(ledger: Ledger) -> None:
            other = await ledger.conversation(conversation_key="lane")
            try:
                async with other.turn("meanwhile", idempotency_key="k") as turn:
                    begun.set()
                    await cut.wait()
                    turn.emit(ANSWER)
            except TurnReplayed:
                pass
            acknowledged.append("meanwhile")

        begun, cut = asyncio.Event(), asyncio.Event()
        asking = asyncio.create_task(ask_meanwhile(here))
        await begun.wait()
        standby.kill()
        cut.set()
        with pytest.raises(TurnledgerError):
            await asking
        with pytest.raises(TurnledgerError):
            await ask_meanwhile(there)
        primary.kill()
        standby.resume()
        standby.promote()
        chat = await there.conversation(conversation_key="lane")
        assert [each.input[0].text for each in await chat.turns()] == ["before", *acknowledged]
