"""Callers of the loop: what an interrupt leaves behind."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

from turnledger.errors import LedgerClosed
from turnledger.sync.loop import Caller, LedgerLoop


def test_interrupt_before_the_first_step_of_the_work_ends_both() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    loop = LedgerLoop()
    caller = Caller(loop)
    caller._inbox.put(interrupt)  # arrives as soon as the caller waits: the loop has not begun
    with pytest.raises(KeyboardInterrupt):
        caller.run(asyncio.Event().wait())
    assert loop.call(lambda: len(asyncio.all_tasks())) == 1
    loop.close()


def test_calls_that_race_with_the_close_return_or_raise() -> None:
    def call_until_closed(loop: LedgerLoop, is_calling: threading.Event) -> None:
        with suppress(LedgerClosed):
            while True:
                loop.call(int)
                is_calling.set()

    for _ in range(50):
        loop, is_calling = LedgerLoop(), threading.Event()
        threads = [threading.Thread(target=call_until_closed, args=(loop, is_calling)) for _ in range(4)]
        for thread in threads:
            thread.start()
        is_calling.wait()
        loop.close()
        for thread in threads:
            thread.join()
