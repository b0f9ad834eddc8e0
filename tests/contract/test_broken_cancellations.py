"""The contract sees what goes wrong with cancellations and stops when a rule of theirs is taken out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from turnledger.engine.ports import Store
from turnledger.engine.recovery import Tending
from turnledger.engine.turn import commit, running_turn
from turnledger.errors import TurnledgerError
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.store_contract import stage as stages
from turnledger.testing.store_contract.cancellations import Cancellations
from turnledger.testing.store_contract.stage import Stage


def cancels_the_task_that_entered(generator: Any, likely: asyncio.Task[Any] | None) -> Any:
    return likely


def takes_the_entering_task_for_inside(self: Any) -> bool:
    return self.task is asyncio.current_task()


async def ends_nothing(self: Tending) -> None:
    return None


def leaves_the_block_to_itself(self: Tending, running: Any, reason: Any) -> None:
    return None


def says_nothing(*_: Any) -> None:
    return None


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    database = Database()

    async def open_store() -> Store:
        return MemoryStore(database)

    monkeypatch.setattr(stages, "GUARD", 0.2)  # what a rule prevents is a wait without end
    stage = Stage(open_store)
    yield stage
    await stage.close()


@pytest.mark.parametrize(
    ("where", "what", "how", "test"),
    [
        (
            running_turn,
            "task_inside",
            cancels_the_task_that_entered,
            "stop_cancels_the_task_that_took_the_generator_over",
        ),
        (
            running_turn.RunningTurn,
            "is_inside",
            takes_the_entering_task_for_inside,
            "stop_cancels_the_task_that_took_the_generator_over",
        ),
        (
            Tending,
            "_end_unheld",
            leaves_the_block_to_itself,
            "stop_of_a_turn_whose_generator_is_suspended_ends_it_and_cancels_no_task",
        ),
        (
            Tending,
            "_end_unheld_turns",
            ends_nothing,
            "turn_whose_task_has_ended_fails_after_a_lease_time_and_frees_its_lane",
        ),
        (
            commit,
            "_tell_outcome",
            says_nothing,
            "cancellation_of_a_turn_that_is_kept_on_failure_carries_what_was_kept",
        ),
    ],
)
async def test_contract_catches_the_broken_engine(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, where: Any, what: str, how: Any, test: str
) -> None:
    monkeypatch.setattr(where, what, how)

    async def run() -> None:
        # In a task of its own: a broken engine may cancel the task that asks for the stop.
        await getattr(Cancellations(), f"test_{test}")(stage)

    task = asyncio.create_task(run())
    await asyncio.wait((task,))
    assert task.cancelled() or isinstance(
        task.exception(), AssertionError | TimeoutError | TurnledgerError | pytest.fail.Exception
    )
