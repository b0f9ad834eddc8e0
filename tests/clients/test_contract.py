"""The conversation contract: the same scenarios on the embedded ledger, on every client, and in a cross-
origin page. The page plays those that depend on the browser; `python -m tests.clients.play --client
browser` plays all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.clients.drivers.all_drivers import on_clients
from tests.clients.drivers.driver import Driver
from tests.clients.drivers.embedded import EmbeddedDriver
from tests.clients.places import Place, ServedPlace, embedded_place
from tests.clients.play import can_play, stage
from tests.clients.player import Play
from tests.clients.scenario import all_scenarios
from turnledger import Ledger
from turnledger.client import AsyncClient
from turnledger.errors import NotAdmitted
from turnledger.hosting import Host
from turnledger.runners.demo import DemoModel
from turnledger.server.app import make_app
from turnledger.server.config.settings import Settings
from turnledger.server.models.models import Models, ResolvedModel

GUARDED = [name for name, scenario in all_scenarios().items() if scenario.server == "guarded"]
CONTRACT = [name for name, scenario in all_scenarios().items() if scenario.is_contract]


@pytest.fixture(scope="module")
async def embedded() -> AsyncIterator[tuple[Driver, Place]]:
    async with embedded_place() as (ledger, place):
        yield EmbeddedDriver(ledger, DemoModel(pace=0)), place


@pytest.mark.parametrize("name", CONTRACT)
async def test_embedded_ledger_meets_the_contract(name: str, embedded: tuple[Driver, Place]) -> None:
    await Play(all_scenarios()[name], *embedded).run()


@pytest.mark.parametrize(("client", "name"), on_clients(CONTRACT), indirect=["client"])
async def test_client_meets_the_contract(name: str, client: Driver, served: ServedPlace) -> None:
    await Play(all_scenarios()[name], client, served).run()


@pytest.mark.parametrize("name", GUARDED)
async def test_client_with_token_meets_the_contract(name: str, client: Driver, guarded: ServedPlace) -> None:
    await Play(all_scenarios()[name], client, guarded).run()


ABOUT = (
    "fields:",
    "changes:",
    "branches: a switch shows",
    "stops: a stop through",
    "lost-answers: a rename of",
    "wire: a stream that falls",
    "wire: a request that arrives twice",
    "wire: a turn continues after its reader",
    "wire: a turn ends after its reader",
    "wire: a server that starts late",
    "wire: an unreachable server",
)
NAMES = [
    name
    for name, scenario in all_scenarios().items()
    if name.startswith(ABOUT) and can_play("browser", scenario)
]


@pytest.fixture(scope="module")
async def page(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Driver, Place]]:
    async with stage("browser", Path(tmp_path_factory.mktemp("browser"))) as (driver, places):
        yield driver, places[None]


@pytest.mark.parametrize("name", NAMES)
async def test_page_meets_the_contract(name: str, page: tuple[Driver, Place]) -> None:
    await Play(all_scenarios()[name], *page).run()


async def at_once(_: float) -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize("options", [{}, {"idempotency_key": "k", "settings": {"temperature": 1.0}}])
async def test_answer_without_read_scope_is_fetched_by_sending_the_request_again(
    options: dict[str, object],
) -> None:
    async with await Ledger.open() as ledger:
        _, text = await Host(ledger).tokens.create(owner="ada", scopes=["turns:run"])
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
        chat = await ledger.for_owner("ada").conversation(conversation_key="k")
        assert [turn.id for turn in await chat.turns()] == [answer.turn.id]
