"""Staying: whoever reads a stream stays for as long as his token is valid, and no longer.

A request is let in at its beginning; a stream may last for hours. While there are any, their tokens are
looked up again every few seconds, all in one look, and the streams of those that have ended are cut short.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from turnledger.engine.ports import Clock
from turnledger.errors import StoreError, TurnledgerError
from turnledger.server.admission import Principal, why_not
from turnledger.server.logs import log
from turnledger.tokens import Tokens

EVERY = 2.0
"""Seconds between two looks."""


class Staying:
    """The readers of streams in this process."""

    def __init__(self, tokens: Tokens, clock: Clock, every: float = EVERY) -> None:
        self._tokens = tokens
        self._clock = clock
        self._every = every
        self._readers: dict[bytes, set[asyncio.Task[object]]] = {}
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def stay(self, principal: Principal) -> Iterator[None]:
        """While in this block, the task is cancelled when the token ends; `reason_of` tells it why."""
        token, task = principal.token, asyncio.current_task()
        if token is None or task is None:
            yield
            return
        readers = self._readers.setdefault(token.digest, set())
        readers.add(task)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_again(), name="turnledger tokens")
        try:
            yield
        finally:
            readers.discard(task)
            if not readers:
                self._readers.pop(token.digest, None)
            if not self._readers and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            try:
                await self.look()
            except StoreError as problem:
                log.warning("tokens_not_looked_up", code=problem.code)

    async def look(self) -> None:
        """Look up the tokens of all readers, and show those the door whose token has ended."""
        digests = list(self._readers)
        found = await self._tokens.find_all(digests)
        now = self._clock.now_ms()
        for digest in digests:
            token = found.get(digest)
            if token is None or not token.is_valid(now):
                for task in self._readers.get(digest, ()):
                    task.cancel(why_not(token))


def reason_of(cancelled: asyncio.CancelledError) -> TurnledgerError | None:
    """Why a reader was shown the door; None if he was not, and the task was cancelled for another reason."""
    reason = cancelled.args[0] if cancelled.args else None
    return reason if isinstance(reason, TurnledgerError) else None
