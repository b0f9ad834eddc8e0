"""Clients that leave a turn which never ends by itself: it must give way to the next message, and not while
somebody reads it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

from turnledger.errors import TurnledgerError, WaitEnded
from turnledger.ledger import Ledger
from turnledger.model.ids import TurnId
from turnledger.model.turn import OnBusy
from turnledger.testing.simulation.clients.requests import RequestSender
from turnledger.testing.simulation.servers import Scene, Work
from turnledger.testing.simulation.world import LEASE_TIME, ClientRequest

TOO_OFTEN = 3
"""Messages in a row that may wait in vain: pauses and failures of the store delay what a process decides."""


class LeavingClients:
    def __init__(self, scene: Scene, sender: RequestSender, seed: str) -> None:
        self._scene = scene
        self._sender = sender
        self._random = Random(seed)

    async def leave(self, token: str) -> None:
        """Ask, leave, and sometimes read the turn again for a while; send other messages to its chat until
        one of them has made it give way. It may be in nobody's way: then stop it."""
        random, scene = self._random, self._scene
        leaves_after = random.choice((0.0, 0.5, LEASE_TIME))
        asked = self._sender.draw(token)
        asked = replace(asked, hangs=True, on_busy=OnBusy.QUEUE, leaves_after=leaves_after)
        turn = asyncio.ensure_future(self._sender.send_once(asked))
        reading = asyncio.ensure_future(self._read(token))
        in_vain = 0
        for count in range(40):
            await asyncio.wait((turn,), timeout=random.choice((0.1, 1.0, LEASE_TIME)))
            if turn.done():
                break
            if count > TOO_OFTEN:
                await scene.servers.do(self._stop(token), timeout=LEASE_TIME * 8)
                continue
            other = self._sender.draw(f"{token}>{count}")
            other = replace(other, conversation=self._home_of(asked), on_busy=OnBusy.QUEUE, leaves_call=False)
            await self._sender.send_once(other)
            answers = [each.error for each in scene.world.client_views if each.request is other]
            in_vain = in_vain + 1 if WaitEnded.code in answers else 0
            if in_vain == TOO_OFTEN and reading.done():
                scene.world.violations.append(f"{token} did not give way")
        turn.cancel()
        await asyncio.wait((turn, reading))

    async def _read(self, token: str) -> None:
        random = self._random
        for _ in range(random.choice((0, 1, 1, 2))):
            await asyncio.sleep(random.choice((0.1, 1.0, LEASE_TIME)))
            for turn in self._turns_of(token):
                await self._scene.servers.do(self._follow(turn), random.choice((0.5, 4.0, LEASE_TIME * 2)))

    def _follow(self, turn: TurnId) -> Work:
        async def follow(ledger: Ledger) -> None:
            try:
                async for _ in (await ledger.of_turn(turn)).events(turn):
                    pass
            except TurnledgerError:
                return

        return follow

    def _stop(self, token: str) -> Work:
        async def stop(ledger: Ledger) -> None:
            for turn in self._turns_of(token):
                try:
                    await (await ledger.of_turn(turn)).stop(turn)
                except TurnledgerError:
                    return

        return stop

    def _home_of(self, asked: ClientRequest) -> str:
        """Return the conversation that the turn began in: its name may have moved on."""
        world = self._scene.world
        begun = [world.begun_in[turn] for turn in self._turns_of(asked.token) if turn in world.begun_in]
        return begun[0] if begun else asked.conversation

    def _turns_of(self, token: str) -> list[TurnId]:
        return [id for id, each in self._scene.world.requests.items() if each.token == token]
