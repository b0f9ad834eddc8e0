"""The command line: one module per command. Needs the extra `cli`; the library does not."""

from __future__ import annotations

import sys
from io import TextIOWrapper

NEEDS_TYPER = "The command line needs one more package. Install it with: pip install 'turnledger[cli]'"
INTERRUPTED = 130
"""Exit code: Ctrl-C."""


def main() -> None:
    """Run the command that the arguments name, and exit with its status."""
    try:
        _run()
    except KeyboardInterrupt:  # while it is being made ready: commands tell their own
        sys.exit(INTERRUPTED)


def _run() -> None:
    try:
        from turnledger.cli.main import app
    except ModuleNotFoundError as problem:
        if problem.name != "typer":
            raise
        print(NEEDS_TYPER, file=sys.stderr)
        sys.exit(2)
    # What this terminal has no letters for is written out.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    app(prog_name="turnledger")
