"""Turns asked for by clients that send the whole history each time: what is new of it, and where it goes.

The request is read against the line as it is, and again whenever that has changed by the time the lane is
free: begin itself says so, and nothing is decided on an old line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from turnledger.engine.begin import BeginRequest, Seen
from turnledger.engine.branching import Divergence
from turnledger.engine.conversations import Target, check_live, find
from turnledger.engine.idempotency import Key
from turnledger.engine.matching import Continuation, Meaning, Regeneration, Sent, decide
from turnledger.engine.ports import Tables
from turnledger.engine.process import Process
from turnledger.errors import HistoryDiverged, MalformedItems
from turnledger.model.conversation import Branch
from turnledger.model.ids import BranchId
from turnledger.model.instructions import Instructions
from turnledger.model.item import Item
from turnledger.model.messages import items_of_messages
from turnledger.model.pairing import check_resent

ChatMessage = Mapping[str, Any]


class OnDivergence(StrEnum):
    """What to do with a history that is not the stored one."""

    BRANCH = "branch"  # it becomes a branch of its own, which the conversation shows from then on
    REJECT = "reject"  # raise HistoryDiverged


@dataclass(frozen=True)
class CurrentRequest:
    target: Target
    now: int


async def current(tables: Tables, request: CurrentRequest) -> Branch | None:
    """The branch that a conversation shows; None for one that is not there yet, and may be made."""
    found = await find(tables, request.target)
    if found is None and request.target.fresh is not None:
        return None
    conversation = await check_live(tables, found, request.now)
    return await tables.branch(conversation.branch)


class Resending:
    """One request that brings a whole history. `reread` makes of it what it means by now."""

    def __init__(
        self,
        process: Process,
        messages: Sequence[ChatMessage],
        sent: Sent | None,
        on_divergence: OnDivergence,
    ) -> None:
        if not all(isinstance(message, Mapping) for message in messages):
            raise MalformedItems("Messages are a list of objects, each with a `role`.")
        self._process = process
        self._messages = messages
        self._sent = sent
        self._on_divergence = on_divergence

    def key(self, idempotency_key: str) -> Key:
        """The key of the request: its body is what was sent, whatever it means by now."""
        body = msgspec.json.encode([self._sent, self._on_divergence, self._messages], order="deterministic")
        return Key(idempotency_key, hashlib.sha256(body).digest())

    async def reread(self, request: BeginRequest) -> BeginRequest:
        """Read the messages against the line as it is now. Raises NoNewInput, MalformedItems, HistoryDiverged
        and what is to be said of a conversation that cannot be continued."""
        process = self._process
        asked = CurrentRequest(request.target, process.clock.now_ms())
        branch = await process.store.read(current, asked)
        if branch is None:
            fresh = request.target.fresh
            seen = Seen(fresh.branch, None) if fresh is not None else None
            return self._meant(request, decide((), self._messages, self._sent), (), seen)
        turns = process.shown_turns.of(branch.id, await process.snapshot(branch))
        meaning = decide(turns, self._messages, self._sent)
        in_force = turns[branch.instructed - 1].instructions if branch.instructed else ()
        return self._meant(request, meaning, in_force or (), Seen(branch.id, branch.head))

    def _meant(
        self, request: BeginRequest, meaning: Meaning, in_force: tuple[Item, ...], seen: Seen | None
    ) -> BeginRequest:
        instructions = self._instructions(meaning, in_force)
        if isinstance(meaning, Regeneration):
            wish = Divergence(branch=self._new_branch(), replaces=meaning.turn, regenerates=True)
            return replace(request, input=(), instructions=instructions, diverge=wish, seen=seen)
        input = items_of_messages(self._messages[meaning.new :])
        check_resent(input)
        elsewhere: Divergence | None = None
        if not isinstance(meaning, Continuation):
            if self._on_divergence is OnDivergence.REJECT:
                raise HistoryDiverged
            elsewhere = Divergence(branch=self._new_branch(), after=meaning.after)
        return replace(request, input=input, instructions=instructions, diverge=elsewhere, seen=seen)

    def _instructions(self, meaning: Meaning, in_force: tuple[Item, ...]) -> Instructions | None:
        """What the messages say before the first other one, unless that is in force anyway."""
        leading = items_of_messages(self._messages[: meaning.instructions])
        is_known = isinstance(meaning, Continuation) and leading == in_force
        return None if is_known or not leading else Instructions(leading)

    def _new_branch(self) -> BranchId:
        return self._process.ids.new(BranchId)
