# Generated from engine/turn/running_turn.py by `make twins`. Edit that.
"""RunningTurn for blocking programs: the methods of the awaiting one, without `await`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from turnledger.engine.turn.running_turn import RunningTurn as AwaitingRunningTurn
from turnledger.engine.turn.snapshot import ReducedContext
from turnledger.model.conversation import Conversation
from turnledger.model.ids import TurnId
from turnledger.model.item import (
    Item,
    ItemLike,
)
from turnledger.model.messages.messages import Message
from turnledger.model.turn import (
    AttemptState,
    BeginKind,
    OnStop,
    Turn,
)
from turnledger.sync.loop import Caller, LedgerLoop


class RunningTurn:
    """A running turn, as used in the block of `with chat.turn(…)`, or by a runner.

    Its history is the committed one at its begin, and never changes. Text and items are a draft until the
    block is left; added items are journaled at once, so that a retry need not redo them. Several threads
    may work on one turn; all must be done when the block is left.
    """

    def __init__(self, loop: LedgerLoop, inner: AwaitingRunningTurn) -> None:
        self._loop = loop
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def id(self) -> TurnId:
        """The id of this attempt, and of the turn it becomes."""
        return self._inner.id

    @property
    def conversation(self) -> Conversation:
        return self._inner.conversation

    @property
    def number(self) -> int:
        """The future number of the turn."""
        return self._inner.number

    @property
    def began(self) -> BeginKind:
        """Where it began: in a conversation that its begin `created`, or in one that it `continued` after the
        last turn or `branched` from an earlier one. Not known for a replayed turn."""
        return self._inner.began

    @property
    def is_resumed(self) -> bool:
        """Whether an earlier attempt with this idempotency_key left finished steps to continue from."""
        return self._inner.is_resumed

    @property
    def history(self) -> Sequence[Turn]:
        """The committed turns that this one runs on, or as many of the last ones as its context can show."""
        return self._inner.history

    @property
    def instructions(self) -> tuple[Item, ...]:
        """The instructions in force for this turn, its own or those of an earlier one."""
        return self._inner.instructions

    @property
    def input(self) -> tuple[Item, ...]:
        return self._inner.input

    @property
    def most_bytes(self) -> int:
        """The most bytes of the answer."""
        return self._inner.most_bytes

    @property
    def state(self) -> AttemptState:
        return self._loop.call(lambda: self._inner.state)

    @property
    def turn(self) -> Turn | None:
        """The committed turn, once there is one."""
        return self._loop.call(lambda: self._inner.turn)

    @property
    def details(self) -> dict[str, Any]:
        """JSON values to keep with the turn besides its items, such as the model and its token usage. Begins
        with those of `chat.turn(details=…)`. Durable with the commit; a turn that is stopped or fails keeps
        those it began with. See Turn.details.
        """
        return self._loop.call(lambda: self._inner.details)

    @details.setter
    def details(self, details: dict[str, Any]) -> None:
        self._inner.details = details

    @property
    def steps(self) -> tuple[Item, ...]:
        """The finished items of the draft so far, including those of a resumed attempt."""
        return self._loop.call(lambda: self._inner.steps)

    @property
    def text(self) -> str:
        """The text emitted since the last finished item."""
        return self._loop.call(lambda: self._inner.text)

    @property
    def items(self) -> tuple[Item, ...]:
        """The input for the model, in Responses shape: the instructions in force, the primer, the history as
        its context shows it, the input, and the finished steps, or the prefill of a resent history.
        """
        return self._loop.call(lambda: self._inner.items)

    @property
    def messages(self) -> list[Message]:
        """The input for the model, as chat messages."""
        return self._loop.call(lambda: self._inner.messages)

    @property
    def messages_json(self) -> bytes:
        """The messages as a JSON list: for a long history much cheaper than `messages`."""
        return self._loop.call(lambda: self._inner.messages_json)

    def read_messages_json(self) -> bytes:
        """Return `messages_json`; decode a long history in a thread, off the event loop."""
        return self._loop.run(self._inner.read_messages_json())

    def show_less(self, tokens: int | Callable[[int], int]) -> ReducedContext | None:
        """Leave out the oldest turns, for a model that refuses the length of what it is shown: show at most
        so many tokens. A function is called with the tokens shown, and returns how many may be left. Return
        what is left; None, and change nothing, if no turn can be left out. See Context for what is counted
        and always shown.
        """
        return self._loop.run(self._inner.show_less(tokens))

    @property
    def open_calls(self) -> tuple[Item, ...]:
        """The calls of the draft without a result."""
        return self._loop.call(lambda: self._inner.open_calls)

    def emit(self, text: str) -> None:
        """Add text to the answer. Durable with the commit, or with the next `add`; the text of a long turn is
        stored about twice a second. Raises MalformedItems if the turn grows too long.
        """
        return self._loop.call(lambda: self._inner.emit(text))

    def emit_reasoning(self, text: str) -> None:
        """Add reasoning. It becomes one item before the text emitted since the last item; see `emit`."""
        return self._loop.call(lambda: self._inner.emit_reasoning(text))

    def emit_refusal(self, text: str) -> None:
        """Add to the text in which the model declines to answer, a message of its own; see `emit`."""
        return self._loop.call(lambda: self._inner.emit_refusal(text))

    def begin_call(self, call_id: str, name: str, *, type: str = "function_call") -> None:
        """Open a call whose arguments follow by `emit_arguments`. It ends with its result, with an `add`
        without items, or with the turn; a call with the same id that is added or put takes its place. A turn
        that is stopped or fails keeps no open call. Raises MalformedItems if a call with this id is open.
        """
        return self._loop.call(lambda: self._inner.begin_call(call_id, name, type=type))

    def emit_arguments(self, call_id: str, text: str) -> None:
        """Add to the arguments of an open call; see `emit`. Raises MalformedItems if it is not open."""
        return self._loop.call(lambda: self._inner.emit_arguments(call_id, text))

    def add(self, *likes: ItemLike) -> None:
        """Add finished items to the answer, and journal them with what was emitted before; all or none.

        Raises MalformedItems if they would break the history, Superseded if the lane is lost. When it
        returns, a crash cannot lose them; when it is cancelled, they may be added.
        """
        return self._loop.run(self._inner.add(*likes))

    def put(self, *likes: ItemLike) -> None:
        """End the answer with finished items after all text and steps, such as calls left to the client, or a
        refusal; all or none. Nothing can follow.

        They are durable with the commit, and readers receive them with the end: a turn that is stopped or
        fails keeps none of them. Raises MalformedItems if they would break the history.
        """
        return self._loop.call(lambda: self._inner.put(*likes))

    def call(self, call: ItemLike, tool: Callable[[], str], *, read_only: bool = False) -> Item:
        """Run a tool for a call and add its result; the call is added first if the draft lacks it.

        The start of the tool is on disk before it acts. In a resumed turn, a call that an earlier attempt
        started is not run again: its recorded result is returned, which may state that the outcome is
        unknown. The same call made again counts as its next occurrence. An exception of the tool fails the
        turn, unless the caller catches it and adds a result of its own.
        """
        caller = Caller(self._loop)
        return caller.run(self._inner.call(call, caller.hand_back(tool), read_only=read_only))

    def start(self, call: ItemLike, *, read_only: bool = False) -> None:
        """Record that the tool for this call is about to act. Act only after this has returned, then add the
        result. `read_only` means that the tool has no effects.
        """
        return self._loop.run(self._inner.start(call, read_only=read_only))

    def stop(self, policy: OnStop | str | None = None) -> None:
        """End the turn here: leaving the block keeps it as interrupted, or discards it, by policy."""
        return self._loop.call(lambda: self._inner.stop(policy))
