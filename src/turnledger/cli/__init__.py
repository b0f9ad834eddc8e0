"""The command line: one module per command. Needs the extra `cli`; the library does not."""

from __future__ import annotations

import sys
from io import TextIOWrapper

NEEDS_TYPER = "The command line needs one more package. Install it with: pip install 'turnledger[cli]'"


def main() -> None:
    """Run the command that the arguments name, and exit with its status."""
    try:
        _run()
    except KeyboardInterrupt:  # while much of it is still to be read
        sys.exit(130)


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
