"""The front door for blocking programs: a ledger on an event loop of its own."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from os import PathLike, fsdecode
from typing import Any, Self, cast

from turnledger import ledger as awaiting
from turnledger.engine.admission import Authorization
from turnledger.engine.limits import Limits
from turnledger.engine.ports import Runner, Store
from turnledger.engine.turn.running_turn import RunningTurn as AwaitingTurn
from turnledger.errors import LedgerClosed, LedgerElsewhere
from turnledger.model.check import Finding
from turnledger.model.conversation import EVERYWHERE, Within
from turnledger.model.retention import RetentionReport
from turnledger.stores.url import back_up_store
from turnledger.sync.block import AnyRunner, BlockingRunner, is_awaiting
from turnledger.sync.chats import Chats
from turnledger.sync.loop import LedgerLoop
from turnledger.sync.running_turn import RunningTurn


class Ledger(Chats):
    """Keeps chats in one store, for blocking programs. Share one per process, by all its threads.

    It is closed at the end of the program, or by `close`, or as a context manager. In a forked process its
    methods raise LedgerElsewhere: open a ledger after the fork. It is used for one owner, `local`, unless
    `for_owner` names another.
    """

    _inner: awaiting.Ledger

    def __init__(self, loop: LedgerLoop, ledger: awaiting.Ledger) -> None:
        super().__init__(loop, ledger)
        atexit.register(self._close_at_exit)

    @classmethod
    def open(cls, url: str = "memory:", *, limits: Limits | None = None) -> Self:
        """Open the store that `url` names: `memory:` or `sqlite:///path`."""
        return cls._over(lambda: awaiting.Ledger.open(url, limits=limits))

    @classmethod
    def over(cls, store: Store, *, limits: Limits | None = None) -> Self:
        """Open a ledger over a store of your own."""
        return cls._over(lambda: awaiting.Ledger.over(store, limits=limits))

    @classmethod
    def _over(cls, opens: Callable[[], Coroutine[Any, Any, awaiting.Ledger]]) -> Self:
        loop = LedgerLoop()
        try:
            return cls(loop, loop.run(opens()))
        except BaseException:
            loop.close()
            raise

    @staticmethod
    def backup(
        url: str, file: str | PathLike[str], *, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Copy the store that `url` names into a new file, as it is at one moment; others may keep using it.

        The copy is whole and on disk, or does not exist. `progress` is called with the bytes copied so far
        and the total. Raises InvalidInput if the file exists or cannot be written, and StoreErrors.
        """
        back_up_store(url, fsdecode(file), progress or (lambda *_: None))

    def for_owner(
        self,
        owner: str,
        *,
        scope: str | None = None,
        within: Within = EVERYWHERE,
        authorization: Authorization | None = None,
    ) -> Chats:
        """Return the chats of an owner, or those of one scope; see Chats. Costs nothing."""
        return Chats(
            self._loop,
            self._inner.for_owner(owner, scope=scope, within=within, authorization=authorization),
        )

    def close(self) -> None:
        """End the turns that still run here as failed, release the store, and end the loop. A second call
        waits for the first. Raises LedgerElsewhere in a forked process."""
        with suppress(LedgerClosed):
            self._loop.run(self._inner.close())
        self._loop.close()
        atexit.unregister(self._close_at_exit)

    def _close_at_exit(self) -> None:
        with suppress(LedgerElsewhere):  # the one that a forked process has is its parent's to close
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def work(self, runner: AnyRunner, *, at_once: int = 4) -> None:
        """Run durable work of all owners, see Chat.enqueue, up to `at_once` turns at a time, until
        interrupted or until the ledger is closed. A blocking runner runs in threads of its own.

        Any number of processes may do so: each turn runs in one of them, and those of a chat in order. What
        still runs at the end is left to be resumed by others.
        """
        threads = ThreadPoolExecutor(max(1, at_once), "turnledger work")

        async def run_in_thread(turn: AwaitingTurn) -> None:
            loop, blocking = asyncio.get_running_loop(), cast("BlockingRunner", runner)
            await loop.run_in_executor(threads, blocking, RunningTurn(self._loop, turn))

        chosen = cast("Runner", runner) if is_awaiting(runner) else run_in_thread
        try:
            with suppress(LedgerClosed):
                self._loop.run(self._inner.work(chosen, at_once=at_once))
        finally:
            threads.shutdown(wait=False)

    def retain(self) -> RetentionReport:
        """Apply the retention limits of each owner, and report what was removed; a timer does so, too. See
        the awaiting Ledger."""
        return self._loop.run(self._inner.retain())

    def check(self, *, at_rest: bool = False, limit: int = 1_000) -> list[Finding]:
        """Check that the stored data of all owners keeps the promises, and return what is wrong. See the
        awaiting Ledger."""
        return self._loop.run(self._inner.check(at_rest=at_rest, limit=limit))
