"""What a caller asks for is checked before the store hears of it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from turnledger import Ledger, ResetPolicy
from turnledger.engine.asking import begin_request, target_of
from turnledger.engine.process import Process
from turnledger.errors import InvalidInput, LedgerClosed
from turnledger.model.reset_policy import NEVER


@pytest.fixture
async def process() -> AsyncIterator[Process]:
    async with await Ledger.open("memory:") as ledger:
        yield ledger._process


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"owner": ""}, "owner"),
        ({"conversation_key": "k" * 513}, "conversation_key"),
        ({"conversation_key": "\ud800"}, "Unicode"),
        ({"id": "conv_1", "conversation_key": "k"}, "not both"),
        ({"reset": ResetPolicy.idle(1)}, "conversation_key"),
        ({"id": "conv_1", "reset": NEVER}, "conversation_key"),
    ],
)
async def test_what_names_no_conversation_is_refused(
    process: Process, arguments: dict[str, Any], reason: str
) -> None:
    given = {"id": None, "conversation_key": None, "owner": "ann", **arguments}
    with pytest.raises(InvalidInput, match=reason):
        target_of(process, given.pop("id"), given.pop("conversation_key"), given.pop("owner"), **given)


async def test_a_policy_is_for_the_key_and_for_what_is_made_under_it(process: Process) -> None:
    policy = ResetPolicy.daily(4)
    target = target_of(process, None, "k", "ann", reset=policy)
    assert target.fresh is not None
    assert target.reset_policy == target.fresh.reset_policy == policy
    plain = target_of(process, None, "k", "ann")
    assert plain.fresh is not None
    assert (plain.reset_policy, plain.fresh.reset_policy) == (None, NEVER)


async def test_who_may_not_create_brings_nothing_to_insert(process: Process) -> None:
    assert target_of(process, None, "k", "ann", create=False).fresh is None


async def test_a_turn_is_an_interaction_unless_it_says_otherwise(process: Process) -> None:
    target = target_of(process, None, "k", "ann")
    asked = (process, target, "q", None, "queue", "keep", "settle")
    assert begin_request(*asked).is_interaction
    assert not begin_request(*asked, interaction=False).is_interaction


async def test_a_closed_ledger_is_asked_for_nothing() -> None:
    ledger = await Ledger.open("memory:")
    await ledger.close()
    with pytest.raises(LedgerClosed):
        target_of(ledger._process, None, "k", "ann")
