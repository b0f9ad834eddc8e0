"""Checks of a store whose processes were killed."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import apsw

from tests.crash.place import is_file, store_of
from tests.crash.worker_requests import LANES, RESULT, WorkerRequest, last_words, name_of
from turnledger import Chat, Ledger, Limits, RunningTurn, Turn
from turnledger.engine.lane.lease_watch import all_leases
from turnledger.model.item import NOT_STARTED, OUTCOME_UNKNOWN, open_calls
from turnledger.types import AttemptState, TurnKind

PROBE = "are you there?"


async def recovered(folder: Path, lanes: Sequence[str] = LANES) -> dict[str, list[Turn]]:
    """Open the store of killed processes, run another turn on each lane, and return all histories."""
    async with await Ledger.open(store_of(folder), limits=Limits(lease_time=1.0)) as ledger:
        histories = {}
        for lane in lanes:
            chat = await ledger.conversation(conversation_key=lane)
            await _takes_a_turn(chat)
            # Lock files show that the processes are dead, in a database their leases lapse; once they are
            # buried, no ticket is before ours.
            await ledger._recovery.run_round()
            while not is_file(folder) and len(await ledger._process.store.read_whole(all_leases, None)) > 1:
                await asyncio.sleep(0.1)
                await ledger._recovery.run_round()
            await _takes_a_turn(chat, on_busy="reject")
            histories[lane] = await whole_history(chat)
    check_file(folder)
    return histories


async def _takes_a_turn(chat: Chat, on_busy: str = "queue") -> None:
    async def probe(turn: RunningTurn) -> None:
        turn.emit("here")

    await chat.run(probe, PROBE, on_busy=on_busy)
    assert [each for each in await chat.attempts() if each.attempt.state is AttemptState.RUNNING] == []


async def whole_history(chat: Chat) -> list[Turn]:
    turns = await chat.turns(limit=1000)
    while turns and turns[0].number > 1:
        turns = [*await chat.turns(before=turns[0].number, limit=1000), *turns]
    return turns


def check_file(folder: Path) -> None:
    if not is_file(folder):
        return
    connection = apsw.Connection(str(folder / "chats.db"))
    try:
        assert connection.pragma("integrity_check") == "ok"
    finally:
        connection.close()


def check_promises(histories: dict[str, list[Turn]], reported: Iterable[str], effects: Path) -> None:
    """Compare the histories with the output of workers and the effects of tools."""
    turns = [turn for history in histories.values() for turn in history]
    for history in histories.values():
        check_chain(history)
        assert open_calls([item for turn in history for item in turn.items]) == ()
    done = effects.read_text().splitlines()
    check_acknowledged(turns, list(reported), {name.rpartition("/")[0] for name in done})
    for turn in turns:
        check_turn(turn)
    tokens = Counter(token for turn in turns if (token := token_of(turn)) != PROBE)
    assert [token for token, times in tokens.items() if times > 1] == []
    check_effects(turns, done)


def token_of(turn: Turn) -> str:
    (message,) = turn.input
    return message.text


def check_chain(history: list[Turn]) -> None:
    """Check that each turn follows the one before it."""
    assert [turn.number for turn in history] == list(range(1, len(history) + 1))
    assert [turn.parent for turn in history] == [None, *(turn.id for turn in history)][: len(history)]


def check_acknowledged(turns: list[Turn], reported: list[str], acted: set[str]) -> None:
    """Check that acknowledged turns are unchanged, and failed ones kept only by policy."""
    there = {str(turn.id): (token_of(turn), hashlib.sha256(turn.body).hexdigest()) for turn in turns}
    kinds = {token_of(turn): turn.kind for turn in turns}
    for line in reported:
        word, token, *more = (*line.split(), "")
        if word == "acked":
            assert there.get(more[0]) == (token, more[1]), f"{line} is not there as told"
        elif word in ("failed", "stopped"):
            is_kept = word == "failed" and WorkerRequest.of(token).policy == "keep"
            left = TurnKind.INTERRUPTED if is_kept else TurnKind.SETTLED if token in acted else None
            assert kinds.get(token) == left, f"{line}, but it is {kinds.get(token)}"
        else:
            # On a slow machine a living process may be judged dead and superseded.
            assert word in ("queued", "begun", "acted") or more[0] == "Superseded", line


def check_turn(turn: Turn) -> None:
    """Check that a turn is whole, or has the form of its end."""
    token = token_of(turn)
    if token == PROBE:
        return
    request = WorkerRequest.of(token)
    calls = [item for item in turn.output if item.is_call]
    if turn.kind is TurnKind.COMPLETED:
        assert calls == request.calls
        assert turn.text.endswith(last_words(token, turn.parent))
    elif turn.kind is TurnKind.SETTLED:
        acting = [item for item in request.calls if item not in request.reads]
        assert calls
        assert calls == acting[: len(calls)]
    else:
        assert request.ending in ("fail-kept", "stop")
        assert calls == request.calls[: len(calls)]


def check_effects(turns: list[Turn], effects: list[str]) -> None:
    """Check that each effect happened once and is recorded once, correctly."""
    assert effects, "no tool ever acted: the test proves nothing"
    assert [name for name, times in Counter(effects).items() if times > 1] == []
    items = [item for turn in turns for item in turn.output]
    recorded = Counter(name_of(item) for item in items if item.is_call)
    assert {name: recorded[name] for name in effects if recorded[name] != 1} == {}
    requests = [WorkerRequest.of(token_of(turn)) for turn in turns if token_of(turn) != PROBE]
    reads = {name_of(item) for request in requests for item in request.reads}
    for item in items:
        if not item.is_result or name_of(item) in reads:
            continue
        name, output = name_of(item), item.fields["output"]
        assert output in (RESULT + name, NOT_STARTED, OUTCOME_UNKNOWN)
        if output != OUTCOME_UNKNOWN:
            assert (name in effects) is (output == RESULT + name), f"{name}: {output}"
