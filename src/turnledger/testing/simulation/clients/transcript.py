"""Transcripts: the copy of a conversation that a chat-completions client keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from turnledger.engine.resend.match import SentMessages
from turnledger.engine.turn.resent_request import OnDivergence
from turnledger.model.item import NOT_ANSWERED, Item
from turnledger.model.turn import Turn

Message: TypeAlias = dict[str, Any]
Word: TypeAlias = tuple[str, str]
"""Role, and a whole question or one word of an answer."""


@dataclass(frozen=True)
class SentHistory:
    """The history that a client means, and the part that it sends."""

    instructions: tuple[Message, ...]
    meant: tuple[Message, ...]
    """All of the client's copy, with the new messages at its end."""
    cut: int
    """Messages left out at the beginning."""
    is_whole: bool
    """Whether the copy visibly begins where the conversation does."""
    old: int
    """Messages that the client believes to be stored."""
    sent: SentMessages | None = None
    on_divergence: OnDivergence = OnDivergence.BRANCH
    note: tuple[int, Message] | None = None
    """Place and text of a message for the model that the client does not keep in its copy."""

    @property
    def messages(self) -> tuple[Message, ...]:
        sent = self.meant[self.cut :]
        if self.note is not None:
            place, note = self.note
            sent = (*sent[:place], note, *sent[place:])
        return (*self.instructions, *sent)


def messages_of(turn: Turn) -> list[Message]:
    """Return a turn as its client sees it, without server tools."""
    return [*input_messages(turn), *answer_messages(turn)]


def input_messages(turn: Turn) -> list[Message]:
    """Return the input of a turn, without results that the server filled in."""
    return _messages(turn.input)


def answer_messages(turn: Turn) -> list[Message]:
    return _messages(_without_server_calls(turn.output), is_answer=True)


def _without_server_calls(output: Sequence[Item]) -> Iterator[Item]:
    """Leave out calls with results in the same turn, and those results."""
    waiting: dict[str | None, int] = {}
    made_here: set[int] = set()
    for place, item in enumerate(output):
        if item.is_call:
            waiting[item.call_id] = place
        elif item.is_result and item.call_id in waiting:
            made_here |= {place, waiting.pop(item.call_id)}
    return (item for place, item in enumerate(output) if place not in made_here)


def _messages(items: Iterable[Item], *, is_answer: bool = False) -> list[Message]:
    """Convert items; the texts of an answer become one message."""
    messages: list[Message] = []
    for item in items:
        if item.is_result:
            output = item.fields["output"]
            if output != NOT_ANSWERED:
                messages.append({"role": "tool", "tool_call_id": item.call_id, "content": output})
        elif item.is_call:
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": None})
            function = {"name": item.fields["name"], "arguments": item.fields["arguments"]}
            call = {"id": item.call_id, "type": "function", "function": function}
            messages[-1].setdefault("tool_calls", []).append(call)
        elif is_answer and item.role == "assistant" and messages and messages[-1]["role"] == "assistant":
            messages[-1] = {**messages[-1], "content": (messages[-1]["content"] or "") + item.text}
        elif item.role in ("user", "assistant"):
            messages.append({"role": item.role, "content": item.text})
    return messages


def words_of(messages: Iterable[Message]) -> list[Word]:
    """List words, independent of the chunks of an answer. Calls and results are left out: those of the server
    may be missing, and another client may have answered a call before."""
    words: list[Word] = []
    for message in messages:
        role, text = message["role"], message["content"] or ""
        if role == "assistant":
            words += [(role, word) for word in text.split()]
        elif role == "user":
            words.append((role, text.strip()))
    return words


def words_of_item(item: Item) -> list[Word]:
    return words_of(_messages([item]))
