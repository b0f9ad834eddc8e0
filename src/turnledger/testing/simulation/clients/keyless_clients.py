"""Clients without idempotency_keys: they repeat the same few texts, and retry over connections that break.

A message is swallowed if it receives the answer of another one. So no answer may arrive whole for two
messages, nor be replayed once other turns follow it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random

from turnledger.engine.attempt.client_retries import Retry
from turnledger.engine.turn.block import TurnBlock
from turnledger.errors import TurnledgerError
from turnledger.hosting import Host
from turnledger.ledger import Ledger
from turnledger.model.turn import OnBusy, Turn
from turnledger.testing.simulation.clients.briefing_options import SILENT
from turnledger.testing.simulation.clients.requests import RequestSender
from turnledger.testing.simulation.servers import Scene, Work
from turnledger.testing.simulation.world import ClientRequest, ModelFailed, World

WORDS = ("yes", "go on")
PATIENCE = (None, None, None, 0.0, 0.01, 0.5, 5.0)
"""Seconds after which a client gives up a try."""
PAUSES = (0.0, 0.0, 0.01, 1.0)


@dataclass
class SimulatedConnection:
    """Breaks when the client leaves; the server notices later, possibly only after it has sent everything."""

    noticed_after: float
    sending: float
    """Seconds that sending the answer takes."""
    left: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    is_known_broken: bool = False
    answer: Turn | None = None
    """Set once the client has received all of it."""


class KeylessClients:
    """Clients that send no idempotency_key; some send a retry count."""

    def __init__(self, scene: Scene, sender: RequestSender) -> None:
        self._scene = scene
        self._sender = sender
        self._random = scene.random

    async def send(self, name: str, token: str) -> None:
        """Send a message, sometimes from two places at once."""
        words, copies = self._random.choice(WORDS), self._random.choice((1, 1, 1, 2))
        await asyncio.gather(*(self._send(name, f"{token}{'+' * copy}", words) for copy in range(copies)))

    async def _send(self, name: str, message: str, words: str) -> None:
        random, left_alone = self._random, []
        for count in range(random.choice((1, 3, 3))):
            if random.random() < 0.25:
                continue  # connection refused: no server sees this try
            connection = SimulatedConnection(random.choice(PAUSES), random.choice(PAUSES))
            request = self._draw(name, f"{message}~{count}", words)
            self._sender.count += 1
            handling = asyncio.ensure_future(
                self._scene.servers.do(self._handle(connection, message, request, count))
            )
            await asyncio.wait((handling,), timeout=random.choice(PATIENCE))
            if not handling.done():
                connection.left.set_result(None)
                left_alone.append(handling)
            if connection.answer is not None:
                break
            await asyncio.sleep(random.choice(PAUSES))
        await asyncio.gather(*left_alone)

    def _draw(self, name: str, token: str, words: str) -> ClientRequest:
        """Draw one try, without tools: a try of unknown outcome runs again, and its tools would, too."""
        return replace(
            self._sender.draw(token),
            conversation=name,
            words=words,
            idempotency_key=None,
            tools=(),
            tool_breaks=-1,
            fails_at=(self._random.choice((-1, -1, -1, 0)),),
            leaves_call=False,
            on_busy=self._random.choice((*[OnBusy.QUEUE] * 5, *OnBusy)),
            briefing=SILENT,
        )

    def _handle(
        self, connection: SimulatedConnection, message: str, request: ClientRequest, count: int
    ) -> Work:
        world = self._scene.world

        async def handle(ledger: Ledger) -> None:
            try:
                chat = await self._scene.names.open(ledger, request.conversation)
            except TurnledgerError:
                return
            # Other dice, so that this changes no schedule of clients that count.
            counts = Random(message).random() < 0.7
            said = f"{request.conversation}: {request.words}"
            retry = Retry(said.encode(), count if counts else None)
            block = chat.turn(request.input, retry=retry, **request.options)
            world.requests[block.id] = request
            # A try without its number need not be recognized: it is a retry for a moment only.
            world.tries[block.id] = (message, count if counts else 0)
            noticing = asyncio.ensure_future(self._notice(connection, ledger, block))
            try:
                turn = await world.run_block(block, request, self._random)
                await asyncio.sleep(connection.sending)
            except (TurnledgerError, ModelFailed) as problem:
                world.note_failure(request, problem)
                Host(ledger).lost(block)
            else:
                self._send_last_byte(connection, message, request, turn)
                (Host(ledger).lost if connection.is_known_broken else Host(ledger).delivered)(block)
            finally:
                noticing.cancel()

        return handle

    async def _notice(self, connection: SimulatedConnection, ledger: Ledger, block: TurnBlock) -> None:
        await asyncio.shield(connection.left)
        await asyncio.sleep(connection.noticed_after)
        connection.is_known_broken = True
        with suppress(TurnledgerError):
            Host(ledger).lost(block)

    def _send_last_byte(
        self, connection: SimulatedConnection, message: str, request: ClientRequest, turn: Turn
    ) -> None:
        world = self._scene.world
        if connection.left.done():
            return  # the client is gone, whether the server noticed or not
        connection.answer = turn
        world.note_answer(request, turn)
        world.answered.setdefault(turn.id, []).append(message)


def check_keyless(world: World) -> Iterator[str]:
    """Find answers that arrived for two messages."""
    for turn, messages in world.answered.items():
        if len(messages) > 1:
            yield f"{turn} was the answer to {' and '.join(messages)}: a message was swallowed"
