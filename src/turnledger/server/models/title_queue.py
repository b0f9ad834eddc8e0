"""Titles by a model: requested after the first turn of a chat is committed and its client has the answer.

No request waits for them: until one comes, and if none does, the first words are the title. A title that a
person sets, earlier or meanwhile, stays.
"""

from __future__ import annotations

import asyncio

from turnledger.errors import TurnledgerError
from turnledger.hosting import Host
from turnledger.model.conversation import Conversation, TitleSource
from turnledger.model.turn import Turn
from turnledger.runners.titles import FirstExchange, write_title
from turnledger.server.models.models import ResolvedModel
from turnledger.server.ops.logs import log, log_unexpected

TITLES_AT_ONCE = 4
QUEUE_LENGTH = 200
"""Chats in the queue; further ones keep their first words."""
PATIENCE = 60.0
"""Seconds that a model may take for one."""


class Titles:
    def __init__(
        self,
        host: Host,
        model: ResolvedModel | None = None,
        *,
        concurrency: int = TITLES_AT_ONCE,
        queue_length: int = QUEUE_LENGTH,
    ) -> None:
        """`model` writes all titles; None: the one that `enqueue` is given."""
        self._host = host
        self._model = model
        self._semaphore = asyncio.Semaphore(concurrency)
        self._max_tasks = concurrency + queue_length
        self.tasks: set[asyncio.Task[None]] = set()
        """Titles being made, or in the queue."""
        self._is_closed = False

    def enqueue(self, conversation: Conversation, turn: Turn, default: ResolvedModel | None = None) -> None:
        """Name the chat of this first turn later. `default` writes the title if no model writes all; without
        either, the first words stay. Never waits, never raises."""
        model = self._model or default
        is_named = conversation.named_by not in (None, TitleSource.WORDS)
        if model is None or conversation.internal or is_named or self._is_closed:
            return
        if len(self.tasks) >= self._max_tasks:
            log.warning("title_left_out", conversation=conversation.id)
            return
        tasks = asyncio.create_task(
            self._write_title(model, conversation, FirstExchange.of(turn)), name="turnledger title"
        )
        self.tasks.add(tasks)
        tasks.add_done_callback(self.tasks.discard)

    async def close(self) -> None:
        self._is_closed = True
        for tasks in self.tasks:
            tasks.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)

    async def _write_title(
        self, model: ResolvedModel, conversation: Conversation, beginning: FirstExchange
    ) -> None:
        id, owner = conversation.id, conversation.owner
        try:
            async with self._semaphore:
                async with asyncio.timeout(PATIENCE):
                    title = await write_title(model.model, model.upstream_name, beginning)
            if title is None:
                log.warning("title_not_made", conversation=id, code="empty_title")
            else:
                await self._host.name_by_model(id, title, owner=owner)
        except TurnledgerError as problem:
            log.warning("title_not_made", conversation=id, code=problem.code)
        except TimeoutError:
            log.warning("title_not_made", conversation=id, code="model_timeout")
        except Exception as problem:
            log_unexpected(problem)
