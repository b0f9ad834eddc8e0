"""Listing: what a commit writes for the list of chats."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.simulation.broken.registry import Patch, broken
from turnledger.engine.attempt import end
from turnledger.engine.conversations import resolve
from turnledger.engine.turn import commit


@broken
def lists_no_chat_whose_first_turn_was_kept() -> list[Patch]:
    async def enter(tables: Any, owner: str, id: Any, *_: Any) -> Any:
        return await tables.conversation(owner, id)

    # The probe that ends each schedule would list it, if it were a first turn for anybody.
    return [(end, "enter", enter), (commit, "is_entered", lambda conversation: True)]


@broken
def previews_the_turn_before() -> list[Patch]:
    true = commit.behind

    def behind(branch: Any, *arguments: Any) -> Any:
        return replace(true(branch, *arguments), preview=branch.preview)

    return [(commit, "behind", behind)]


@broken
def previews_the_question() -> list[Patch]:
    def preview_of(turn: Any, hidden: Any = ()) -> str:
        return next((item.text for item in turn.input if item.role == "user"), "")

    return [(commit, "preview_of", preview_of), (resolve, "preview_of", preview_of)]
