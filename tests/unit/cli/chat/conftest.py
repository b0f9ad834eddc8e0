from collections.abc import AsyncIterator

import pytest

from turnledger.cli.chat.store import StoreChatBackend
from turnledger.ledger import Ledger
from turnledger.runners.demo import DemoModel
from turnledger.server.models.models import Models, ResolvedModel


@pytest.fixture
async def backend() -> AsyncIterator[StoreChatBackend]:
    model = DemoModel(pace=0)
    models = Models({name: ResolvedModel(model, name) for name in ("small", "large")})
    backend = StoreChatBackend(await Ledger.open(), models, "memory")
    yield backend
    await backend.close()
