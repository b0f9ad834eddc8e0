"""What the headers of a request say of a turn: the conversation, its policies, which request it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from enum import StrEnum
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec

from turnledger.engine.resend.match import Sent
from turnledger.engine.turn.resend import OnDivergence
from turnledger.errors import InvalidInput
from turnledger.model.attempt import OnBusy, OnFailure, OnStop

RawHeaders: TypeAlias = Iterable[tuple[bytes, bytes]]
Named: TypeAlias = Mapping[bytes, bytes]
"""The headers that are looked at, by name."""


class OnDisconnect(StrEnum):
    """What becomes of a turn whose client goes away."""

    CONTINUE = "continue"  # it goes on, and can be read later
    KEEP = "keep"  # it is stopped, and stays as an interrupted turn
    DISCARD = "discard"  # it is stopped, and goes


class Policies(msgspec.Struct, frozen=True):
    """What the headers say of the turn; None where they say nothing."""

    on_busy: OnBusy | None = None
    on_stop: OnStop | None = None
    on_failure: OnFailure | None = None
    on_divergence: OnDivergence | None = None
    on_disconnect: OnDisconnect | None = None
    sent: Sent | None = None


NO_POLICIES = Policies()
BUSY, KEY = b"x-turn-on-busy", b"idempotency-key"
EXPECT, COUNT = b"x-conversation-expect", b"x-stainless-retry-count"
CONVERSATION, SCOPE, KEEP = b"x-conversation-id", b"x-conversation-scope", b"x-conversation-keep"

_POLICIES: Mapping[bytes, tuple[str, type[StrEnum]]] = {
    BUSY: ("on_busy", OnBusy),
    b"x-turn-on-stop": ("on_stop", OnStop),
    b"x-turn-on-failure": ("on_failure", OnFailure),
    b"x-turn-on-divergence": ("on_divergence", OnDivergence),
    b"x-turn-on-disconnect": ("on_disconnect", OnDisconnect),
    b"x-conversation-messages": ("sent", Sent),
}
_LOOKED_AT = frozenset({*_POLICIES, CONVERSATION, EXPECT, KEEP, SCOPE, KEY, COUNT})

OF_MOVES = frozenset({BUSY, KEY})
"""Those that something which moves a conversation, and runs no turn, understands."""
OF_MAKING = frozenset({KEY})
"""That of what makes a chat."""
OF_TURNS = frozenset({BUSY, KEY, EXPECT, b"x-turn-on-stop", b"x-turn-on-failure", b"x-turn-on-disconnect"})
"""Those of a turn whose body names its conversation and says all that is new."""


def named_in(headers: RawHeaders) -> dict[bytes, bytes]:
    """The headers that are looked at. One that is there twice says two things, and neither is guessed."""
    found = [each for each in headers if each[0] in _LOOKED_AT]
    named = dict(found)
    if len(named) != len(found):
        twice = sorted({name.decode() for name, _ in found if [each for each, _ in found].count(name) > 1})
        raise InvalidInput(f"{', '.join(twice)}: given more than once. Send it once.")
    return named


def named_among(headers: RawHeaders, taken: frozenset[bytes]) -> dict[bytes, bytes]:
    """The headers that are looked at, of a request that understands some of them only. Raises InvalidInput
    for another: it would promise something in vain."""
    named = named_in(headers)
    if others := named.keys() - taken - {COUNT}:
        raise not_for_this(others)
    return named


def not_for_this(names: Set[bytes]) -> InvalidInput:
    """What to tell a request that carries headers which it does not understand."""
    told = ", ".join(sorted(name.decode() for name in names))
    remedy = "Leave it out; what it can say is in its body."
    if KEEP in names:
        remedy = "What is asked for here is kept. For a turn that is not, ask at /v1/chat/completions."
    return InvalidInput(f"{told}: not for this request. {remedy}")


def words_of(named: Named) -> str:
    """The names of the headers that somebody has set on purpose."""
    return ", ".join(sorted(name.decode() for name in named if name != COUNT))


def text_of(named: Named, name: bytes) -> str | None:
    """A header that holds a text: UTF-8, percent-encoded where it must be."""
    if name not in named:
        return None
    try:
        text = unquote_to_bytes(named[name]).decode().strip()
    except UnicodeDecodeError:
        text = ""
    if not text:
        raise InvalidInput(f"{name.decode()} must be text, UTF-8 and percent-encoded.")
    return text


def must_exist(named: Named) -> bool:
    """Whether the conversation is expected to be there."""
    expected = named.get(EXPECT)
    if expected not in (None, b"continued"):
        raise InvalidInput("x-conversation-expect has one value: continued.")
    return expected is not None


def asks_not_to_keep(named: Named) -> bool:
    """Whether nothing of the request shall be kept."""
    given = named.get(KEEP)
    if given not in (None, b"no"):
        # Whether chats are kept is for the server to say; a request can only ask for less.
        raise InvalidInput("x-conversation-keep has one value: no.")
    return given is not None


def policies_of(named: Named) -> Policies:
    """The policies that are named; raises InvalidInput with those there are."""
    if named.keys().isdisjoint(_POLICIES):
        return NO_POLICIES
    chosen: dict[str, Any] = {}
    for header, (name, kind) in _POLICIES.items():
        if header in named:
            value = named[header].decode("latin-1").strip()
            try:
                chosen[name] = kind(value)
            except ValueError:
                known = ", ".join(kind)
                raise InvalidInput(
                    f"{header.decode()} is {value[:40]!r}; it must be one of {known}."
                ) from None
    return Policies(**chosen)


def count_of(named: Named) -> int | None:
    """How often its client has tried before, if it says so."""
    given = named.get(COUNT, b"")
    # Whatever else stands there is no word of a client that counts.
    return int(given) if given.isdigit() and len(given) < 6 else None
