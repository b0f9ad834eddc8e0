"""Searching: what a store makes findable."""

from __future__ import annotations

from typing import Any

from tests.simulation.broken.registry import Patch, broken
from turnledger.model.text.plain import seen_texts
from turnledger.stores.memory import search_rows as in_memory
from turnledger.stores.sqlite.tables import search as in_file


@broken
def finds_what_is_hidden() -> list[Patch]:
    def all_texts(turn: Any, hidden: Any) -> list[str]:
        return seen_texts(turn, ())

    return [(in_memory, "seen_texts", all_texts), (in_file, "seen_texts", all_texts)]


@broken
def finds_no_answers() -> list[Patch]:
    def questions(turn: Any, hidden: Any) -> list[str]:
        return [item.text for item in turn.input if item.role == "user"]

    return [(in_memory, "seen_texts", questions), (in_file, "seen_texts", questions)]
