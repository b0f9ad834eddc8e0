"""Durability: acknowledged writes and started tools survive power loss and restart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import pytest

from turnledger.chat import Chat
from turnledger.errors import ConversationDeleted, LinkNotValid, TurnStopped
from turnledger.hosting import Host
from turnledger.model.access.token import TokenScope, digest_of
from turnledger.model.flags import Flags
from turnledger.model.turn import AttemptState, TurnKind
from turnledger.testing.gates import Gate
from turnledger.testing.machine import Machine
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.stage import (
    Contract,
    Stage,
    StageProcess,
    exchange,
    message_texts,
    soon,
)
from turnledger.testing.store_contract.transfer import export, import_file, other_ledger

NONCE = "n" * 22
Check: TypeAlias = Callable[[StageProcess], Awaitable[None]]
"""Checks the store after the power returned."""
Action: TypeAlias = Callable[[Stage, StageProcess], Awaitable[Check]]
"""Performs one operation until the store acknowledges it."""


async def commit(stage: Stage, here: StageProcess) -> Check:
    chat = await here.chat(conversation_key="k")
    await exchange(chat, "q", "a", idempotency_key="once")

    async def check(later: StageProcess) -> None:
        same = await later.chat(conversation_key="k")
        assert same.id == chat.id
        assert await message_texts(same) == ["q", "a"]
        await exchange(same, "q", "another", idempotency_key="once")
        assert await message_texts(same) == ["q", "a"]

    return check


async def create(stage: Stage, here: StageProcess) -> Check:
    chat = await here.chat(idempotency_key="once", title="a")

    async def check(later: StageProcess) -> None:
        assert (await (await later.chat(chat)).info()).title == "a"
        assert (await later.chat(idempotency_key="once", title="a")).id == chat.id

    return check


async def begin_in_new_conversation(stage: Stage, here: StageProcess) -> Check:
    """Another process finds the conversation before its first turn has ended."""
    there = await stage.process()
    holder = await stage.hold(lambda model: here.ledger.run(model, "q", conversation_key="k"))
    same = await there.chat(conversation_key="k")
    assert not holder.task.done()

    async def check(later: StageProcess) -> None:
        assert (await later.chat(conversation_key="k")).id == same.id

    return check


async def start_tool(stage: Stage, here: StageProcess) -> Check:
    """The power fails after the tool acted and before its result is recorded."""
    chat, gate = await here.chat(), Gate()
    model = ScriptedModel([Tool("pay", gate=gate)])
    await stage.reach(gate, stage.start(chat.run(model, "q")))

    async def check(later: StageProcess) -> None:
        await stage.bury_others(later)
        same = await later.chat(chat)
        await exchange(same, "next")
        turns = await same.turns()
        assert [turn.kind for turn in turns] == [TurnKind.SETTLED, TurnKind.COMPLETED]
        assert [item.fields["name"] for item in turns[0].output if item.is_call] == ["pay"]

    return check


async def stop(stage: Stage, here: StageProcess) -> Check:
    chat = await here.chat()
    holder = await stage.hold_lane(chat, "q", ["Half"])
    ended = await soon(chat.stop())
    with pytest.raises(TurnStopped):
        await soon(holder.task)

    async def check(later: StageProcess) -> None:
        assert ended is not None
        assert await (await later.chat(chat)).turns() == [ended.turn]

    return check


async def stop_queued_turn(stage: Stage, here: StageProcess) -> Check:
    chat = await here.chat()
    await stage.hold_lane(chat)
    queued = await stage.queue(chat, ScriptedModel(["never"]), "q", idempotency_key="once")
    [ticket] = await stage.tickets(chat)
    ended = await soon(chat.stop(ticket.attempt))
    assert ended is not None
    assert ended.state is AttemptState.DISCARDED
    with pytest.raises(TurnStopped):
        await soon(queued)

    async def check(later: StageProcess) -> None:
        await stage.bury_others(later)
        with pytest.raises(TurnStopped):
            await exchange(await later.chat(chat), "q", idempotency_key="once")

    return check


async def take_over(stage: Stage, here: StageProcess) -> Check:
    """A process dies, and another returns the turn that it kept."""
    chat = await here.chat()
    await stage.hold_lane(chat, "q", ["Half"], on_failure="keep", idempotency_key="once")
    await here.flush()
    there = await stage.process()
    await stage.bury_others(there)
    kept = await exchange(await there.chat(chat), "q", idempotency_key="once")
    assert kept.kind is TurnKind.INTERRUPTED

    async def check(later: StageProcess) -> None:
        assert await (await later.chat(chat)).turns() == [kept]

    return check


async def settle(stage: Stage, here: StageProcess) -> Check:
    """A begin settles a failed turn; others read it before the new turn has ended."""
    chat = await here.chat()
    model = ScriptedModel([Tool("pay", "paid"), RuntimeError("the model broke")])
    with pytest.raises(RuntimeError):
        await soon(chat.run(model, "q", idempotency_key="once"))
    await stage.hold_lane(chat, "next")
    [settled] = await chat.turns()
    assert await exchange(chat, "q", idempotency_key="once") == settled

    async def check(later: StageProcess) -> None:
        assert await (await later.chat(chat)).turns() == [settled]

    return check


async def undo(stage: Stage, here: StageProcess) -> Check:
    chat = await here.chat()
    await exchange(chat, "q1")
    await exchange(chat, "q2")
    await chat.undo(idempotency_key="once")

    async def check(later: StageProcess) -> None:
        same = await later.chat(chat)
        assert await message_texts(same) == ["q1", "Yes."]
        await same.undo(idempotency_key="once")
        assert await message_texts(same) == ["q1", "Yes."]

    return check


async def switch(stage: Stage, here: StageProcess) -> Check:
    chat = await here.chat()
    turn = await exchange(chat, "q1")
    await chat.undo()
    await exchange(chat, "q2")
    await chat.switch(turn.branch)

    async def check(later: StageProcess) -> None:
        same = await later.chat(chat)
        assert await message_texts(same) == ["q1", "Yes."]

    return check


async def fork(stage: Stage, here: StageProcess) -> Check:
    chat = await here.chat()
    await exchange(chat, "q")
    made = await chat.fork(conversation_key="k")

    async def check(later: StageProcess) -> None:
        same = await later.chat(conversation_key="k")
        assert same.id == made.id
        assert await message_texts(same) == ["q", "Yes."]

    return check


async def append(stage: Stage, here: StageProcess) -> Check:
    chat = await here.chat()
    turn = await chat.append("from elsewhere", idempotency_key="once")

    async def check(later: StageProcess) -> None:
        same = await later.chat(chat)
        assert await same.turns() == [turn]
        assert await same.append("from elsewhere", idempotency_key="once") == turn

    return check


async def enqueue(stage: Stage, here: StageProcess) -> Check:
    chat = await here.chat()
    turn = await chat.enqueue("later", idempotency_key="once")

    async def check(later: StageProcess) -> None:
        same = await later.chat(chat)
        assert [job.id for job in await later.ledger.jobs()] == [turn]
        assert await same.enqueue("later", idempotency_key="once") == turn
        stage.start(later.ledger.work(ScriptedModel(["done"])))
        assert (await soon(same.outcome(turn))).turn == (await same.turns())[0]

    return check


async def rename(stage: Stage, here: StageProcess) -> Check:
    chat = await here.chat()
    updated = await chat.update(title="a", metadata={"b": "c"}, revision=1)

    async def check(later: StageProcess) -> None:
        found = await (await later.chat(chat)).info()
        assert (found.title, found.metadata, found.revision) == (
            "a",
            {"b": "c"},
            updated.revision,
        )

    return check


async def name_by_model(stage: Stage, here: StageProcess) -> Check:
    chat = await here.chat()
    await exchange(chat, "q")
    assert await Host(here.ledger).name_by_model(chat.id, "a") is not None

    async def check(later: StageProcess) -> None:
        assert (await (await later.chat(chat)).info()).title == "a"

    return check


async def flag(stage: Stage, here: StageProcess) -> Check:
    chat = await here.chat()
    turn = await exchange(chat, "q")
    await chat.flag(turn.id, 0, to_model=False)

    async def check(later: StageProcess) -> None:
        assert await (await later.chat(chat)).flags(turn.id) == {turn.id: {0: Flags(to_model=False)}}

    return check


async def delete(stage: Stage, here: StageProcess) -> Check:
    chat = await here.chat(conversation_key="k")
    await exchange(chat, "secret")
    await chat.delete(purge=True)

    async def check(later: StageProcess) -> None:
        with pytest.raises(ConversationDeleted):
            await later.chat(chat)
        assert (await later.chat(conversation_key="k")).id != chat.id

    return check


async def restore(stage: Stage, here: StageProcess) -> Check:
    chat = await here.chat()
    await exchange(chat, "q")
    await chat.delete()
    await here.ledger.restore(chat.id)

    async def check(later: StageProcess) -> None:
        assert await message_texts(await later.chat(chat)) == ["q", "Yes."]

    return check


async def reset(stage: Stage, here: StageProcess) -> Check:
    old = await here.chat(conversation_key="k")
    new = await here.ledger.reset("k", replaces=old.id)

    async def check(later: StageProcess) -> None:
        assert (await later.chat(conversation_key="k")).id == new.id

    return check


async def create_token(stage: Stage, here: StageProcess) -> Check:
    made, text = await Host(here.ledger).tokens.create(owner="ann", scopes=[TokenScope.TURNS_RUN])

    async def check(later: StageProcess) -> None:
        assert (await Host(later.ledger).tokens.find(digest_of(text))).token == made

    return check


async def revoke_token(stage: Stage, here: StageProcess) -> Check:
    made, text = await Host(here.ledger).tokens.create(owner="ann", scopes=[TokenScope.TURNS_RUN])
    [revoked] = await Host(here.ledger).tokens.revoke(made.id)

    async def check(later: StageProcess) -> None:
        found = await Host(later.ledger).tokens.find(digest_of(text))
        assert found.token == revoked
        assert found.version == 1

    return check


async def exchange_link(stage: Stage, here: StageProcess) -> Check:
    share, code = await Host(here.ledger).shares.create(scope="shop", max_uses=1)
    visit = await Host(here.ledger).shares.exchange(code, NONCE)

    async def check(later: StageProcess) -> None:
        assert (await Host(later.ledger).tokens.find(digest_of(visit.text))).token == visit.token
        [listed] = await Host(later.ledger).shares.list()
        assert (listed.id, listed.uses) == (share.id, 1)

    return check


async def revoke_link(stage: Stage, here: StageProcess) -> Check:
    share, code = await Host(here.ledger).shares.create(scope="shop")
    await Host(here.ledger).shares.revoke(share.id)

    async def check(later: StageProcess) -> None:
        with pytest.raises(LinkNotValid):
            await Host(later.ledger).shares.exchange(code, NONCE)

    return check


async def import_chat(stage: Stage, here: StageProcess) -> Check:
    async with other_ledger() as ledger:
        source = await ledger.conversation()
        await exchange(source, "q")
        await import_file(here.ledger, await export(ledger, source.id))

    async def check(later: StageProcess) -> None:
        assert await message_texts(await later.ledger.conversation(source.id)) == ["q", "Yes."]

    return check


ACTIONS: tuple[Action, ...] = (
    commit,
    create,
    begin_in_new_conversation,
    start_tool,
    stop,
    stop_queued_turn,
    take_over,
    settle,
    undo,
    switch,
    fork,
    append,
    enqueue,
    rename,
    name_by_model,
    flag,
    delete,
    restore,
    reset,
    create_token,
    revoke_token,
    exchange_link,
    revoke_link,
    import_chat,
)


class PowerLoss(Contract):
    @pytest.fixture
    def machine(self) -> Machine:
        pytest.skip("override this fixture: return a machine whose store is of this kind")

    @pytest.fixture
    async def powered(self, machine: Machine) -> AsyncIterator[Stage]:
        stage = Stage(machine.open)
        yield stage
        await stage.close()

    @pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
    async def test_acknowledged_action_survives_power_loss(
        self, powered: Stage, machine: Machine, action: Action
    ) -> None:
        check = await action(powered, await powered.process())
        machine.lose_power()
        later = await powered.process()
        await check(later)
        assert await later.ledger.check() == []

    async def test_begin_lost_with_the_power_frees_its_lane(self, powered: Stage, machine: Machine) -> None:
        """A begin does not wait for the disk: no client was answered, and its key stays free."""
        here = await powered.process()
        chat = await here.chat()
        await exchange(chat, "q1", "a1")
        await powered.hold_lane(chat, "lost", idempotency_key="once")
        machine.lose_power()
        later = await powered.process()
        same = await later.chat(chat)
        assert await same.attempts() == []
        await exchange(same, "q2", "a2", idempotency_key="once", on_busy="reject")
        assert await message_texts(same) == ["q1", "a1", "q2", "a2"]


async def run_and_read_instructions(chat: Chat, text: str = "q", **options: object) -> str | None:
    """Run a turn and return the instructions shown to its model, if any."""
    model = ScriptedModel(["a"])
    await soon(chat.run(model, text, **options))  # type: ignore[arg-type]
    [seen] = model.seen
    assert [message["role"] for message in seen].count("system") <= 1
    return seen[0]["content"] if seen[0]["role"] == "system" else None


class Restarts(Contract):
    async def test_instructions_survive_restart(self, stage: Stage) -> None:
        if not self.capabilities.survives_restart:
            pytest.skip("the store does not survive a restart")
        chat = await (await stage.process()).chat()
        await run_and_read_instructions(chat, instructions="Be kind.")
        again = await (await stage.restart()).chat(chat)
        assert await run_and_read_instructions(again) == "Be kind."
