"""A token that may run turns, and not read, is given the answers to what it asks, whole."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from turnledger import Ledger
from turnledger.client import AsyncClient
from turnledger.errors import NotAdmitted
from turnledger.runners.demo import DemoModel
from turnledger.server.app import make_app
from turnledger.server.config.settings import Settings
from turnledger.server.models.models import Models, ResolvedModel


async def at_once(_: float) -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize("options", [{}, {"idempotency_key": "k", "settings": {"temperature": 1.0}}])
async def test_an_answer_that_may_not_be_looked_up_is_told_by_asking_again(
    options: dict[str, object],
) -> None:
    async with await Ledger.open() as ledger:
        _, text = await ledger.tokens.create(owner="ada", scopes=["turns:run"])
        app = make_app(ledger, Models({"demo": ResolvedModel(DemoModel(sleep=at_once), "demo")}), Settings())
        async with (
            httpx2.AsyncClient(transport=httpx2.ASGITransport(app)) as http,
            AsyncClient("http://localhost:8383", text, model="demo", http=http) as client,
        ):
            answer = await client.chats.open(conversation_key="k").send("Grüße 1.0", **options)  # type: ignore[call-overload]
            assert answer.text.startswith('You said "Grüße 1.0".')
            assert (answer.state, answer.is_replayed, answer.chat.preview) == ("created", False, "")
            with pytest.raises(NotAdmitted):
                await client.chats.open(str(answer.chat.id)).read()
        chat = await ledger.conversation(conversation_key="k", owner="ada")
        assert [turn.id for turn in await chat.turns()] == [answer.turn.id]
