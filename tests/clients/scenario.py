"""Scenarios: what clients do, as data. The README beside this says what the files hold."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

FOLDER = Path(__file__).parent / "scenarios"
Step = dict[str, Any]


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of them."""

    name: str
    steps: list[Step]
    needs: str | None = None
    """`wire`: connections and servers are its subject."""
    exceptions: dict[str, str] = msgspec.field(default_factory=dict, name="except")
    """Drivers that cannot play it, and why."""
    server: str | None = None
    """`process`: it needs a server that can be killed; `guarded`: one that asks for tokens."""
    client: dict[str, Any] = {}
    chat: dict[str, Any] | None = {}
    """What its chat is made with; None: there is none."""

    @property
    def is_contract(self) -> bool:
        """Whether an embedded ledger can play it, too."""
        return self.needs is None and self.server is None


class ScenarioFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    about: str
    scenarios: list[Scenario]


@cache
def all_scenarios() -> dict[str, Scenario]:
    """All there are, by the names of their file and of themselves."""
    found = {}
    for path in sorted(FOLDER.glob("*.json")):
        for scenario in msgspec.json.decode(path.read_bytes(), type=ScenarioFile).scenarios:
            name = f"{path.stem}: {scenario.name}"
            assert name not in found, f"two scenarios are called {name}"
            found[name] = scenario
    return found
