"""Staying: whoever reads a stream stays for as long as his token is valid, and no longer.

A request is let in at its beginning; a stream may last for hours. While there are any, their tokens are
looked up again every few seconds, all in one look, and the streams of those that have ended are cut short.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from turnledger.engine.ports import Clock
from turnledger.errors import TurnledgerError
from turnledger.server.admission import Principal, missing, why_not
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
        """By the digest of their token; under an empty one, those who came without."""
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def stay(self, principal: Principal) -> Iterator[None]:
        """While in this block, the task is cancelled when the token ends, once; `reason_of` tells it why.
        Who came without one stays until there is one."""
        digest, task = principal.token.digest if principal.token else b"", asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        readers = self._readers.setdefault(digest, set())
        readers.add(task)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_again(), name="turnledger tokens")
        try:
            yield
        finally:
            readers.discard(task)
            if not readers and self._readers.get(digest) is readers:
                del self._readers[digest]
            if not self._readers and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            try:
                await self.look()
            except TurnledgerError as problem:
                log.warning("tokens_not_looked_up", code=problem.code)

    async def look(self) -> None:
        """Look up the tokens of all readers, and show those the door whose token has ended."""
        digests = [digest for digest in self._readers if digest]
        found = await self._tokens.find_all(digests) if digests else {}
        now = self._clock.now_ms()
        for digest in digests:
            token = found.get(digest)
            if token is None or not token.is_valid(now):
                self._show_out(digest, why_not(token))
        if b"" in self._readers and (await self._tokens.find(None)).any_tokens:
            self._show_out(b"", missing())

    def _show_out(self, digest: bytes, reason: TurnledgerError) -> None:
        # Taken out: whoever is slow to leave is not told twice.
        for task in self._readers.pop(digest, ()):
            task.cancel(reason)


def reason_of(cancelled: asyncio.CancelledError) -> TurnledgerError | None:
    """Why a reader was shown the door; None if he was not, and the task was cancelled for another reason."""
    reason = cancelled.args[0] if cancelled.args else None
    return reason if isinstance(reason, TurnledgerError) else None


def shown_out(cancelled: asyncio.CancelledError) -> None:
    """Raise why a reader was shown the door, if he was, in place of the cancellation."""
    reason, task = reason_of(cancelled), asyncio.current_task()
    if reason is not None and task is not None and not task.uncancel():
        raise reason from None
