"""Names for chats that begin in the terminal: asked of a model, as a server with the same settings does."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from turnledger.cli.chat.store_models import NamedModel
from turnledger.errors import TurnledgerError
from turnledger.ledger import Ledger
from turnledger.model.turn import Turn
from turnledger.runners.titles import Beginning, title_by

PATIENCE = 60.0
"""Seconds that a model may take for a name."""


class Naming:
    """Has chats named in passing: nobody waits for it, and if nothing comes of it, their first words stay."""

    def __init__(self, ledger: Ledger, model: NamedModel) -> None:
        self._ledger = ledger
        self._model = model
        self._making: set[asyncio.Task[None]] = set()

    def begin(self, conversation: str, owner: str, first: Turn) -> None:
        """Ask for the name of a chat whose first turn this is."""
        beginning = Beginning.of(first)
        making = asyncio.create_task(self._name(conversation, owner, beginning), name="turnledger title")
        self._making.add(making)
        making.add_done_callback(self._making.discard)

    async def close(self) -> None:
        """Leave off."""
        for making in self._making:
            making.cancel()
        if self._making:
            await asyncio.wait(self._making)

    async def _name(self, conversation: str, owner: str, beginning: Beginning) -> None:
        with suppress(TurnledgerError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                title = await title_by(self._model.model, self._model.upstream_name, beginning)
            if title is not None:
                await self._ledger.catalogue.name_by_model(conversation, title, owner=owner)
