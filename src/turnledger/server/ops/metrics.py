"""What the server counts, and under which names: nobody else names a metric."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
FILE_BYTES = 65_536
"""Room for what a worker counts of one kind, several times over."""
PATIENT = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """Counts of one server, in a registry of its own. Each method is named for what happened."""

    def __init__(self, folder: Path | None = None) -> None:
        self._registry = registry = CollectorRegistry()
        self._folder = folder
        self._watched: list[tuple[Gauge, Callable[[], float]]] = []
        self._turns = Counter(
            "turnledger_turns", "Turns that have ended, by outcome.", ["outcome"], registry=registry
        )
        self._lane_wait = Histogram(
            "turnledger_lane_wait_seconds",
            "From the request for a turn to its begin.",
            buckets=PATIENT,
            registry=registry,
        )
        self._first_token = Histogram(
            "turnledger_first_token_seconds",
            "From the begin of a turn to its first output.",
            buckets=PATIENT,
            registry=registry,
        )
        self._commit = Histogram(
            "turnledger_commit_seconds", "How long commits take.", buckets=QUICK, registry=registry
        )
        self._streams = self._gauge("open_streams", "Streams that are being sent.")
        self._requests = Counter(
            "turnledger_requests", "Requests answered, by status.", ["status"], registry=registry
        )
        self._refusals = Counter(
            "turnledger_refusals",
            "Requests refused for what is open already, by limit.",
            ["limit"],
            registry=registry,
        )
        # Looking up by label takes longer than counting.
        self._by_outcome: dict[str, Counter] = {}
        self._by_status: dict[int, Counter] = {}
        self._by_limit: dict[str, Counter] = {}

    @classmethod
    def shared(cls, folder: Path, part: int) -> Metrics:
        """The counts of a worker, kept in files that all workers of a server read. From now on all metrics of
        this process are: once for each process, before any other is made. Raises OSError without room."""
        for kind in ("counter", "gauge_livesum", "histogram"):
            _have_room(folder / f"{kind}_{part}.db")
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
        # By part, not by process: who takes the place of a dead worker counts on in its files.
        values.ValueClass = values.MultiProcessValue(lambda: part)  # type: ignore[no-untyped-call]
        return cls(folder)

    @staticmethod
    def clear(folder: Path, part: int) -> None:
        """Forget how things stand in a worker that is no more; what it has counted stays."""
        mark_process_dead(part, str(folder))  # type: ignore[no-untyped-call]

    def turn_ended(self, outcome: str) -> None:
        """A turn has ended: `completed`, `stopped`, `failed`, `refused`, `replayed` or `unknown`."""
        counter = self._by_outcome.get(outcome)
        if counter is None:
            counter = self._by_outcome[outcome] = self._turns.labels(outcome)
        counter.inc()

    def waited(self, seconds: float) -> None:
        """A turn has begun so long after it was asked for."""
        self._lane_wait.observe(seconds)

    def first_token(self, seconds: float) -> None:
        """A turn has put out its first text or call, so long after its begin."""
        self._first_token.observe(seconds)

    def committed(self, seconds: float) -> None:
        """A commit took so long."""
        self._commit.observe(seconds)

    def stream_opened(self) -> None:
        """A client reads a stream."""
        self._streams.inc()

    def stream_closed(self) -> None:
        """It does so no more."""
        self._streams.dec()

    def refused(self, limit: str) -> None:
        """A request was refused, because of the limit of this name."""
        counter = self._by_limit.get(limit)
        if counter is None:
            counter = self._by_limit[limit] = self._refusals.labels(limit)
        counter.inc()

    def answered(self, status: int) -> None:
        """A request was answered; 499: its client left before."""
        counter = self._by_status.get(status)
        if counter is None:
            counter = self._by_status[status] = self._requests.labels(str(status))
        counter.inc()

    def watch(self, name: str, meaning: str, look: Callable[[], float]) -> None:
        """Show a number that somebody else keeps. It is looked at when it is asked for; that of another
        worker is as old as its last `refresh`."""
        self._watched.append((self._gauge(name, meaning), look))

    def refresh(self) -> None:
        """Look at all numbers that somebody else keeps."""
        for gauge, look in self._watched:
            gauge.set(look())

    def text(self) -> bytes:
        """All of it, in Prometheus's text format."""
        self.refresh()
        if self._folder is None:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(self._folder))  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"turnledger_{name}", meaning, registry=self._registry, multiprocess_mode="livesum")


def _have_room(file: Path) -> None:
    """Have the disk give all of a new file now. It is written to as memory later, and who finds no room then
    is killed by the system. Others read it whenever they are asked: it is never there in part."""
    if file.exists():
        return
    making = file.with_suffix(".new")
    try:
        making.write_bytes(bytes(FILE_BYTES))
        making.replace(file)
    except OSError as problem:
        with suppress(OSError):
            making.unlink(missing_ok=True)
        raise OSError(problem.errno, problem.strerror, str(making)) from None
