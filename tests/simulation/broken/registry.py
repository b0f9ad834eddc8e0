"""The broken engines by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Patch = tuple[Any, str, Any]
BROKEN: dict[str, Callable[[], list[Patch]]] = {}


def broken(engine: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
    """Register an engine under the name of its function."""
    BROKEN[engine.__name__] = engine
    return engine


@contextmanager
def engine_broken_by(name: str) -> Iterator[None]:
    """Patch the engine inside the block."""
    patches = [(where, what, getattr(where, what), how) for where, what, how in BROKEN[name]()]
    for where, what, _, how in patches:
        setattr(where, what, how)
    try:
        yield
    finally:
        for where, what, true, _ in patches:
            setattr(where, what, true)


async def nothing(*_: Any) -> None:
    """Replace a step that is left out."""
