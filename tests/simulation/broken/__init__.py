"""Engines that are broken on purpose, one for each rule that keeps the promises true.

Each is the production engine with one small piece replaced by what a sensible person might have written. The
simulator has to catch every one of them; what it does not catch, it does not prove.
"""

from tests.simulation.broken import (
    beginning,
    branching,
    changes,
    clocks,
    deleting,
    durability,
    ending,
    holding,
    listing,
    resending,
    retries,
    searching,
    showing,
    telling,
)
from tests.simulation.broken.registry import BROKEN, engine_broken_by

__all__ = [
    "BROKEN",
    "beginning",
    "branching",
    "changes",
    "clocks",
    "deleting",
    "durability",
    "ending",
    "engine_broken_by",
    "holding",
    "listing",
    "resending",
    "retries",
    "searching",
    "showing",
    "telling",
]
