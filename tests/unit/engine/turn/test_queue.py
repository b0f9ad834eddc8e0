"""The order of a queue, and which waiter is woken."""

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.stage import (
    CONVERSATION,
    OTHER,
    OWN,
    branch,
    drive,
    generated,
    lane_tables,
    ticket,
)
from tests.unit.model.shapes import some_id
from turnledger.engine.process import Waiter, Waiters
from turnledger.engine.turn.queue import queue_before
from turnledger.model.conversation import Ticket
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.stores.memory import MemoryTables

FOREVER = 3600.0
ELSEWHERE, OTHER_BRANCH = some_id(ConversationId, 2), some_id(BranchId, 2)


def tables_with(*tickets: Ticket) -> MemoryTables:
    tables = lane_tables()
    drive(tables.add_branch(branch(id=OTHER_BRANCH)))
    drive(tables.beat(OWN))
    drive(tables.beat(OTHER))
    for each in tickets:
        drive(tables.add_ticket(each))
    return tables


def before(
    tables: MemoryTables, number: int, *, front: bool = False, now: int = 0, dead: bool = False
) -> list[int]:
    found, _ = drive(
        queue_before(
            tables,
            branch(last_ticket=9),
            some_id(TurnId, number),
            front=front,
            dead={OTHER: 1} if dead else {},
            now=now,
        )
    )
    return [each.number for each in found]


def test_queue_before_a_ticket_holds_only_lower_tickets() -> None:
    tables = tables_with(ticket(1), ticket(2), ticket(3))
    assert before(tables, 2) == [1]
    _, own = drive(
        queue_before(tables, branch(last_ticket=9), some_id(TurnId, 2), front=False, dead={}, now=0)
    )
    assert own.number == 2


def test_front_request_overtakes_all_but_earlier_front_requests() -> None:
    tables = tables_with(ticket(1), ticket(2, front=True), ticket(3))
    assert before(tables, 9, front=True) == [2]
    assert before(tables, 9) == [2, 1, 3]


def test_ticket_past_its_deadline_is_skipped() -> None:
    tables = tables_with(ticket(1, deadline=10), ticket(2, deadline=11))
    assert before(tables, 9, now=9) == [1, 2]
    assert before(tables, 9, now=10) == [2]


def test_ticket_of_a_dead_process_is_skipped_until_its_lease_beats_again() -> None:
    tables = tables_with(ticket(1, lease=OTHER), ticket(2))
    assert before(tables, 9, dead=True) == [2]
    drive(tables.beat(OTHER))
    assert before(tables, 9, dead=True) == [1, 2]


def test_tickets_of_other_branches_are_not_counted() -> None:
    assert before(tables_with(ticket(1, branch=OTHER_BRANCH)), 9) == []


# Waiters.


async def woken(waiters: Iterable[Waiter]) -> list[int]:
    """Return which of these were woken, without waiting for the others."""
    tasks = [asyncio.create_task(each.wait(FOREVER)) for each in waiters]
    for _ in range(5):
        await asyncio.sleep(0)
    found = [at for at, task in enumerate(tasks) if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found


FRONT, BACK = False, True


@generated
@given(st.lists(st.none() | st.tuples(st.booleans(), st.integers(1, 9)), unique=True, max_size=6))
def test_notify_wakes_every_listener_and_the_first_of_the_lane(places: list[tuple[bool, int] | None]) -> None:
    async def notify() -> None:
        waiters = Waiters()
        queued = [place for place in places if place is not None]
        expected = [at for at, place in enumerate(places) if place is None or place == min(queued)]
        with ExitStack() as lane:
            enlisted = [lane.enter_context(waiters.enlist(CONVERSATION, place)) for place in places]
            waiters.notify(CONVERSATION)
            assert await woken(enlisted) == expected

    asyncio.run(notify())


async def test_wake_before_the_wait_ends_one_wait() -> None:
    waiters = Waiters()
    with waiters.enlist(CONVERSATION, (BACK, 1)) as waiter:
        waiters.notify(CONVERSATION)
        waiters.notify(CONVERSATION)
        assert await woken([waiter]) == [0]
        assert await woken([waiter]) == []


async def test_wake_before_a_wait_without_time_ends_it() -> None:
    waiter = Waiter(CONVERSATION, None)
    waiter.wake()
    await waiter.wait(0)
    assert await woken([waiter]) == []


async def test_wait_ends_after_its_timeout() -> None:
    waiter = Waiter(CONVERSATION, None)
    await waiter.wait(0)
    waiter.wake()
    assert await woken([waiter]) == [0]


async def test_cancelled_wait_raises_cancelled_error() -> None:
    task = asyncio.create_task(Waiter(CONVERSATION, None).wait(FOREVER))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_notify_skips_a_waiter_that_has_left_and_wakes_the_next() -> None:
    waiters = Waiters()
    with waiters.enlist(CONVERSATION, (BACK, 2)) as second:
        with waiters.enlist(CONVERSATION, (BACK, 1)):
            pass
        waiters.notify(CONVERSATION)
        assert await woken([second]) == [0]


async def test_notify_wakes_one_conversation_and_notify_all_every_one() -> None:
    waiters = Waiters()
    with waiters.enlist(CONVERSATION) as here, waiters.enlist(ELSEWHERE) as there:
        waiters.notify(CONVERSATION)
        assert await woken([here, there]) == [0]
        waiters.notify_all()
        assert await woken([here, there]) == [0, 1]


async def test_wake_reaches_the_named_attempt_at_any_place_in_the_queue() -> None:
    waiters = Waiters()
    one, two = some_id(TurnId, 1), some_id(TurnId, 2)
    with (
        waiters.enlist(CONVERSATION, (BACK, 1), one) as first,
        waiters.enlist(CONVERSATION, (BACK, 2), two) as second,
        waiters.enlist(CONVERSATION) as listener,
    ):
        assert waiters.queued_attempts() == [one, two]
        waiters.wake(None)
        waiters.wake(some_id(TurnId, 3))
        assert await woken([first, second, listener]) == []
        waiters.wake(two)
        assert await woken([first, second, listener]) == [1]
    assert waiters.queued_attempts() == []


def test_waiter_that_has_left_is_not_kept() -> None:
    waiters = Waiters()
    with pytest.raises(ValueError, match="out"), waiters.enlist(CONVERSATION):
        raise ValueError("out")
    assert waiters._waiters == {}
    waiters.notify(CONVERSATION)
    waiters.notify_all()


def test_queue_of_a_branch_without_tickets_is_not_read() -> None:
    found, own = drive(
        queue_before(tables_with(ticket(1)), branch(), some_id(TurnId, 2), front=False, dead={}, now=0)
    )
    assert (found, own) == ([], None)


def test_lane_of_a_queued_attempt_is_known_while_it_waits() -> None:
    waiters, attempt = Waiters(), some_id(TurnId, 1)
    with waiters.enlist(CONVERSATION), waiters.enlist(CONVERSATION, (True, 1), attempt):
        assert (waiters.queued_attempts(), waiters.lane_of(attempt)) == ([attempt], CONVERSATION)
        assert waiters.lane_of(some_id(TurnId, 2)) is None
    assert (waiters.queued_attempts(), waiters.lane_of(attempt)) == ([], None)
