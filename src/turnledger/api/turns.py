"""Turns, attempts and branches as the API sends them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, TypeAlias

from msgspec import Struct, field

from turnledger.api.chats import ListedChat, Page
from turnledger.api.fields import Count, RawItems, Time, one_of, schema
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import Item
from turnledger.model.turn import QUEUED, AttemptState, BeginKind, Failure, TurnKind

Places: TypeAlias = tuple[Count, ...]
"""Indexes of items, counted from 0 through the `input` of a turn and then its `output`."""


class Turn(Struct, frozen=True, kw_only=True, dict=True):
    """A committed turn."""

    id: TurnId
    number: Annotated[int, schema(minimum=1)]
    kind: TurnKind
    parent: TurnId | None = None
    created_at: Time = 0
    committed_at: Time = 0
    raw_input: RawItems = field(name="input", default=())
    raw_output: RawItems = field(name="output", default=())
    hidden: Annotated[
        Places,
        schema(
            "Indexes of items that are hidden from the user, counted from 0 through `input` and then"
            " `output`."
        ),
    ] = ()
    hidden_from_model: Annotated[
        Places, schema("Likewise, of items that the model of a later turn does not receive.")
    ] = ()
    details: Mapping[str, Any] = {}

    @cached_property
    def input(self) -> tuple[Item, ...]:
        """The items that were sent."""
        return tuple(Item(raw) for raw in self.raw_input)

    @cached_property
    def output(self) -> tuple[Item, ...]:
        """The items of the answer, tool calls and results included."""
        return tuple(Item(raw) for raw in self.raw_output)

    @property
    def text(self) -> str:
        """The visible text of the answer."""
        return "".join(item.text for item in self.output if item.role == "assistant")


class Attempt(Struct, frozen=True, kw_only=True, dict=True):
    """An attempt that is running, failed or was discarded. It is not part of the history."""

    id: TurnId
    state: AttemptState
    replaces: (
        Annotated[
            TurnId,
            schema("Of an edit or a regeneration: the turn in whose place it is shown, and all after it."),
        ]
        | None
    ) = None
    failure: Failure | None = None
    created_at: Time = 0
    ended_at: Time | None = None
    raw_input: RawItems = field(name="input", default=())
    raw_steps: RawItems = field(name="steps", default=())
    partial: Annotated[
        str,
        schema("Empty while the turn runs: read its text from its events. After a failure, the text so far."),
    ] = ""
    details: Annotated[
        Mapping[str, Any], schema("The model, tools, settings and metadata of the request.")
    ] = {}

    @cached_property
    def input(self) -> tuple[Item, ...]:
        """The items that were sent."""
        return tuple(Item(raw) for raw in self.raw_input)

    @cached_property
    def steps(self) -> tuple[Item, ...]:
        """The items that it has finished."""
        return tuple(Item(raw) for raw in self.raw_steps)


class ChatHistory(ListedChat, frozen=True, kw_only=True):
    """A chat with its last turns, oldest first."""

    turns: tuple[Turn, ...] = ()
    before: Annotated[int, schema("The cursor of the previous page.", minimum=2)] | None = None


class ShownChat(ChatHistory, frozen=True, kw_only=True):
    """A chat with its last turns, and the attempts outside its history."""

    attempts: tuple[Attempt, ...] = ()


class ChatContext(Struct, frozen=True, kw_only=True, dict=True):
    """What a model would be shown of a chat now, and how much of its budget that takes."""

    turns: Annotated[Count, schema("Turns of the history, shown or not.")]
    tokens: Annotated[Count, schema("Tokens of what is shown, estimated.")]
    budget: Annotated[Count, schema("The tokens allowed.")] | None = None
    left: Annotated[int, schema("The tokens left; below 0 if what must be shown exceeds them.")] | None = None
    raw_items: RawItems = field(name="items", default=())

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """The items that a model would be shown: instructions first, then the history."""
        return tuple(Item(raw) for raw in self.raw_items)


class Branch(Struct, frozen=True, kw_only=True):
    """A line of turns of a chat."""

    id: BranchId
    is_current: bool
    turns: Annotated[Count, schema("The number of its turns.")]
    shared: Annotated[Count, schema("How many of them it shares with its parent branch.")] = 0
    base: Annotated[TurnId, schema("The turn it starts from.")] | None = None
    head: Annotated[TurnId, schema("Its last turn.")] | None = None
    is_running: bool = False
    is_side: Annotated[
        bool, schema("Whether a turn made it to run beside others, and no switch has shown it.")
    ] = False
    preview: Annotated[str, schema("The beginning of its last text.")] = ""


class BranchPage(Page[Branch], frozen=True):
    """Branches of a chat, newest first."""

    next: BranchId | None = None


class Sibling(Struct, frozen=True, kw_only=True):
    """An alternative to a turn, and a branch that shows it."""

    turn: Turn
    branch: BranchId
    is_current: bool


class TurnAnswer(Struct, frozen=True, kw_only=True):
    """A committed turn, and its chat after the commit."""

    turn: Turn
    chat: ListedChat
    branch: BranchId
    state: Annotated[str, one_of(BeginKind, "How the turn relates to the chat.")]


class TurnState(Struct, frozen=True, kw_only=True):
    """The state of a turn."""

    turn: Turn | None = None
    state: Annotated[str, schema(enum=[QUEUED, *map(str, AttemptState)])]
    failure: Failure | None = None
    details: Annotated[
        Mapping[str, Any], schema("As of the turn; while it is not committed, those of the request.")
    ] = {}
    chat: ListedChat
    branch: Annotated[BranchId, schema("The branch on which it was committed.")] | None = None


class AcceptedTurn(TurnState, frozen=True, kw_only=True):
    """A turn that was requested in the background, and its current state."""

    id: TurnId


class Job(Struct, frozen=True, kw_only=True, dict=True):
    """A background turn that waits or runs."""

    id: TurnId
    chat: ConversationId
    state: Annotated[
        str, schema("Running also while it waits to be resumed.", enum=[QUEUED, str(AttemptState.RUNNING)])
    ]
    created_at: Time
    before: Annotated[Count, schema("How many turns of its chat run or wait before it.")] = 0
    resumes: Annotated[Count, schema("How often it was resumed after a crash.")] = 0
    details: Annotated[
        Mapping[str, Any], schema("The model, tools, settings and metadata of the request.")
    ] = {}
    raw_input: RawItems = field(name="input", default=())

    @cached_property
    def input(self) -> tuple[Item, ...]:
        """The items that were sent; none if they are larger than 16 KiB."""
        return tuple(Item(raw) for raw in self.raw_input)


class JobPage(Page[Job], frozen=True):
    """Background turns, oldest first."""

    next: TurnId | None = None


class TurnFlags(Struct, frozen=True, kw_only=True):
    """The hidden items of a turn, as in the turn itself."""

    turn: TurnId
    hidden: Places = ()
    hidden_from_model: Places = ()


class StopAnswer(Struct, frozen=True, kw_only=True):
    """How a stopped turn ended; `state` is null if there was nothing to stop."""

    turn: Annotated[TurnId, schema("The stopped turn, if there was one.")] | None = None
    state: AttemptState | None
    committed: bool = False
    failure: Failure | None = None
