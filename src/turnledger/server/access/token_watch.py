"""Token watch: end the streams of callers whose token is revoked or expires meanwhile.

A request is authorized once, at its start, and a stream may last for hours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from turnledger.engine.ports import Clock
from turnledger.errors import TurnledgerError
from turnledger.server.access.auth import Principal, missing_token_error, token_error
from turnledger.server.ops.logs import log_repeating
from turnledger.tokens import Tokens

CHECK_EVERY = 2.0
"""Seconds between checks."""


class TokenWatch:
    """Looks up the tokens of all streams of this process at once, and only while a stream is open."""

    def __init__(self, tokens: Tokens, clock: Clock, *, check_every: float = CHECK_EVERY) -> None:
        self._tokens = tokens
        self._clock = clock
        self.check_every = check_every
        self._readers: dict[bytes, set[asyncio.Task[object]]] = {}
        """By the digest of their token; readers without a token are under an empty digest."""
        self._ended: dict[asyncio.Task[object], Callable[[], TurnledgerError]] = {}
        """Cancelled readers, and the error that each is to raise."""
        self._check_task: asyncio.Task[None] | None = None

    @contextmanager
    def while_authorized(self, principal: Principal) -> Iterator[None]:
        """Raise in this block, once, when the caller is no longer authorized. A caller without a token is
        authorized until a token exists."""
        digest, task = principal.token.digest if principal.token else b"", asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        readers = self._readers.setdefault(digest, set())
        readers.add(task)
        if self._check_task is None:
            self._check_task = asyncio.create_task(self._check_periodically(), name="turnledger tokens")
        try:
            yield
        except asyncio.CancelledError:
            if task in self._ended and not task.uncancel():
                raise self._ended[task]() from None  # created here: no reference cycle with this frame
            raise
        finally:
            self._ended.pop(task, None)
            readers.discard(task)
            if not readers and self._readers.get(digest) is readers:
                del self._readers[digest]
            if not self._readers and self._check_task is not None:
                self._check_task.cancel()
                self._check_task = None

    async def _check_periodically(self) -> None:
        while True:
            await asyncio.sleep(self.check_every)
            try:
                await self.check_tokens()
            except TurnledgerError as problem:
                log_repeating("tokens_not_looked_up", code=problem.code)

    async def check_tokens(self) -> None:
        """Look up the tokens of all readers at once, and cancel readers whose token has ended."""
        digests = [digest for digest in self._readers if digest]
        found = await self._tokens.find_all(digests) if digests else {}
        now = self._clock.now_ms()
        for digest in digests:
            token = found.get(digest)
            if token is None or not token.is_valid(now):
                self._end(digest, partial(token_error, token))
        if b"" in self._readers and (await self._tokens.find(None)).any_tokens:
            self._end(b"", missing_token_error)

    def _end(self, digest: bytes, reason: Callable[[], TurnledgerError]) -> None:
        # Removed first, so that a slow reader is not cancelled twice.
        for task in self._readers.pop(digest, ()):
            self._ended[task] = reason
            task.cancel()
