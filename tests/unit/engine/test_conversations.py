"""A conversation lives by its interactions: a turn that began, and a turn that was committed."""

from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random

import pytest

from tests.unit.engine.stage import HandClock, conversation, drive
from tests.unit.model.shapes import some_id
from turnledger import Ledger, OnFailure, RunningTurn
from turnledger.engine.conversations import Target, check_live
from turnledger.errors import ConversationDeleted, ConversationExpired, ConversationNotFound
from turnledger.ledger import Chat
from turnledger.model.conversation import Conversation, ConversationState
from turnledger.model.ids import ConversationId
from turnledger.stores.memory import Database, MemoryStore, MemoryTables

HOUR = 3600.0


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def chat(clock: HandClock) -> AsyncIterator[Chat]:
    async with await Ledger.over(MemoryStore(), clock=clock, random=Random(1)) as ledger:
        yield await ledger.conversation(expires_after=HOUR)


async def complete(chat: Chat, clock: HandClock) -> None:
    async with chat.turn("Hello") as turn:
        clock.advance(2 * HOUR)
        turn.emit("Hi")


async def stop(chat: Chat, clock: HandClock) -> None:
    async with chat.turn("Hello") as turn:
        clock.advance(2 * HOUR)
        turn.emit("H")
        turn.stop()


async def fail_and_keep(chat: Chat, clock: HandClock) -> None:
    async def run(turn: RunningTurn) -> None:
        clock.advance(2 * HOUR)
        turn.emit("H")
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await chat.run(run, "Hello", on_failure=OnFailure.KEEP)


@pytest.mark.parametrize("way", [complete, stop, fail_and_keep])
async def test_a_committed_turn_is_an_interaction_however_it_ended(
    chat: Chat, clock: HandClock, way: Callable[[Chat, HandClock], Awaitable[None]]
) -> None:
    await way(chat, clock)
    assert len(await chat.turns()) == 1
    assert (await chat.info()).touched_at == clock.now_ms()


async def test_a_turn_that_began_is_an_interaction(chat: Chat, clock: HandClock) -> None:
    clock.advance(0.9 * HOUR)
    async with chat.turn("Hello") as turn:
        clock.advance(0.9 * HOUR)
        assert (await chat.info()).state is ConversationState.LIVE
        turn.emit("Hi")


async def test_reading_and_renaming_are_no_interactions(chat: Chat, clock: HandClock) -> None:
    clock.advance(0.9 * HOUR)
    await chat.update(title="Other")
    await chat.turns()
    clock.advance(0.1 * HOUR)
    with pytest.raises(ConversationExpired):
        await chat.info()


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (None, ConversationNotFound),
        (conversation(state=ConversationState.DELETED), ConversationDeleted),
        (conversation(state=ConversationState.DELETED, expires_after=1), ConversationDeleted),
        (conversation(state=ConversationState.EXPIRED), ConversationExpired),
        (conversation(expires_after=1), ConversationExpired),
    ],
)
def test_what_cannot_be_continued_says_why(found: Conversation | None, problem: type[Exception]) -> None:
    with pytest.raises(problem):
        drive(check_live(MemoryTables(Database()), found, 1_000))


def test_a_live_conversation_is_returned_as_it_is() -> None:
    assert drive(check_live(MemoryTables(Database()), conversation(), 1_000)) == conversation()


def test_a_target_may_mean_what_it_names_and_nothing_else() -> None:
    row = conversation(conversation_key="k")
    other = some_id(ConversationId, 99)
    assert Target("ann", row.id).may_mean(row)
    assert Target("ann", None, "k", row).may_mean(row)
    assert Target("ann", other, "k").may_mean(row)
    assert Target("ann").may_mean(row)
    assert not Target("ann", other).may_mean(row)
    assert not Target("ann", None, "j", row).may_mean(row)
    assert not Target("ann", None, "k", row).may_mean(conversation(conversation_key=None))
