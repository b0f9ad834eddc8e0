"""Clients that hide items and show them again; the flags set last must stay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from turnledger.chat import Chat
from turnledger.model.flags import SHOWN
from turnledger.model.turn import OnBusy, Turn
from turnledger.testing.simulation.clients.actions import on_chat
from turnledger.testing.simulation.clients.briefing_options import SILENT, Briefing
from turnledger.testing.simulation.clients.requests import RequestSender
from turnledger.testing.simulation.oracle.line_promises import RestingBranch
from turnledger.testing.simulation.servers import Scene, Work
from turnledger.testing.simulation.world import World


async def flag_and_send(scene: Scene, sender: RequestSender, name: str, token: str) -> None:
    """Flag an item, then run a model on all or part of the history: hidden items must not be shown."""
    await scene.servers.do(_flag(scene, name))
    request = sender.draw(token)
    if request.briefing is SILENT:
        request = replace(request, briefing=Briefing(turns=scene.random.choice((None, 2))))
    await sender.send(replace(request, conversation=name, fails_at=(-1,), on_busy=OnBusy.QUEUE))


def _flag(scene: Scene, name: str) -> Work:
    """Show or hide items of a visible turn, to the model or to the user."""
    random, world = scene.random, scene.world

    async def flag(chat: Chat) -> None:
        turns = await chat.turns()
        if not turns:
            return
        turn = random.choice(turns)
        place = random.choice((None, random.randrange(len(turn.items))))
        to_model, to_user = random.choice((*[(False, None)] * 4, (None, False), (True, True)))
        await chat.flag(turn.id, place, to_model=to_model, to_user=to_user)
        # To show what nothing hides writes nothing, so that a failover may lose that it was asked.
        if (to_model, to_user) != (True, True) and turn.id not in world.flags:
            world.violations.append(f"a flag of {turn.id} was acknowledged, and not written")

    return on_chat(scene, name, flag)


def check_flags(world: World, line: RestingBranch) -> Iterator[str]:
    """Find flags other than those set last. Copied turns and repeated questions bring flags along."""
    for turn in line.turns:
        if turn.id not in world.requests:
            continue
        expected = {at: each for at, each in world.flags.get(turn.id, {}).items() if each != SHOWN}
        found = dict(line.flags.get(turn.id, {}))
        if brings_flags(world, turn):
            answer = range(len(turn.input), len(turn.items))
            expected, found = ({at: of[at] for at in answer if at in of} for of in (expected, found))
        if found != expected:
            yield f"the flags of {turn.id} are {found}, and {expected} were set"


def brings_flags(world: World, turn: Turn) -> bool:
    """Return whether its question may have brought flags of another turn along."""
    replaced = world.replaces.get(turn.id) if turn.id in world.repeats else None
    while replaced is not None:
        if replaced in world.flags:
            return True
        replaced = world.replaces.get(replaced) if replaced in world.repeats else None
    return False
