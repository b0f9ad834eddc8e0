"""Export and import: a store finds all chats of an owner, and takes a chat whole or not at all."""

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
from turnledger.model.transfer import ENDS, Did, ImportReport
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.scripted_model import Ask, ScriptedModel, Think, Tool
from turnledger.testing.store_contract.branches import purge_all
from turnledger.testing.store_contract.stage import LIMITS, Contract, Stage, exchange, owned, soon
from turnledger.testing.store_contract.what_happened import fail

BOOM = RuntimeError("the model broke")


@asynccontextmanager
async def elsewhere() -> AsyncIterator[Ledger]:
    """A ledger of its own, in memory, whose ids are others."""
    store = MemoryStore(Database())
    async with await Ledger.over(store, limits=LIMITS, clock=FakeClock(), random=Random(4711)) as ledger:
        yield ledger


async def exported(ledger: Ledger, chat: str, **options: Any) -> bytes:
    """The file of one chat."""
    return b"".join([line async for line in owned(ledger, options).export(chat)])


async def imported(ledger: Ledger, file: bytes, **options: Any) -> list[ImportReport]:
    """Import a file, in two pieces."""
    middle = len(file) // 2
    pieces = (file[:middle], file[middle:])
    return [report async for report in owned(ledger, options).import_lines(pieces, **options)]


async def all_exported(ledger: Ledger, **options: Any) -> bytes:
    return b"".join([line async for line in owned(ledger, options).export_all()])


def end_of(reports: list[ImportReport]) -> ImportReport:
    """What became of the one chat of a file."""
    [end] = [report for report in reports if report.did in ENDS]
    return end


def done(reports: list[ImportReport]) -> list[Did]:
    return [report.did for report in reports]


async def rich_chat(ledger: Ledger, **details: Any) -> Chat:
    """A chat with all that there can be: edits, an undo, tools, an interrupted and a settled turn, a call
    that waits, instructions, flags and details."""
    chats = owned(ledger, details)
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
    """The lines with the places at which ids first stand in their stead."""
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


class TransferredChats(Contract):
    async def test_a_chat_of_elsewhere_is_the_same_here(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        async with elsewhere() as there:
            chat = await rich_chat(there, conversation_key="k")
            file = await exported(there, chat.id)
            reports = await imported(here, file)
            assert done(reports) == [Did.IMPORTED]
            assert reports[0].line == 1
            assert reports[0].chat == chat.id
            assert reports[0].turns == file.count(b"\n") - 1
            assert await exported(here, chat.id) == file
            assert await here.check() == []
            copy = await here.conversation(conversation_key="k")
            assert copy.id == chat.id
            answer = {"type": "function_call_output", "call_id": "call_0", "output": "sunny"}
            assert (await soon(copy.run(ScriptedModel(["Nice."]), answer))).text == "Nice."
            assert await here.check() == []

    async def test_ids_of_another_owner_are_not_taken_and_not_touched(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        chat = await rich_chat(here)
        file = await exported(here, chat.id)
        reports = await imported(here, file, owner="ben")
        assert set(done(reports)) == {Did.RENAMED, Did.IMPORTED}
        [name] = {report.chat for report in reports}
        assert name is not None
        assert name != chat.id
        theirs = await exported(here, name, owner="ben")
        assert without_ids(theirs) == without_ids(file)
        assert done(await imported(here, file, owner="ben")) == [Did.UNCHANGED]
        assert done(await imported(here, theirs, owner="ben")) == [Did.UNCHANGED]
        assert await exported(here, chat.id) == file
        assert await here.check() == []
        with pytest.raises(ConversationNotFound):
            await exported(here, chat.id, owner="ben")

    async def test_a_fork_is_told_whole_and_shares_again(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        chat = await rich_chat(here)
        fork = await chat.fork((await chat.turns())[1].id)
        await exchange(fork, "on its own")
        file = await exported(here, fork.id)
        both = await all_exported(here)
        async with elsewhere() as there:
            assert done(await imported(there, file)) == [Did.IMPORTED]
            assert await exported(there, fork.id) == file
            used = (await there.usage()).bytes
            assert done(await imported(there, both)) == [Did.IMPORTED, Did.UNCHANGED]
            assert await all_exported(there) == both
            assert await there.check() == []
            assert (await there.usage()).bytes > used
            await (await there.conversation(fork.id)).delete()
            assert await exported(there, chat.id) == await exported(here, chat.id)

    async def test_import_whose_ids_are_taken_before_it_writes_renames_them(self, stage: Stage) -> None:
        here, there = await stage.processes()
        async with elsewhere() as other:
            chat = await rich_chat(other)
            fork = await chat.fork((await chat.turns())[2].id)
            file, forked = await exported(other, chat.id), await exported(other, fork.id)
        with here.store.hold(import_chat) as gate:
            importing = asyncio.create_task(imported(here.ledger, file, owner="ben"))
            await gate.arrived()
            await imported(there.ledger, forked)
            gate.release()
            reports = await soon(importing)
        assert set(done(reports)) == {Did.RENAMED, Did.IMPORTED}
        theirs = await exported(here.ledger, chat.id, owner="ben")
        assert without_ids(theirs) == without_ids(file)
        assert await exported(here.ledger, fork.id) == forked
        assert await here.ledger.check() == []

    async def test_all_chats_are_told_of_one_owner_and_scope_only(self, stage: Stage) -> None:
        here = (await stage.process()).ledger
        mine = [await here.for_owner("local", scope=scope).conversation() for scope in ("", "s", "s")]
        for chat in mine:
            await exchange(chat, "hi")
        await exchange(await here.for_owner("ben").conversation(), "secret")
        assert chats_in(await all_exported(here)) == [chat.id for chat in mine]
        assert chats_in(await all_exported(here, scope="s")) == [chat.id for chat in mine[1:]]
        assert chats_in(await all_exported(here, within=Within("s"))) == [chat.id for chat in mine[1:]]
        with pytest.raises(InvalidInput):
            await all_exported(here, scope="t", within=Within("s"))
        with pytest.raises(ConversationNotFound):
            await exported(here, mine[0].id, within=Within("s"))

    async def test_what_is_gone_for_good_comes_back_under_another_id(self, stage: Stage) -> None:
        process = await stage.process(replace(LIMITS, purge_rows=2))
        here = process.ledger
        chat = await rich_chat(here, conversation_key="k")
        file = await exported(here, chat.id)
        await chat.delete(purge=True)
        with pytest.raises(ConversationDeleted):
            await exported(here, chat.id)
        await process.tend()
        reports = await imported(here, file)
        assert end_of(reports).did is Did.IMPORTED
        copy = await here.conversation(conversation_key="k")
        assert end_of(reports).chat == copy.id != chat.id
        await purge_all(process, copy)
        assert without_ids(await exported(here, copy.id)) == without_ids(file)
        assert await here.check() == []
