"""Errors of all commands: printed on one line with the remedy, and mapped to the exit code."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from turnledger.cli import INTERRUPTED, NEEDS_SERVER
from turnledger.cli.output.streams import print_message
from turnledger.errors import ConversationNotFound, TurnledgerError

FAILED = 2
"""Exit code: failed, at least in part. 0: success."""
BROKEN_PIPE = 141
"""Exit code: the reader of the output has ended, as `head` does; shells report it so for other programs."""

NEEDS_CLI = "The command line needs more packages. Install them with: pip install 'turnledger[cli]'"
INSTALL_HINTS = {
    **dict.fromkeys(("httpx2", "prompt_toolkit", "rich"), NEEDS_CLI),
    **dict.fromkeys(("httptools", "prometheus_client", "starlette", "uvicorn", "uvloop"), NEEDS_SERVER),
}


class CommandGroup(TyperGroup):
    """All commands. Handles their errors."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
        except (TurnledgerError, ModuleNotFoundError, KeyboardInterrupt, OSError) as problem:
            raise typer.Exit(report_failure(problem)) from None
        return result


def describe(problem: TurnledgerError, name: str | None = None) -> str:
    """Return the code and the message, with the command that finds a chat if none has the given name."""
    remedy = " `turnledger chats list` lists all." if isinstance(problem, ConversationNotFound) else ""
    return ": ".join(filter(None, (problem.code, name, f"{problem}{remedy}")))


def report_failure(problem: BaseException) -> int:
    """Print the problem, and return the exit code. Raises it again if it is a bug of ours."""
    if isinstance(problem, TurnledgerError):
        print_message(describe(problem))
        return FAILED
    if isinstance(problem, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(problem, BrokenPipeError):
        _discard_output()
        return BROKEN_PIPE
    if isinstance(problem, ModuleNotFoundError):
        hint = INSTALL_HINTS.get((problem.name or "").partition(".")[0])
        if hint is None:
            raise problem
        print_message(hint)
        return FAILED
    if isinstance(problem, OSError):
        location = f" ({problem.filename})" if problem.filename else ""
        print_message(f"system_error: {problem.strerror or problem}{location}")
        return FAILED
    raise problem


def _discard_output() -> None:
    """Discard unwritten output: Python would write it at exit, and complain."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(null_device, stream.fileno())
        except (OSError, ValueError):  # not a real file, as in a test
            continue
    os.close(null_device)
