"""Quotas: how much may be open at once, of everybody together and of each owner, in all workers of a server.

What is refused is refused before its body is read, and without the store: by counts on the board alone. What
was let in is never ended for the sake of others.

Owners share what there is by one rule: an owner may have four times what he would leave free. One alone may
take four fifths; of several who want more than there is each gets the same; and whoever comes next always
finds room. Nobody has to know how many owners there are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from turnledger.engine.ports import Clock
from turnledger.server.board import Board
from turnledger.server.errors import Refused
from turnledger.server.metrics import Metrics
from turnledger.server.pace import Pace
from turnledger.server.settings import ServerLimits

TURNS, WAITING, STREAMS, REQUESTS = "turns", "waiting", "streams", "requests"
OTHERS = "other_requests"
EXCHANGES = "exchanges"
IMPORTS = "imports"
SHARE = 4
"""An owner may have so many times what is free."""
RETRY_AFTER = 2
"""Seconds after which somebody may have left."""
BUSY = "server_busy"


class Bound(NamedTuple):
    """A limit on what may be open at once; its kind is also its name in the settings."""

    kind: str
    most: int
    """Of everybody together."""
    each: int | None
    """Of one owner."""
    code: str
    """Of an owner's refusal."""
    things: str
    limit: str = ""
    """The name of the owner's limit in the settings, if it is not that of the kind."""


class Place:
    """What a request counts as, until it leaves."""

    __slots__ = ("_board", "_kinds", "_owner")

    def __init__(self, board: Board, owner: str, kinds: tuple[str, ...]) -> None:
        self._board = board
        self._owner = owner
        self._kinds = list(kinds)
        for kind in kinds:
            board.add(kind, owner)

    def begin(self) -> None:
        """It waits no longer."""
        self._end(WAITING)

    def leave(self) -> None:
        """It has ended; once is enough."""
        while self._kinds:
            self._end(self._kinds[-1])

    def _end(self, kind: str) -> None:
        if kind in self._kinds:
            self._kinds.remove(kind)
            self._board.add(kind, self._owner, -1)


class Quotas:
    """Lets in, or refuses with 429 and the seconds after which it is worth another try.

    Who comes without a token is not told apart from others who do: the limits of an owner are not for him.
    """

    def __init__(self, limits: ServerLimits, board: Board, metrics: Metrics, clock: Clock) -> None:
        self._board = board
        self._metrics = metrics
        self._requests = limits.requests
        per_minute = limits.owner_turns_per_minute
        self._pace = None if per_minute is None else Pace(board, clock, per_minute)
        self._per_minute = per_minute
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

    def turn(self, owner: str, *, is_tokenless: bool) -> Place:
        """Let in a turn, which counts until it leaves, and as waiting until it begins. Raises Refused."""
        pace = None if is_tokenless else self._pace
        if pace is None:
            return self._admit(self._turns, owner, is_tokenless)
        self._look_at_pace(pace, owner, 1)
        place = self._admit(self._turns, owner, is_tokenless)
        minute = pace.count(owner)
        try:
            self._look_at_pace(pace, owner, 0)
        except Refused:
            pace.take_back(owner, minute)
            place.leave()
            raise
        return place

    def stream(self, owner: str, *, is_tokenless: bool) -> Place:
        """Let in a reader of events, who counts until he leaves. Raises Refused."""
        return self._admit(self._streams, owner, is_tokenless)

    def other(self, owner: str, *, is_tokenless: bool) -> Place:
        """Let in a request that is neither, which counts until it leaves. Raises Refused."""
        return self._admit(self._others, owner, is_tokenless)

    def importing(self, owner: str, *, is_tokenless: bool) -> Place:
        """Let in a file that is imported, which counts until it is. Raises Refused."""
        return self._admit(self._imports, owner, is_tokenless)

    def look_at_streams(self, owner: str, *, is_tokenless: bool) -> None:
        """Raise Refused if there is no room for another reader now. Counts nothing."""
        self._look(self._streams, owner, is_tokenless, 1)

    def request_opened(self) -> None:
        """A request has come, of whatever kind."""
        self._board.add(REQUESTS, "")

    def request_closed(self) -> None:
        """It was answered."""
        self._board.add(REQUESTS, "", -1)

    def look_at_requests(self) -> None:
        """Raise Refused if more requests are open than may be, with the one that asks."""
        if self._board.sum(REQUESTS) > self._requests:
            raise self._refused(REQUESTS, BUSY, self._full(REQUESTS))

    def _admit(self, bounds: tuple[Bound, ...], owner: str, is_tokenless: bool) -> Place:
        self._look(bounds, owner, is_tokenless, 1)
        place = Place(self._board, owner, tuple([bound.kind for bound in bounds]))
        try:
            # Others may have come at the same moment: counted by now, at least one of them sees all.
            self._look(bounds, owner, is_tokenless, 0)
        except Refused:
            place.leave()
            raise
        return place

    def _look(self, bounds: tuple[Bound, ...], owner: str, is_tokenless: bool, more: int) -> None:
        for bound in bounds:
            everybody = self._board.sum(bound.kind) + more
            if everybody > bound.most:
                raise self._refused(bound.kind, BUSY, self._full(bound.kind))
            if is_tokenless:
                continue
            own = self._board.total(bound.kind, owner) + more
            if bound.each is not None and own > bound.each:
                limit = bound.limit or f"owner_{bound.kind}"
                message = f"An owner may have {bound.each} {bound.things} here (`{limit}`), and this one has."
                raise self._refused(limit, bound.code, f"{message} Try again when one has ended.")
            if own > SHARE * (bound.most - everybody + 1):
                message = f"The server is nearly full, and this owner has his share of {bound.things}."
                told = f"{message} The rest is for others. Try again when one has ended."
                raise self._refused(f"share_of_{bound.kind}", BUSY, told)

    def _look_at_pace(self, pace: Pace, owner: str, more: int) -> None:
        wait = pace.wait(owner, more)
        if wait:
            limit, seconds = "owner_turns_per_minute", max(math.ceil(wait), 1)
            message = f"An owner may ask for {self._per_minute} turns a minute here (`{limit}`)."
            told = f"{message} Try again in {seconds} s."
            raise self._refused(limit, "too_many_turns_per_minute", told, seconds)

    def _full(self, limit: str) -> str:
        return f"The server has as much open as it may have (`{limit}`). Try again in a moment."

    def _refused(self, limit: str, code: str, message: str, after: int = RETRY_AFTER) -> Refused:
        self._metrics.refused(limit)
        return Refused(429, code, message, headers=((b"retry-after", b"%d" % after),))
