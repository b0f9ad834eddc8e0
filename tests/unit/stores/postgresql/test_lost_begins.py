"""A begin is not synced: a failover, or a crash of the database, may lose one whose holder lives on. What the
database counts then begins again at the numbers that the holder has seen, with other changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from turnledger import Chat, Ledger, Limits, RunningTurn
from turnledger.engine.turn import commit
from turnledger.errors import ConversationDeleted, Superseded, TurnledgerError
from turnledger.model.conversation import Branch
from turnledger.model.ids import TurnId
from turnledger.stores.postgresql.notices import Notices
from turnledger.testing.store_contract.stage import call

ANSWER = "On its way."
UNTOLD = Limits(flush_every=1e6)


@pytest.fixture(autouse=True)
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the write of the holder itself finds out that its lane is lost."""
    monkeypatch.setattr(Notices, "_call", lambda _: None)


@asynccontextmanager
async def lost_afterwards(url: str) -> AsyncIterator[None]:
    """Undo all that is written inside the block, as a standby does that was promoted without it."""
    connection = await asyncpg.connect(url)
    names = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'lease'"
    tables = [name for (name,) in await connection.fetch(names)]
    for name in tables:
        await connection.execute(f'CREATE TEMPORARY TABLE "kept_{name}" AS TABLE "{name}"')
    yield
    async with connection.transaction():
        for name in tables:
            await connection.execute(f'DELETE FROM "{name}"; INSERT INTO "{name}" TABLE "kept_{name}"')
    await connection.close()


async def chat_of(ledger: Ledger) -> Chat:
    return await ledger.conversation(conversation_key="lane")


async def take_turns(ledger: Ledger, count: int = 2) -> None:
    for _ in range(count):
        async with (await chat_of(ledger)).turn("Where is my order?") as turn:
            turn.emit(ANSWER)


class Holder:
    """A turn in a task of its own, which is cancelled when its lane is lost."""

    def __init__(self, ledger: Ledger) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.acted = False
        self.task = asyncio.create_task(self._run(ledger))

    async def _run(self, ledger: Ledger) -> None:
        async with (await chat_of(ledger)).turn("And now?") as turn:
            self.begun.set()
            await self.go_on.wait()
            await self.answer(turn)

    async def answer(self, turn: RunningTurn) -> None:
        turn.emit("Too late.")

    async def is_refused(self, error: type[TurnledgerError] = Superseded) -> None:
        self.go_on.set()
        with pytest.raises(error):
            await self.task


class ToolUser(Holder):
    async def answer(self, turn: RunningTurn) -> None:
        async def act() -> str:
            self.acted = True
            return "done"

        await turn.call(call("act", "c"), act)


@pytest.mark.parametrize("kind", [Holder, ToolUser])
async def test_holder_of_a_lost_begin_writes_nothing_while_another_has_the_lane(
    url: str, kind: type[Holder]
) -> None:
    async with await Ledger.open(url, limits=UNTOLD) as here, await Ledger.open(url) as there:
        await take_turns(here)
        async with lost_afterwards(url):
            holder = kind(here)
            await holder.begun.wait()
        async with (await chat_of(there)).turn("Is it late?") as other:
            await holder.is_refused()
            other.emit("In time.")
        assert not holder.acted
        assert [each.text for each in await (await chat_of(there)).turns()] == [ANSWER, ANSWER, "In time."]
        assert await there.check() == []


async def test_fence_alone_does_not_refuse_the_holder_of_a_lost_begin(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next holder has the same fence. A broken engine, which ignores the running attempt, proves it."""

    def holds_lane(branch: Branch | None, _: TurnId, fence: int) -> bool:
        return branch is not None and branch.fence == fence

    monkeypatch.setattr(commit, "holds_lane", holds_lane)
    async with await Ledger.open(url, limits=UNTOLD) as here, await Ledger.open(url) as there:
        await take_turns(here)
        async with lost_afterwards(url):
            holder = Holder(here)
            await holder.begun.wait()
        with pytest.raises(Superseded):
            async with (await chat_of(there)).turn("Is it late?") as other:
                holder.go_on.set()
                await holder.task
                other.emit("In time.")
        assert [each.text for each in await (await chat_of(there)).turns()] == [ANSWER, ANSWER, "Too late."]


async def test_holder_of_a_lost_begin_does_not_commit_to_a_chat_deleted_since(url: str) -> None:
    async with await Ledger.open(url, limits=UNTOLD) as here, await Ledger.open(url) as there:
        await take_turns(here)
        async with lost_afterwards(url):
            holder = Holder(here)
            await holder.begun.wait()
        chat = await chat_of(there)
        await chat.delete()
        await holder.is_refused(ConversationDeleted)
        restored = await there.restore(chat.id)
        assert [each.text for each in await restored.turns()] == [ANSWER, ANSWER]
        assert await there.check() == []
