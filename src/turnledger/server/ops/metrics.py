"""The metrics of the server."""

from __future__ import annotations

import os
from collections import Counter as Counts
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
FILE_BYTES = 65_536
"""Room for a worker's metrics of one kind, several times over."""
PATIENT = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """The metrics of one server, in its own registry."""

    def __init__(self, folder: Path | None = None) -> None:
        self._registry = CollectorRegistry()
        self._folder = folder
        self._watched: list[tuple[Gauge, Callable[[], float]]] = []
        self._taken_over: Callable[[], Mapping[str, int]] = dict
        self._counted: Counts[str] = Counts()
        self.turns = self._counter("turns", "Requests for turns, by outcome.", "outcome")
        """By `completed`, `stopped`, `failed`, `refused`, `replayed`, `joined` or `unknown`."""
        self.lane_wait = self._histogram("lane_wait", "From the request for a turn to its begin.", PATIENT)
        self.first_token = self._histogram(
            "first_token", "From the begin of a turn to its first output.", PATIENT
        )
        self.commit = self._histogram("commit", "How long commits take.", QUICK)
        self.streams = self._gauge("open_streams", "Streams that are being sent.")
        self.requests = self._counter("requests", "Requests answered, by status.", "status")
        """499: the client left before the response."""
        self.refusals = self._counter(
            "refusals", "Requests refused because a limit was reached, by limit.", "limit"
        )

    @classmethod
    def shared(cls, folder: Path, part: int) -> Metrics:
        """Make the metrics of a worker, in files that all workers read. Applies to all metrics of the
        process: call it once, before any other is made. Raises OSError if the disk is full."""
        for kind in ("counter", "gauge_livesum", "histogram"):
            _allocate(folder / f"{kind}_{part}.db")
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
        # By part, not by process: a worker that replaces a dead one continues counting in its files.
        values.ValueClass = values.MultiProcessValue(lambda: part)  # type: ignore[no-untyped-call]
        metrics = cls(folder)
        # The library opens the file of the counters with the first label. By then, the folder may be gone.
        metrics.turns("completed")
        return metrics

    @staticmethod
    def clear(folder: Path, part: int) -> None:
        """Remove the gauges of a worker that has ended; its counters stay."""
        mark_process_dead(part, str(folder))  # type: ignore[no-untyped-call]

    def export(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Export a number kept elsewhere. It is read on each scrape; that of another worker is as old as its
        last `refresh`."""
        self._watched.append((self._gauge(name, meaning), read))

    def count_taken_over(self, read: Callable[[], Mapping[str, int]]) -> None:
        """Count turns that this process has ended for dead ones, by outcome, on each scrape."""
        self._taken_over = read

    def refresh(self) -> None:
        for outcome, total in self._taken_over().items():
            self.turns(outcome).inc(total - self._counted[outcome])
            self._counted[outcome] = total
        for gauge, read in self._watched:
            gauge.set(read())

    def text(self) -> bytes:
        self.refresh()
        if self._folder is None:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(self._folder))  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    def _counter(self, name: str, meaning: str, label: str) -> Callable[[object], Counter]:
        """Make a counter with cached labels: the library's lookup takes longer than counting."""
        return cache(Counter(f"turnledger_{name}", meaning, [label], registry=self._registry).labels)

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"turnledger_{name}_seconds", meaning, buckets=buckets, registry=self._registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"turnledger_{name}", meaning, registry=self._registry, multiprocess_mode="livesum")


def _allocate(file: Path) -> None:
    """Allocate a new file on the disk now. It is mapped into memory, and the system kills a process that
    finds the disk full later. Others may read it at any time, so it appears whole."""
    if file.exists():
        return
    temporary = file.with_suffix(".new")
    try:
        temporary.write_bytes(bytes(FILE_BYTES))
        temporary.replace(file)
    except OSError as problem:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise OSError(problem.errno, problem.strerror, str(temporary)) from None
