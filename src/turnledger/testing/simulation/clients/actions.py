"""Actions of clients besides requests to a model, each as work for a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps

from turnledger.chat import Chat
from turnledger.errors import TurnledgerError
from turnledger.ledger import Ledger
from turnledger.model.ids import TurnId
from turnledger.model.turn import OnBusy, OnStop
from turnledger.testing.simulation.servers import Scene, Work


def on_chat(scene: Scene, name: str, act: Callable[[Chat], Awaitable[None]]) -> Work:
    """Open a chat and act on it, which may fail."""

    @wraps(act)
    async def work(ledger: Ledger) -> None:
        with suppress(TurnledgerError):
            await act(await scene.names.open(ledger, name))

    return work


def stop(scene: Scene, name: str, *, any_turn: bool = True) -> Work:
    random, world = scene.random, scene.world
    policy = random.choice((None, *OnStop))

    async def stop(chat: Chat) -> None:
        known = [*world.begun_at, *world.waiting_since][-4:]
        turn = random.choice((None, *known)) if any_turn else None
        ended = await chat.stop(turn, policy=policy)
        if ended is not None and ended.turn is not None:
            world.stops.append((ended.turn.id, ended.state))

    return on_chat(scene, name, stop)


def rename(scene: Scene, name: str, title: str) -> Work:
    async def rename(chat: Chat) -> None:
        await chat.update(title=title)

    return on_chat(scene, name, rename)


def undo(scene: Scene, name: str, idempotency_key: str | None = None) -> Work:
    forget = scene.random.random() < 0.2
    on_busy = scene.random.choice(tuple(OnBusy))

    async def undo(chat: Chat) -> None:
        await chat.undo(forget=forget, on_busy=on_busy, idempotency_key=idempotency_key)

    return on_chat(scene, name, undo)


def switch(scene: Scene, name: str, *, and_back: bool = False) -> Work:
    random = scene.random
    on_busy = random.choice(tuple(OnBusy))

    async def switch(chat: Chat) -> None:
        turns = await chat.turns()
        if turns:
            left = (await chat.info()).branch
            siblings = await chat.siblings(random.choice(turns).id)
            await chat.switch(random.choice(siblings).branch, on_busy=on_busy)
            if and_back:
                await chat.switch(left, on_busy=on_busy)

    return on_chat(scene, name, switch)


def show(scene: Scene, name: str) -> Work:
    """Switch to a side branch on which a turn runs, or to any branch."""
    random = scene.random
    on_busy = random.choice(tuple(OnBusy))

    async def show(chat: Chat) -> None:
        found = await chat.branches()
        busy = [each for each in found if each.branch.running is not None and each.branch.is_side]
        await chat.switch(random.choice(busy or found).branch.id, on_busy=on_busy)

    return on_chat(scene, name, show)


def forget(scene: Scene, name: str) -> Work:
    """Undo, forgetting effects, then switch to the old branch and back."""
    on_busy = scene.random.choice(tuple(OnBusy))

    async def forget(chat: Chat) -> None:
        left = (await chat.info()).branch
        await chat.undo(forget=True, on_busy=on_busy)
        made = (await chat.info()).branch
        await chat.switch(left, on_busy=on_busy)
        await chat.switch(made, on_busy=on_busy)

    return on_chat(scene, name, forget)


def fork(scene: Scene, name: str, turn: TurnId | None, conversation_key: str | None = None) -> Work:
    names = scene.names

    async def fork(chat: Chat) -> None:
        generation = names.generation(conversation_key or "")
        made = await chat.fork(turn, conversation_key=conversation_key)
        if conversation_key is None:
            names.forks.append(made.id)
        elif generation is not None and generation == names.generation(conversation_key):
            scene.world.opened.setdefault((conversation_key, generation), set()).add(made.id)

    return on_chat(scene, name, fork)


def delete(scene: Scene, name: str, *, purge: bool) -> Work:
    names = scene.names

    async def delete(ledger: Ledger) -> None:
        with suppress(TurnledgerError):
            chat = await names.open(ledger, name, create=False)
            names.deleted.append((name, chat.id))
            with names.freeing(name):
                await chat.delete(purge=purge)

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
        if chosen is not None:
            name, id = chosen
            with suppress(TurnledgerError), names.freeing(name):
                await ledger.delete(id, purge=True)

    return purge


def reset(scene: Scene, conversation_key: str) -> Work:
    names = scene.names

    async def reset(ledger: Ledger) -> None:
        with suppress(TurnledgerError):
            old = await ledger.conversation(conversation_key=conversation_key, create=False)
            with names.freeing(conversation_key):
                new = await ledger.reset(conversation_key, replaces=old.id)
                if new.is_new:
                    scene.world.successors.setdefault(old.id, set()).add(new.id)

    return reset
