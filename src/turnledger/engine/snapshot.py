"""The snapshot: everything that a turn shows its model besides what it does itself, fixed at its begin."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from msgspec import Struct

from turnledger.engine.beginning import BeginRequest, Begun
from turnledger.engine.context import ALL, Around, Context, assemble
from turnledger.engine.history import TurnsRequest, read_turns
from turnledger.engine.process import Process
from turnledger.engine.tail import Base, flags_of, tail
from turnledger.errors import ConversationDeleted
from turnledger.model.flags import Hidden, hidden_from_model
from turnledger.model.item import Item
from turnledger.model.pairing import open_calls, without_open_reasoning
from turnledger.model.turn import Turn

NOTHING_HIDDEN: Hidden = {}


class Snapshot(Struct, frozen=True, dict=True):
    """What a turn runs on. Immutable: what others write since is for turns that begin later."""

    history: Sequence[Turn]
    """The committed turns: a History, or a list of as many of the last ones as the context can show."""
    instructions: tuple[Item, ...] = ()
    """Those in force for this turn."""
    priming: tuple[Item, ...] = ()
    context: Context = ALL
    hidden: Hidden = NOTHING_HIDDEN
    hidden_input: Collection[int] = ()
    """Places of the input that are not to be shown: what was hidden of it when it was first asked."""

    @property
    def shows_all(self) -> bool:
        """Whether all of the history is shown."""
        return self.context is ALL and not self.hidden and not self.hidden_input

    def shown(self, input: tuple[Item, ...], steps: tuple[Item, ...]) -> tuple[Item, ...]:
        """What a model is to answer, of a turn with this input that has come so far."""
        if self.shows_all:
            assembled = (*self._before, *input, *without_open_reasoning(steps))
            open_calls(assembled)
            return assembled
        around = Around(self.instructions, self.priming, input, steps, self.hidden_input)
        return assemble(self._turns, around, self.context, self.hidden)

    # A history unpacks its turns anew for each look; a turn may look at it after each of its steps.

    @cached_property
    def _turns(self) -> tuple[Turn, ...]:
        return tuple(self.history)

    @cached_property
    def _before(self) -> tuple[Item, ...]:
        return (*self.instructions, *self.priming, *(item for turn in self.history for item in turn.items))


async def snapshot(process: Process, begun: Begun, request: BeginRequest) -> Snapshot:
    """What this turn runs on: its history as far as its context shows it, with instructions and flags."""
    if request.context is ALL:
        history: Sequence[Turn] = await process.snapshot(begun.branch, begun.place)
        if not _is_special(begun, request):
            return Snapshot(history)
        base = Base.of(begun)
        flags = await flags_of(process, base, history)
        instructions = await _in_force(process, begun, base, history)
    else:
        base = Base.of(begun)
        instructions = await _in_force(process, begun, base, ())
        around = Around(instructions, request.priming, begun.attempt.input, hidden=_hidden_input(begun))
        history, flags = await tail(process, base, request.context, around)
    hidden = hidden_from_model(flags) if flags else NOTHING_HIDDEN
    return Snapshot(history, instructions, request.priming, request.context, hidden, _hidden_input(begun))


def _hidden_input(begun: Begun) -> Collection[int]:
    asked = begun.place.asked if begun.place else {}
    return [place for place, flags in asked.items() if not flags.to_model]


def _is_special(begun: Begun, request: BeginRequest) -> bool:
    """Whether more is shown than the history, or less."""
    in_force = begun.place.instructed if begun.place else begun.branch.instructed
    return bool(begun.flagged or in_force or begun.attempt.instructions or request.priming)


async def _in_force(process: Process, begun: Begun, base: Base, history: Sequence[Turn]) -> tuple[Item, ...]:
    """The instructions of this turn: its own, or those of the turn that last set them."""
    given, number = begun.attempt.instructions, base.instructed
    if given is not None:
        return given.items
    if not number:
        return ()
    if len(history) >= number:
        return history[number - 1].instructions or ()
    found = await process.store.read(read_turns, TurnsRequest(base.line, number - 1, number))
    if not found:
        raise ConversationDeleted
    return found[0].instructions or ()
