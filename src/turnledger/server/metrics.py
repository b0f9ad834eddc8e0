"""What the server counts, and under which names: nobody else names a metric."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
PATIENT = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """Counts of one server, in a registry of its own. Each method is named for what happened."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
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
        self._streams = Gauge("turnledger_open_streams", "Streams that are being sent.", registry=registry)
        self._requests = Counter(
            "turnledger_requests", "Requests answered, by status.", ["status"], registry=registry
        )

        # Looking up by label takes longer than counting.
        self._by_outcome: dict[str, Counter] = {}
        self._by_status: dict[int, Counter] = {}

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

    def answered(self, status: int) -> None:
        """A request was answered; 499: its client left before."""
        counter = self._by_status.get(status)
        if counter is None:
            counter = self._by_status[status] = self._requests.labels(str(status))
        counter.inc()

    def watch(self, name: str, meaning: str, look: Callable[[], float]) -> None:
        """Show a number that somebody else keeps: it is looked at when it is asked for."""
        Gauge(f"turnledger_{name}", meaning, registry=self._registry).set_function(look)

    def text(self) -> bytes:
        """All of it, in Prometheus's text format."""
        return generate_latest(self._registry)
