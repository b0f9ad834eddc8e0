"""Export and import: a chat is exported as lines and imported as the same chat, whole or not at all."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec
import pytest

from turnledger.engine.transfer.import_write import import_chat
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import Within
from turnledger.model.event import ItemDone, TurnFinished
from turnledger.model.item import Item
from turnledger.model.transfer import Did
from turnledger.model.turn import TurnKind
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.branches import purge_all
from turnledger.testing.store_contract.stage import LIMITS, Stage, exchange, soon
from turnledger.testing.store_contract.transfer import (
    ANY_ID,
    BOOM,
    all_exported,
    chats_in,
    done,
    elsewhere,
    end_of,
    exported,
    imported,
    rich_chat,
    without_ids,
)
from turnledger.testing.store_contract.what_happened import fail


async def _pay_and_fail(turn: RunningTurn) -> None:
    async def paid() -> str:
        return "paid"

    # Line breaks between the tokens of an item are spaces in the file.
    await turn.call(
        Item(b'{"type": "function_call",\n "call_id": "c", "name": "pay", "arguments": "{}"}'), paid
    )
    raise BOOM


class TestTransfer:
    @pytest.mark.parametrize("is_said", [True, False])
    async def test_effects_of_an_interrupted_turn_are_known_after_an_import(
        self, stage: Stage, is_said: bool
    ) -> None:
        here = (await stage.process()).ledger
        chat = await here.conversation()
        await fail(chat, ScriptedModel([Tool("look", read_only=True), Tool("pay"), BOOM]), on_failure="keep")
        file = await exported(here, chat.id)
        assert b'"effects":[2]' in file
        if not is_said:
            file = file.replace(b',"effects":[2]', b"")  # as earlier versions wrote it
        async with elsewhere() as there:
            assert done(await imported(there, file)) == [Did.IMPORTED]
            assert await there.check() == []
            copy = await there.conversation(chat.id)
            await soon(copy.undo())
            [told] = await copy.turns()
            names = [item.fields["name"] for item in told.output if item.is_call]
            assert names == (["pay"] if is_said else ["look", "pay"])

    async def test_forgotten_effect_stays_forgotten_in_an_imported_chat(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        chat = await here.conversation()
        first = await exchange(chat, "q")
        async with chat.edit(first.id, "q1") as edited:
            edited.emit("a1")
        other = (await chat.info()).branch
        await soon(chat.switch(first.branch))
        await exchange(chat, "q2")
        await fail(chat, _pay_and_fail)
        await soon(chat.undo(forget=True))
        file = await exported(here, chat.id)
        async with elsewhere() as there:
            assert done(await imported(there, file)) == [Did.IMPORTED]
            assert done(await imported(there, file)) == [Did.UNCHANGED]
            assert await exported(there, chat.id) == file
            copy = await there.conversation(chat.id)
            for branch in (first.branch, other):
                await soon(copy.switch(branch))
            assert [turn.kind for turn in await copy.turns()] == [TurnKind.COMPLETED]

    async def test_forgotten_effects_of_a_file_that_name_none_are_dropped_and_reported(
        self, stage: Stage
    ) -> None:
        here = (await stage.process()).ledger
        file = await exported(here, (await rich_chat(here)).id)
        head, rest = file.split(b"\n", 1)
        for given in ([""], ["0" * 31], ["x" * 32], ["00" * 16, "00" * 17], ["00" * 16] * 20_001):
            line = msgspec.json.encode({**msgspec.json.decode(head), "forgotten": given})
            async with elsewhere() as there:
                assert done(await imported(there, line + b"\n" + rest)) == [Did.DROPPED, Did.IMPORTED]

    async def test_an_imported_chat_is_listed_found_and_told_of(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        async with elsewhere() as there:
            chat = await rich_chat(there)
            file = await exported(there, chat.id)
            listed = (await there.list(tag="x", archived=True)).chats
        changes = here.changes()
        assert (await soon(anext(changes))).kind is ChangeKind.START
        await imported(here, file)
        assert (await here.list(tag="x", archived=True)).chats == listed
        assert listed[0].preview
        assert [hit.conversation.id for hit in (await here.search("noted")).hits] == [chat.id]
        told = await soon(anext(changes))
        assert (told.kind, told.conversation) == (ChangeKind.CHAT_CREATED, chat.id)

    async def test_how_turns_ended_is_known_of_imported_ones(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        async with elsewhere() as there:
            chat = await there.conversation()
            await fail(chat, ScriptedModel(["Hel", BOOM]), on_failure="keep")
            await fail(chat, ScriptedModel([Tool("pay"), BOOM]))
            await exchange(chat, "next")
            turns = await chat.turns()
            ends = [await chat.outcome(turn.id) for turn in turns]
            await imported(here, await exported(there, chat.id))
        copy = await here.conversation(chat.id)
        assert [await copy.outcome(turn.id) for turn in turns] == ends
        assert [end.failure is None for end in ends] == [False, False, True]
        for turn in turns:
            told = [event async for event in copy.events(turn.id)]
            assert isinstance(told[-1], TurnFinished)
            items = [bytes(event.item) for event in told if isinstance(event, ItemDone)]
            assert items == [item.raw for item in turn.output]

    async def test_what_was_changed_since_is_left_as_it_is(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        chat = await rich_chat(here)
        file = await exported(here, chat.id)
        await chat.undo()
        changed = await exported(here, chat.id)
        reports = await imported(here, file)
        assert done(reports) == [Did.CONFLICT]
        assert await exported(here, chat.id) == changed

    async def test_two_imports_of_one_file_make_each_chat_once(self, stage: Stage) -> None:
        here, there = await stage.processes()
        async with elsewhere() as other:
            chats = [await rich_chat(other) for _ in range(3)]
            chats.append(await chats[0].fork())
            file = await all_exported(other)
        one, two = await soon(asyncio.gather(imported(here.ledger, file), imported(there.ledger, file)))
        ends = [{first.did, second.did} for first, second in zip(one, two, strict=True)]
        assert ends == [{Did.IMPORTED, Did.UNCHANGED}] * len(chats)
        assert await all_exported(there.ledger) == file
        assert await here.ledger.check() == []

    async def test_ids_of_another_owner_are_as_ids_that_never_were_to_who_keeps_none(
        self, stage: Stage
    ) -> None:
        here = (await stage.process()).ledger
        chat = await rich_chat(here)
        foreign = await exported(here, chat.id)
        never = foreign
        for id in set(ANY_ID.findall(foreign)):
            never = never.replace(id, id[:-12] + b"beef" + id[-8:])
        told = []
        for file in (foreign, never):
            reports = await imported(here, file, owner="ben", keep_ids=False)
            assert done(reports) == [Did.RENAMED, Did.IMPORTED]
            told.append([ANY_ID.sub(b"", str(report).encode()) for report in reports])
            name = str(reports[-1].chat)
            assert without_ids(await exported(here, name, owner="ben")) == without_ids(foreign)
            assert done(await imported(here, file, owner="ben", keep_ids=False)) == [Did.UNCHANGED]
        assert told[0] == told[1]
        assert done(await imported(here, foreign, keep_ids=False)) == [Did.UNCHANGED]
        assert await exported(here, chat.id) == foreign
        assert await here.check() == []

    async def test_shared_turns_outlive_the_chat_that_brought_them(self, stage: Stage) -> None:
        process = await stage.process(replace(LIMITS, purge_rows=2))
        here = process.ledger
        async with elsewhere() as there:
            chat = await rich_chat(there)
            fork = await chat.fork((await chat.turns())[2].id)
            await imported(here, await exported(there, fork.id))
            await imported(here, await exported(there, chat.id))
        await (await here.conversation(fork.id)).delete(purge=True)
        await purge_all(process, await here.conversation(chat.id))
        assert await here.check() == []

    async def test_import_whose_shared_turns_are_purged_before_it_writes_has_its_own(
        self, stage: Stage
    ) -> None:
        here, there = await stage.processes()
        async with elsewhere() as other:
            chat = await rich_chat(other)
            fork = await chat.fork((await chat.turns())[2].id)
            file, forked = await exported(other, chat.id), await exported(other, fork.id)
        await imported(there.ledger, forked)
        with here.store.hold(import_chat) as gate:
            importing = asyncio.create_task(imported(here.ledger, file))
            await gate.arrived()
            await (await there.ledger.conversation(fork.id)).delete(purge=True)
            for _ in range(10):
                await there.tend()
            gate.release()
            assert done(await soon(importing)) == [Did.IMPORTED]
        assert await exported(here.ledger, chat.id) == file
        assert await here.ledger.check() == []

    async def test_who_sees_one_scope_imports_into_it(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        chat = await here.for_owner("local", scope="s").conversation()
        await exchange(chat, "hi")
        file = await exported(here, chat.id)
        reports = await imported(here, file, within=Within("t"))
        assert end_of(reports).did is Did.IMPORTED
        [name] = chats_in(await all_exported(here, within=Within("t")))
        assert end_of(reports).chat == name != chat.id
        assert done(await imported(here, file, within=Within("t"))) == [Did.UNCHANGED]
        assert await here.check() == []

    async def test_a_conversation_key_that_is_taken_stays_where_it_is(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        taken = await here.conversation(conversation_key="k")
        async with elsewhere() as there:
            chat = await there.conversation(conversation_key="k")
            await exchange(chat, "hi")
            file = await exported(there, chat.id)
        reports = await imported(here, file)
        assert done(reports) == [Did.DROPPED, Did.IMPORTED]
        assert (await here.conversation(conversation_key="k")).id == taken.id
        assert (await here.conversation(chat.id)).conversation_key is None
        assert done(await imported(here, file)) == [Did.UNCHANGED]

    async def test_what_waits_to_be_settled_is_told(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        chat = await here.conversation()
        await exchange(chat, "one")
        await fail(chat, ScriptedModel([Tool("pay"), "Pa", BOOM]))
        file = await exported(here, chat.id)
        assert b'"kind":"settled"' in file
        async with elsewhere() as there:
            assert done(await imported(there, file)) == [Did.IMPORTED]
            assert await exported(there, chat.id) == file
            assert await there.check() == []
        assert done(await imported(here, file)) == [Did.UNCHANGED]
        model = ScriptedModel(["ok"])
        await soon(chat.run(model, "next"))
        assert model.executed["pay"] == 0

    async def test_what_was_deleted_is_restored_and_not_made_again(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        chat = await rich_chat(here)
        file = await exported(here, chat.id)
        await chat.delete()
        assert done(await imported(here, file)) == [Did.CONFLICT]
        await here.restore(chat.id)
        assert done(await imported(here, file)) == [Did.UNCHANGED]
