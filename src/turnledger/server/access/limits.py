"""Quotas: how much may be open at once, in total and per owner, in all workers of a server.

Requests are refused before their body is read, and without the store: by shared counters alone. Admitted
requests are never ended for the sake of others.

One rule divides the room: an owner may have four times what is left free. A single owner can take four
fifths, several that want more get equal shares, and a new owner always finds room. The number of owners need
not be known.

The rate is the number of turns of an owner within a minute. It is estimated from two counts: all of this
minute, and the part of the last one that is within sixty seconds. After a quiet minute an owner has the full
quota again, and the quotas of all owners never restart at the same moment.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import islice
from typing import NamedTuple

from turnledger.engine.ports import Clock
from turnledger.model.access.token import Bounds
from turnledger.server.config.settings import ServerLimits
from turnledger.server.errors import RequestRefused
from turnledger.server.ops.counters import Counters
from turnledger.server.ops.metrics import Metrics

STARTED_TURNS = "starts"
MINUTE_MS = 60_000
REMOVED_AT_ONCE = 2
"""Old counts removed with each new one: more than are added, so that they never pile up."""


class RateLimit:
    """Counts by owner and minute, in the shared counters. A worker removes its own old counts; the rest is
    cleared when it ends."""

    def __init__(self, counters: Counters, clock: Clock, limit: int, kind: str = STARTED_TURNS) -> None:
        self._counters = counters
        self._clock = clock
        self._limit = limit
        self._kind = kind
        self._counts: dict[int, Counter[str]] = {}

    def wait_seconds(self, owner: str, by: int = 1, limit: int | None = None) -> float:
        """Return the seconds until there is room for `by`, under `limit` if given; 0 if there is."""
        limit = self._limit if limit is None else limit
        minute, passed = divmod(self._clock.now_ms(), MINUTE_MS)
        current = self._counters.total(self._kind, _key(owner, minute))
        previous = self._counters.total(self._kind, _key(owner, minute - 1))
        room = (limit - by - current) * MINUTE_MS
        if previous * (MINUTE_MS - passed) <= room:
            return 0.0
        if room >= 0:
            return (MINUTE_MS - passed - room // previous) / 1000
        # Not before the next minute, in which this one slides out.
        slides = MINUTE_MS - (limit - by) * MINUTE_MS // current
        return (MINUTE_MS - passed + max(slides, 0)) / 1000

    def count(self, owner: str) -> int:
        """Count one more; return its minute."""
        minute = self._clock.now_ms() // MINUTE_MS
        self._counters.add(self._kind, _key(owner, minute))
        self._counts.setdefault(minute, Counter())[owner] += 1
        self._remove_old(minute)
        return minute

    def uncount(self, owner: str, minute: int) -> None:
        self._counters.add(self._kind, _key(owner, minute), -1)
        self._counts[minute][owner] -= 1

    def _remove_old(self, minute: int) -> None:
        old = next((each for each in self._counts if each not in (minute, minute - 1)), None)
        if old is None:
            return
        counts = self._counts[old]
        for owner in list(islice(counts, REMOVED_AT_ONCE)):
            self._counters.add(self._kind, _key(owner, old), -counts.pop(owner))
        if not counts:
            del self._counts[old]


def _key(owner: str, minute: int) -> str:
    return f"{minute} {owner}"


TURNS, WAITING, STREAMS, REQUESTS = "turns", "waiting", "streams", "requests"
OTHER_REQUESTS = "other_requests"
EXCHANGES = "exchanges"
IMPORTS = "imports"
SHARE = 4
"""An owner may have this many times what is free."""
RETRY_AFTER = 2
"""Seconds after which a place may be free."""
BUSY = "server_busy"


class Bound(NamedTuple):
    """A limit on requests open at once; its kind is also its name in the settings."""

    kind: str
    in_total: int
    """For all owners together."""
    per_owner: int | None
    """For one owner."""
    code: str
    """The error code if the owner's limit is reached."""
    description: str
    setting: str = ""
    """The name of the owner's limit in the settings, if it differs from the kind."""


class Link(NamedTuple):
    """The link of a visitor: its limits apply to all its visitors together."""

    name: str
    bounds: Bounds


class Caller(NamedTuple):
    """The identity under which requests are counted."""

    owner: str
    is_tokenless: bool = False
    """Whether it has no token: such callers cannot be distinguished, so limits per owner do not apply."""
    link: Link | None = None


class Slot:
    """Counts a request until it is released, or to the end of a block: for its owner and, if it comes from a
    visitor, for the link."""

    __slots__ = ("_counters", "_kinds", "_link", "_owner")

    def __init__(self, counters: Counters, caller: Caller, kinds: list[str]) -> None:
        self._counters = counters
        self._owner = caller.owner
        self._link = None if caller.link is None else caller.link.name
        self._kinds = kinds
        for kind in kinds:
            self._add(kind, 1)

    def __enter__(self) -> None:
        """The slot is released after the block."""

    def __exit__(self, *_: object) -> None:
        self.release()

    def begin(self) -> None:
        """Stop counting as waiting."""
        if WAITING in self._kinds:
            self._kinds.remove(WAITING)
            self._add(WAITING, -1)

    def release(self) -> None:
        """Stop counting. Idempotent."""
        while self._kinds:
            self._add(self._kinds.pop(), -1)

    def _add(self, kind: str, more: int) -> None:
        self._counters.add(kind, self._owner, more)
        if self._link is not None:
            self._counters.add(link_kind(kind), self._link, more)


def link_kind(kind: str) -> str:
    """Return the kind under which links are counted: separate, since the sum of a kind counts each
    request once."""
    return f"link_{kind}"


class Quotas:
    """Admits requests, or refuses them with 429 and a Retry-After."""

    def __init__(self, limits: ServerLimits, counters: Counters, metrics: Metrics, clock: Clock) -> None:
        self._counters = counters
        self._metrics = metrics
        self._requests = limits.requests
        self._per_minute = limits.owner_turns_per_minute
        self._rate = RateLimit(counters, clock, self._per_minute or 0)
        self._link_rate = RateLimit(counters, clock, self._per_minute or 0, link_kind(STARTED_TURNS))
        self._turns = (
            Bound(TURNS, limits.turns, limits.owner_turns, "too_many_turns", "turns at once"),
            Bound(WAITING, limits.waiting, limits.owner_waiting, "too_many_waiting", "waiting turns"),
        )
        self._streams = (
            Bound(STREAMS, limits.streams, limits.owner_streams, "too_many_streams", "streams at once"),
        )
        owner_most, code, what = limits.owner_requests, "too_many_requests", "other requests at once"
        self._others = (Bound(OTHER_REQUESTS, limits.requests, owner_most, code, what, "owner_requests"),)
        self._imports = (
            Bound(IMPORTS, limits.imports, limits.owner_imports, "too_many_imports", "imports at once"),
        )

    def admit_turn(self, caller: Caller) -> Slot:
        """Admit a turn. It counts until it leaves, and as waiting until it begins. Raises RequestRefused."""
        link, rates = caller.link, [] if caller.is_tokenless else self._rates(caller)
        for rate, name, limit in rates:
            self._check_rate(rate, name, limit, 1, link)
        slot = self._admit(self._turns, caller)
        counted = [(rate, name, rate.count(name)) for rate, name, _ in rates]
        try:
            for rate, name, limit in rates:
                self._check_rate(rate, name, limit, 0, link)
        except RequestRefused:
            for rate, name, minute in counted:
                rate.uncount(name, minute)
            slot.release()
            raise
        return slot

    def _rates(self, caller: Caller) -> list[tuple[RateLimit, str, int]]:
        rates = [] if self._per_minute is None else [(self._rate, caller.owner, self._per_minute)]
        if caller.link is not None:
            limit = caller.link.bounds.turns_per_minute or self._per_minute
            if limit is not None:
                rates.append((self._link_rate, caller.link.name, limit))
        return rates

    def admit_stream(self, caller: Caller) -> Slot:
        return self._admit(self._streams, caller)

    def admit_other(self, caller: Caller) -> Slot:
        """Admit a request that is neither a turn nor a stream. Raises RequestRefused."""
        return self._admit(self._others, caller)

    def admit_import(self, caller: Caller) -> Slot:
        return self._admit(self._imports, caller)

    def check_streams(self, caller: Caller) -> None:
        """Raise RequestRefused if there is no room for another stream, without counting one."""
        self._check(self._streams, caller, 1)

    def request_opened(self) -> None:
        self._counters.add(REQUESTS, "")

    def request_closed(self) -> None:
        self._counters.add(REQUESTS, "", -1)

    def check_requests(self) -> None:
        """Raise RequestRefused if too many requests are open, including this one."""
        if self._counters.sum(REQUESTS) > self._requests:
            raise self._refusal_error(REQUESTS, BUSY, self._busy_message(REQUESTS))

    def _admit(self, bounds: tuple[Bound, ...], caller: Caller) -> Slot:
        self._check(bounds, caller, 1)
        slot = Slot(self._counters, caller, [bound.kind for bound in bounds])
        try:
            # Others may have come at the same moment: all are counted now, so at least one sees all.
            self._check(bounds, caller, 0)
        except RequestRefused:
            slot.release()
            raise
        return slot

    def _check(self, bounds: tuple[Bound, ...], caller: Caller, more: int) -> None:
        owner, is_tokenless, link = caller
        for bound in bounds:
            total = self._counters.sum(bound.kind) + more
            if total > bound.in_total:
                raise self._refusal_error(bound.kind, BUSY, self._busy_message(bound.kind))
            if is_tokenless:
                continue
            if link is not None:
                self._check_link(bound, link, more)
            own = self._counters.total(bound.kind, owner) + more
            if bound.per_owner is not None and own > bound.per_owner:
                setting = bound.setting or f"owner_{bound.kind}"
                message = f"Limit of {bound.per_owner} {bound.description} per owner reached (`{setting}`)."
                if link is not None:
                    message = f"You have reached your limit of {bound.description}."
                raise self._refusal_error(setting, bound.code, f"{message} Try again when one has ended.")
            if own > SHARE * (bound.in_total - total + 1):
                holder = "this owner has reached its" if link is None else "you have reached your"
                message = f"The server is nearly full, and {holder} share of {bound.description}."
                text = f"{message} Try again when one has ended."
                raise self._refusal_error(f"share_of_{bound.kind}", BUSY, text)

    def _check_link(self, bound: Bound, link: Link, more: int) -> None:
        own = link.bounds.turns if bound.kind in (TURNS, WAITING) else None
        limit = bound.per_owner if own is None else own
        if limit is not None and self._counters.total(link_kind(bound.kind), link.name) + more > limit:
            setting = bound.setting or f"owner_{bound.kind}"
            shown = "" if own is None else f"{own} "  # the operator's limit is not disclosed
            message = f"The visitors of this link have reached their limit of {shown}{bound.description}."
            raise self._refusal_error(setting, bound.code, f"{message} Try again when one has ended.")

    def _check_rate(self, rate: RateLimit, name: str, limit: int, more: int, link: Link | None) -> None:
        wait = rate.wait_seconds(name, more, limit)
        if wait:
            setting, seconds = "owner_turns_per_minute", max(math.ceil(wait), 1)
            message = f"Limit of {limit} turns per minute and owner reached (`{setting}`)."
            if link is not None:
                is_of_link = rate is self._link_rate and link.bounds.turns_per_minute is not None
                shown = f"{limit} " if is_of_link else ""
                message = f"The visitors of this link have reached their limit of {shown}turns per minute."
            text = f"{message} Try again in {seconds} s."
            raise self._refusal_error(setting, "too_many_turns_per_minute", text, seconds)

    def _busy_message(self, limit: str) -> str:
        return f"The server is busy: limit `{limit}` reached. Try again in a moment."

    def _refusal_error(self, limit: str, code: str, message: str, after: int = RETRY_AFTER) -> RequestRefused:
        self._metrics.refusals(limit).inc()
        return RequestRefused(429, code, message, headers=((b"retry-after", b"%d" % after),))
