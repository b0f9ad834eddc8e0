"""`turnledger serve` that exceeds its memory limit at SIGUSR1, and blocks its loop at SIGUSR2."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from turnledger.cli import main
from turnledger.server.listen import serve
from turnledger.server.ops import watchdog

LIMIT = 1 << 40
resident = 0
remedies: list[watchdog.Remedy] = []


def grow(*_: object) -> None:
    global resident
    resident = LIMIT + 1


def stand_still(*_: object) -> None:
    for remedy in remedies:
        object.__setattr__(remedy, "stall_wait", 0.1)  # only now, since a busy machine may delay the loop
    threading.Event().wait()


def note(retire: Callable[[], object], abort: Callable[[], object], stall_wait: float) -> watchdog.Remedy:
    remedies.append(watchdog.Remedy(retire, abort, stall_wait))
    return remedies[-1]


if __name__ == "__main__":
    watchdog.CHECK_EVERY, watchdog.YOUNG = 0.01, 0.0
    watchdog.resident_bytes = lambda pid: resident
    serve.worker_ceiling = lambda settings: LIMIT
    serve.Remedy = note  # type: ignore[misc, assignment]
    signal.signal(signal.SIGUSR1, grow)
    signal.signal(signal.SIGUSR2, stand_still)
    main()
