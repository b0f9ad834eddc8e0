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
from turnledger.model.transfer import ImportOutcome
from turnledger.model.turn import TurnKind
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.branches import purge_all
from turnledger.testing.store_contract.effects import fail
from turnledger.testing.store_contract.stage import LIMITS, Stage, exchange, soon
from turnledger.testing.store_contract.transfer import (
    ANY_ID,
    BOOM,
    chats_in,
    export,
    export_all,
    import_file,
    only_report,
    other_ledger,
    outcomes_of,
    rich_chat,
    without_ids,
)


async def _pay_and_fail(turn: RunningTurn) -> None:
    async def paid() -> str:
        return "paid"

    # Line breaks between the tokens of an item are spaces in the file.
    await turn.call(
        Item(b'{"type": "function_call",\n "call_id": "c", "name": "pay", "arguments": "{}"}'), paid
    )
    raise BOOM


class TestTransfer:
    @pytest.mark.parametrize("lists_effects", [True, False])
    async def test_imported_interrupted_turn_keeps_its_effects(
        self, stage: Stage, lists_effects: bool
    ) -> None:
        here = (await stage.process()).ledger
        chat = await here.conversation()
        await fail(chat, ScriptedModel([Tool("look", read_only=True), Tool("pay"), BOOM]), on_failure="keep")
        file = await export(here, chat.id)
        assert b'"effects":[2]' in file
        if not lists_effects:
            file = file.replace(b',"effects":[2]', b"")  # as earlier versions wrote it
        async with other_ledger() as there:
            assert outcomes_of(await import_file(there, file)) == [ImportOutcome.IMPORTED]
            assert await there.check() == []
            copy = await there.conversation(chat.id)
            await soon(copy.undo())
            [settled] = await copy.turns()
            names = [item.fields["name"] for item in settled.output if item.is_call]
            assert names == (["pay"] if lists_effects else ["look", "pay"])

    async def test_imported_chat_keeps_its_forgotten_effects_forgotten(self, stage: Stage) -> None:
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
        file = await export(here, chat.id)
        async with other_ledger() as there:
            assert outcomes_of(await import_file(there, file)) == [ImportOutcome.IMPORTED]
            assert outcomes_of(await import_file(there, file)) == [ImportOutcome.UNCHANGED]
            assert await export(there, chat.id) == file
            copy = await there.conversation(chat.id)
            for branch in (first.branch, other):
                await soon(copy.switch(branch))
            assert [turn.kind for turn in await copy.turns()] == [TurnKind.COMPLETED]

    async def test_import_drops_and_reports_invalid_forgotten_effects(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        file = await export(here, (await rich_chat(here)).id)
        head, rest = file.split(b"\n", 1)
        for given in ([""], ["0" * 31], ["x" * 32], ["00" * 16, "00" * 17], ["00" * 16] * 20_001):
            line = msgspec.json.encode({**msgspec.json.decode(head), "forgotten": given})
            async with other_ledger() as there:
                assert outcomes_of(await import_file(there, line + b"\n" + rest)) == [
                    ImportOutcome.DROPPED,
                    ImportOutcome.IMPORTED,
                ]

    async def test_imported_chat_is_listed_searchable_and_reported_to_followers(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        async with other_ledger() as there:
            chat = await rich_chat(there)
            file = await export(there, chat.id)
            listed = (await there.list(tag="x", archived=True)).chats
        changes = here.changes()
        assert (await soon(anext(changes))).kind is ChangeKind.START
        await import_file(here, file)
        assert (await here.list(tag="x", archived=True)).chats == listed
        assert listed[0].preview
        assert [hit.conversation.id for hit in (await here.search("noted")).hits] == [chat.id]
        change = await soon(anext(changes))
        assert (change.kind, change.conversation) == (ChangeKind.CHAT_CREATED, chat.id)

    async def test_imported_turns_keep_their_outcomes_and_events(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        async with other_ledger() as there:
            chat = await there.conversation()
            await fail(chat, ScriptedModel(["Hel", BOOM]), on_failure="keep")
            await fail(chat, ScriptedModel([Tool("pay"), BOOM]))
            await exchange(chat, "next")
            turns = await chat.turns()
            ends = [await chat.outcome(turn.id) for turn in turns]
            await import_file(here, await export(there, chat.id))
        copy = await here.conversation(chat.id)
        assert [await copy.outcome(turn.id) for turn in turns] == ends
        assert [end.failure is None for end in ends] == [False, False, True]
        for turn in turns:
            events = [event async for event in copy.events(turn.id)]
            assert isinstance(events[-1], TurnFinished)
            items = [bytes(event.item) for event in events if isinstance(event, ItemDone)]
            assert items == [item.raw for item in turn.output]

    async def test_import_of_a_chat_changed_since_its_export_reports_a_conflict(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        chat = await rich_chat(here)
        file = await export(here, chat.id)
        await chat.undo()
        changed = await export(here, chat.id)
        reports = await import_file(here, file)
        assert outcomes_of(reports) == [ImportOutcome.CONFLICT]
        assert await export(here, chat.id) == changed

    async def test_concurrent_imports_of_one_file_create_each_chat_once(self, stage: Stage) -> None:
        here, there = await stage.processes()
        async with other_ledger() as other:
            chats = [await rich_chat(other) for _ in range(3)]
            chats.append(await chats[0].fork())
            file = await export_all(other)
        one, two = await soon(asyncio.gather(import_file(here.ledger, file), import_file(there.ledger, file)))
        ends = [{first.did, second.did} for first, second in zip(one, two, strict=True)]
        assert ends == [{ImportOutcome.IMPORTED, ImportOutcome.UNCHANGED}] * len(chats)
        assert await export_all(there.ledger) == file
        assert await here.ledger.check() == []

    async def test_import_without_keep_ids_treats_ids_of_another_owner_like_unknown_ids(
        self, stage: Stage
    ) -> None:
        here = (await stage.process()).ledger
        chat = await rich_chat(here)
        foreign = await export(here, chat.id)
        never = foreign
        for id in set(ANY_ID.findall(foreign)):
            never = never.replace(id, id[:-12] + b"beef" + id[-8:])
        reported = []
        for file in (foreign, never):
            reports = await import_file(here, file, owner="ben", keep_ids=False)
            assert outcomes_of(reports) == [ImportOutcome.RENAMED, ImportOutcome.IMPORTED]
            reported.append([ANY_ID.sub(b"", str(report).encode()) for report in reports])
            name = str(reports[-1].chat)
            assert without_ids(await export(here, name, owner="ben")) == without_ids(foreign)
            assert outcomes_of(await import_file(here, file, owner="ben", keep_ids=False)) == [
                ImportOutcome.UNCHANGED
            ]
        assert reported[0] == reported[1]
        assert outcomes_of(await import_file(here, foreign, keep_ids=False)) == [ImportOutcome.UNCHANGED]
        assert await export(here, chat.id) == foreign
        assert await here.check() == []

    async def test_imported_turns_shared_by_two_chats_outlive_the_purge_of_one(self, stage: Stage) -> None:
        process = await stage.process(replace(LIMITS, purge_rows=2))
        here = process.ledger
        async with other_ledger() as there:
            chat = await rich_chat(there)
            fork = await chat.fork((await chat.turns())[2].id)
            await import_file(here, await export(there, fork.id))
            await import_file(here, await export(there, chat.id))
        await (await here.conversation(fork.id)).delete(purge=True)
        await purge_all(process, await here.conversation(chat.id))
        assert await here.check() == []

    async def test_import_whose_shared_turns_are_purged_meanwhile_writes_its_own(self, stage: Stage) -> None:
        here, there = await stage.processes()
        async with other_ledger() as other:
            chat = await rich_chat(other)
            fork = await chat.fork((await chat.turns())[2].id)
            file, forked = await export(other, chat.id), await export(other, fork.id)
        await import_file(there.ledger, forked)
        with here.store.hold(import_chat) as gate:
            importing = asyncio.create_task(import_file(here.ledger, file))
            await gate.arrived()
            await (await there.ledger.conversation(fork.id)).delete(purge=True)
            for _ in range(10):
                await there.tend()
            gate.release()
            assert outcomes_of(await soon(importing)) == [ImportOutcome.IMPORTED]
        assert await export(here.ledger, chat.id) == file
        assert await here.ledger.check() == []

    async def test_import_by_a_caller_confined_to_a_scope_goes_into_that_scope(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        chat = await here.for_owner("local", scope="s").conversation()
        await exchange(chat, "hi")
        file = await export(here, chat.id)
        reports = await import_file(here, file, within=Within("t"))
        assert only_report(reports).did is ImportOutcome.IMPORTED
        [name] = chats_in(await export_all(here, within=Within("t")))
        assert only_report(reports).chat == name != chat.id
        assert outcomes_of(await import_file(here, file, within=Within("t"))) == [ImportOutcome.UNCHANGED]
        assert await here.check() == []

    async def test_imported_chat_whose_conversation_key_is_taken_loses_its_key(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        taken = await here.conversation(conversation_key="k")
        async with other_ledger() as there:
            chat = await there.conversation(conversation_key="k")
            await exchange(chat, "hi")
            file = await export(there, chat.id)
        reports = await import_file(here, file)
        assert outcomes_of(reports) == [ImportOutcome.DROPPED, ImportOutcome.IMPORTED]
        assert (await here.conversation(conversation_key="k")).id == taken.id
        assert (await here.conversation(chat.id)).conversation_key is None
        assert outcomes_of(await import_file(here, file)) == [ImportOutcome.UNCHANGED]

    async def test_export_includes_effects_not_yet_settled_as_a_settled_turn(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        chat = await here.conversation()
        await exchange(chat, "one")
        await fail(chat, ScriptedModel([Tool("pay"), "Pa", BOOM]))
        file = await export(here, chat.id)
        assert b'"kind":"settled"' in file
        async with other_ledger() as there:
            assert outcomes_of(await import_file(there, file)) == [ImportOutcome.IMPORTED]
            assert await export(there, chat.id) == file
            assert await there.check() == []
        assert outcomes_of(await import_file(here, file)) == [ImportOutcome.UNCHANGED]
        model = ScriptedModel(["ok"])
        await soon(chat.run(model, "next"))
        assert model.executed["pay"] == 0

    async def test_import_of_a_deleted_chat_reports_a_conflict_until_it_is_restored(
        self, stage: Stage
    ) -> None:
        here = (await stage.process()).ledger
        chat = await rich_chat(here)
        file = await export(here, chat.id)
        await chat.delete()
        assert outcomes_of(await import_file(here, file)) == [ImportOutcome.CONFLICT]
        await here.restore(chat.id)
        assert outcomes_of(await import_file(here, file)) == [ImportOutcome.UNCHANGED]
