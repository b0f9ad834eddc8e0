"""The simulator: the production engine as several processes on one store, in virtual time, under faults.

    python -m turnledger.testing.simulation --seeds 0:5000 --store sqlite

A schedule is decided by its seed alone, so a failing one replays exactly. What the clients saw and what the
tools did is logged apart from the store, and the checker holds the store against that log.
"""

from turnledger.testing.simulation.oracle.checker import Violation
from turnledger.testing.simulation.schedule import ScheduleReport, simulate

__all__ = ["ScheduleReport", "Violation", "simulate"]
