"""Context: flags, instructions and windows, and what models see of them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.simulation.broken.registry import Patch, broken
from turnledger.engine.history import line
from turnledger.engine.history.history import BranchCache
from turnledger.engine.turn import begin, commit, preview, running_turn, snapshot
from turnledger.engine.turn import snapshot as snapshot_module
from turnledger.model import conversation
from turnledger.model.turn import instructed_after

# Only requests that set flags change them.


@broken
def writes_back_the_flags_it_read_when_it_began() -> list[Patch]:
    read: dict[Any, Any] = {}
    true = begin.take_lane

    async def take_lane(tables: Any, conversation: Any, branch: Any, *arguments: Any) -> Any:
        begun = await true(tables, conversation, branch, *arguments)
        turns = await line.turns_of(tables, begun.branch, 0, begun.branch.length, begun.branch.length)
        flags = await tables.flags([turn.id for turn in turns])
        read[begun.attempt.id] = {turn.id: dict(flags.get(turn.id, {})) for turn in turns}
        return begun

    true_commit = commit.commit

    async def commit_all(tables: Any, request: Any) -> Any:
        turn = await true_commit(tables, request)
        for id, flags in read.get(turn.id, {}).items():
            await tables.save_flags(id, flags)
        return turn

    return [(begin, "take_lane", take_lane), (commit, "commit", commit_all)]


@broken
def caches_flags_across_changes() -> list[Patch]:
    true = BranchCache.flags

    def flags(self: Any, branch: Any, version: int, turns: Any) -> Any:
        entry = self._entries.get(branch)
        kept = entry and entry.flags
        return true(self, branch, kept[0] if kept else version, turns)

    return [(BranchCache, "flags", flags)]


@broken
def ignores_flags_of_a_partly_shown_history() -> list[Patch]:
    async def none(process: Any, base: Any, turns: Any) -> Any:
        return {}

    return [(snapshot_module, "flags_of", none)]


# Instructions are in force once their turn is committed, until replaced.


@broken
def leaves_instructions_of_a_failed_turn_in_force() -> list[Patch]:
    remembered: dict[Any, Any] = {}
    true = snapshot._in_force

    async def in_force(process: Any, begun: Any, base: Any, history: Any) -> Any:
        given, branch = begun.attempt.instructions, (process, base.branch)
        if given is not None and given.is_lasting:
            remembered[branch] = given.items
        if given is None and branch in remembered:
            return remembered[branch]
        return await true(process, begun, base, history)

    return [(snapshot, "_in_force", in_force)]


@broken
def keeps_one_turn_instructions_in_force() -> list[Patch]:
    def stays(given: Any, before: int, number: int) -> int:
        return instructed_after(replace(given, is_lasting=True) if given else None, before, number)

    return [(where, "instructed_after", stays) for where in (running_turn, conversation)]


@broken
def edits_without_the_instructions_of_the_place() -> list[Patch]:
    async def none(*_: Any) -> None:
        return None

    return [(begin, "_instructions_there", none)]


@broken
def continues_from_stale_cached_messages() -> list[Patch]:
    sent: dict[BranchCache, bytes] = {}
    true = BranchCache._keep_chat_json

    def keep(self: BranchCache, last: Any, encoded: bytes) -> None:
        sent[self] = encoded
        true(self, last, encoded)

    def nearest(self: BranchCache, history: Any) -> tuple[int, bytes]:
        return (len(history), sent[self]) if self in sent else (0, b"")

    return [(BranchCache, "_keep_chat_json", keep), (BranchCache, "_nearest", nearest)]


@broken
def previews_without_the_effects_that_wait() -> list[Patch]:
    true = preview.begin_unwritten

    class Settled:
        """The rows of an owner, with nothing to settle."""

        def __init__(self, tables: Any) -> None:
            self._tables = tables

        def __getattr__(self, name: str) -> Any:
            return getattr(self._tables, name)

        async def branch(self, id: Any) -> Any:
            branch = await self._tables.branch(id)
            return None if branch is None else replace(branch, unsettled=None)

    async def begin_unwritten(tables: Any, request: Any) -> Any:
        return await true(Settled(tables), request)

    return [(preview, "begin_unwritten", begin_unwritten)]
