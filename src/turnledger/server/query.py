"""What stands behind the question mark of a path."""

from __future__ import annotations

from turnledger.errors import InvalidInput


def number_of(given: str | None, name: str) -> int | None:
    """A number; None where it was left out. Raises InvalidInput for anything else."""
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > 9:
        raise InvalidInput(f"{name} is a number.")
    return int(given)
