"""The front door: open a ledger, name a conversation, run turns on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from os import PathLike, fsdecode
from random import Random
from typing import Self

from turnledger.chats import Chats
from turnledger.engine.admission import Authorization
from turnledger.engine.check.check import CheckRequest, check
from turnledger.engine.clock import SystemClock
from turnledger.engine.limits import Limits
from turnledger.engine.ports import Clock, Runner, Store
from turnledger.engine.process import Process
from turnledger.engine.recovery import Recovery
from turnledger.engine.turn.commit import abandon_block
from turnledger.engine.turn.validation import check_limit
from turnledger.engine.turn.worker import JobWorker
from turnledger.errors import InvalidInput, LedgerClosed, TurnledgerError
from turnledger.model.check import Finding
from turnledger.model.conversation import EVERYWHERE, LOCAL, Within
from turnledger.model.ids import RandomBits, SystemEntropy
from turnledger.model.retention import RetentionReport
from turnledger.stores.url import back_up_store, open_store
from turnledger.transfer import Transfer

OWNER = LOCAL
"""The owner of chats when none is named."""


class Ledger(Chats):
    """Keeps chats in one store. Share one per process; close it, or use it as a context manager.

    It is used for one owner, `local`, unless `for_owner` names another.
    """

    def __init__(self, process: Process, secret_bits: RandomBits | None = None) -> None:
        super().__init__(process, Transfer(process), OWNER, None, EVERYWHERE)
        # Secrets are not made of bytes that were fetched in bulk: those would stay in memory.
        self._secret_bits = secret_bits or SystemEntropy(bulk=0)
        self._recovery = Recovery(process)
        self._closing: asyncio.Future[None] | None = None

    def for_owner(
        self,
        owner: str,
        *,
        scope: str | None = None,
        within: Within = EVERYWHERE,
        authorization: Authorization | None = None,
    ) -> Chats:
        """Return the chats of an owner, or those of one scope; see Chats. Costs nothing.

        `within` and `authorization` are for hosts that serve others, see turnledger.hosting. With an
        authorization, turns, moves, forks and resets begin only while it holds; AdmissionMoved is raised
        otherwise.
        """
        return Chats(self._process, self._transfer, owner, scope, within, authorization)

    @classmethod
    async def open(cls, url: str = "memory:", *, limits: Limits | None = None) -> Ledger:
        """Open the store that `url` names: `memory:`, `sqlite:///path` or `postgresql://…`."""
        limits = limits or Limits()
        return await cls.over(await open_store(url, page_bytes=limits.page_bytes), limits=limits)

    @staticmethod
    async def backup(
        url: str, file: str | PathLike[str], *, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Copy the store that `url` names into a new file, as it is at one moment; others may keep using it.

        The copy is whole and on disk, or does not exist. `progress` is called from another thread with the
        bytes copied so far and the total. Raises InvalidInput if the file exists or cannot be written, and
        StoreErrors. Cancelling the caller does not stop the copy.
        """
        await asyncio.to_thread(back_up_store, url, fsdecode(file), progress or (lambda *_: None))

    @classmethod
    async def over(
        cls,
        store: Store,
        *,
        limits: Limits | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> Ledger:
        """Open a ledger over a store of your own; tests may pass a clock and randomness."""
        bits = random.getrandbits if random else SystemEntropy()
        process = Process(store, clock or SystemClock(), bits, limits or Limits())
        ledger = cls(process, random.getrandbits if random else None)
        try:
            await store.keep_lease(process.lease, process.limits.lease_time / 3)
            await ledger._recovery.compare_clocks()
            # Attempts that killed processes left behind must not make this one refuse its first turns.
            await ledger._recovery.take_over_dead()
        except BaseException:
            await store.close()
            raise
        ledger._recovery.start()
        return ledger

    async def close(self) -> None:
        """End the turns that still run here as failed, and release the store. Cancelling the caller does not
        stop it; a second call waits for the first. Raises LedgerElsewhere, as all methods do, in a forked
        process or on another event loop."""
        self._process.home.check()
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        process = self._process
        process.is_closed = True
        process.wake_all()
        try:
            for running in list(process.running.values()):
                with suppress(TurnledgerError):  # the lease reveals attempts that could not be ended
                    await abandon_block(process, running, LedgerClosed())
            await process.wait_until_drained()
        finally:
            await self._recovery.close()
            await process.feed.close()
            await process.flusher.close()
            await process.deliveries.close()
            await process.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def work(self, runner: Runner, *, at_once: int = 4) -> None:
        """Run durable work of all owners, see Chat.enqueue, up to `at_once` turns at a time, until cancelled
        or until the ledger is closed.

        Any number of processes may do so: each turn runs in one of them, and those of a chat in order. What
        still runs at the end is left to be resumed by others.
        """
        if at_once < 1:
            raise InvalidInput("at_once must be 1 or more.")
        await JobWorker(self._process, lambda turn, _: runner(turn), at_once).run()

    async def retain(self) -> RetentionReport:
        """Apply the retention limits of each owner, and report what was removed; a timer does so, too.

        Conversations older than Limits.retain_for are deleted and can be restored. Beyond
        Limits.retain_bytes, the oldest are purged. Never removes a pinned conversation, or one with a running
        turn.
        """
        return await self._recovery.retention.retain()

    async def check(self, *, at_rest: bool = False, limit: int = 1_000) -> list[Finding]:
        """Check that the stored data of all owners keeps the promises, and return what is wrong.

        `at_rest` expects no activity: it also reports attempts that run or wait, though not as damage.
        Changes nothing. On SQLite, commits continue meanwhile; other reads of this ledger wait.
        """
        request = CheckRequest(at_rest=at_rest, limit=check_limit(limit))
        return (await self._process.store.inspect(check, request)).findings
