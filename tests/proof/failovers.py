"""Every acknowledged turn is on the synchronous standby that replaces a killed primary.

Four servers under load reach the database through a forwarder that follows the primary, on 18 and 16.
"""

from __future__ import annotations

from tests.crash.shared_database import storm

SECONDS = 3600
KILLS = 20
"""Of servers and primaries, about half each."""


def prove() -> None:
    for version in (18, 16):
        print(f"PostgreSQL {version}: {storm(KILLS, seed=version, version=version, failovers=True).summary}")


if __name__ == "__main__":
    prove()
