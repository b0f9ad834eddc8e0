"""200 kills of processes that run durable work: no job is lost, doubled, out of order or resumed too often.

First, engines without one of its rules show that a few kills find a broken promise.
"""

from __future__ import annotations

import traceback

from tests.crash import killed_work
from tests.simulation.broken import work

SECONDS = 900
BROKEN = (
    work.begins_work_before_lower_tickets,
    work.ends_the_work_of_a_dead_process,
    work.counts_no_resumes,
    work.resumes_without_stating_unknown_outcomes,
    work.resumes_with_a_log_of_its_own,
    work.resumes_without_voiding_the_text,
    work.leaves_the_job_of_an_ended_turn,
    work.takes_work_from_a_process_that_runs_it,
)


MOST_STORMS = 20
"""Kills do not hit the same moment twice: an engine is tried until a storm catches it."""


def prove() -> None:
    for engine in BROKEN:
        problem = next(
            (each for seed in range(MOST_STORMS) if (each := _problem(engine.__name__, seed))), None
        )
        if problem is None:
            raise AssertionError(f"{engine.__name__} was not caught: this shows nothing")
        where = traceback.extract_tb(_first(problem).__traceback__)[-1]
        print(f"{engine.__name__} is caught: {where.name}, {where.line}", flush=True)
    for processes in ("1", "2"):
        killed_work.main(["--kills", "100", "--processes", processes, "--seed", "7"])


def _problem(engine: str, seed: int) -> Exception | None:
    # Alone, so that no other process does right what it does wrong; but one may take it from another.
    processes = "2" if engine == work.takes_work_from_a_process_that_runs_it.__name__ else "1"
    arguments = ["--kills", "6", "--processes", processes, "--seed", str(seed), "--broken", engine]
    try:
        killed_work.main(arguments)
    except (AssertionError, ExceptionGroup) as problem:  # a group: from processes and readers
        return problem
    return None


def _first(problem: BaseException) -> BaseException:
    return _first(problem.exceptions[0]) if isinstance(problem, BaseExceptionGroup) else problem
