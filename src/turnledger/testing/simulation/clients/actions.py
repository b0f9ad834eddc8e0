"""Actions of clients besides requests to a model, each as work for a server."""

from __future__ import annotations

from contextlib import suppress

from turnledger.errors import TurnledgerError
from turnledger.ledger import Ledger
from turnledger.model.ids import TurnId
from turnledger.model.turn import OnBusy, OnStop
from turnledger.testing.simulation.servers import Scene, Work


def stop(scene: Scene, name: str, *, any_turn: bool = True) -> Work:
    random, world = scene.random, scene.world
    policy = random.choice((None, *OnStop))

    async def stop(ledger: Ledger) -> None:
        try:
            chat = await scene.names.open(ledger, name)
            known = [*world.begun_at, *world.waiting_since][-4:]
            turn = random.choice((None, *known)) if any_turn else None
            ended = await chat.stop(turn, policy=policy)
        except TurnledgerError:
            return
        if ended is not None and ended.turn is not None:
            world.stops.append((ended.turn.id, ended.state))

    return stop


def rename(scene: Scene, name: str, title: str) -> Work:
    async def rename(ledger: Ledger) -> None:
        with suppress(TurnledgerError):
            chat = await scene.names.open(ledger, name)
            await chat.update(title=title)

    return rename


def undo(scene: Scene, name: str, idempotency_key: str | None = None) -> Work:
    forget = scene.random.random() < 0.2
    on_busy = scene.random.choice(tuple(OnBusy))

    async def undo(ledger: Ledger) -> None:
        with suppress(TurnledgerError):
            chat = await scene.names.open(ledger, name)
            await chat.undo(forget=forget, on_busy=on_busy, idempotency_key=idempotency_key)

    return undo


def switch(scene: Scene, name: str, *, and_back: bool = False) -> Work:
    random = scene.random
    on_busy = random.choice(tuple(OnBusy))

    async def switch(ledger: Ledger) -> None:
        with suppress(TurnledgerError):
            chat = await scene.names.open(ledger, name)
            turns = await chat.turns()
            if turns:
                left = (await chat.info()).branch
                siblings = await chat.siblings(random.choice(turns).id)
                await chat.switch(random.choice(siblings).branch, on_busy=on_busy)
                if and_back:
                    await chat.switch(left, on_busy=on_busy)

    return switch


def show(scene: Scene, name: str) -> Work:
    """Switch to a side branch on which a turn runs, or to any branch."""
    random = scene.random
    on_busy = random.choice(tuple(OnBusy))

    async def show(ledger: Ledger) -> None:
        with suppress(TurnledgerError):
            chat = await scene.names.open(ledger, name)
            found = await chat.branches()
            busy = [each for each in found if each.branch.running is not None and each.branch.is_side]
            await chat.switch(random.choice(busy or found).branch.id, on_busy=on_busy)

    return show


def forget(scene: Scene, name: str) -> Work:
    """Undo, forgetting effects, then switch to the old branch and back."""
    on_busy = scene.random.choice(tuple(OnBusy))

    async def forget(ledger: Ledger) -> None:
        with suppress(TurnledgerError):
            chat = await scene.names.open(ledger, name)
            left = (await chat.info()).branch
            await chat.undo(forget=True, on_busy=on_busy)
            made = (await chat.info()).branch
            await chat.switch(left, on_busy=on_busy)
            await chat.switch(made, on_busy=on_busy)

    return forget


def fork(scene: Scene, name: str, turn: TurnId | None, conversation_key: str | None = None) -> Work:
    names = scene.names

    async def fork(ledger: Ledger) -> None:
        with suppress(TurnledgerError):
            chat = await names.open(ledger, name)
            generation = names.generation(conversation_key or "")
            made = await chat.fork(turn, conversation_key=conversation_key)
            if conversation_key is None:
                names.forks.append(made.id)
            elif generation is not None and generation == names.generation(conversation_key):
                scene.world.opened.setdefault((conversation_key, generation), set()).add(made.id)

    return fork


def delete(scene: Scene, name: str, *, purge: bool) -> Work:
    names = scene.names

    async def delete(ledger: Ledger) -> None:
        try:
            chat = await names.open(ledger, name, create=False)
        except TurnledgerError:
            return
        names.being_freed[name] += 1
        names.deleted.append((name, chat.id))
        try:
            await chat.delete(purge=purge)
        except TurnledgerError:
            return
        names.freed[name] += 1
        names.being_freed[name] -= 1

    return delete


def restore(scene: Scene) -> Work:
    chosen = scene.random.choice(scene.names.deleted or [None])

    async def restore(ledger: Ledger) -> None:
        if chosen is not None:
            with suppress(TurnledgerError):
                await ledger.restore(chosen[1])

    return restore


def purge(scene: Scene) -> Work:
    """Purge a conversation that was deleted, even if it was restored since."""
    names = scene.names
    chosen = scene.random.choice(names.deleted or [None])

    async def purge(ledger: Ledger) -> None:
        if chosen is None:
            return
        name, id = chosen
        names.being_freed[name] += 1
        try:
            await ledger.delete(id, purge=True)
        except TurnledgerError:
            return
        names.freed[name] += 1
        names.being_freed[name] -= 1

    return purge


def reset(scene: Scene, conversation_key: str) -> Work:
    names = scene.names

    async def reset(ledger: Ledger) -> None:
        try:
            old = await ledger.conversation(conversation_key=conversation_key, create=False)
        except TurnledgerError:
            return
        names.being_freed[conversation_key] += 1
        try:
            new = await ledger.reset(conversation_key, replaces=old.id)
        except TurnledgerError:
            return
        if new.is_new:
            scene.world.successors.setdefault(old.id, set()).add(new.id)
        names.freed[conversation_key] += 1
        names.being_freed[conversation_key] -= 1

    return reset
