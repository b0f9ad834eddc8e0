"""Resend: the new part of a history that a client sends whole, and its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulation.broken.registry import Patch, broken
from turnledger.engine.resend.match import Continuation, MatchedEdit, SentMessages, decide
from turnledger.engine.resend.transcript import ClientTranscript
from turnledger.engine.turn import begin, resent_request
from turnledger.engine.turn.begin import HistoryMoved
from turnledger.engine.turn.resent_request import ResentRequest
from turnledger.model.turn import Turn

# A resent history is read against the line when the lane is free.


@broken
def reads_a_resent_history_before_it_waits_only() -> list[Patch]:
    true = ResentRequest.read
    read: dict[ResentRequest, Any] = {}

    async def read_once(self: ResentRequest, target: Any, conversation: Any) -> Any:
        if self not in read:
            read[self] = await true(self, target, conversation)
        return read[self]

    def check_seen(branch: Any, request: Any) -> None:
        if request.is_resent and request.content.seen is None:
            raise HistoryMoved(branch.conversation)

    return [(ResentRequest, "read", read_once), (begin, "_check_seen", check_seen)]


# No message is doubled.


@broken
def treats_a_resent_history_as_new() -> list[Patch]:
    def all_new(
        turns: Sequence[Turn], messages: Sequence[Mapping[str, Any]], sent: SentMessages | None
    ) -> Any:
        return decide(turns, messages, SentMessages.NEW)

    return [(resent_request, "decide", all_new)]


@broken
def appends_an_edited_history_to_the_head() -> list[Patch]:
    def behind_the_head(turns: Sequence[Turn], messages: Sequence[Mapping[str, Any]], sent: Any) -> Any:
        meaning = decide(turns, messages, sent)
        if isinstance(meaning, MatchedEdit):
            return Continuation(meaning.new, meaning.instructions)
        return meaning

    return [(resent_request, "decide", behind_the_head)]


@broken
def appends_a_second_answer_to_an_interrupted_turn() -> list[Patch]:
    return [(ClientTranscript, "has_other_answer", lambda *_: False)]


# No message is lost.


@broken
def drops_inserted_notes_for_the_model() -> list[Patch]:
    return [(ResentRequest, "_new_notes", lambda *_: ())]


@broken
def treats_a_trimmed_history_as_whole() -> list[Patch]:
    def whole(turns: Sequence[Turn], messages: Sequence[Mapping[str, Any]], sent: SentMessages | None) -> Any:
        return decide(turns, messages, SentMessages.FULL)

    return [(resent_request, "decide", whole)]
