"""The snapshot: what a turn shows its model besides its own items, fixed at its begin. Loads only the turns
that its context can show."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.conversations.flags import FlagsRequest, read_flags
from turnledger.engine.history.context import (
    ALL,
    Context,
    ContextParts,
    assemble,
    estimate,
    first_needed,
    first_shown,
    surely_shows_all,
)
from turnledger.engine.history.history import (
    LONG,
    History,
    TurnsRequest,
    encode_messages,
    join_json,
    read_turns,
)
from turnledger.engine.history.line import MISSING
from turnledger.engine.process import Process
from turnledger.engine.resend.match import Trimmed
from turnledger.engine.turn.begin import Begun
from turnledger.errors import StoreCorrupt
from turnledger.model.conversation import Branch
from turnledger.model.flags import FlagsByTurn, HiddenPlaces, hidden_from_model
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.item import (
    Item,
    calls_left_open,
    open_calls,
    without_empty_answers,
    without_open_reasoning,
)
from turnledger.model.turn import Turn

FIRST_PAGE = 16
"""Turns read first to fill a budget; each further page is twice as long."""

NO_FLAGS: FlagsByTurn = {}


class Base(Struct, frozen=True):
    """What a turn runs on: the first `length` turns of a line, up to `head`, and those carried over."""

    line: Branch
    head: TurnId | None
    length: int
    carried: tuple[Turn, ...]
    branch: BranchId
    """The branch of the new turn."""
    instructed: int
    owner: str
    flag_version: int
    carried_flags: FlagsByTurn = NO_FLAGS
    """Those of the carried turns, which are not stored yet."""

    @classmethod
    def of(cls, begun: Begun) -> Base:
        branch, place, owner = begun.branch, begun.place, begun.attempt.owner
        if place is None:
            last, goes_on = (branch.head, branch.length, ()), (branch.id, branch.instructed)
            return cls(branch, *last, *goes_on, owner, begun.flag_version)
        fork = place.fork
        shared = (fork.base, fork.number, place.carried)
        return cls(branch, *shared, fork.branch, place.instructed, owner, begun.flag_version, place.flags)


async def tail(
    process: Process, base: Base, context: Context, around: ContextParts
) -> tuple[Sequence[Turn], FlagsByTurn]:
    """Return the last turns that the context can show, or all, and their flags. They never go into the cache,
    since it holds prefixes."""
    if context.turns is None:
        return await _within_budget(process, base, context, around)
    # One more, in case the first of them answers its calls.
    missing = max(0, context.turns + 1 - len(base.carried))
    turns = _whole(base, [*await _read(process, base, base.length, missing), *base.carried])
    return turns, await flags_of(process, base, turns)


def recent(
    history: Sequence[Turn], context: Context, around: ContextParts, hidden: HiddenPlaces
) -> tuple[Turn, ...]:
    """Return the last turns that the context can show, so that the others need not be decoded."""
    length, size = len(history), FIRST_PAGE
    if context.turns is not None:
        return tuple(history[max(0, length - context.turns - 1) :])
    while size < length:
        turns = tuple(history[length - size :])
        # The hidden items of the first one depend on the turn before it.
        if first_needed(turns, around, context, hidden) >= 2:
            return turns
        size *= 2
    return tuple(history)


def _whole(base: Base, turns: list[Turn]) -> Sequence[Turn]:
    return History(turns) if len(turns) == base.length + len(base.carried) else turns


async def _within_budget(
    process: Process, base: Base, context: Context, around: ContextParts
) -> tuple[Sequence[Turn], FlagsByTurn]:
    """Read backwards until the budget is full. Hidden items do not count."""
    turns: list[Turn] = list(base.carried)
    flags: FlagsByTurn = base.carried_flags
    left, size, first = base.length, FIRST_PAGE, 0
    # The hidden items of the first turn read depend on the turn before it.
    while left and first < 2:
        page = await _read(process, base, left, size)
        flags = {**flags, **await _flags(process, base, page)}
        turns[:0] = page
        left -= len(page)
        first = first_needed(turns, around, context, hidden_from_model(flags))
        size *= 2
    return _whole(base, turns), flags


async def _read(process: Process, base: Base, through: int, limit: int) -> list[Turn]:
    """Return `limit` turns that end with this number. Raises ConversationDeleted if they are gone, and
    StoreCorrupt if one is missing."""
    limit = min(limit, through)
    if not limit:
        return []
    asked = TurnsRequest(base.line, through - limit, through)
    turns = await process.store.read(read_turns, asked, base.owner)
    if through == base.length and turns[-1].id != base.head:
        raise StoreCorrupt(MISSING)
    return turns


async def flags_of(process: Process, base: Base, turns: Sequence[Turn]) -> FlagsByTurn:
    if not base.flag_version or not turns:
        return NO_FLAGS
    if base.carried or base.length < base.line.length:
        # Not the end of a branch: the cache would take later turns for ones without flags.
        return {**await _flags(process, base, turns), **base.carried_flags}
    known = process.cache.flags(base.branch, base.flag_version, turns)
    if known is None:
        known = await _flags(process, base, turns)
        process.cache.keep_flags(base.branch, base.flag_version, turns, known)
    return known


async def _flags(process: Process, base: Base, turns: Sequence[Turn]) -> FlagsByTurn:
    after, through = (turns[0].number - 1, min(turns[-1].number, base.length)) if turns else (0, 0)
    if not base.flag_version or after >= through:
        return NO_FLAGS
    request = FlagsRequest(base.line, after, through)
    return await process.store.read(read_flags, request, base.owner)


NOTHING_HIDDEN: HiddenPlaces = {}


class ReducedContext(Struct, frozen=True):
    """What a model was shown after it had refused more: turns of the history, as many as fit into these
    tokens with all else that it was shown."""

    turns: int
    tokens: int


class Snapshot(Struct, frozen=True, dict=True):
    """What a turn runs on. Immutable: later writes are for later turns."""

    history: Sequence[Turn]
    """The committed turns: a History, or a list of as many of the last ones as the context can show."""
    instructions: tuple[Item, ...] = ()
    primer: tuple[Item, ...] = ()
    context: Context = ALL
    hidden: HiddenPlaces = NOTHING_HIDDEN
    hidden_input: Collection[int] = ()
    """Places of the input that are hidden: those hidden when it was first asked."""
    cut: Turn | None = None
    """The only turn with hidden items, if these are messages at its beginning."""
    recent: tuple[Turn, ...] | None = None
    """The last turns, if the context shows no others."""

    def shows_all(self, input: tuple[Item, ...], steps: tuple[Item, ...]) -> bool:
        """Return whether everything is shown, as far as that is certain without decoding the history."""
        if self.hidden or self.hidden_input or self.recent is not None:
            return False
        if self.context is ALL:
            return True
        history = self.history
        return isinstance(history, History) and surely_shows_all(
            self.context,
            len(history),
            history.size,
            lambda: (*self.instructions, *self.primer, *input, *steps),
        )

    def shown(self, input: tuple[Item, ...], steps: tuple[Item, ...]) -> tuple[Item, ...]:
        """Return the items for the model, for a turn with this input and these steps."""
        if self.shows_all(input, steps):
            assembled = (*self._before, *input, *without_open_reasoning(steps))
            open_calls(assembled)
            return tuple(without_empty_answers(assembled))
        return assemble(self._turns(input), self.around(input, steps), self.context, self.hidden)

    def limited_json(self, input: tuple[Item, ...], steps: tuple[Item, ...]) -> bytes:
        """Return what is shown as a JSON list of chat messages; cheap if no turn depends on those before it,
        once the turns shown have been shown before."""
        found = self._json_of_pieces(input, steps)
        return b"[%b]" % encode_messages(self.shown(input, steps)) if found is None else found

    def quick_json(self, input: tuple[Item, ...], steps: tuple[Item, ...]) -> bytes | None:
        """Return the same as `limited_json`; None if many turns have to be decoded for that."""
        count = len(self.history) - self._oldest if self.recent is None else len(self.recent)
        if count < LONG:
            return self.limited_json(input, steps)
        tokens = sys.maxsize if self.context.tokens is None else self.context.tokens
        history = self.history
        if not isinstance(history, History) or history.count_unknown_pieces(self._oldest, tokens) >= LONG:
            return None
        return self._json_of_pieces(input, steps)

    def _json_of_pieces(self, input: tuple[Item, ...], steps: tuple[Item, ...]) -> bytes | None:
        before = (*self.instructions, *self.primer)
        current = without_empty_answers((*input, *without_open_reasoning(steps)))
        pieces = None if not input or input[0].is_result else self._pieces((*before, *current))
        if pieces is None:
            return None
        open_calls(current)
        leading = encode_messages(before) if before else b""
        return b"[%b]" % join_json(leading, *pieces, encode_messages(current))

    def _pieces(self, around: Sequence[Item]) -> list[bytes] | None:
        """Return the chat JSON of the turns shown, with these items around them. None if they have to be
        looked at together."""
        context, history, cut = self.context, self.history, self.cut
        is_estimated = context.tokens is None or context.count is estimate
        is_hidden = (self.hidden and cut is None) or self.hidden_input
        if is_hidden or self.recent is not None or not isinstance(history, History) or not is_estimated:
            return None
        left = sys.maxsize if context.tokens is None else context.tokens - context.count_all(around)
        oldest = self._oldest
        if cut is None or oldest >= cut.number:
            return history.last_pieces(oldest, left)
        pieces = history.last_pieces(cut.number, left)
        if pieces is None or len(pieces) < len(history) - cut.number:
            return pieces
        rest = cut.items[len(self.hidden[cut.id]) :]
        if context.tokens is not None or not rest or rest[0].role != "user" or calls_left_open(rest):
            return None
        return [encode_messages(rest), *pieces]

    @property
    def _oldest(self) -> int:
        """The place of the first turn that may be shown."""
        return 0 if self.context.turns is None else max(0, len(self.history) - self.context.turns)

    def reduced(
        self, input: tuple[Item, ...], steps: tuple[Item, ...], tokens: int | Callable[[int], int]
    ) -> tuple[Snapshot, ReducedContext] | None:
        """Return a snapshot that shows at most so many tokens, or as many as `tokens` returns for those shown
        here, and what it shows. None if no turn can be left out. With a number, decodes only the turns that
        fit."""
        around, context = self.around(input, steps), self.context
        budget = max(0, tokens(context.count_all(self.shown(input, steps))) if callable(tokens) else tokens)
        context = replace(context, tokens=budget if context.tokens is None else min(budget, context.tokens))
        turns = recent(self.history if self.recent is None else self.recent, context, around, self.hidden)
        first = first_shown(turns, around, context, self.hidden)
        if len(turns) - first >= self._count_shown(around):
            return None
        return replace(self, context=context, recent=turns), ReducedContext(len(turns) - first, budget)

    def _count_shown(self, around: ContextParts) -> int:
        if self.context is ALL:
            return len(self.history)
        turns = self._turns(around.input)
        return len(turns) - first_shown(turns, around, self.context, self.hidden)

    def around(self, input: tuple[Item, ...], steps: tuple[Item, ...]) -> ContextParts:
        return ContextParts(self.instructions, self.primer, input, steps, self.hidden_input)

    # Cached, since a history decodes its turns on each read, and a turn may read it after each step.

    def _turns(self, input: tuple[Item, ...]) -> tuple[Turn, ...]:
        """Return the turns that the context can show with this input; steps only leave less room."""
        if self.recent is not None:
            return self.recent
        found: tuple[Turn, ...] | None = self.__dict__.get("turns")
        if found is None:
            is_whole = self.context is ALL
            around = self.around(input, ())
            found = (
                tuple(self.history) if is_whole else recent(self.history, self.context, around, self.hidden)
            )
            self.__dict__["turns"] = found
        return found

    @cached_property
    def _before(self) -> tuple[Item, ...]:
        return (*self.instructions, *self.primer, *(item for turn in self.history for item in turn.items))


async def snapshot(
    process: Process, begun: Begun, context: Context = ALL, primer: tuple[Item, ...] = ()
) -> Snapshot:
    trimmed = begun.trimmed
    if context is ALL or trimmed is not None:  # a resent history was read whole to find what is trimmed
        history: Sequence[Turn] = await process.snapshot(
            begun.attempt.owner, begun.branch, begun.place, begun.conversation.branch
        )
        if trimmed is None and not _is_special(begun, primer):
            return Snapshot(history)
        base = Base.of(begun)
        flags = await flags_of(process, base, history)
        instructions = await _in_force(process, begun, base, history)
    else:
        base = Base.of(begun)
        cached = process.cache.prefix(base.line.id, base.head, base.length)
        instructions = await _in_force(process, begun, base, cached)
        if len(cached) == base.length:
            history = cached.followed_by(base.carried) if base.carried else cached
            flags = await flags_of(process, base, history)
        else:
            around = ContextParts(instructions, primer, begun.attempt.input, hidden=_hidden_input(begun))
            history, flags = await tail(process, base, context, around)
    if trimmed is not None:
        primer = (*primer, *trimmed.preamble)
        left = max(0, base.length - trimmed.turns) + len(base.carried)
        context = replace(context, turns=left if context.turns is None else min(left, context.turns))
    hidden = hidden_from_model(flags) if flags else NOTHING_HIDDEN
    shown = Snapshot(history, instructions, primer, context, hidden, _hidden_input(begun))
    if trimmed is not None and trimmed.items:
        return _without_trimmed(shown, trimmed)
    return shown


def _without_trimmed(snapshot: Snapshot, trimmed: Trimmed) -> Snapshot:
    """Return the snapshot without the items that were trimmed."""
    hidden, place = snapshot.hidden, trimmed.turns
    if place >= len(snapshot.history):
        return snapshot
    turn = snapshot.history[place]
    are_messages = all(item.type == "message" for item in turn.items[: trimmed.items])
    # Calls go with their results, as those of flagged items.
    shown = {**hidden, turn.id: {*hidden.get(turn.id, ()), *range(trimmed.items)}}
    return replace(snapshot, hidden=shown, cut=None if hidden or not are_messages else turn)


def _hidden_input(begun: Begun) -> Collection[int]:
    asked = begun.place.input_flags if begun.place else {}
    return [place for place, flags in asked.items() if not flags.to_model]


def _is_special(begun: Begun, primer: tuple[Item, ...]) -> bool:
    """Return whether the model sees more than the history, or less."""
    in_force = begun.place.instructed if begun.place else begun.branch.instructed
    return bool(begun.flag_version or in_force or begun.attempt.instructions or primer)


async def _in_force(process: Process, begun: Begun, base: Base, history: Sequence[Turn]) -> tuple[Item, ...]:
    """Return the instructions of this turn: its own, or those of the turn that last set them."""
    given, number = begun.attempt.instructions, base.instructed
    if given is not None:
        return given.items
    if not number:
        return ()
    if len(history) >= number:
        return history[number - 1].instructions or ()
    asked = TurnsRequest(base.line, number - 1, number)
    [found] = await process.store.read(read_turns, asked, base.owner)
    return found.instructions or ()
