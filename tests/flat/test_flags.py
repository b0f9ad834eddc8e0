"""What is hidden is found at the same cost however long a conversation is. Counted, not timed."""

from __future__ import annotations

import pytest

from tests.flat.test_branches import LONG, SHORT, SLACK, Cost, anyio_backend, ask, from_end, grown, scene
from turnledger import Ledger

__all__ = ["anyio_backend", "scene"]


@pytest.mark.parametrize("hides", [False, True])
async def test_a_flag_set_elsewhere_costs_a_long_conversation_no_more_than_a_short_one(
    scene: tuple[Ledger, Cost],
    hides: bool,
) -> None:
    """Any flag of its owner makes the next turn of each conversation read its own flags again."""
    ledger, cost = scene
    other = await grown(ledger, 1)
    elsewhere = await from_end(other, 1)
    found: list[Cost] = []
    for length in (SHORT, LONG):
        chat = await grown(ledger, length)
        if hides:
            await chat.flag((await from_end(chat, 3)).id, 0, to_model=False)
        for to_model in (False, True):
            await other.flag(elsewhere.id, to_model=to_model)
            await ask(chat)
        known = await cost.of(ask(chat))
        await other.flag(elsewhere.id, to_model=False)
        found.append(await cost.of(ask(chat)))
        assert (
            found[-1].statements <= known.statements + 5
        )  # a transaction, its check of the version, the branch, its flags
    short, long = found
    assert long.statements == short.statements
    assert long.steps <= SLACK * short.steps
