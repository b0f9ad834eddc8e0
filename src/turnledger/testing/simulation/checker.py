"""The checker: brings a ledger to rest, and holds every line of turns in it against the log of the world."""

from __future__ import annotations

from turnledger.engine.ports import Tables
from turnledger.engine.transaction import RunningTurn
from turnledger.errors import TurnledgerError
from turnledger.ledger import Chat, Ledger
from turnledger.model.attempt import AttemptState
from turnledger.model.conversation import Conversation
from turnledger.model.ids import TurnId
from turnledger.testing.simulation.pointing import turns_on
from turnledger.testing.simulation.promises import Line, broken_by, broken_by_requests
from turnledger.testing.simulation.world import World

ALL = 1_000


class Violation(Exception):
    """A promise was broken. `seed` and `store` replay the schedule exactly."""

    def __init__(self, seed: int | None, store: str | None, what: str, *others: str) -> None:
        super().__init__(f"seed {seed} on {store}: {what}")
        self.seed = seed
        self.store = store
        self.what = what
        self.others = others
        """What else was seen to be broken."""


async def check(world: World, ledger: Ledger, keys: tuple[str, ...]) -> int:
    """Check every promise on all branches of all conversations of a ledger at rest; return how many turns
    conversations show."""
    for key in keys:
        await ledger.conversation(conversation_key=key)
    chats = [await ledger.conversation(found.id) for found in await ledger.conversations(limit=ALL)]
    for chat in chats:
        world.probes.add(await _comes_to_rest(chat))
    conversations = [await _lines(ledger, chat) for chat in chats]
    everything = [line for lines in conversations for line in lines]
    problems = [problem for lines in conversations for problem in broken_by(world, lines)]
    problems += broken_by_requests(world, everything)
    problems += world.intrusions
    if problems:
        raise Violation(None, None, *problems)
    return sum(len(line.turns) for line in everything if line.is_current)


async def _comes_to_rest(chat: Chat) -> TurnId:
    """No attempt runs any more, and the lane takes one more turn, whose id is returned."""
    running = [each for each in await chat.attempts(limit=ALL) if each.attempt.state is AttemptState.RUNNING]
    if running:
        raise Violation(None, None, f"a lane is closed for ever by {running[0].attempt.id}")

    async def probe(turn: RunningTurn) -> None:
        turn.emit("here")

    try:
        return (await chat.run(probe, "are you there?", on_busy="reject")).id
    except TurnledgerError as problem:
        raise Violation(None, None, f"a lane does not take a turn: {problem!r}") from None


async def _lines(ledger: Ledger, chat: Chat) -> list[Line]:
    return await ledger._process.store.read(_all_lines, await chat.info())


async def _all_lines(tables: Tables, conversation: Conversation) -> list[Line]:
    """The lines of all branches of a conversation, in the order of making."""
    lines: list[Line] = []
    for branch in await tables.branches(conversation.id, ALL):
        turns = await turns_on(tables, branch)
        waiting = await tables.tickets(branch.id)
        lines.append(Line(conversation.id, branch, branch.id == conversation.branch, turns, waiting))
    return lines
