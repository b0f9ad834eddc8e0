"""Quotas: how much may be open at once, in total and per owner, in all workers of a server.

Requests are refused before their body is read, and without the store: by counts on the board alone. Admitted
requests are never ended for the sake of others.

One rule divides the room: an owner may have four times what is left free. A single owner can take four
fifths, several that want more get equal shares, and a new owner always finds room. The number of owners need
not be known.

The pace is the number of turns of an owner within a minute. It is estimated from two counts: all of this
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
from turnledger.server.errors import Refused
from turnledger.server.ops.counters import Board
from turnledger.server.ops.metrics import Metrics

STARTS = "starts"
MINUTE = 60_000
TIDIED = 2
"""Old counts removed with each new one: more than are added, so that they never pile up."""


class Pace:
    """Counts by owner and minute, on the board. A worker removes its own old counts; the rest is cleared when
    it ends."""

    def __init__(self, board: Board, clock: Clock, most: int, kind: str = STARTS) -> None:
        self._board = board
        self._clock = clock
        self._most = most
        self._kind = kind
        self._counted: dict[int, Counter[str]] = {}

    def wait(self, owner: str, more: int = 1, most: int | None = None) -> float:
        """Return the seconds until there is room for `more`, under `most` if given; 0 if there is."""
        most = self._most if most is None else most
        minute, passed = divmod(self._clock.now_ms(), MINUTE)
        this = self._board.total(self._kind, _name(owner, minute))
        last = self._board.total(self._kind, _name(owner, minute - 1))
        room = (most - more - this) * MINUTE
        if last * (MINUTE - passed) <= room:
            return 0.0
        if room >= 0:
            return (MINUTE - passed - room // last) / 1000
        # Not before the next minute, in which this one slides out.
        slides = MINUTE - (most - more) * MINUTE // this
        return (MINUTE - passed + max(slides, 0)) / 1000

    def count(self, owner: str) -> int:
        """Count one more; return its minute."""
        minute = self._clock.now_ms() // MINUTE
        self._board.add(self._kind, _name(owner, minute))
        self._counted.setdefault(minute, Counter())[owner] += 1
        self._tidy(minute)
        return minute

    def take_back(self, owner: str, minute: int) -> None:
        self._board.add(self._kind, _name(owner, minute), -1)
        self._counted[minute][owner] -= 1

    def _tidy(self, minute: int) -> None:
        old = next((each for each in self._counted if each not in (minute, minute - 1)), None)
        if old is None:
            return
        counts = self._counted[old]
        for owner in list(islice(counts, TIDIED)):
            self._board.add(self._kind, _name(owner, old), -counts.pop(owner))
        if not counts:
            del self._counted[old]


def _name(owner: str, minute: int) -> str:
    return f"{minute} {owner}"


TURNS, WAITING, STREAMS, REQUESTS = "turns", "waiting", "streams", "requests"
OTHERS = "other_requests"
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
    most: int
    """For all owners together."""
    each: int | None
    """For one owner."""
    code: str
    """The error code if the owner's limit is reached."""
    things: str
    limit: str = ""
    """The name of the owner's limit in the settings, if it differs from the kind."""


class Link(NamedTuple):
    """The link of a visitor: its limits apply to all its visitors together."""

    name: str
    bounds: Bounds


class Slot:
    """A counted request, until it leaves: for its owner and, for a visitor, for the link."""

    __slots__ = ("_board", "_kinds", "_link", "_owner")

    def __init__(self, board: Board, owner: str, kinds: tuple[str, ...], link: str | None = None) -> None:
        self._board = board
        self._owner = owner
        self._link = link
        self._kinds = list(kinds)
        for kind in kinds:
            self._add(kind, 1)

    def begin(self) -> None:
        """Stop counting as waiting."""
        self._end(WAITING)

    def leave(self) -> None:
        """Stop counting. Idempotent."""
        while self._kinds:
            self._end(self._kinds[-1])

    def _end(self, kind: str) -> None:
        if kind in self._kinds:
            self._kinds.remove(kind)
            self._add(kind, -1)

    def _add(self, kind: str, more: int) -> None:
        self._board.add(kind, self._owner, more)
        if self._link is not None:
            self._board.add(of_links(kind), self._link, more)


def of_links(kind: str) -> str:
    """Return the kind under which the board counts for links: separate, since the sum of a kind counts each
    request once."""
    return f"link_{kind}"


class Quotas:
    """Admits requests, or refuses them with 429 and a Retry-After. Callers without a token cannot be
    distinguished, so the limits per owner do not apply to them."""

    def __init__(self, limits: ServerLimits, board: Board, metrics: Metrics, clock: Clock) -> None:
        self._board = board
        self._metrics = metrics
        self._requests = limits.requests
        self._per_minute = limits.owner_turns_per_minute
        self._pace = Pace(board, clock, self._per_minute or 0)
        self._pace_of_links = Pace(board, clock, self._per_minute or 0, of_links(STARTS))
        self._turns = (
            Bound(TURNS, limits.turns, limits.owner_turns, "too_many_turns", "turns at once"),
            Bound(WAITING, limits.waiting, limits.owner_waiting, "too_many_waiting", "turns yet to begin"),
        )
        self._streams = (
            Bound(STREAMS, limits.streams, limits.owner_streams, "too_many_streams", "streams at once"),
        )
        others = "requests at once, beside turns and streams,"
        self._others = (
            Bound(
                OTHERS, limits.requests, limits.owner_requests, "too_many_requests", others, "owner_requests"
            ),
        )

        self._imports = (
            Bound(IMPORTS, limits.imports, limits.owner_imports, "too_many_imports", "imports at once"),
        )

    def turn(self, owner: str, *, is_tokenless: bool, link: Link | None = None) -> Slot:
        """Admit a turn. It counts until it leaves, and as waiting until it begins. Raises Refused."""
        paces = [] if is_tokenless else self._paces(owner, link)
        for pace, name, most in paces:
            self._look_at_pace(pace, name, most, 1, link)
        place = self._admit(self._turns, owner, is_tokenless, link)
        counted = [(pace, name, pace.count(name)) for pace, name, _ in paces]
        try:
            for pace, name, most in paces:
                self._look_at_pace(pace, name, most, 0, link)
        except Refused:
            for pace, name, minute in counted:
                pace.take_back(name, minute)
            place.leave()
            raise
        return place

    def _paces(self, owner: str, link: Link | None) -> list[tuple[Pace, str, int]]:
        paces = [] if self._per_minute is None else [(self._pace, owner, self._per_minute)]
        if link is not None:
            most = link.bounds.turns_per_minute or self._per_minute
            if most is not None:
                paces.append((self._pace_of_links, link.name, most))
        return paces

    def stream(self, owner: str, *, is_tokenless: bool, link: Link | None = None) -> Slot:
        return self._admit(self._streams, owner, is_tokenless, link)

    def other(self, owner: str, *, is_tokenless: bool, link: Link | None = None) -> Slot:
        """Admit a request that is neither a turn nor a stream. Raises Refused."""
        return self._admit(self._others, owner, is_tokenless, link)

    def importing(self, owner: str, *, is_tokenless: bool, link: Link | None = None) -> Slot:
        return self._admit(self._imports, owner, is_tokenless, link)

    def look_at_streams(self, owner: str, *, is_tokenless: bool, link: Link | None = None) -> None:
        """Raise Refused if there is no room for another stream, without counting one."""
        self._look(self._streams, owner, is_tokenless, link, 1)

    def request_opened(self) -> None:
        self._board.add(REQUESTS, "")

    def request_closed(self) -> None:
        self._board.add(REQUESTS, "", -1)

    def look_at_requests(self) -> None:
        """Raise Refused if too many requests are open, including this one."""
        if self._board.sum(REQUESTS) > self._requests:
            raise self._refused(REQUESTS, BUSY, self._full(REQUESTS))

    def _admit(self, bounds: tuple[Bound, ...], owner: str, is_tokenless: bool, link: Link | None) -> Slot:
        self._look(bounds, owner, is_tokenless, link, 1)
        name = None if link is None else link.name
        place = Slot(self._board, owner, tuple([bound.kind for bound in bounds]), name)
        try:
            # Others may have come at the same moment: all are counted now, so at least one sees all.
            self._look(bounds, owner, is_tokenless, link, 0)
        except Refused:
            place.leave()
            raise
        return place

    def _look(
        self, bounds: tuple[Bound, ...], owner: str, is_tokenless: bool, link: Link | None, more: int
    ) -> None:
        for bound in bounds:
            total = self._board.sum(bound.kind) + more
            if total > bound.most:
                raise self._refused(bound.kind, BUSY, self._full(bound.kind))
            if is_tokenless:
                continue
            if link is not None:
                self._look_at_link(bound, link, more)
            own = self._board.total(bound.kind, owner) + more
            if bound.each is not None and own > bound.each:
                limit = bound.limit or f"owner_{bound.kind}"
                message = f"An owner may have {bound.each} {bound.things} here (`{limit}`), and this one has."
                if link is not None:
                    message = f"You have as many {bound.things} as you may."
                raise self._refused(limit, bound.code, f"{message} Try again when one has ended.")
            if own > SHARE * (bound.most - total + 1):
                who = "this owner has their" if link is None else "you have your"
                message = f"The server is nearly full, and {who} share of {bound.things}."
                text = f"{message} The rest is for others. Try again when one has ended."
                raise self._refused(f"share_of_{bound.kind}", BUSY, text)

    def _look_at_link(self, bound: Bound, link: Link, more: int) -> None:
        own = link.bounds.turns if bound.kind in (TURNS, WAITING) else None
        most = bound.each if own is None else own
        if most is not None and self._board.total(of_links(bound.kind), link.name) + more > most:
            limit = bound.limit or f"owner_{bound.kind}"
            shown = "no more" if own is None else own  # the operator's limit is not disclosed
            message = f"All visitors of this link may have {shown} {bound.things} together."
            raise self._refused(limit, bound.code, f"{message} Try again when one has ended.")

    def _look_at_pace(self, pace: Pace, name: str, most: int, more: int, link: Link | None) -> None:
        wait = pace.wait(name, more, most)
        if wait:
            limit, seconds = "owner_turns_per_minute", max(math.ceil(wait), 1)
            message = f"An owner may ask for {most} turns a minute here (`{limit}`)."
            if link is not None:
                is_of_link = pace is self._pace_of_links and link.bounds.turns_per_minute is not None
                shown = most if is_of_link else "no more"
                message = f"All visitors of this link together may ask for {shown} turns a minute."
            text = f"{message} Try again in {seconds} s."
            raise self._refused(limit, "too_many_turns_per_minute", text, seconds)

    def _full(self, limit: str) -> str:
        return f"The server has as much open as it may have (`{limit}`). Try again in a moment."

    def _refused(self, limit: str, code: str, message: str, after: int = RETRY_AFTER) -> Refused:
        self._metrics.refused(limit)
        return Refused(429, code, message, headers=((b"retry-after", b"%d" % after),))
