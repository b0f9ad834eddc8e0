"""The command line: one module per command. Needs the extra `cli`; the library does not."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

NEEDS_TYPER = "The command line needs one more package. Install it with: pip install 'turnledger[cli]'"
NEEDS_SERVER = "The server needs more packages. Install them with: pip install 'turnledger[server]'"
INTERRUPTED = 130


def main() -> None:
    """Run the command that the arguments name, and exit with its status."""
    _reopen_closed_streams()
    try:
        _run()
    except KeyboardInterrupt:  # during start-up: commands handle their own
        sys.exit(INTERRUPTED)


def _reopen_closed_streams() -> None:
    """Redirect closed standard streams to /dev/null. Otherwise a file or connection opened later gets such a
    number, and output goes there, or the event loop fails."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _run() -> None:
    try:
        from turnledger.cli.main import app
    except ModuleNotFoundError as problem:
        if problem.name != "typer":
            raise
        command = next((each for each in sys.argv[1:] if not each.startswith("-")), None)
        # The server's packages include those of the command line.
        print(NEEDS_SERVER if command in {"serve", "doctor"} else NEEDS_TYPER, file=sys.stderr)
        sys.exit(2)
    # Characters that this terminal lacks are escaped.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    app(prog_name="turnledger")
