"""The command line with leases of a second, which a server has no setting for: `python -m`, for tests."""

from __future__ import annotations

from dataclasses import replace

from turnledger.cli import main
from turnledger.server.listen import serve

LEASE_TIME = 1.2
"""Seconds; long enough for a busy machine to beat within."""
usual = serve.engine_limits

if __name__ == "__main__":
    serve.engine_limits = lambda settings: replace(usual(settings), lease_time=LEASE_TIME)
    main()
