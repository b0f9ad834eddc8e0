"""A turn: one input and everything done in answer to it, visible whole or not at all. And an attempt: one
execution of a turn. Many may start, at most one commits.

Instructions precede the history. They hold for a turn and those after it until replaced, and are recorded
with the turn that brought them, outside its items.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from turnledger.errors import InvalidInput, MalformedItems, StoreCorrupt
from turnledger.model import codec
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.item import (
    Item,
    ItemLike,
    checked_items,
    message,
    object_of,
    raws,
    started_calls,
    stored_items,
)
from turnledger.model.messages import projection

Bytes: TypeAlias = bytes
"""For properties of a class with a field of that name."""


class TurnKind(StrEnum):
    """How a committed turn came about."""

    COMPLETED = "completed"  # the runner came to a positive end
    INTERRUPTED = "interrupted"  # stopped or failed, and kept as far as it got
    SETTLED = "settled"  # failed after its tools had acted: the truth about them, nothing more


class TurnBody(codec.Document, frozen=True):
    """What a store keeps of a turn as one value."""

    input: int
    items: tuple[msgspec.Raw, ...]
    instructions: tuple[msgspec.Raw, ...] | msgspec.UnsetType = msgspec.UNSET
    """Given with this turn; there and empty where it asked for none."""
    instructed: int | msgspec.UnsetType = msgspec.UNSET
    """Number of the turn whose instructions are in force after this one."""
    details: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """A JSON object."""
    effects: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET
    """See Turn.effects; absent where the items alone say as much, and in turns of earlier versions."""


class Turn(msgspec.Struct, frozen=True, dict=True):
    """A committed turn. `number` counts from 1 within its branch; `parent` is the head it ran on."""

    id: TurnId
    branch: BranchId
    number: int
    parent: TurnId | None
    kind: TurnKind
    created_at: int
    committed_at: int
    body: bytes

    @classmethod
    def of(
        cls,
        *,
        id: TurnId,
        branch: BranchId,
        number: int,
        parent: TurnId | None,
        kind: TurnKind,
        created_at: int,
        committed_at: int,
        input: tuple[Item, ...],
        output: tuple[Item, ...],
        instructions: tuple[Item, ...] | None = None,
        instructed: int = 0,
        details: bytes = b"",
        effects: tuple[int, ...] | None = None,
    ) -> Turn:
        body = TurnBody(
            input=len(input),
            items=raws((*input, *output)),
            instructions=msgspec.UNSET if instructions is None else raws(instructions),
            instructed=instructed or msgspec.UNSET,
            details=msgspec.Raw(details) if details else msgspec.UNSET,
            effects=msgspec.UNSET if effects is None else effects,
        )
        turn = cls(id, branch, number, parent, kind, created_at, committed_at, codec.encode(body))
        turn.__dict__["_decoded"] = (len(input), (*input, *output))  # at hand, so it need not be decoded
        return turn

    def __repr__(self) -> str:
        return f"<Turn {self.id}, number {self.number}, {self.kind}>"

    @codec.computed_once
    def _body(self) -> TurnBody:
        return codec.decode(TurnBody, self.body)

    @codec.computed_once
    def _decoded(self) -> tuple[int, tuple[Item, ...]]:
        # Decoded on first use: most turns of a long history are only counted.
        body = self._body
        return body.input, stored_items(body.items)

    @codec.computed_once
    def shown(self) -> projection.ShownTurn:
        """The turn as chat clients see it, projected on first use."""
        return projection.project_turn(self.input, self.output, is_complete=self.kind is TurnKind.COMPLETED)

    @property
    def is_plain_answer(self) -> bool:
        """Whether every client certainly shows text of its answer: some strip thoughts from it. Known without
        projecting the turn."""
        if "shown" in self.__dict__:
            return False
        texts = (item.text for item in self.output if item.role == "assistant")
        return any(
            text.strip() and ("think>" not in text or projection.remove_thoughts(text).strip())
            for text in texts
        )

    def with_hidden(self, places: frozenset[int]) -> Turn:
        """Return the same turn, with the items at these places hidden from chat clients."""
        turn = msgspec.structs.replace(self)
        complete = self.kind is TurnKind.COMPLETED
        made = projection.project_turn(self.input, self.output, is_complete=complete, hidden=places)
        turn.__dict__.update(self.__dict__, shown=made)
        return turn

    @property
    def instructions(self) -> tuple[Item, ...] | None:
        """The instructions set by this turn; None if it set none and the earlier ones stay in force.
        They are not among its items."""
        given = self._body.instructions
        return None if isinstance(given, msgspec.UnsetType) else stored_items(given)

    @property
    def instructed(self) -> int:
        """Number of the turn whose instructions are in force after this one; 0 for none."""
        number = self._body.instructed
        return 0 if isinstance(number, msgspec.UnsetType) else number

    @codec.computed_once
    def details(self) -> Mapping[str, Any]:
        """Data that its runner stored with it; see RunningTurn.details."""
        kept = self._body.details
        return {} if isinstance(kept, msgspec.UnsetType) else object_of(kept)

    @property
    def raw_details(self) -> bytes:
        """The details as stored JSON; empty if there are none."""
        kept = self._body.details
        return b"" if isinstance(kept, msgspec.UnsetType) else bytes(kept)

    @codec.computed_once
    def effects(self) -> tuple[int, ...]:
        """Places in the output of the calls that may have acted, of a turn that did not complete.

        A branch without the turn carries them over. An interrupted turn that does not record which of its
        tools were read-only counts all started calls.
        """
        if self.kind is TurnKind.COMPLETED:
            return ()
        places = self._body.effects if self.kind is TurnKind.INTERRUPTED else msgspec.UNSET
        if not isinstance(places, msgspec.UnsetType):
            return tuple(place for place in places if place < len(self.output) and self.output[place].is_call)
        return started_calls(self.output)

    @property
    def is_carried(self) -> bool:
        """Whether a branch that leaves the turn out carries a copy of its effects."""
        return self.kind is TurnKind.SETTLED or bool(self.effects)

    @property
    def raw_effects(self) -> tuple[int, ...] | None:
        """The effects as stored; None if the turn does not record them."""
        places = self._body.effects
        return None if isinstance(places, msgspec.UnsetType) else places

    @property
    def items(self) -> tuple[Item, ...]:
        return self._decoded[1]

    @property
    def input(self) -> tuple[Item, ...]:
        count, items = self._decoded
        return items[:count]

    @property
    def output(self) -> tuple[Item, ...]:
        count, items = self._decoded
        return items[count:]

    @property
    def text(self) -> str:
        """The visible text of the answer."""
        return "".join(item.text for item in self.output if item.role == "assistant")


_ROLES = ("system", "developer")


class Instructions(Struct, frozen=True):
    """Instructions set by a turn. Without items, they end those in force."""

    items: tuple[Item, ...]
    is_lasting: bool = True
    """Whether they stay in force for later turns; if not, those before them are in force again."""


def instructions_of(
    lasting: ItemLike | Iterable[ItemLike] | None, once: ItemLike | Iterable[ItemLike] | None = None
) -> Instructions | None:
    """Make instructions from what a caller gives: a text is a system message. Blank ones are left out.

    Raises MalformedItems for anything but system and developer messages, InvalidInput if both are given.
    """
    if lasting is None and once is None:
        return None
    if lasting is not None and once is not None:
        raise InvalidInput("Give instructions or instructions_once, not both.")
    given = once if lasting is None else lasting
    assert given is not None  # noqa: S101 - for the type checker
    return Instructions(_items(given), is_lasting=lasting is not None)


def _items(given: ItemLike | Iterable[ItemLike]) -> tuple[Item, ...]:
    likes: Iterable[ItemLike] = (given,) if isinstance(given, Mapping | Item | str) else given
    items = tuple(message("system", like) if isinstance(like, str) else Item.of(like) for like in likes)
    if not all(map(is_instruction, items)):
        raise MalformedItems("Instructions are a text, or messages whose role is system or developer.")
    return tuple(item for item in items if not item.is_blank)


def is_instruction(item: Item) -> bool:
    return item.type == "message" and item.role in _ROLES


def instructions_from(turn: Turn) -> Instructions | None:
    """Return the instructions that a turn set, for a turn in its place."""
    if turn.instructions is None:
        return None
    is_lasting = turn.instructed == (turn.number if turn.instructions else 0)
    return Instructions(turn.instructions, is_lasting)


def instructed_after(given: Instructions | None, before: int, number: int) -> int:
    """Return the number of the turn whose instructions are in force after turn `number`, which set `given`;
    before it, those of turn `before` were in force. 0 for none."""
    if given is None or not given.is_lasting:
        return before
    return number if given.items else 0


class AttemptState(StrEnum):
    """The state of an attempt."""

    RUNNING = "running"  # holds the lane
    COMPLETED = "completed"  # committed whole
    KEPT = "kept"  # committed as an interrupted turn
    FAILED = "failed"  # kept aside; its effects, if any, wait to be settled
    DISCARDED = "discarded"  # stopped, and dropped by policy; its effects wait likewise
    SETTLED = "settled"  # failed or discarded, and the truth about its effects is committed
    RESUMED = "resumed"  # failed, and a later attempt took up its journal

    @property
    def is_committed(self) -> bool:
        """Whether there is a turn of this id in the history."""
        return self in (AttemptState.COMPLETED, AttemptState.KEPT, AttemptState.SETTLED)


MOVES: dict[AttemptState, frozenset[AttemptState]] = {
    AttemptState.RUNNING: frozenset(
        {AttemptState.COMPLETED, AttemptState.KEPT, AttemptState.FAILED, AttemptState.DISCARDED}
    ),
    AttemptState.FAILED: frozenset({AttemptState.SETTLED, AttemptState.RESUMED}),
    AttemptState.DISCARDED: frozenset({AttemptState.SETTLED}),
    AttemptState.COMPLETED: frozenset(),
    AttemptState.KEPT: frozenset(),
    AttemptState.SETTLED: frozenset(),
    AttemptState.RESUMED: frozenset(),
}
"""The legal moves of an attempt: all of them."""


QUEUED = "queued"
"""Where a turn stands that is no attempt yet."""


class BeginKind(StrEnum):
    """Where a turn began."""

    CREATED = "created"  # in a conversation that was made with its begin
    CONTINUED = "continued"  # after the last turn of one that was there
    BRANCHED = "branched"  # on a branch of its own: in the place of a turn, or beside others


class OnBusy(StrEnum):
    """What a turn does that finds another one running."""

    QUEUE = "queue"  # wait in line, within bounds
    REJECT = "reject"  # raise ConversationBusy
    INTERRUPT = "interrupt"  # stop the running turn, keep it, go first
    ROLLBACK = "rollback"  # stop the running turn, discard it, go first


CONTEXT = re.compile(r"all|(last|budget)=([0-9]{1,9})")
"""How a request names what its model is shown: turns, or tokens."""
CONTEXTS = "all, last=TURNS or budget=TOKENS"


class OnStop(StrEnum):
    """What becomes of a turn that is stopped."""

    KEEP = "keep"  # it stays, as an interrupted turn
    DISCARD = "discard"  # it goes; what its tools did is settled later


class OnFailure(StrEnum):
    """What becomes of a turn that fails."""

    SETTLE = "settle"  # it goes; what its tools did is settled when the conversation moves on
    KEEP = "keep"  # it stays, as an interrupted turn
    FORGET = "forget"  # it goes, and what its tools did with it; a retry runs them again


class Failure(msgspec.Struct, frozen=True):
    """Why an attempt ended other than well: a stable word, and a sentence for people."""

    code: str
    message: str


def without_internals(failure: Failure) -> Failure:
    """Return a failure as strangers may read it. If another exception than a TurnledgerError ended the turn,
    its class is the code, and its text may have paths, queries or credentials."""
    is_foreign = failure.message.startswith(f"{failure.code}:")
    return Failure(failure.code, failure.code) if is_foreign else failure


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """Where an edit commits: on a branch to be made from an earlier turn. It holds the lane of the branch
    that was current when it began, whose head is its `Attempt.base`."""

    branch: BranchId
    """The one to be made."""
    base: TurnId | None
    """The turn it is made from; None for the very beginning."""
    number: int
    """The number of that turn."""
    forget: bool = False
    """Whether later settled turns are left behind."""
    repeats: TurnId | None = None
    """The turn whose input is reused there; its hidden items stay hidden."""
    replaces: TurnId | None = None
    """The first turn that the branch leaves out, in whose place the new one goes."""


class AttemptBody(codec.Document, frozen=True):
    """What a store keeps of an attempt as one value."""

    input: tuple[msgspec.Raw, ...]
    partial: str = ""
    instructions: tuple[msgspec.Raw, ...] | msgspec.UnsetType = msgspec.UNSET
    once: bool | msgspec.UnsetType = msgspec.UNSET
    details: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """A JSON object."""
    durable: bool | msgspec.UnsetType = msgspec.UNSET

    @classmethod
    def of(
        cls,
        input: tuple[Item, ...],
        instructions: Instructions | None,
        partial: str = "",
        raw_details: bytes = b"",
        *,
        is_durable: bool = False,
    ) -> AttemptBody:
        details = msgspec.Raw(raw_details) if raw_details else msgspec.UNSET
        durable = is_durable or msgspec.UNSET
        if instructions is None:
            return cls(input=raws(input), partial=partial, details=details, durable=durable)
        return cls(
            input=raws(input),
            partial=partial,
            instructions=raws(instructions.items),
            once=msgspec.UNSET if instructions.is_lasting else True,
            details=details,
            durable=durable,
        )

    @property
    def raw_details(self) -> bytes:
        return b"" if isinstance(self.details, msgspec.UnsetType) else bytes(self.details)

    @property
    def given_instructions(self) -> Instructions | None:
        """The instructions with which the attempt began."""
        if isinstance(self.instructions, msgspec.UnsetType):
            return None
        return Instructions(checked_items(self.instructions), is_lasting=self.once is not True)


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt as the store knows it: the one that runs on a branch, or one kept aside."""

    id: TurnId
    owner: str
    conversation: ConversationId
    branch: BranchId
    lease: LeaseId
    fence: int
    state: AttemptState
    base: TurnId | None
    input: tuple[Item, ...]
    fork: Fork | None = None
    instructions: Instructions | None = None
    """Those it began with; None if those in force apply."""
    raw_details: Bytes = b""
    """The details it began with, as stored JSON; empty if there are none."""
    is_durable: bool = False
    """Whether it has a job, by which another process resumes it; see model.job."""
    on_stop: OnStop = OnStop.KEEP
    on_failure: OnFailure = OnFailure.SETTLE
    is_interaction: bool = True
    """Whether it counts as use of the conversation, for expiry, resets and the order of lists."""
    idempotency_key: str | None = None
    """As it is claimed: that of a caller who may see one scope only names the scope, too."""
    stop: OnStop | None = None
    failure: Failure | None = None
    reads: int | None = None
    """How often readers in other processes have said that they read it: it gives way once nobody does, see
    engine.attempt.give_way. None: it never does."""
    partial: str = ""
    journaled: int = 0
    created_at: int
    ended_at: int | None = None
    bytes: int = 0
    """What it counts while it is kept aside; see model.conversation."""

    def with_state(
        self, state: AttemptState, *, failure: Failure | None = None, at: int | None = None
    ) -> Attempt:
        """Return the attempt after a legal move. Any other is asked for only if a row is damaged."""
        if state not in MOVES[self.state]:
            raise StoreCorrupt(
                f"{self.id} is stored as {self.state}, and cannot become {state}. Restore the store from a "
                "backup."
            )
        changes: dict[str, object] = {"state": state, "ended_at": self.ended_at if at is None else at}
        changes["failure"] = failure or self.failure
        return msgspec.structs.replace(self, **changes)

    @property
    def details(self) -> dict[str, Any]:
        """Data recorded with it when it began, such as the model and its settings."""
        return object_of(msgspec.Raw(self.raw_details)) if self.raw_details else {}

    @property
    def replaces(self) -> TurnId | None:
        """The turn in whose place it is to be shown, of an edit or a regeneration: the history is shown up to
        there. None for a new message."""
        return self.fork.replaces if self.fork is not None else None

    @property
    def request_body(self) -> Bytes:
        """Input, instructions and details as one value. The partial text is no part of it: it changes, they
        do not."""
        return codec.encode(self._body(""))

    @property
    def body(self) -> Bytes:
        return codec.encode(self._body(self.partial))

    def _body(self, partial: str) -> AttemptBody:
        return AttemptBody.of(
            self.input, self.instructions, partial, self.raw_details, is_durable=self.is_durable
        )


# The texts of turns that lists and searches show.

_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They change the reading direction of the text around them, also of other users' lines in a list."""
_SPARE = 8
"""Characters examined for each one shown, since white space and controls are removed."""


def one_line(text: str, length: int) -> str:
    """Return the first characters with white space collapsed and control characters removed. The cost does
    not depend on the length of the text, unless it begins with white space."""
    if text[:1].isspace():
        text = text.lstrip()
    line = text[:length]
    if not line.isprintable() or "  " in line:
        # A little more is nearly always enough, and every commit makes such a line.
        line = " ".join(text[: length + length // 2].split())
        if len(line) < length or not line.isprintable():
            line = " ".join(text[: length * _SPARE].split())
    if not line.isprintable():
        line = " ".join("".join([letter for letter in line if _is_visible(letter)]).split())
    return line[:length].rstrip()


def _is_visible(letter: str) -> bool:
    # Joiners stay: scripts and emoji need them.
    return letter not in _DIRECTIONS and unicodedata.category(letter) not in ("Cc", "Cs", "Co", "Cn")


TITLE_LENGTH = 60
SHORTEST = 20
"""Cut a title between words unless that leaves fewer characters than this."""
CUT = "…"


def title_of(text: str) -> str | None:
    """Return the first words of a text as a one-line title; None if there are none."""
    line = one_line(text, TITLE_LENGTH + 1)
    if len(line) <= TITLE_LENGTH:
        return line or None
    words = line[: TITLE_LENGTH - len(CUT) + 1]
    end = words.rfind(" ")
    return words[: end if end >= SHORTEST else TITLE_LENGTH - len(CUT)].rstrip() + CUT


def first_words(input: Iterable[Item], hidden: Collection[int] = ()) -> str | None:
    """Return the title for the input of a turn: the first words of its first visible user message."""
    for place, item in enumerate(input):
        if item.is_user_message and place not in hidden and (title := title_of(item.text)):
            return title
    return None


PREVIEW_LENGTH = 160
_PREVIEW_ROLES = ("assistant", "user")


def preview_of(turn: Turn, hidden: Collection[int] = ()) -> str:
    """Return the beginning of the last visible text in a turn; empty for a turn of only calls and results."""
    items = turn.items
    for place in range(len(items) - 1, -1, -1):
        item = items[place]
        if (
            item.role in _PREVIEW_ROLES
            and place not in hidden
            and (line := one_line(item.text, PREVIEW_LENGTH))
        ):
            return line
    return ""


_SEARCHED_ROLES = ("user", "assistant")


def visible_texts(turn: Turn, hidden: Collection[int]) -> list[str]:
    """Return the visible texts of user and assistant, in order; not tools, reasoning or instructions."""
    return [
        item.text
        for place, item in enumerate(turn.items)
        if item.type == "message" and item.role in _SEARCHED_ROLES and place not in hidden and item.text
    ]
