"""Engines that are broken on purpose, one for each rule that keeps the promises true.

Each is the production engine with one plausible mistake. The simulator must catch every one; a rule whose
engine it does not catch is not proven.
"""

from tests.simulation.broken import (  # noqa: F401 - each registers its engines
    begin,
    branches,
    catalogue,
    clocks,
    context,
    durability,
    ends,
    events,
    lanes,
    parallel,
    resend,
    retries,
    unread,
    work,
)
from tests.simulation.broken.registry import BROKEN, engine_broken_by

__all__ = ["BROKEN", "engine_broken_by"]
