"""The contract sees what goes wrong with retries without a key when a rule of theirs is taken out."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import force_setattr, replace

from turnledger.engine.attempt import client_retries
from turnledger.engine.attempt.idempotency import SharedOutcome
from turnledger.engine.ports import Store
from turnledger.engine.turn import begin, block, commit
from turnledger.errors import TurnledgerError
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.gates import Fate
from turnledger.testing.store_contract.keyless_retries import KeylessRetries
from turnledger.testing.store_contract.stage import Stage

LATER, UNDELIVERED, LOOK_UP, NOTE = (
    client_retries.comes_later,
    client_retries.is_undelivered,
    client_retries.look_up,
    client_retries.note,
)


async def keeps_what_was_delivered(tables: Any, notes: Any) -> Any:
    return await NOTE(tables, [each for each in notes if not each.is_delivered])


async def believes_any_sender(tables: Any, notes: Any) -> Any:
    claims = [await tables.claim(each.owner, each.name) for each in notes]
    senders = [claim.sender if claim else None for claim in claims]
    return await NOTE(
        tables,
        [dataclasses.replace(each, sender=sender) for each, sender in zip(notes, senders, strict=True)],
    )


def takes_up_whatever_was_asked_for(claim: Any, retry: Any, sender: Any) -> bool:
    return True


def forgets_who_took_it_up(claim: Any, retry: Any, sender: Any) -> bool:
    return bool(claim.retries < retry.count)


def shares_what_is_heard(claim: Any, attempt: Any, sender: Any) -> bool:
    return UNDELIVERED(replace(claim, is_lost=True), attempt, sender)


def forgets_the_dead(claim: Any, attempt: Any, sender: Any) -> bool:
    return UNDELIVERED(claim, replace(attempt, failure=None), sender)


def gives_what_may_have_been_delivered(claim: Any, failure: Any, sender: Any) -> bool:
    return True


async def gives_what_others_built_on(tables: Any, conversation: Any, turn: Any) -> bool:
    return True


async def forgets_that_the_client_has_left(tables: Any, notes: Any) -> list[Any]:
    return []


async def looks_and_does_not_claim(tables: Any, target: Any, retry: Any, sender: Any, now: Any) -> Any:
    claim = await tables.claim(target.owner, retry.name)
    found = await LOOK_UP(tables, target, retry, sender, now)
    if isinstance(found, SharedOutcome):
        await tables.save_claim(claim)
    return found


async def takes_up_for_a_first_try(tables: Any, target: Any, retry: Any, sender: Any, now: Any) -> Any:
    return await LOOK_UP(tables, target, client_retries.Retry(retry.request, retry.count + 1), sender, now)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    database = Database()

    async def open_store() -> Store:
        return MemoryStore(database)

    stage = Stage(open_store)
    yield stage
    await stage.close()


@pytest.mark.parametrize(
    ("where", "what", "how", "test"),
    [
        (
            client_retries,
            "note",
            keeps_what_was_delivered,
            "test_what_was_delivered_leaves_nothing_behind",
        ),
        (
            client_retries,
            "note",
            believes_any_sender,
            "test_what_is_said_of_an_earlier_try_leaves_the_claim_of_a_later_one_alone",
        ),
        (
            client_retries,
            "comes_later",
            takes_up_whatever_was_asked_for,
            "test_a_try_that_is_not_later_is_another_message",
        ),
        (
            client_retries,
            "was_kept_from_all",
            gives_what_may_have_been_delivered,
            "test_an_answer_whose_delivery_is_unknown_is_not_given_to_the_next_try",
        ),
        (
            client_retries,
            "is_head",
            gives_what_others_built_on,
            "test_a_lost_answer_that_others_built_on_is_not_given_to_a_later_try",
        ),
        (
            commit,
            "note",
            forgets_that_the_client_has_left,
            "test_a_commit_records_that_its_client_has_left",
        ),
        (
            client_retries,
            "is_undelivered",
            shares_what_is_heard,
            "test_a_running_turn_that_is_heard_is_not_shared",
        ),
        (
            client_retries,
            "is_undelivered",
            forgets_the_dead,
            "test_a_later_try_goes_on_where_a_dead_process_stopped",
        ),
        (
            client_retries,
            "look_up",
            looks_and_does_not_claim,
            "test_what_is_said_of_an_earlier_try_leaves_the_claim_of_a_later_one_alone",
        ),
        (
            client_retries,
            "is_over",
            lambda claim, now: False,
            "test_lost_answer_after_a_quarter_of_an_hour_is_not_given_to_the_next_try",
        ),
        (
            client_retries,
            "look_up",
            takes_up_for_a_first_try,
            "test_a_first_try_is_always_a_message_of_its_own",
        ),
    ],
)
async def test_the_contract_sees_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, where: Any, what: str, how: Any, test: str
) -> None:
    monkeypatch.setattr(where, what, how)
    with pytest.raises((AssertionError, TurnledgerError)):
        await getattr(KeylessRetries(), test)(stage)


@pytest.mark.parametrize("is_failed", [True, False])
async def test_the_contract_sees_a_retry_that_follows_its_claim_to_wherever_that_was_made(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, is_failed: bool
) -> None:
    monkeypatch.setattr(
        client_retries, "is_meant", lambda target, conversation: target.may_mean(conversation)
    )
    with pytest.raises((AssertionError, TurnledgerError)):
        await KeylessRetries().test_a_later_try_runs_where_its_key_leads_now(stage, is_failed, False)


async def test_the_contract_sees_a_try_that_forgets_that_it_was_made(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its begin took the turn up, the answer was lost, and the repeated begin runs it again."""
    monkeypatch.setattr(client_retries, "comes_later", forgets_who_took_it_up)
    with pytest.raises(AssertionError):
        await KeylessRetries().test_a_try_whose_begin_has_no_answer_is_the_same_try(stage, Fate.WRITTEN)


async def test_the_contract_sees_a_retry_that_does_not_wait_for_what_is_known(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block, "_is_later_try", lambda request: False)
    with pytest.raises(AssertionError):
        await KeylessRetries().test_a_process_goes_by_all_it_knows_of_deliveries(stage)


async def test_the_contract_sees_a_begin_that_does_not_look_again_behind_a_dead_holder(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = begin._free_of_dead

    async def free_of_dead(tables: Any, branch: Any, request: Any) -> Any:
        freed = await true(tables, branch, request)
        if freed is not branch:
            force_setattr(request, "retry", None)
        return freed

    monkeypatch.setattr(begin, "_free_of_dead", free_of_dead)
    with pytest.raises((AssertionError, TurnledgerError)):
        await KeylessRetries().test_a_later_try_may_be_the_one_that_finds_the_process_dead(stage)
