"""Errors of all commands: printed on one line with the remedy, and mapped to the exit code."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from turnledger.cli import INTERRUPTED, NEEDS_SERVER
from turnledger.cli.output.streams import say
from turnledger.errors import TurnledgerError

NOT_DONE = 2
"""Exit code: failed, at least in part. 0: success."""
NOBODY_READS = 141
"""Exit code: the reader of the output has ended, as `head` does; shells report it so for other programs."""

NEEDS_CLI = "The command line needs more packages. Install them with: pip install 'turnledger[cli]'"
NEEDS = {
    **dict.fromkeys(("httpx2", "prompt_toolkit", "rich"), NEEDS_CLI),
    **dict.fromkeys(("httptools", "prometheus_client", "starlette", "uvicorn", "uvloop"), NEEDS_SERVER),
}


class CommandGroup(TyperGroup):
    """All commands. Handles their errors."""

    def invoke(self, ctx: Any) -> Any:
        try:
            done = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
        except (TurnledgerError, ModuleNotFoundError, KeyboardInterrupt, OSError) as problem:
            raise typer.Exit(tell(problem)) from None
        return done


def tell(problem: BaseException) -> int:
    """Print the problem, and return the exit code. Raises it again if it is a bug of ours."""
    if isinstance(problem, TurnledgerError):
        say(f"{problem.code}: {problem}")
        return NOT_DONE
    if isinstance(problem, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(problem, BrokenPipeError):
        _read_no_more()
        return NOBODY_READS
    if isinstance(problem, ModuleNotFoundError):
        needed = NEEDS.get((problem.name or "").partition(".")[0])
        if needed is None:
            raise problem
        say(needed)
        return NOT_DONE
    if isinstance(problem, OSError):
        where = f" ({problem.filename})" if problem.filename else ""
        say(f"system_error: {problem.strerror or problem}{where}")
        return NOT_DONE
    raise problem


def _read_no_more() -> None:
    """Discard unwritten output: Python would write it at exit, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(nowhere, stream.fileno())
        except (OSError, ValueError):  # not a real file, as in a test
            continue
    os.close(nowhere)
