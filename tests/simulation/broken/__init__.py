"""Engines that are broken on purpose, one for each rule that keeps the promises true.

Each is the production engine with one small piece replaced by what a sensible person might have written. The
simulator has to catch every one of them; what it does not catch, it does not prove.
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
    resend,
    retries,
)
from tests.simulation.broken.registry import BROKEN, engine_broken_by

__all__ = ["BROKEN", "engine_broken_by"]
