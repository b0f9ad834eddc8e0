"""A turn that is asked for at /api/turns, and told by its events, or whole once it is committed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, MutableMapping, Sequence
from contextlib import suppress
from typing import Any

from turnledger.chat import Chat
from turnledger.engine.attempt.outcome import committed
from turnledger.engine.turn.block import TurnBlock
from turnledger.errors import TurnledgerError
from turnledger.model.event import Event
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.listing import Listed
from turnledger.model.turn import Turn
from turnledger.runners.chat_model import ChatModel
from turnledger.runners.chat_runner import ChatRunner
from turnledger.server.access.limits import Slot
from turnledger.server.errors import Refused
from turnledger.server.ops.metrics import Metrics
from turnledger.server.requests.turn import TurnRequest
from turnledger.server.service import Service
from turnledger.server.turns.response import EventAnswer
from turnledger.server.turns.run import Conversing
from turnledger.server.wire.json import encode
from turnledger.server.wire.shapes import listed_shown, turn_shown, without_words
from turnledger.server.wire.sse import seen_by


class _Events:
    """The events of the turn, on their way to the client. An object of its own: the turn knows it, and must
    not thereby know who asked for it, or the two would keep each other."""

    def __init__(self, answer: EventAnswer, metrics: Metrics) -> None:
        self._answer = answer
        self._metrics = metrics
        self._early: list[Event] = []
        self._began_at: float | None = None
        self._has_spoken = False

    def hear(self, event: Event) -> None:
        """Pass an event on, once it is known where the turn began: the headers tell that."""
        if self._began_at is None:
            self._early.append(event)
            return
        if not self._has_spoken:
            self._has_spoken = True
            self._metrics.first_token(time.monotonic() - self._began_at)
        self._answer.event(event)

    def begin(self, at: float) -> None:
        """It is known from now on."""
        self._began_at = at
        for event in self._early:
            self._answer.event(event)
        self._early.clear()


class _Waiting:
    """Where a turn waits for others, for its client, who is told so after a while."""

    def __init__(self, block: TurnBlock, asked: TurnRequest) -> None:
        self._block = block
        self._began = "branched" if asked.takes_a_place else "continued"

    def place(self) -> dict[bytes, str] | None:
        """The headers that tell it; None where it does not wait."""
        conversation = self._block.waits_in
        if conversation is None:
            return None
        return {
            b"x-conversation-id": conversation,
            b"x-conversation-state": self._began,
            b"x-turn-id": self._block.id,
        }


def moved() -> Refused:
    """What a client is told whose turn turned out to be another one than it was told of while it waited."""
    message = "This turn is run for another request with the same Idempotency-Key. Ask again to follow it."
    return Refused(503, "turn_moved", message)


class ApiTurn(Conversing):
    """Used once, by the task that answers the request."""

    _asked: TurnRequest
    _answer: EventAnswer

    def __init__(
        self,
        service: Service,
        state: MutableMapping[str, Any],
        asked: TurnRequest,
        model: ChatModel,
        answer: EventAnswer,
        place: Slot,
    ) -> None:
        self._events = _Events(answer, service.metrics)
        self._began = ""
        self._chat: Listed | None = None
        self._hidden: Sequence[int] = ()
        super().__init__(service, state, asked, answer, place)
        self.looks_again = not asked.stream
        self._runner = ChatRunner(
            model,
            asked.settings,
            stream=asked.stream,
            stream_options=asked.stream_options,
            asks_usage=True,
        )

    def _ask(self) -> TurnBlock:
        asked, body, options = self._asked, self._asked.body, self._options()
        if body.instructions is not None:
            options["instructions"] = body.instructions
        if asked.primer:
            options["priming"] = asked.primer
        return self._ledger.turn(
            body.input,
            conversation=body.chat,
            conversation_key=body.conversation_key,
            owner=self._principal.owner,
            scope=body.scope or "",
            within=self._principal.within,
            create=not asked.must_exist,
            replaces=body.replaces,
            regenerates=False if body.regenerates is None else body.regenerates,
            on_event=self._events.hear if asked.stream else None,
            **options,
        )

    async def run(self) -> None:
        if self._asked.stream:
            self._answer.wait(_Waiting(self._block, self._asked).place)
        await super().run()

    def _tell_place(self, conversation: ConversationId, state: str, turn: TurnId) -> None:
        if turn != self._block.id and self._answer.outlet.has_begun:
            raise moved()
        super()._tell_place(conversation, state, turn)
        self._began = state
        self._events.begin(self._began_at)

    async def _look_again(self) -> None:
        """Read the chat as the commit left it: its title, how many turns it has, when it was last used. What
        was hidden of a question stays so when that is asked again."""
        turn = self._running.turn if self._running is not None else None
        with suppress(TurnledgerError):  # somebody may have deleted it since; the turn was committed
            chat = await self._chat_of(self._block.id)
            self._chat = await chat.summary()
            if turn is not None:
                [self._hidden] = await chat.hidden([turn])

    def _chat_of(self, turn: TurnId) -> Awaitable[Chat]:
        return self._ledger.chat_of(turn, owner=self._principal.owner, within=self._principal.within)

    def _finish(self) -> None:
        running = self._running
        assert running is not None  # noqa: S101 - it has just been committed
        assert running.turn is not None  # noqa: S101
        if self._asked.stream:
            self._answer.end()
        else:
            chat = self._chat or Listed(running.conversation, running.turn.number, "", is_running=False)
            self._tell_whole(running.turn, chat, self._hidden)

    async def _follow(self, turn: TurnId) -> None:
        if self._asked.stream:
            await self._tell_events(turn)
            return
        chat = await self._chat_of(turn)
        await self._replay(committed(await chat.outcome(turn)))

    async def _replay(self, turn: Turn) -> None:
        if self._asked.stream:
            await self._tell_events(turn.id)
            return
        chat = await self._chat_of(turn.id)
        [hidden] = await chat.hidden([turn])
        self._tell_whole(turn, await chat.summary(), hidden)

    async def _tell_events(self, turn: TurnId) -> None:
        chat = await self._chat_of(turn)
        async for event in seen_by(self._principal, chat.events(turn)):
            self._answer.event(event)
            await self._answer.outlet.room()
        self._answer.end()

    def _tell_whole(self, turn: Turn, chat: Listed, hidden: Sequence[int]) -> None:
        told = {
            "turn": turn_shown(turn, hidden),
            "chat": without_words(self._principal, listed_shown(chat)),
            "branch": turn.branch,
            "state": self._began,
        }
        self._answer.whole(encode(told))
