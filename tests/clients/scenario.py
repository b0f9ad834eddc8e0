"""Scenarios: actions of clients as data. The README describes the files."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

FOLDER = Path(__file__).parent / "scenarios"
Step = dict[str, Any]


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    steps: list[Step]
    needs: str | None = None
    """`wire`: it needs a connection that breaks."""
    exceptions: dict[str, str] = msgspec.field(default_factory=dict, name="except")
    """Drivers that cannot run it, with the reason."""
    server: str | None = None
    """`process`: a server that can be killed; `guarded`: one that requires tokens."""
    client: dict[str, Any] = {}
    chat: dict[str, Any] | None = {}
    """Options of its chat; None for no chat."""

    @property
    def is_contract(self) -> bool:
        """Whether an embedded ledger can run it, too."""
        return self.needs is None and self.server is None


class ScenarioFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    about: str
    scenarios: list[Scenario]


@cache
def all_scenarios() -> dict[str, Scenario]:
    """Load all scenarios, by file and name."""
    found = {}
    for path in sorted(FOLDER.glob("*.json")):
        for scenario in msgspec.json.decode(path.read_bytes(), type=ScenarioFile).scenarios:
            name = f"{path.stem}: {scenario.name}"
            assert name not in found, f"two scenarios are called {name}"
            found[name] = scenario
    return found
