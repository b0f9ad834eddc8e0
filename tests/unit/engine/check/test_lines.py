"""The check reports damage to event logs, flags and lines at the turn or branch concerned."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.engine.populated_store import (
    Damages,
    PopulatedStore,
    change_branch,
    change_shown,
    change_turn,
    expect_found,
    raw_id,
    remove_turn,
    repaired,
    run_turn,
    shown,
    turn_at,
)
from tests.unit.model.shapes import assistant, call, result, user
from turnledger.chat import Chat
from turnledger.errors import StoreCorrupt
from turnledger.model import codec, event_log
from turnledger.model.conversation import Branch, Stretch
from turnledger.model.event_log import INLINE, ITEM, LogChunk, WholeLog
from turnledger.model.flags import Flags
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.item import raws
from turnledger.model.turn import AttemptState, TurnBody
from turnledger.stores.memory import Database
from turnledger.types import Rule, TurnKind


def inline(raw: bytes) -> bytes:
    log = bytearray()
    event_log.pack_inline(log, INLINE, raw)
    return bytes(log)


LOGS = [
    (b"\xff" * 6, "A stored event log cannot be read"),
    (b"\x00\xff", "A stored event log is cut off"),
    (b"\x00" + bytes([ITEM] * 9), "refers to missing items"),
    (b"\x00" + bytes([99]), "refers to missing text"),
    (b"\x00" + bytes([ITEM]), "The log has 1 items, the output 4."),
    (b"\x00" + bytes([ITEM] * 4) + inline(b"{}"), "A stored item cannot be read"),
    (b"\x02torn", "A stored event log cannot be read"),
]


async def test_check_reports_an_unreadable_event_log_of_a_turn(
    populated: PopulatedStore, database: Database
) -> None:
    turn = (await populated.plain.turns())[1]
    for kept, message in LOGS:
        with repaired(database):
            database.turn_logs[turn.id] = kept
            [finding] = await populated.ledger.check()
        assert (finding.rule, finding.owner, finding.turn) == (Rule.DOCUMENT, "ann", turn.id), message
        assert finding.message.startswith("Its event log cannot be read: ")
        assert message in finding.message


async def test_check_reports_an_unreadable_event_log_of_a_settled_turn(
    populated: PopulatedStore, database: Database
) -> None:
    turn = next(each for each in await populated.settled.turns() if each.kind is TurnKind.SETTLED)
    torn = WholeLog(log=bytes([ITEM]), text="", state=AttemptState.FAILED)
    database.turn_logs[turn.id] = event_log.encode_whole(torn)
    [finding] = await populated.ledger.check()
    assert (finding.rule, finding.turn) == (Rule.DOCUMENT, turn.id)
    with pytest.raises(StoreCorrupt):
        [event async for event in populated.settled.events(turn.id)]


async def test_check_reports_an_unreadable_event_log_of_an_ended_attempt(
    populated: PopulatedStore, database: Database
) -> None:
    [attempt] = [each.attempt for each in await populated.waiting.attempts()]
    assert await populated.ledger.check() == []
    database.logs[attempt.id] = {0: codec.encode(LogChunk(log=bytes([99]), text=""))}
    [finding] = await populated.ledger.check()
    assert (finding.rule, finding.turn) == (Rule.DOCUMENT, attempt.id)
    assert "refers to missing text" in finding.message


async def test_check_reports_a_flag_on_an_item_that_its_turn_lacks(
    populated: PopulatedStore, database: Database
) -> None:
    turn = (await populated.plain.turns())[1]
    await populated.plain.flag(turn.id, to_user=False)
    assert await populated.ledger.check() == []
    database.flags["ann", turn.id] = {len(turn.items): Flags(to_user=False)}
    [finding] = await populated.ledger.check()
    assert (finding.rule, finding.turn) == (Rule.ORPHAN, turn.id)
    assert "Item 5 is flagged, but the turn has 5 items" in finding.message


def made(database: Database, chat: Chat) -> Branch:
    """The branch that an edit has made from another."""
    return next(
        each
        for each in database.branches.values()
        if each.conversation == chat.id and each.start and each.length > each.start
    )


def body(*items: Any, input: int = 1) -> bytes:
    return codec.encode(TurnBody(input=input, items=raws(items)))


def rewrite(database: Database, id: TurnId, body: bytes) -> None:
    """Change the body of a turn, and remove its log, which would differ."""
    change_turn(database, id, body=body)
    database.turn_logs.pop(id, None)


def second(rows: Database, store: PopulatedStore) -> TurnId:
    return turn_at(rows, store.plain, 2)


def own_nothing(rows: Database) -> Branch:
    """A branch without turns of its own."""
    return next(each for each in rows.branches.values() if each.length == each.start > 0)


def settled_fork(rows: Database) -> Branch:
    return next(each for each in rows.branches.values() if each.settled and each.length == each.start)


def change_origin(rows: Database, branch: Branch, **changes: Any) -> None:
    rows.origins[branch.id] = replace(rows.origins[branch.id], **changes)


def change_first_parent(rows: Database, branch: Branch) -> None:
    change_turn(rows, rows.lines[branch.id][branch.start + 1].id, parent=None)


def lead_astray(rows: Database, store: PopulatedStore) -> None:
    branch = own_nothing(rows)
    astray = Stretch(shown(rows, store.plain).id, 0, branch.start)
    change_origin(rows, branch, line=(astray,))


def forget_stretches(rows: Database, store: PopulatedStore) -> None:
    branch = own_nothing(rows)
    line = rows.origins[branch.id].line
    assert len(line) > 1
    change_origin(rows, branch, line=line[:1])


def lower_settled(rows: Database, branch: Branch) -> None:
    assert branch.settled
    change_branch(rows, branch, settled=0)


DETAILS = body(user(), assistant())[:-1] + b',"details":["model"]}'
NO_ITEM = b'{"v":1,"input":1,"items":[{"type":"message","role":"nobody"}]}'
NO_CHAT, NO_TURN = ConversationId("conv_" + raw_id(9)), TurnId("turn_" + raw_id(9))
DAMAGES: Damages = {
    Rule.CHAIN: {
        "Turn 2 is missing.": lambda rows, store: remove_turn(rows, second(rows, store)),
        "Turn 3 is missing.": lambda rows, store: remove_turn(rows, turn_at(rows, store.plain, 3)),
        "Turn 3 has the parent turn_": lambda rows, store: change_turn(
            rows, turn_at(rows, store.plain, 3), parent=turn_at(rows, store.plain, 1)
        ),
        "has the parent None, but follows turn_": lambda rows, store: change_first_parent(
            rows, made(rows, store.edited)
        ),
        "but the last turn is turn_": lambda rows, store: change_shown(
            rows, store.plain, head=second(rows, store)
        ),
        "Turn 3 follows the head, which is turn 2": lambda rows, store: change_shown(
            rows, store.plain, head=second(rows, store), length=2
        ),
        "but was made from turn": lambda rows, _: change_branch(
            rows, own_nothing(rows), start=own_nothing(rows).start - 1
        ),
        "but has no origin; its beginning is lost": lambda rows, _: rows.origins.pop(own_nothing(rows).id),
        "which is missing; its beginning is lost": lambda rows, store: change_origin(
            rows, made(rows, store.edited), base=NO_TURN
        ),
        "does not lead from its base to the first turn": lead_astray,
        "does not lead from its base to the first": forget_stretches,
    },
    Rule.ORPHAN: {
        "siblings do not list this branch": lambda rows, store: change_origin(
            rows, made(rows, store.edited), conversation=NO_CHAT
        ),
    },
    Rule.PAIRS: {
        "There is a result for stray, but no such call": lambda rows, store: rewrite(
            rows, second(rows, store), body(result("stray"), user(), input=2)
        ),
        "waits for no call, but its head leaves other calls open": lambda rows, store: change_shown(
            rows, store.pending, pending=()
        ),
    },
    Rule.DOCUMENT: {
        "It cannot be read: A stored document cannot be read": lambda rows, store: change_turn(
            rows, second(rows, store), body=b'{"v":1,"input":1,"items":[{'
        ),
        "The turn has 1 items, but counts 2 as input": lambda rows, store: change_turn(
            rows, second(rows, store), body=body(user(), input=2)
        ),
        "has version 99": lambda rows, store: change_turn(
            rows, second(rows, store), body=b'{"v":99,"input":1,"items":[]}'
        ),
        "A stored item cannot be read": lambda rows, store: change_turn(
            rows, second(rows, store), body=NO_ITEM
        ),
        "A stored object cannot be read": lambda rows, store: change_turn(
            rows, second(rows, store), body=DETAILS
        ),
    },
    Rule.SETTLED: {
        "has tool effects, but the branch records none after turn 0": lambda rows, store: lower_settled(
            rows, shown(rows, store.settled)
        ),
        "the branch records none after turn 0": lambda rows, _: lower_settled(rows, settled_fork(rows)),
    },
}


async def test_check_reports_damage_to_each_part_of_a_line(
    populated: PopulatedStore, database: Database
) -> None:
    await populated.settled.fork()
    await expect_found(populated, database, DAMAGES)


async def test_check_reports_an_open_call_at_the_turn_after_it(
    populated: PopulatedStore, database: Database
) -> None:
    rewrite(database, second(database, populated), body(user(), call("open")))
    [finding] = await populated.ledger.check()
    assert finding.rule is Rule.PAIRS
    assert finding.turn == turn_at(database, populated.plain, 3)
    assert "The call open of the previous turn has no result" in finding.message


async def test_check_reports_a_branch_shorter_than_the_turns_it_shares(
    populated: PopulatedStore, database: Database
) -> None:
    branch = next(each for each in database.branches.values() if each.length == each.start > 1)
    change_branch(database, branch, length=branch.start - 1)
    [finding] = await populated.ledger.check()
    assert "with another branch." in finding.message


async def test_check_reports_a_missing_turn_of_a_purged_conversation_that_a_fork_needs(
    populated: PopulatedStore, database: Database
) -> None:
    origin = database.origins[shown(database, populated.forked).id]
    source = origin.line[0].branch
    assert sorted(database.lines[source]) == [1, 2]
    remove_turn(database, database.lines[source][1].id)
    [finding] = await populated.ledger.check()
    assert (finding.rule, finding.branch) == (Rule.CHAIN, source)
    assert "Turn 1 is missing." in finding.message


async def test_check_finds_settled_turns_across_more_branches_than_it_remembers(
    populated: PopulatedStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnledger.engine.check.audit.REMEMBERED", 1)
    forks = [await populated.settled.fork() for _ in range(3)]
    await run_turn(forks[0], "go on")
    assert await populated.ledger.check() == []
    last = shown(database, forks[2])
    change_branch(database, last, settled=1)
    assert [each.branch for each in await populated.ledger.check()] == ([last.id] if last.settled > 1 else [])
    change_branch(database, last, settled=0)
    [finding] = await populated.ledger.check()
    assert (finding.rule, finding.branch) == (Rule.SETTLED, last.id)


async def test_check_of_a_fork_made_after_a_settled_turn_finds_nothing(
    populated: PopulatedStore, database: Database
) -> None:
    chat = populated.waiting
    await run_turn(chat, "one")
    fork = await chat.fork()
    assert [turn.kind for turn in await fork.turns()] == [TurnKind.SETTLED, TurnKind.COMPLETED]
    assert await populated.ledger.check() == []


async def test_check_reports_a_gap_of_many_turns_once(populated: PopulatedStore, database: Database) -> None:
    branch = shown(database, populated.plain)
    change_branch(database, branch, length=10**15)
    [finding] = await populated.ledger.check()
    assert "Turns 4 to 1000000000000000 are missing." in finding.message


async def test_check_of_more_edits_than_an_origin_lists_finds_nothing(populated: PopulatedStore) -> None:
    chat = await populated.ledger.for_owner("ann").conversation()
    await run_turn(chat, "start")
    for count in range(70):
        turn = await run_turn(chat, f"q{count}")
        async with chat.edit(turn.id, f"better {count}") as block:
            block.emit("Yes.")
    assert await populated.ledger.check() == []


async def instruct(chat: Chat) -> None:
    """Instructions of every kind: from turn 2 on, once, and none any more; and on a branch behind them."""
    await run_turn(chat, "one")
    await run_turn(chat, "two", instructions="Be brief.")
    await run_turn(chat, "three", instructions_once="Be long.")
    await run_turn(chat, "four")
    await (await chat.fork()).undo()
    await run_turn(chat, "five", instructions="")


async def test_check_reports_a_turn_that_changes_the_instructions_in_force_silently(
    populated: PopulatedStore, database: Database
) -> None:
    chat = await populated.ledger.for_owner("ann").conversation()
    await instruct(chat)
    assert await populated.ledger.check() == []
    third = database.turns[turn_at(database, chat, 3)]
    changed = replace(codec.decode(TurnBody, third.body), instructed=1)
    change_turn(database, third.id, body=codec.encode(changed))
    found = await populated.ledger.check()
    assert {each.rule for each in found} == {Rule.INSTRUCTIONS}
    assert found[0].turn == third.id
    assert "the instructions of turn 1, but those of turn 2 were in force" in found[0].message


async def test_check_reports_a_branch_that_records_wrong_instructions_in_force(
    populated: PopulatedStore, database: Database
) -> None:
    chat = await populated.ledger.for_owner("ann").conversation()
    await instruct(chat)
    fork = await chat.fork((await chat.turns())[3].id)
    branch = shown(database, fork)
    assert branch.instructed == 2
    change_branch(database, branch, instructed=0)
    [finding] = await populated.ledger.check()
    assert (finding.rule, finding.branch) == (Rule.INSTRUCTIONS, branch.id)
    assert "The branch records the instructions of turn 0" in finding.message
    change_branch(database, branch, instructed=2)
    own = shown(database, chat)
    change_branch(database, own, instructed=2)
    [finding] = await populated.ledger.check()
    assert (finding.rule, finding.branch) == (Rule.INSTRUCTIONS, own.id)


async def test_check_reports_a_missing_turn_of_a_restorable_conversation(
    populated: PopulatedStore, database: Database
) -> None:
    await populated.plain.delete()
    assert await populated.ledger.check() == []
    branch = database.conversations[populated.plain.id].branch
    remove_turn(database, database.lines[branch][2].id)
    findings = await populated.ledger.check()
    assert (findings[0].rule, findings[0].branch) == (Rule.CHAIN, branch)
