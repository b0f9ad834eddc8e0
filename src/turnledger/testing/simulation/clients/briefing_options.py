"""Briefing: instructions, primer and context of a request."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from turnledger.engine.history.context import Context

PRIMING = "primed by "


@dataclass(frozen=True)
class Briefing:
    """Its texts are unique to the request."""

    instructions: str | None = None
    """In force from this turn on; an empty text ends them."""
    once: str | None = None
    """In force for this turn only."""
    primer: str | None = None
    turns: int | None = None
    """Number of last turns to show; None for all, or as many as the budget allows."""
    budget: int | None = None
    """Number of items to show, at one token each; None for all."""

    @property
    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"instructions": self.instructions, "instructions_once": self.once}
        if self.primer is not None:
            options["primer"] = self.primer
        if self.turns is not None:
            options["context"] = Context.last(self.turns)
        if self.budget is not None:
            options["context"] = Context.budget(self.budget, count=lambda item: 1)
        return options

    @property
    def shows_all(self) -> bool:
        return self.turns is None and self.budget is None

    @classmethod
    def draw(cls, random: Random, token: str) -> Briefing:
        """Draw a briefing; most are empty, so that earlier instructions stay in force."""
        instructions = once = None
        match random.choice(("lasting", "lasting", "once", "ended", *["nothing"] * 4)):
            case "lasting":
                instructions = f"from {token} on"
            case "once":
                once = random.choice((f"for {token} only", ""))
            case "ended":
                instructions = ""
        return cls(
            instructions=instructions,
            once=once,
            primer=f"{PRIMING}{token}" if random.random() < 0.2 else None,
            turns=random.choice((0, 1, 2)) if (drawn := random.random()) < 0.2 else None,
            budget=random.choice((0, 4, 9, 100)) if 0.2 <= drawn < 0.4 else None,
        )


SILENT = Briefing()
