"""The power loss checks fail for engines whose acknowledged writes do not wait for the disk."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.simulation.broken.durability import undemanded, unsynced
from tests.simulation.broken.registry import Patch
from turnledger.engine.access.shares import exchange
from turnledger.engine.access.shares import revoke as revoke_share
from turnledger.engine.access.tokens import create as create_token
from turnledger.engine.access.tokens import revoke as revoke_token
from turnledger.engine.attempt.dead_process import bury, take_over, withdraw
from turnledger.engine.attempt.end import end
from turnledger.engine.attempt.stop import request_stop
from turnledger.engine.conversations.details import update
from turnledger.engine.conversations.flags import flag
from turnledger.engine.conversations.title import name_by_model
from turnledger.engine.lifecycle.create import create_chat, reset
from turnledger.engine.lifecycle.delete import delete, restore
from turnledger.engine.lifecycle.moves import fork
from turnledger.engine.transfer.import_write import import_chat
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.commit import commit
from turnledger.engine.turn.running_turn import record
from turnledger.errors import TurnledgerError
from turnledger.testing.machine import MemoryMachine
from turnledger.testing.store_contract import power_loss
from turnledger.testing.store_contract.power_loss import Action
from turnledger.testing.store_contract.stage import Stage

BROKEN: list[tuple[Action, list[Patch]]] = [
    (power_loss.commit, [unsynced(commit)]),
    (power_loss.create, [unsynced(create_chat)]),
    (power_loss.begin_in_new_conversation, undemanded("_lane")),
    (power_loss.start_tool, [unsynced(record)]),
    (power_loss.stop, [unsynced(end, request_stop)]),
    (power_loss.stop_queued_turn, [unsynced(request_stop)]),
    (power_loss.take_over, [unsynced(take_over, withdraw, bury)]),
    (power_loss.settle, undemanded("_ready")),
    (power_loss.undo, undemanded("_move")),
    (power_loss.switch, undemanded("_move")),
    (power_loss.fork, [unsynced(fork)]),
    (power_loss.append, [unsynced(begin)]),
    (power_loss.enqueue, [unsynced(begin)]),
    (power_loss.rename, [unsynced(update)]),
    (power_loss.name_by_model, [unsynced(name_by_model)]),
    (power_loss.flag, [unsynced(flag)]),
    (power_loss.delete, [unsynced(delete)]),
    (power_loss.restore, [unsynced(restore)]),
    (power_loss.reset, [unsynced(reset)]),
    (power_loss.create_token, [unsynced(create_token)]),
    (power_loss.revoke_token, [unsynced(revoke_token)]),
    (power_loss.exchange_link, [unsynced(exchange)]),
    (power_loss.revoke_link, [unsynced(revoke_share)]),
    (power_loss.import_chat, [unsynced(import_chat)]),
]


@pytest.fixture
def machine() -> MemoryMachine:
    return MemoryMachine()


@pytest.fixture
async def stage(machine: MemoryMachine) -> AsyncIterator[Stage]:
    stage = Stage(machine.open)
    yield stage
    await stage.close()


def test_power_loss_actions_each_have_a_broken_engine() -> None:
    assert [action for action, _ in BROKEN] == list(power_loss.ACTIONS)


@pytest.mark.parametrize(("action", "patches"), BROKEN, ids=[action.__name__ for action, _ in BROKEN])
async def test_power_loss_check_fails_when_the_write_is_not_synced(
    stage: Stage,
    machine: MemoryMachine,
    monkeypatch: pytest.MonkeyPatch,
    action: Action,
    patches: list[Patch],
) -> None:
    for where, what, how in patches:
        monkeypatch.setattr(where, what, how)
    check = await action(stage, await stage.process())
    machine.lose_power()
    later = await stage.process()
    with pytest.raises((AssertionError, TurnledgerError, pytest.fail.Exception)):
        await check(later)
