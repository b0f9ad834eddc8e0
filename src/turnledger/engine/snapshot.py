"""The snapshot: everything that a turn shows its model besides what it does itself, fixed at its begin."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from turnledger.engine.begin import BeginRequest, Begun
from turnledger.engine.context import ALL, Around, Context, assemble
from turnledger.engine.history import History, TurnsRequest, read_turns
from turnledger.engine.process import Process
from turnledger.engine.tail import flags_of, tail
from turnledger.errors import ConversationDeleted
from turnledger.model.flags import Hidden, hidden_from_model
from turnledger.model.item import Item
from turnledger.model.turn import Turn

NOTHING_HIDDEN: Hidden = {}


class Snapshot(Struct, frozen=True):
    """What a turn runs on. Immutable: what others write since is for turns that begin later."""

    history: History
    """The committed turns, or as many of the last ones as the context can show."""
    is_whole: bool = True
    instructions: tuple[Item, ...] = ()
    """Those in force for this turn."""
    priming: tuple[Item, ...] = ()
    context: Context = ALL
    hidden: Hidden = NOTHING_HIDDEN

    def shown(self, input: tuple[Item, ...], steps: tuple[Item, ...]) -> tuple[Item, ...]:
        """What a model is to answer, of a turn with this input that has come so far."""
        around = Around(self.instructions, self.priming, input, steps)
        return assemble(self.history, around, self.context, self.hidden)


async def snapshot(process: Process, begun: Begun, request: BeginRequest) -> Snapshot:
    """What this turn runs on: its history as far as its context shows it, with instructions and flags."""
    branch, attempt = begun.branch, begun.attempt
    if request.context is ALL:
        history = await process.snapshot(branch)
        if not (begun.flagged or branch.instructed or attempt.instructions or request.priming):
            return Snapshot(history)
        flags = await flags_of(process, branch, history, attempt.owner, begun.flagged)
        instructions = await _in_force(process, begun, history)
    else:
        instructions = await _in_force(process, begun, ())
        around = Around(instructions, request.priming, attempt.input)
        history, flags = await tail(process, branch, request.context, around, attempt.owner, begun.flagged)
    return Snapshot(
        history,
        len(history) == branch.length,
        instructions,
        request.priming,
        request.context,
        hidden_from_model(flags) if flags else NOTHING_HIDDEN,
    )


async def _in_force(process: Process, begun: Begun, history: Sequence[Turn]) -> tuple[Item, ...]:
    """The instructions of this turn: its own, or those of the turn that last set them."""
    given, number = begun.attempt.instructions, begun.branch.instructed
    if given is not None:
        return given.items
    if not number:
        return ()
    if len(history) >= number:
        return history[number - 1].instructions or ()
    found = await process.store.read(read_turns, TurnsRequest(begun.branch.id, number - 1, number, 1))
    if not found:
        raise ConversationDeleted
    return found[0].instructions or ()
