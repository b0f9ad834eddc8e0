"""Admission: begins, moves and changes check in their transaction that no token was revoked meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from tests.engine.views import BOOM, BrokenEngine, BrokenEngines, check_fails
from turnledger.chat import Chat
from turnledger.chats import Chats
from turnledger.engine.access.tokens import revoke
from turnledger.engine.attempt.client_retries import Retry
from turnledger.engine.attempt.stop import updates_for
from turnledger.engine.lifecycle.create import reset
from turnledger.engine.lifecycle.moves import fork
from turnledger.engine.turn import begin as begin_module
from turnledger.engine.turn import block
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.block import TurnBlock
from turnledger.errors import (
    AdmissionMoved,
    ConversationDeleted,
    ConversationNotFound,
    IdempotencyMismatch,
    TokenEnded,
    TurnReplayed,
)
from turnledger.hosting import Authorization, Host
from turnledger.ledger import OWNER, Ledger
from turnledger.model.access.token import TokenScope
from turnledger.model.conversation import Branch
from turnledger.model.ids import ConversationId, IdSource
from turnledger.model.turn import Turn
from turnledger.stores.memory import MemoryTables
from turnledger.testing.gates import Fate, When
from turnledger.testing.scripted_model import ScriptedModel
from turnledger.testing.store_contract.effects import fail
from turnledger.testing.store_contract.stage import (
    Stage,
    StageProcess,
    chain,
    exchange,
    input_texts,
    run_block,
    soon,
    user,
)

ALL = tuple(TokenScope)
UNKNOWN = IdSource(lambda: 1, Random(2).getrandbits).new(ConversationId)


def authorized(chat: Chat, version: int | None, **more: Any) -> Chat:
    """The chat, opened by a caller who was authorized at this version."""
    authorization = None if version is None else Authorization(version, **more)
    return Chat(chat._process, chat.as_opened, authorization=authorization)


def ann(process: StageProcess, version: int, **more: Any) -> Chats:
    return process.ledger.for_owner("ann", authorization=Authorization(version, **more))


async def _replayed(block: TurnBlock) -> Turn:
    with pytest.raises(TurnReplayed) as replay:
        await run_block(block)
    return replay.value.turn


WAYS: dict[str, Callable[[StageProcess, Chat, int], Coroutine[Any, Any, Any]]] = {
    "by_id": lambda here, chat, version: run_block(ann(here, version).turn("next", conversation=chat.id)),
    "by_key": lambda here, chat, version: run_block(ann(here, version).turn("next", conversation_key="k")),
    "to_a_new_one": lambda here, chat, version: run_block(ann(here, version).turn("next")),
    "to_a_new_key": lambda here, chat, version: run_block(
        ann(here, version).turn("next", conversation_key="k2")
    ),
    "run": lambda here, chat, version: ann(here, version).run(
        ScriptedModel(["Yes."]), "next", conversation=chat.id
    ),
    "replayed": lambda here, chat, version: _replayed(
        authorized(chat, version).turn("first", idempotency_key="once")
    ),
    "resumed": lambda here, chat, version: run_block(
        authorized(chat, version).turn("broken", idempotency_key="again")
    ),
    "tried_again": lambda here, chat, version: _replayed(
        authorized(chat, version).turn("second", retry=Retry(b"request", 1))
    ),
    "edited": lambda here, chat, version: _edited(authorized(chat, version)),
    "regenerated": lambda here, chat, version: run_block(authorized(chat, version).regenerate()),
    "resent": lambda here, chat, version: run_block(authorized(chat, version).resent([user("next")])),
    "undone": lambda here, chat, version: authorized(chat, version).undo(),
    "switched": lambda here, chat, version: _switched(authorized(chat, version)),
}


async def _edited(chat: Chat) -> Turn:
    return await run_block(chat.edit((await chat.turns())[0].id, "other"))


async def _switched(chat: Chat) -> Branch:
    return await chat.switch((await chat.info()).branch)


@pytest.fixture
async def chat(here: StageProcess, there: StageProcess) -> Chat:
    """A chat of Ann's, in the first of two processes: two turns, and a third that failed. There is a token of
    hers."""
    await Host(here.ledger).tokens.create(owner="ann", scopes=ALL)
    chat = await here.ledger.for_owner("ann").conversation(conversation_key="k")
    await exchange(chat, "first", idempotency_key="once")
    second = chat.turn("second", retry=Retry(b"request", 0))
    await run_block(second)
    Host(here.ledger).lost(second)
    await fail(chat, ScriptedModel([BOOM]), "broken", idempotency_key="again")
    return chat


class TestAdmission:
    @pytest.mark.parametrize("way", WAYS)
    async def test_caller_with_current_admission_begins_by_every_entry_point(
        self, here: StageProcess, there: StageProcess, chat: Chat, way: str
    ) -> None:
        await _revoke_one(there)
        assert await WAYS[way](here, chat, await _version(here)) is not None

    @pytest.mark.parametrize("way", WAYS)
    async def test_begin_with_an_admission_older_than_a_revocation_is_refused(
        self, here: StageProcess, there: StageProcess, chat: Chat, way: str
    ) -> None:
        admitted = await _version(here)
        await _revoke_one(there)
        before = await _all_of(here, chat)
        with pytest.raises(AdmissionMoved):
            await WAYS[way](here, chat, admitted)
        assert await _all_of(here, chat) == before

    @pytest.mark.parametrize("way", WAYS)
    async def test_begin_overtaken_by_a_revocation_is_refused(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, way: str
    ) -> None:
        admitted = await _version(here)
        with here.store.hold(begin) as gate:
            task = stage.start(WAYS[way](here, chat, admitted))
            await stage.reach(gate, task)
            await _revoke_one(there)
        with pytest.raises(AdmissionMoved):
            await soon(task)
        assert await input_texts(chat) == ["first", "second"]

    @pytest.mark.parametrize("way", ["by_id", "to_a_new_one", "resumed", "undone", "switched"])
    async def test_begun_turn_whose_answer_was_lost_continues_after_a_revocation(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, way: str
    ) -> None:
        admitted = await _version(here)
        # A begin that must reach the disk has no answer to lose before it is run again, durably.
        is_durable = way in ("to_a_new_one", "undone", "switched")
        with here.store.hold(begin, When.AFTER) as gate:
            here.store.lose_answer(begin, *[Fate.WRITTEN] * (1 + is_durable))
            task = stage.start(WAYS[way](here, chat, admitted))
            await stage.reach(gate, task)
            await _revoke_one(there)
        assert await soon(task) is not None

    async def test_begin_after_a_revocation_for_another_owner_succeeds(
        self, here: StageProcess, there: StageProcess, chat: Chat
    ) -> None:
        admitted = await _version(here)
        other, _ = await Host(there.ledger).tokens.create(owner="ben", scopes=ALL)
        await Host(there.ledger).tokens.revoke(other.id)
        await WAYS["by_id"](here, chat, admitted)
        assert await input_texts(chat) == ["first", "second", "next"]

    async def test_first_token_created_refuses_a_caller_admitted_without_one(self, stage: Stage) -> None:
        here, there = await stage.processes()
        admission = await Host(here.ledger).tokens.find(None)
        chat = await here.ledger.conversation()
        assert chat.owner == OWNER
        chat = authorized(chat, admission.version)
        await exchange(chat, "first")
        await Host(there.ledger).tokens.create(owner="ann", scopes=ALL)
        with pytest.raises(AdmissionMoved):
            await exchange(chat, "second")
        assert (await Host(here.ledger).tokens.find(None)).any_tokens
        assert await input_texts(chat) == ["first"]

    async def test_admission_check_makes_no_extra_trip_to_the_store(self, stage: Stage, chat: Chat) -> None:
        here, _ = stage._processes
        admitted = await _version(here)
        trips = []
        for version in (None, admitted):
            here.store.operations.clear()
            await exchange(authorized(chat, version), "next")
            # Hints trigger reads of stops, independent of the request.
            trips.append([trip for trip in here.store.operations if trip != updates_for.__name__])
        assert trips[0] == trips[1]

    @pytest.mark.parametrize(
        "error", [ConversationNotFound, ConversationDeleted, IdempotencyMismatch], ids=lambda kind: kind.code
    )
    async def test_revoked_caller_receives_only_the_admission_error(
        self, here: StageProcess, there: StageProcess, chat: Chat, error: type[Exception]
    ) -> None:
        deleted = await here.ledger.for_owner("ann").conversation()
        await deleted.delete()
        wishes: dict[Any, dict[str, Any]] = {
            ConversationNotFound: {"conversation": UNKNOWN},
            ConversationDeleted: {"conversation": deleted.id},
            IdempotencyMismatch: {"conversation": chat.id, "idempotency_key": "once"},
        }
        wish, caller = wishes[error], ann(here, await _version(here))
        for expected in (error, AdmissionMoved):
            with pytest.raises(expected):
                await run_block(caller.turn("x", **wish))
            with pytest.raises(expected):
                await run_block(caller.resent([user("x")], **wish))
            await _revoke_one(there)

    # Being looked up again.

    @pytest.mark.parametrize("way", ["first", "durable", "shared"])
    async def test_caller_readmitted_after_a_revocation_runs_its_turn(
        self, here: StageProcess, there: StageProcess, chat: Chat, way: str
    ) -> None:
        admitted = await _version(here)
        await _revoke_one(there)
        caller = ann(here, admitted, readmit=lambda: _version(here))
        if way == "shared":
            with pytest.raises(TurnReplayed):
                await run_block(caller.turn("first", conversation=chat.id, idempotency_key="once"))
            return
        block = caller.turn("next", conversation=chat.id if way == "first" else None)
        assert (await run_block(block)).input[0].text == "next"

    async def test_caller_whose_readmission_fails_receives_the_readmission_error(
        self, here: StageProcess, there: StageProcess, chat: Chat
    ) -> None:
        admitted = await _version(here)
        await _revoke_one(there)

        async def shut_out() -> int:
            raise TokenEnded

        for id in (chat.id, UNKNOWN):
            block = ann(here, admitted, readmit=shut_out).turn("next", conversation=id)
            with pytest.raises(TokenEnded):
                await run_block(block)
        assert await input_texts(chat) == ["first", "second"]

    async def test_queued_caller_that_is_readmitted_keeps_its_place(self, stage: Stage, chat: Chat) -> None:
        here, there = stage._processes
        admitted = await _version(here)
        holder = await stage.hold_lane(chat, "third")
        model = ScriptedModel(["Yes."])
        caller = authorized(chat, admitted, readmit=lambda: _version(here))
        first = await stage.queue(caller, model, "fourth")
        second = await stage.queue(chat, ScriptedModel(["Yes."]), "fifth")
        tickets = await stage.tickets(chat)
        await _revoke_one(there)
        assert await stage.tickets(chat) == tickets
        await holder.finish()
        await soon(first)
        await soon(second)
        assert await input_texts(chat) == ["first", "second", "third", "fourth", "fifth"]

    async def test_begin_after_admitted_until_is_refused_and_leaves_no_ticket(
        self, stage: Stage, here: StageProcess, chat: Chat
    ) -> None:
        now, version = Host(here.ledger).clock.now_ms(), await _version(here)
        with pytest.raises(AdmissionMoved):
            await run_block(authorized(chat, version, until=now).turn("next"))
        holder = await stage.hold_lane(chat, "third")
        caller = authorized(chat, version, until=now + 1_000)
        waiting = await stage.queue(caller, ScriptedModel(["Yes."]), "fourth")
        stage.clock.advance(1)
        await holder.finish()
        with pytest.raises(AdmissionMoved):
            await soon(waiting)
        assert await stage.tickets(chat) == []
        assert await input_texts(chat) == ["first", "second", "third"]

    async def test_queued_caller_that_is_revoked_is_refused_and_leaves_no_ticket(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat
    ) -> None:
        admitted = await _version(here)
        holder = await stage.hold_lane(chat, "third")
        waiting = await stage.queue(authorized(chat, admitted), ScriptedModel(["Yes."]), "fourth")
        await _revoke_one(there)
        await stage.until_run(there, revoke, 1)
        with pytest.raises(AdmissionMoved):
            await soon(waiting)
        assert await stage.tickets(chat) == []
        await holder.finish()
        assert await input_texts(chat) == ["first", "second", "third"]


async def _version(process: StageProcess) -> int:
    """The admission version of Ann's tokens."""
    [*_, token] = await Host(process.ledger).tokens.list(owner="ann")
    return (await Host(process.ledger).tokens.find(token.digest)).version


async def _revoke_one(process: StageProcess, owner: str = "ann") -> None:
    """Make another token of this owner, and revoke it."""
    token, _ = await Host(process.ledger).tokens.create(owner=owner, scopes=ALL)
    await Host(process.ledger).tokens.revoke(token.id)


async def _all_of(process: StageProcess, chat: Chat) -> Any:
    """What there is of Ann's."""
    return (
        await process.list_chats(owner="ann"),
        await chat.turns(),
        await chat.attempts(),
        await chat.info(),
    )


class Move(NamedTuple):
    operation: Callable[..., Any]
    make: Callable[[Chat, Authorization], Coroutine[Any, Any, Any]]


MOVES = {
    "fork": Move(fork, lambda chat, how: Chat(chat._process, chat.as_opened, authorization=how).fork()),
    "undo": Move(begin, lambda chat, how: Chat(chat._process, chat.as_opened, authorization=how).undo()),
    "reset": Move(
        reset, lambda chat, how: Ledger(chat._process).for_owner(OWNER, authorization=how).reset("k")
    ),
}
every_move = pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)


class TestAdmissionOfMoves:
    @pytest.fixture
    async def chat(self, here: StageProcess) -> Chat:
        chat = await here.chat(conversation_key="k")
        await chain(chat, 2)
        return chat

    @pytest.fixture
    async def admitted(self, here: StageProcess) -> int:
        return (await Host(here.ledger).tokens.find(None)).version

    @every_move
    async def test_move_overtaken_by_a_revocation_is_refused_and_changes_nothing(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, admitted: int, move: Move
    ) -> None:
        with here.store.hold(move.operation) as gate:
            task = stage.start(move.make(chat, Authorization(admitted)))
            await stage.reach(gate, task)
            await _revoke_one(there, OWNER)
        with pytest.raises(AdmissionMoved):
            await soon(task)
        assert await input_texts(chat) == ["q1", "q2"]
        assert [each.conversation.id for each in (await here.ledger.list()).chats] == [chat.id]

    @every_move
    async def test_move_after_a_revocation_is_readmitted_once_and_succeeds(
        self, here: StageProcess, there: StageProcess, chat: Chat, admitted: int, move: Move
    ) -> None:
        await _revoke_one(there, OWNER)
        looked_up: list[int] = []

        async def readmit() -> int:
            looked_up.append((await Host(here.ledger).tokens.find(None)).version)
            return looked_up[-1]

        await soon(move.make(chat, Authorization(admitted, readmit=readmit)))
        assert len(looked_up) == 1

    @pytest.mark.parametrize("move", [MOVES["fork"], MOVES["reset"]], ids=["fork", "reset"])
    async def test_move_written_before_a_revocation_returns_its_result_though_the_answer_was_lost(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, admitted: int, move: Move
    ) -> None:
        with here.store.hold(move.operation, When.AFTER) as gate:
            here.store.lose_answer(move.operation, Fate.WRITTEN)
            task = stage.start(move.make(chat, Authorization(admitted)))
            await stage.reach(gate, task)
            await _revoke_one(there, OWNER)
        made = await soon(task)
        assert made.is_new


# Engines with one rule left out.


LANE, BEGUN_BEFORE = begin_module._lane, begin_module._begun_before
BROKEN = BrokenEngines()
Rules = TestAdmission


@BROKEN.caught_by(Rules.test_begin_overtaken_by_a_revocation_is_refused, begin_module, "_lane", "run")
async def keeps_the_old_admission(tables: Any, target: Any, request: Any) -> Any:
    return replace(await LANE(tables, target, request), admission=request.admitted)


@BROKEN.caught_by(
    Rules.test_begin_with_an_admission_older_than_a_revocation_is_refused,
    MemoryTables,
    "admission",
    "replayed",
)
async def knows_of_no_revocation(tables: Any) -> int:
    return 0


@BROKEN.caught_by(
    Rules.test_revoked_caller_receives_only_the_admission_error,
    block,
    "_check_still_admitted",
    ConversationDeleted,
)
async def skips_readmission(process: Any, authorization: Any, request: Any) -> None:
    return None


@BROKEN.caught_by(
    Rules.test_begun_turn_whose_answer_was_lost_continues_after_a_revocation,
    begin_module,
    "_begun_before",
    "by_id",
)
async def shuts_out_what_has_begun(tables: Any, request: Any) -> Any:
    if request.admitted not in (None, await tables.admission()):
        raise AdmissionMoved
    return await BEGUN_BEFORE(tables, request)


@BROKEN.caught_by(Rules.test_queued_caller_that_is_readmitted_keeps_its_place, block, "_readmitted")
async def looks_nobody_up_again(authorization: Any, request: Any) -> Any:
    raise AdmissionMoved


@BROKEN.each
async def test_admission_without_one_of_its_rules_fails_a_test(
    engine: BrokenEngine, fixtures: dict[str, Any]
) -> None:
    await check_fails(engine, fixtures)
