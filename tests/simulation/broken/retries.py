"""Retries without a key: no message is swallowed, and a lost answer is not made twice."""

from __future__ import annotations

import dataclasses
from typing import Any

from msgspec.structs import replace

from tests.simulation.broken.registry import Patch, broken
from turnledger.engine.attempt import client_retries
from turnledger.engine.attempt.idempotency import NOTHING_CLAIMED, SharedOutcome
from turnledger.engine.turn import commit


@broken
def replays_an_answer_that_may_be_delivered() -> list[Patch]:
    return [(client_retries, "is_answer_lost", lambda claim, failure, sender: True)]


@broken
def replays_a_lost_answer_that_other_turns_follow() -> list[Patch]:
    async def is_head(tables: Any, conversation: Any, turn: Any) -> bool:
        return True

    return [(client_retries, "is_head", is_head)]


@broken
def shares_a_running_turn_with_a_connected_client() -> list[Patch]:
    true = client_retries.is_undelivered

    def is_undelivered(claim: Any, attempt: Any, sender: Any) -> bool:
        return true(replace(claim, is_lost=True), attempt, sender)

    return [(client_retries, "is_undelivered", is_undelivered)]


@broken
def replays_a_lost_answer_without_recording_it() -> list[Patch]:
    true = client_retries.look_up

    async def look_up(tables: Any, target: Any, retry: Any, *others: Any, **options: Any) -> Any:
        claim = await tables.claim(retry.name)
        found = await true(tables, target, retry, *others, **options)
        if isinstance(found, SharedOutcome):
            await tables.save_claim(claim)
        return found

    return [(client_retries, "look_up", look_up)]


@broken
def trusts_the_delivery_report_of_an_earlier_try() -> list[Patch]:
    true = client_retries.record_deliveries

    async def note(tables: Any, notes: Any) -> Any:
        named = []
        for each in notes:
            claim = await tables.claim(each.name)
            sender = claim.sender if claim else each.sender
            named.append(dataclasses.replace(each, sender=sender))
        return await true(tables, named)

    return [(client_retries, "record_deliveries", note), (commit, "record_deliveries", note)]


@broken
def runs_every_retry_again() -> list[Patch]:
    async def look_up(*_: Any, **__: Any) -> Any:
        return NOTHING_CLAIMED

    return [(client_retries, "look_up", look_up)]


@broken
def follows_the_claim_to_the_former_conversation_of_its_key() -> list[Patch]:
    return [(client_retries, "is_target", lambda target, conversation: target.may_repeat(conversation))]
