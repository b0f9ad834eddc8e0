"""Resending: what is new in a history that a client sends whole, and where it goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tests.simulation.broken.registry import Patch, broken
from turnledger.engine.resend.match import Continuation, MatchedEdit, Sent, decide
from turnledger.engine.resend.transcript import ClientTranscript
from turnledger.engine.turn import begin, resend
from turnledger.engine.turn.request import HistoryMoved
from turnledger.engine.turn.resend import ResentRequest
from turnledger.model.ids import TurnId
from turnledger.model.turn import Turn

# What it means is decided on the line as it is when the lane is free.


@broken
def reads_a_resent_history_before_it_waits_only() -> list[Patch]:
    true = ResentRequest.reread
    read: dict[TurnId, Any] = {}

    async def read_once(self: ResentRequest, request: Any, conversation: Any) -> Any:
        if request.attempt not in read:
            read[request.attempt] = await true(self, request, conversation)
        first = read[request.attempt]
        return replace(
            request,
            input=first.input,
            instructions=first.instructions,
            diverge=first.diverge,
            seen=first.seen,
        )

    def check_seen(branch: Any, request: Any) -> None:
        if request.reread is not None and request.seen is None:
            raise HistoryMoved(branch.conversation)

    return [(ResentRequest, "reread", read_once), (begin, "_check_seen", check_seen)]


# Nothing is doubled.


@broken
def takes_all_that_is_resent_for_new() -> list[Patch]:
    def all_new(turns: Sequence[Turn], messages: Sequence[Mapping[str, Any]], sent: Sent | None) -> Any:
        return decide(turns, messages, Sent.NEW)

    return [(resend, "decide", all_new)]


@broken
def goes_on_behind_the_head_with_an_edited_history() -> list[Patch]:
    def behind_the_head(turns: Sequence[Turn], messages: Sequence[Mapping[str, Any]], sent: Any) -> Any:
        meaning = decide(turns, messages, sent)
        if isinstance(meaning, MatchedEdit):
            return Continuation(meaning.new, meaning.instructions)
        return meaning

    return [(resend, "decide", behind_the_head)]


@broken
def appends_another_answer_behind_that_of_an_interrupted_turn() -> list[Patch]:
    return [(ClientTranscript, "is_answered_otherwise", lambda *_: False)]


# Nothing is lost.


@broken
def drops_what_is_inserted_for_the_model() -> list[Patch]:
    return [(ResentRequest, "_new_notes", lambda *_: ())]


@broken
def takes_a_trimmed_history_for_the_whole() -> list[Patch]:
    def whole(turns: Sequence[Turn], messages: Sequence[Mapping[str, Any]], sent: Sent | None) -> Any:
        return decide(turns, messages, Sent.FULL)

    return [(resend, "decide", whole)]
