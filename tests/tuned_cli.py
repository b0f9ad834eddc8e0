"""The command line with times that have no settings: `python -m tests.tuned_cli lease_time=1.2 serve …`.

They apply to one process only: workers of a server have the usual times.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from turnledger.cli import main
from turnledger.runners.demo import DemoModel
from turnledger.server.listen import serve
from turnledger.server.ops import readiness


def lease_time(seconds: float) -> None:
    """Set the lease time."""
    usual = serve.engine_limits
    serve.engine_limits = lambda settings: replace(usual(settings), lease_time=seconds)


def pace(seconds: float) -> None:
    """Set the time of the demo model per word."""
    assert DemoModel.__init__.__kwdefaults__ is not None
    DemoModel.__init__.__kwdefaults__["pace"] = seconds


def fresh(seconds: float) -> None:
    """Set how long the readiness of the store is cached."""
    readiness.FRESH = seconds


if __name__ == "__main__":
    while "=" in sys.argv[1]:
        name, _, value = sys.argv.pop(1).partition("=")
        {"lease_time": lease_time, "pace": pace, "fresh": fresh}[name](float(value))
    main()
