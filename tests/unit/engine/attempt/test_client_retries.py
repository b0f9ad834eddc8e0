"""Tries of a request: which attempt a later try resumes, and how deliveries are recorded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.engine.stage import (
    CONVERSATION,
    attempt,
    drive,
    lane_tables,
)
from tests.unit.model.shapes import some_id
from turnledger import Ledger
from turnledger.engine.attempt import client_retries
from turnledger.engine.attempt.client_retries import (
    DERIVED,
    LOST_KEPT_MS,
    UNCOUNTED_MS,
    check_retry,
    claim_for,
    look_up,
    record_deliveries,
    retry_within,
)
from turnledger.engine.attempt.end import CLAIM_KEPT_MS, DIED
from turnledger.engine.attempt.idempotency import NewAttempt
from turnledger.engine.conversations.resolve import Target
from turnledger.engine.ports import Sync
from turnledger.engine.turn.block import TurnBlock
from turnledger.engine.wrapped_store import WrappedStore, Write
from turnledger.errors import InvalidInput, StoreCorrupt, StoreFull
from turnledger.hosting import Host, Retry
from turnledger.model.conversation import Claim, Within
from turnledger.model.ids import TurnId
from turnledger.model.turn import Attempt, AttemptState, Failure
from turnledger.stores.memory import Database, MemoryStore, MemoryTables
from turnledger.testing.gates import GatedStore
from turnledger.testing.scripted_model import ScriptedModel

ANN = Target("ann", CONVERSATION)
FIRST, SECOND = Retry(b"digest"), Retry(b"digest", 1)
ID, SENDER = some_id(TurnId, 1), some_id(TurnId, 2)
CLAIM = claim_for(FIRST, attempt(1))
FAILURE = Failure("boom", "it broke")


def claimed(row: Attempt | None = None, **changes: Any) -> MemoryTables:
    tables = lane_tables()
    drive(tables.save_claim(replace(CLAIM, **changes)))
    if row is not None:
        drive(tables.add_attempt(row))
    return tables


def claim_in(tables: MemoryTables) -> Claim:
    found = drive(tables.claim(FIRST.name))
    assert found is not None
    return found


def test_claim_records_its_try_and_expires() -> None:
    assert (CLAIM.idempotency_key, CLAIM.retries, CLAIM.is_lost) == (DERIVED + b"digest".hex(), 0, False)
    assert (CLAIM.attempt, CLAIM.sender, CLAIM.expires_at) == (ID, ID, 1 + CLAIM_KEPT_MS)


@pytest.mark.parametrize(
    ("state", "failure", "is_lost", "is_taken_up"),
    [
        (AttemptState.FAILED, DIED, False, True),
        (AttemptState.FAILED, FAILURE, True, True),
        (AttemptState.FAILED, FAILURE, False, False),
        (AttemptState.DISCARDED, None, True, False),
        (AttemptState.RESUMED, FAILURE, True, False),
    ],
)
def test_failed_attempt_is_resumed_by_a_later_try_only_if_its_failure_was_not_delivered(
    state: AttemptState, failure: Failure | None, is_lost: bool, is_taken_up: bool
) -> None:
    row = attempt(1, state, failure=failure)
    tables = claimed(row, is_lost=is_lost)
    before = claim_in(tables)
    found = drive(look_up(tables, ANN, SECOND, SENDER, 0))
    assert found == (NewAttempt(before, row) if is_taken_up else NewAttempt())
    assert claim_in(tables) == before


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize(("after", "is_taken_up"), [(UNCOUNTED_MS - 1, True), (UNCOUNTED_MS, False)])
def test_failed_attempt_is_resumed_by_an_uncounted_try_for_a_moment_after_its_end_or_its_loss(
    is_lost: bool, after: int, is_taken_up: bool
) -> None:
    moment = 10 * UNCOUNTED_MS
    uncounted, ended_at = Retry(b"digest", None), 1 if is_lost else moment
    row = attempt(1, AttemptState.FAILED, failure=DIED, ended_at=ended_at)
    expires_at = moment + (LOST_KEPT_MS if is_lost else CLAIM_KEPT_MS)
    claim = replace(claim_for(uncounted, row), is_lost=is_lost, expires_at=expires_at)
    tables = claimed(row)
    drive(tables.save_claim(claim))
    found = drive(look_up(tables, ANN, uncounted, SENDER, moment + after))
    assert found == (NewAttempt(claim, row) if is_taken_up else NewAttempt())


def test_lost_attempt_without_a_row_is_begun_afresh() -> None:
    assert drive(look_up(claimed(is_lost=True), ANN, SECOND, SENDER, 0)) == NewAttempt()


@pytest.mark.parametrize(
    "retry", [Retry(b""), Retry(b"x" * 65), Retry(b"x", -1), Retry(b"x", 2**31), (b"x", 1), 5]
)
def test_invalid_retry_is_refused(retry: Any) -> None:
    with pytest.raises(InvalidInput, match="retry is"):
        check_retry(retry)


async def test_idempotency_key_that_looks_like_a_retry_name_is_refused() -> None:
    async with await Ledger.open() as ledger:
        with pytest.raises(InvalidInput, match="control character"):
            ledger.turn("q", idempotency_key=FIRST.name)


def test_retry_names_of_different_scopes_are_distinct() -> None:
    assert retry_within(SECOND, Within()) is SECOND
    tries = [retry_within(SECOND, Within(within)) for within in (None, "", "shop", "shop ")]
    assert len({each.name for each in tries}) == 4
    assert {each.count for each in tries} == {1}
    assert retry_within(Retry(b" digest"), Within("shop")).name != retry_within(FIRST, Within("shop ")).name
    assert [check_retry(each) for each in tries] == tries


async def answered(ledger: Ledger, name: str) -> TurnBlock:
    block = ledger.turn("q", retry=Retry(name.encode()))
    await block.run(ScriptedModel(["a"]))
    return block


async def written(ledger: Ledger) -> None:
    """Wait for what writes by itself."""
    task = ledger._process.deliveries._writing
    assert task is not None
    await task


async def test_delivery_notes_made_at_once_are_written_in_one_transaction(
    ledger: Ledger, store: GatedStore, database: Database
) -> None:
    blocks = [await answered(ledger, name) for name in "abcd"]
    assert len(database.claims) == 4
    for block in blocks[:3]:
        Host(ledger).delivered(block)
    Host(ledger).lost(blocks[3])
    await written(ledger)
    assert store.operations.count("record_deliveries") == 1
    [left] = database.claims.values()
    assert (left.sender, left.is_lost) == (blocks[3].id, True)


async def test_delivery_note_made_during_a_write_is_written_next(
    ledger: Ledger, store: GatedStore, database: Database
) -> None:
    first, second = await answered(ledger, "a"), await answered(ledger, "b")
    with store.hold(record_deliveries) as gate:
        Host(ledger).delivered(first)
        await gate.arrived()
        Host(ledger).delivered(second)
    await written(ledger)
    assert database.claims == {}
    assert store.operations.count("record_deliveries") == 2


async def test_delivery_note_that_failed_is_written_with_the_next(
    ledger: Ledger, store: GatedStore, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = await answered(ledger, "a"), await answered(ledger, "b")
    store.refuse(record_deliveries, StoreFull())
    Host(ledger).delivered(first)
    await written(ledger)
    logged = [(each.getMessage(), vars(each)["code"]) for each in caplog.records]
    assert logged == [("store_fails", "store_full")]
    Host(ledger).delivered(second)
    await written(ledger)
    assert database.claims == {}


async def test_damaged_row_of_one_request_does_not_block_other_delivery_notes(
    ledger: Ledger, store: GatedStore, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    blocks = [await answered(ledger, name) for name in "abc"]
    store.refuse(record_deliveries, StoreCorrupt(), times=2)  # of all together, then of the first alone
    for block in blocks:
        Host(ledger).lost(block)
    await ledger._process.deliveries.flush()
    dropped = [vars(each)["turn"] for each in caplog.records if each.message == "delivery_note_dropped"]
    assert dropped == [blocks[0].id]
    assert [claim.is_lost for claim in database.claims.values()] == [False, True, True]
    store.operations.clear()
    await ledger._process.deliveries.flush()
    assert store.operations == []


async def test_delivery_notes_that_cannot_be_written_are_kept_up_to_a_limit(
    ledger: Ledger, store: GatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_retries, "MOST_NOTES", 2)
    blocks = [await answered(ledger, name) for name in "abc"]
    with store.hold(record_deliveries) as gate:
        for block in blocks:
            Host(ledger).delivered(block)
        await gate.arrived()
        assert len(ledger._process.deliveries._notes) == 2
    await written(ledger)


async def test_cancelled_flush_of_delivery_notes_loses_none(
    ledger: Ledger, store: GatedStore, database: Database
) -> None:
    block = await answered(ledger, "a")
    with store.hold(record_deliveries) as gate:
        Host(ledger).delivered(block)
        await gate.arrived()
        flushing = asyncio.create_task(ledger._process.deliveries.flush())
        await asyncio.sleep(0)
        flushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flushing
    await written(ledger)
    assert database.claims == {}


async def test_closing_ledger_writes_its_delivery_notes(store: GatedStore, database: Database) -> None:
    async with await Ledger.over(store) as ledger:
        Host(ledger).delivered(await answered(ledger, "a"))
    assert database.claims == {}


async def test_ledger_closes_though_its_delivery_notes_cannot_be_written(
    store: GatedStore, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async with await Ledger.over(store) as ledger:
        block = await answered(ledger, "a")
        store.refuse(record_deliveries, StoreFull(), times=2)
        Host(ledger).delivered(block)
    assert len(database.claims) == 1
    assert "1 delivery notes are lost: store_full" in caplog.text


async def test_lost_answer_is_claimed_on_disk_before_it_is_returned_again() -> None:
    """Power loss must not bring back that it was lost once it has been delivered."""
    synced: list[tuple[str, Sync]] = []

    class Noted(WrappedStore):
        async def write(self, write: Write) -> Any:
            result = await super().write(write)
            synced.append((getattr(write.operation, "__name__", ""), write.sync))
            return result

    async with await Ledger.over(Noted(MemoryStore())) as ledger:
        chat = await ledger.conversation()
        first = chat.turn("q", retry=Retry(b"a"))
        turn = await first.run(ScriptedModel(["a"]))
        Host(ledger).lost(first)
        await ledger._process.deliveries.flush()
        synced.clear()
        assert await chat.turn("q", retry=Retry(b"a", 1)).run(ScriptedModel()) == turn
        assert synced == [("begin", Sync.DISK)]


class TestUncounted:
    """Clients that do not count their tries."""

    async def test_delivered_answer_writes_nothing_beside_its_turn(
        self, ledger: Ledger, store: GatedStore, database: Database
    ) -> None:
        block = ledger.turn("q", retry=Retry(b"a", None))
        await block.run(ScriptedModel(["a"]))
        Host(ledger).delivered(block)
        await ledger._process.deliveries.flush()
        assert database.claims == {}
        assert "record_deliveries" not in store.operations

    async def test_lost_answer_is_returned_to_one_retry_though_its_loss_is_noted_again(
        self, ledger: Ledger
    ) -> None:
        chat = await ledger.conversation()
        first = chat.turn("q", retry=Retry(b"a", None))
        turn = await first.run(ScriptedModel(["a"]))
        Host(ledger).lost(first)
        again = chat.turn("q", retry=Retry(b"a", None))
        assert await again.run(ScriptedModel()) == turn
        Host(ledger).delivered(again)
        Host(ledger).lost(first)  # as after a write whose outcome was unknown
        later = await chat.turn("q", retry=Retry(b"a", None)).run(ScriptedModel(["b"]))
        assert later.text == "b"

    async def test_answer_lost_after_an_earlier_one_of_the_same_words_is_returned(
        self, ledger: Ledger
    ) -> None:
        chat = await ledger.conversation()
        for text in ("a", "b"):
            block = chat.turn("q", retry=Retry(b"a", None))
            turn = await block.run(ScriptedModel([text]))
            Host(ledger).lost(block)
            again = chat.turn("q", retry=Retry(b"a", None))
            assert await again.run(ScriptedModel()) == turn
            Host(ledger).delivered(again)
        assert [each.text for each in await chat.turns()] == ["a", "b"]
