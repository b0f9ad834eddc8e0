"""The simulator: the production engine as several processes on one store, in virtual time, under faults.

    python -m turnledger.testing.simulation --seeds 0:5000 --store sqlite

The seed alone decides a schedule, so a failing one replays exactly. A log apart from the store records what
clients received and what tools did; the checker compares the store with it.
"""

from turnledger.testing.simulation.oracle.checker import Violation
from turnledger.testing.simulation.schedule import ScheduleReport, simulate

__all__ = ["ScheduleReport", "Violation", "simulate"]
