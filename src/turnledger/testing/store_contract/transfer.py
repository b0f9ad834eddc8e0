"""Export and import: all chats of an owner are exported; a chat is imported whole or not at all."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest

from turnledger.chat import Chat
from turnledger.engine.transfer.import_write import import_chat
from turnledger.errors import ConversationDeleted, ConversationNotFound, InvalidInput
from turnledger.ledger import Ledger
from turnledger.model.conversation import Within
from turnledger.model.transfer import ENDS, ImportOutcome, ImportReport
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.scripted_model import Ask, ScriptedModel, Think, Tool
from turnledger.testing.store_contract.branches import purge_all
from turnledger.testing.store_contract.effects import fail
from turnledger.testing.store_contract.stage import LIMITS, Contract, Stage, chats_of, exchange, soon

BOOM = RuntimeError("the model broke")


@asynccontextmanager
async def other_ledger() -> AsyncIterator[Ledger]:
    """Open a ledger in memory with other ids."""
    store = MemoryStore(Database())
    async with await Ledger.over(store, limits=LIMITS, clock=FakeClock(), random=Random(4711)) as ledger:
        yield ledger


async def export(ledger: Ledger, chat: str, **options: Any) -> bytes:
    return b"".join([line async for line in chats_of(ledger, options).export(chat)])


async def import_file(ledger: Ledger, file: bytes, **options: Any) -> list[ImportReport]:
    """Import a file in two pieces."""
    middle = len(file) // 2
    pieces = (file[:middle], file[middle:])
    return [report async for report in chats_of(ledger, options).import_lines(pieces, **options)]


async def export_all(ledger: Ledger, **options: Any) -> bytes:
    return b"".join([line async for line in chats_of(ledger, options).export_all()])


def only_report(reports: list[ImportReport]) -> ImportReport:
    [end] = [report for report in reports if report.did in ENDS]
    return end


def outcomes_of(reports: list[ImportReport]) -> list[ImportOutcome]:
    return [report.did for report in reports]


async def rich_chat(ledger: Ledger, **details: Any) -> Chat:
    """Make a chat with edits, an undo, tools, an interrupted and a settled turn, a waiting call,
    instructions, flags and details."""
    chats = chats_of(ledger, details)
    chat = await chats.conversation(title="All of it", metadata={"a": "1", "b": "2"}, **details)
    await chat.update(tags=["x", "y"], pinned=True, archived=True)
    first = await exchange(chat, "one")
    look, pay = Tool("look", read_only=True), Tool("pay")
    tools = ScriptedModel([Think(), look, "Seen."], [look, pay, "Hel", BOOM], [pay, BOOM], ["Better."])
    second = await soon(chat.run(tools, "two", instructions="Be brief."))
    await fail(chat, tools, "three", on_failure="keep")
    await fail(chat, tools, "four")
    await chat.flag(second.id, [0], to_model=False)
    await soon(chat.edit(second.id, "two again", instructions_once="Once.").run(tools))
    await soon(chat.regenerate().run(ScriptedModel(["Again."])))
    await chat.undo()
    await exchange(chat, "five", "Six.")
    async with chat.turn("details") as turn:
        turn.details["tokens"] = {"in": 3}
        turn.emit("Noted.")
    await soon(chat.run(ScriptedModel([Ask("weather")]), "seven"))
    assert first.number == 1
    return chat


ANY_ID = re.compile(rb"(?:conv|branch|turn)_[0-9a-f]{32}")


def chats_in(file: bytes) -> list[str]:
    lines = [msgspec.json.decode(line) for line in file.splitlines()]
    return [line["id"] for line in lines if line["type"] == "chat"]


def without_ids(file: bytes) -> list[object]:
    """Decode the lines, with each id replaced by the place of its first occurrence."""
    known: dict[str, int] = {}

    def place(value: object) -> object:
        if isinstance(value, dict):
            return {name: place(each) for name, each in value.items()}
        if isinstance(value, list):
            return [place(each) for each in value]
        if isinstance(value, str) and value.startswith(("conv_", "branch_", "turn_")):
            return known.setdefault(value, len(known))
        return value

    return [place(msgspec.json.decode(line)) for line in file.splitlines()]


class ChatTransfer(Contract):
    async def test_imported_chat_equals_its_source(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        async with other_ledger() as there:
            chat = await rich_chat(there, conversation_key="k")
            file = await export(there, chat.id)
            reports = await import_file(here, file)
            assert outcomes_of(reports) == [ImportOutcome.IMPORTED]
            assert reports[0].line == 1
            assert reports[0].chat == chat.id
            assert reports[0].turns == file.count(b"\n") - 1
            assert await export(here, chat.id) == file
            assert await here.check() == []
            copy = await here.conversation(conversation_key="k")
            assert copy.id == chat.id
            answer = {"type": "function_call_output", "call_id": "call_0", "output": "sunny"}
            assert (await soon(copy.run(ScriptedModel(["Nice."]), answer))).text == "Nice."
            assert await here.check() == []

    async def test_import_of_ids_of_another_owner_renames_them(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        chat = await rich_chat(here)
        file = await export(here, chat.id)
        reports = await import_file(here, file, owner="ben")
        assert set(outcomes_of(reports)) == {ImportOutcome.RENAMED, ImportOutcome.IMPORTED}
        [name] = {report.chat for report in reports}
        assert name is not None
        assert name != chat.id
        theirs = await export(here, name, owner="ben")
        assert without_ids(theirs) == without_ids(file)
        assert outcomes_of(await import_file(here, file, owner="ben")) == [ImportOutcome.UNCHANGED]
        assert outcomes_of(await import_file(here, theirs, owner="ben")) == [ImportOutcome.UNCHANGED]
        assert await export(here, chat.id) == file
        assert await here.check() == []
        with pytest.raises(ConversationNotFound):
            await export(here, chat.id, owner="ben")

    async def test_fork_is_exported_whole_and_shares_turns_after_import(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        chat = await rich_chat(here)
        fork = await chat.fork((await chat.turns())[1].id)
        await exchange(fork, "on its own")
        file = await export(here, fork.id)
        both = await export_all(here)
        async with other_ledger() as there:
            assert outcomes_of(await import_file(there, file)) == [ImportOutcome.IMPORTED]
            assert await export(there, fork.id) == file
            used = (await there.usage()).bytes
            assert outcomes_of(await import_file(there, both)) == [
                ImportOutcome.IMPORTED,
                ImportOutcome.UNCHANGED,
            ]
            assert await export_all(there) == both
            assert await there.check() == []
            assert (await there.usage()).bytes > used
            await (await there.conversation(fork.id)).delete()
            assert await export(there, chat.id) == await export(here, chat.id)

    async def test_import_of_ids_taken_meanwhile_renames_them(self, stage: Stage) -> None:
        here, there = await stage.processes()
        async with other_ledger() as other:
            chat = await rich_chat(other)
            fork = await chat.fork((await chat.turns())[2].id)
            file, forked = await export(other, chat.id), await export(other, fork.id)
        with here.store.hold(import_chat) as gate:
            importing = asyncio.create_task(import_file(here.ledger, file, owner="ben"))
            await gate.arrived()
            await import_file(there.ledger, forked)
            gate.release()
            reports = await soon(importing)
        assert set(outcomes_of(reports)) == {ImportOutcome.RENAMED, ImportOutcome.IMPORTED}
        theirs = await export(here.ledger, chat.id, owner="ben")
        assert without_ids(theirs) == without_ids(file)
        assert await export(here.ledger, fork.id) == forked
        assert await here.ledger.check() == []

    async def test_export_of_all_chats_has_one_owner_and_scope(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        mine = [await here.for_owner("local", scope=scope).conversation() for scope in ("", "s", "s")]
        for chat in mine:
            await exchange(chat, "hi")
        await exchange(await here.for_owner("ben").conversation(), "secret")
        assert chats_in(await export_all(here)) == [chat.id for chat in mine]
        assert chats_in(await export_all(here, scope="s")) == [chat.id for chat in mine[1:]]
        assert chats_in(await export_all(here, within=Within("s"))) == [chat.id for chat in mine[1:]]
        with pytest.raises(InvalidInput):
            await export_all(here, scope="t", within=Within("s"))
        with pytest.raises(ConversationNotFound):
            await export(here, mine[0].id, within=Within("s"))

    async def test_import_of_a_purged_chat_gets_another_id(self, stage: Stage) -> None:
        process = await stage.process(replace(LIMITS, purge_rows=2))
        here = process.ledger
        chat = await rich_chat(here, conversation_key="k")
        file = await export(here, chat.id)
        await chat.delete(purge=True)
        with pytest.raises(ConversationDeleted):
            await export(here, chat.id)
        await process.tend()
        reports = await import_file(here, file)
        assert only_report(reports).did is ImportOutcome.IMPORTED
        copy = await here.conversation(conversation_key="k")
        assert only_report(reports).chat == copy.id != chat.id
        await purge_all(process, copy)
        assert without_ids(await export(here, copy.id)) == without_ids(file)
        assert await here.check() == []
