"""Bounds that a token or a share link carries, beside what it opens."""

from __future__ import annotations

import msgspec


class Bounds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much the bearer of a token may ask for. None leaves it to the server's own limits."""

    max_tokens: int | None = None
    """Tokens that one answer may have."""
    n: int | None = None
    """Answers that one request may ask for; None is 1 for a narrowed token."""
    turns: int | None = None
    """Turns open at once. This and all below: of all visitors of a link together."""
    turns_per_minute: int | None = None
    bytes: int | None = None
    """Bytes stored."""
    chats: int | None = None
    """Conversations kept."""

    def beyond(self, other: Bounds) -> tuple[str, ...]:
        """Return the names of those that allow more than the other's do."""
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in self.__struct_fields__}
        return tuple(
            name for name, (own, most) in pairs.items() if most is not None and (own is None or own > most)
        )

    def within(self, other: Bounds) -> Bounds:
        """Return these bounds, with the other's where none is given."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        taken = {name: getattr(other, name) if value is None else value for name, value in given.items()}
        return Bounds(**taken)


UNBOUNDED = Bounds()
