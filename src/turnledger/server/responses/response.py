"""A turn as a response object: completed, running, queued, failed or stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from turnledger.engine.attempt.outcome import TurnStatus
from turnledger.errors import ModelRefused
from turnledger.model.flags import HiddenItems
from turnledger.model.ids import ConversationId, TurnId, time_of
from turnledger.model.turn import QUEUED, AttemptState, Failure, Turn, TurnKind
from turnledger.server.responses.items import PlacedItem, is_output, placed_items, response_id, show_item
from turnledger.server.responses.translation import (
    SAME_NAME,
    response_format,
    response_tool_choice,
    response_tools,
    response_usage,
)

RESPONSE = "response"
"""In the details of a turn: what its request says in the Responses API, and its model is not sent."""
INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Reasons of a complete turn with an incomplete answer: `finish_reason` → `incomplete_details.reason`."""
STATUSES: Mapping[str, str] = {
    QUEUED: "queued",
    AttemptState.RUNNING: "in_progress",
    AttemptState.COMPLETED: "completed",
    AttemptState.KEPT: "cancelled",
    AttemptState.DISCARDED: "cancelled",
    AttemptState.FAILED: "failed",
    AttemptState.SETTLED: "failed",
    AttemptState.RESUMED: "failed",
}


class ResponseFields(msgspec.Struct, frozen=True):
    """The fields of a response that stay the same from its request to its end."""

    turn: TurnId
    conversation: ConversationId | None
    """None if it is not stored."""
    details: Mapping[str, Any]
    """Those with which the turn began, at least."""
    instructions: str | None = None

    @property
    def said(self) -> Mapping[str, Any]:
        said = self.details.get(RESPONSE)
        return said if isinstance(said, Mapping) else {}

    @property
    def shows_summaries(self) -> bool:
        """Whether reasoning is shown as a summary: the request asks for one."""
        return bool(self.said.get("summary"))

    @property
    def is_background(self) -> bool:
        return bool(self.said.get("background"))

    def show(
        self,
        status: str,
        output: Sequence[Mapping[str, Any]] = (),
        *,
        usage: Any = None,
        failure: Failure | None = None,
        incomplete: str | None = None,
        completed_at: int | None = None,
    ) -> dict[str, Any]:
        """Return the response object; `completed_at` is in milliseconds since 1970."""
        said, details = self.said, self.details
        given = details.get("settings")
        settings: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        text = {"format": response_format(settings.get("response_format"))}
        if "verbosity" in settings:
            text["verbosity"] = settings["verbosity"]
        limit = settings.get("max_completion_tokens", settings.get("max_tokens"))
        return {
            "id": response_id(self.turn),
            "object": "response",
            "created_at": time_of(self.turn) // 1000,
            "completed_at": None if completed_at is None else completed_at // 1000,
            "status": status,
            "background": self.is_background,
            "error": None if failure is None else _error(failure),
            "incomplete_details": None if incomplete is None else {"reason": incomplete},
            "instructions": self.instructions or None,
            "max_output_tokens": limit if isinstance(limit, int) else None,
            "max_tool_calls": said.get("max_tool_calls"),
            "model": said.get("model") or details.get("model") or "",
            "output": output,
            "previous_response_id": said.get("previous_response_id"),
            "conversation": None if self.conversation is None else {"id": str(self.conversation)},
            "reasoning": {"effort": settings.get("reasoning_effort"), "summary": said.get("summary")},
            "store": self.conversation is not None,
            "text": text,
            "tool_choice": response_tool_choice(settings.get("tool_choice")),
            "tools": response_tools(details.get("tools")),
            "truncation": said.get("truncation") or "auto",
            "usage": response_usage(usage),
            "metadata": said.get("metadata") or details.get("metadata") or {},
            "prompt_cache_key": said.get("prompt_cache_key"),
            "safety_identifier": said.get("safety_identifier"),
            "user": said.get("user"),
            "service_tier": "default",
            "top_logprobs": 0,
        } | _sampling(settings)

    def show_placed(self, turn: Turn, placed: PlacedItem) -> dict[str, Any]:
        """Return an item of a committed turn. The last one of an incomplete answer may be cut: a client must
        not run such a call."""
        shown = show_item(placed.item, placed.id, as_summary=self.shows_summaries)
        is_last = len(turn.input) <= placed.place == len(turn.items) - 1
        if is_last and incomplete_reason(turn) is not None:
            shown["status"] = "incomplete"
        return shown

    def show_turn(self, turn: Turn, failure: Failure | None, hidden: Sequence[int] = ()) -> dict[str, Any]:
        """Return the response of a committed turn."""
        first = len(turn.input)
        output = [
            self.show_placed(turn, placed)
            for placed in placed_items(turn)
            if placed.place >= first and placed.place not in hidden and is_output(placed.item)
        ]
        status, incomplete = "completed", None
        if turn.kind is TurnKind.COMPLETED:
            incomplete = incomplete_reason(turn)
            status = "completed" if incomplete is None else "incomplete"
        elif turn.kind is TurnKind.SETTLED or failure is not None:
            status = "failed"
        else:
            status = "cancelled"
        return self.show(
            status,
            output,
            usage=turn.details.get("usage"),
            failure=failure or (SETTLED if status == "failed" else None),
            incomplete=incomplete,
            completed_at=turn.committed_at if status == "completed" else None,
        )


def incomplete_reason(turn: Turn) -> str | None:
    """Return why the answer of a turn is incomplete; None if it is not."""
    return INCOMPLETE.get(str(turn.details.get("finish_reason"))) if turn.kind is TurnKind.COMPLETED else None


SETTLED = Failure("turn_failed", "The turn failed after its tools had acted.")


def fields_of(turn: TurnId, status: TurnStatus) -> ResponseFields:
    instructions = "\n\n".join(item.text for item in status.instructions or ())
    return ResponseFields(turn, status.chat.conversation.id, status.details, instructions)


def show_status(turn: TurnId, status: TurnStatus, hidden: HiddenItems) -> dict[str, Any]:
    """Return the response of a turn in any state."""
    fields = fields_of(turn, status)
    if status.turn is not None:
        return fields.show_turn(status.turn, status.failure, hidden.from_user)
    return fields.show(STATUSES[status.state], failure=status.failure)


def may_reduce(details: Mapping[str, Any]) -> bool:
    """Return whether a model that refuses the length of a turn may be shown less."""
    said = details.get(RESPONSE)
    return not isinstance(said, Mapping) or said.get("truncation") != "disabled"


def _sampling(settings: Mapping[str, Any]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"temperature": None, "top_p": None, "parallel_tool_calls": True}
    sent = {name: settings[name] for name in SAME_NAME if settings.get(name) is not None}
    return defaults | sent


def _error(failure: Failure) -> dict[str, Any]:
    """Return the error of a failed response. Clients know few codes; ours is the type."""
    is_limit = failure.code == ModelRefused.code and "status 429" in failure.message
    code = "rate_limit_exceeded" if is_limit else "server_error"
    return {"code": code, "message": failure.message, "type": failure.code}
