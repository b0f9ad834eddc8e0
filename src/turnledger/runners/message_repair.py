"""Repair a history that a strict model server refuses: its template or parser accepts less than others.

Only the copy that the model is shown: the stored history stays as it was.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from turnledger.errors import ModelError, ModelRefused, ModelUnavailable
from turnledger.model.messages.messages import Message

_REFUSED = frozenset({400, 422})
"""Statuses of messages that a server cannot read; some answer 500 instead."""


def repair_messages(messages: msgspec.Raw, problem: ModelError) -> list[Message] | None:
    """Return chat messages that a model may accept after this error; None if there is nothing to repair."""
    may_concern_calls = problem.context_exceeded is None and (
        problem.status in _REFUSED
        if isinstance(problem, ModelRefused)
        else isinstance(problem, ModelUnavailable) and problem.should_retry
    )
    if not (problem.refuses_repeated_roles or (may_concern_calls and b'"tool_calls"' in bytes(messages))):
        return None
    sent: list[Message] = msgspec.json.decode(messages)
    repaired = [_with_object_arguments(each) for each in sent]
    if problem.refuses_repeated_roles:
        repaired = alternate_roles(repaired)
    return repaired if repaired != sent else None


def alternate_roles(messages: list[Message]) -> list[Message]:
    """Return chat messages that begin with a question, after the instructions, if there is one; and with
    consecutive ones of the user, or answers without calls, as one."""
    joined: list[Message] = []
    question = next((place for place, each in enumerate(messages) if each["role"] == "user"), 0)
    before = [each for each in messages[:question] if each["role"] not in ("assistant", "tool")]
    for each in before + messages[question:]:
        last = joined[-1] if joined else {}
        is_repeat = each["role"] in ("user", "assistant") and last.get("role") == each["role"]
        if is_repeat and not (last.get("tool_calls") or each.get("tool_calls")):
            joined[-1] = {**last, "content": _join(last.get("content"), each.get("content"))}
        else:
            joined.append(each)
    return joined


def _join(one: Any, other: Any) -> Any:
    if isinstance(one, str) and isinstance(other, str):
        return f"{one}\n\n{other}"
    parts = (
        [{"type": "text", "text": each}] if isinstance(each, str) else each or [] for each in (one, other)
    )
    return [part for each in parts for part in each]


def _with_object_arguments(message: Message) -> Message:
    """Return the message with a JSON object as the arguments of each of its function calls: a model that was
    cut by its length leaves half of one."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    return {**message, "tool_calls": [_with_object(each) for each in calls]}


def _with_object(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict):
        return call
    arguments = function.get("arguments") or ""
    try:
        if isinstance(msgspec.json.decode(arguments), dict):  # json also reads NaN
            return call
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        pass
    shown = {"arguments": arguments} if arguments.strip() else {}
    return {**call, "function": {**function, "arguments": json.dumps(shown)}}
