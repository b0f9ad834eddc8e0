"""What is kept beside a turn: a log that cannot be told and a flag that hides nothing are seen."""

from __future__ import annotations

import pytest

from tests.unit.engine.lived_in import Lived
from turnledger import Rule, TurnKind
from turnledger.errors import StoreCorrupt
from turnledger.model import codec, event_log
from turnledger.model.attempt import AttemptState
from turnledger.model.event_log import INLINE, ITEM, LogChunk, WholeLog
from turnledger.model.flags import Flags
from turnledger.stores.memory import Database


def inline(raw: bytes) -> bytes:
    log = bytearray()
    event_log.pack_inline(log, INLINE, raw)
    return bytes(log)


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (b"\xff" * 6, "A stored event log cannot be read"),
        (b"\x00\xff", "A stored event log is cut off"),
        (b"\x00" + bytes([ITEM] * 9), "tells more items than there are"),
        (b"\x00" + bytes([99]), "tells more text than there is"),
        (b"\x00" + bytes([ITEM]), "It tells 1 items of an output of 4"),
        (b"\x00" + bytes([ITEM] * 4) + inline(b"{}"), "A stored item cannot be read"),
        (b"\x02torn", "A stored event log cannot be read"),
    ],
)
async def test_a_log_that_cannot_be_told_is_seen(
    lived: Lived, database: Database, kept: bytes, said: str
) -> None:
    turn = (await lived.plain.turns())[1]
    database.turn_logs[turn.id] = kept
    [finding] = await lived.ledger.check()
    assert (finding.rule, finding.owner, finding.turn) == (Rule.DOCUMENT, "ann", turn.id)
    assert finding.message.startswith("Its event log cannot be read: ")
    assert said in finding.message


async def test_the_log_of_a_settled_turn_is_looked_at_as_well(lived: Lived, database: Database) -> None:
    turn = next(each for each in await lived.settled.turns() if each.kind is TurnKind.SETTLED)
    torn = WholeLog(log=bytes([ITEM]), text="", state=AttemptState.FAILED)
    database.turn_logs[turn.id] = event_log.stored_whole(torn)
    [finding] = await lived.ledger.check()
    assert (finding.rule, finding.turn) == (Rule.DOCUMENT, turn.id)
    with pytest.raises(StoreCorrupt):
        [event async for event in lived.settled.events(turn.id)]


async def test_the_log_of_an_attempt_that_was_set_aside_is_looked_at(
    lived: Lived, database: Database
) -> None:
    [attempt] = [each.attempt for each in await lived.waiting.attempts()]
    assert await lived.ledger.check() == []
    database.logs[attempt.id] = {0: codec.encode(LogChunk(log=bytes([99]), text=""))}
    [finding] = await lived.ledger.check()
    assert (finding.rule, finding.turn) == (Rule.DOCUMENT, attempt.id)
    assert "tells more text than there is" in finding.message


async def test_a_flag_at_a_place_that_its_turn_does_not_have_is_seen(
    lived: Lived, database: Database
) -> None:
    turn = (await lived.plain.turns())[1]
    await lived.plain.flag(turn.id, to_user=False)
    assert await lived.ledger.check() == []
    database.flags["ann", turn.id] = {len(turn.items): Flags(to_user=False)}
    [finding] = await lived.ledger.check()
    assert (finding.rule, finding.turn) == (Rule.ORPHAN, turn.id)
    assert "Item 5 is flagged, but it has 5" in finding.message
