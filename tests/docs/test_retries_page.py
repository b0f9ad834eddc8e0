"""The page on retries: it leaves out no word by which a turn says that its process, not the model, failed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from turnledger import errors
from turnledger.engine.attempt.end import CLAIM_KEPT_MS, DELETED, DIED
from turnledger.engine.recovery import NOT_COMMITTED, UNHELD
from turnledger.engine.turn.begin import GAVE_UP
from turnledger.engine.turn.commit import SUPERSEDED, failure_of

PAGE = (Path(__file__).parents[2] / "docs" / "retries.md").read_text()
TABLE = PAGE[PAGE.index("| code |") :].partition("\n\n")[0]
LISTED = set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in TABLE.splitlines())))
FINAL = {"store_error", "store_corrupt", "not_a_store", "store_too_new", "unsafe_sqlite"}
"""What no repetition mends, or nobody is told."""


def codes_below(kind: type[errors.TurnledgerError]) -> set[str]:
    return {kind.code}.union(*(codes_below(each) for each in kind.__subclasses__()))


def test_every_word_of_a_process_that_ended_is_there() -> None:
    made = {each.code for each in (DIED, SUPERSEDED, GAVE_UP, NOT_COMMITTED, UNHELD)}
    raised = {failure_of(each).code for each in (asyncio.CancelledError(), errors.LedgerClosed())}
    assert made | raised | codes_below(errors.StoreError) - FINAL == LISTED


def test_what_is_the_models_or_final_is_told_apart() -> None:
    rest = PAGE.replace(TABLE, "")
    others = codes_below(errors.ModelError) - {errors.ModelError.code} | {DELETED.code, errors.EmptyTurn.code}
    assert {each for each in others if f"`{each}`" in rest} == others
    assert not others & LISTED


def test_its_number_is_that_of_the_engine() -> None:
    assert f"kept for {CLAIM_KEPT_MS // 3_600_000} hours" in PAGE
