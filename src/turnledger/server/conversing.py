"""One request in a conversation: the turn that it asks for, and everything its client is told of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

import msgspec

from turnledger.engine.asking import TurnOptions
from turnledger.engine.block import TurnBlock
from turnledger.engine.outcome import committed
from turnledger.errors import InvalidInput, TurnAttached, TurnledgerError, TurnReplayed
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.turn import Turn
from turnledger.runners.chat_model import ChatChunk, ChatModel
from turnledger.runners.chat_runner import ChatRunner
from turnledger.server.answer import Answer
from turnledger.server.chat_request import ChatRequest, OnDisconnect
from turnledger.server.chat_wire import Chunks, completion
from turnledger.server.service import Service

_messages_decoder = msgspec.json.Decoder(list[dict[str, Any]])


class Conversing:
    """Used once, by the task that answers the request."""

    def __init__(
        self,
        service: Service,
        state: MutableMapping[str, Any],
        asked: ChatRequest,
        model: ChatModel,
        answer: Answer,
    ) -> None:
        self._ledger = service.ledger
        self._metrics = service.metrics
        self._owner = state["owner"]
        self._state = state
        self._asked = asked
        self._model = model
        self._answer = answer
        self._turn = ""
        self._upstream_id: str | None = None
        self._began_at = time.monotonic()
        self._stopping: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run the turn, and tell its client. Raises what is to be told as an error."""
        block = self._block()
        self._answer.outlet.watch(lambda: self._client_left(block.id))
        try:
            async with block as turn:
                self._metrics.waited(time.monotonic() - self._began_at)
                self._tell_place(turn.conversation.id, turn.began, turn.id)
                if self._stopping is not None:
                    # The client left while the turn began, when nobody could find it to stop it.
                    turn.stop(self._on_disconnect.value)
                    return
                runner = self._runner()
                await runner(turn)
                leaving_at = time.monotonic()
            self._metrics.committed(time.monotonic() - leaving_at)
            self._finish(runner)
        except TurnReplayed as replay:
            self._tell_place(replay.conversation, "continued", replay.turn.id)
            self._answer.header(b"idempotency-replayed", "true")
            self._replay(replay.turn)
        except TurnAttached as attached:
            self._tell_place(attached.conversation, "continued", attached.turn)
            await self._follow(attached.turn)
        finally:
            if self._stopping is not None:
                await asyncio.wait((self._stopping,))

    def _block(self) -> TurnBlock:
        asked, policies = self._asked, self._asked.policies
        options: TurnOptions = {"attach": True}
        for name in ("on_busy", "on_stop", "on_failure"):
            if (policy := getattr(policies, name)) is not None:
                options[name] = policy
        if asked.idempotency_key is not None:
            options["idempotency_key"] = asked.idempotency_key
        return self._ledger.resent(
            _messages(asked.messages),
            conversation=asked.conversation,
            conversation_key=asked.conversation_key,
            owner=self._owner,
            create=not asked.must_exist,
            sent=policies.sent,
            on_divergence=policies.on_divergence or "branch",
            **options,
        )

    def _runner(self) -> ChatRunner:
        asked = self._asked
        if not asked.stream:
            return ChatRunner(self._model, asked.settings, stream=False)
        options = asked.stream_options
        return ChatRunner(self._model, asked.settings, stream_options=options, on_payload=self._payload)

    # What the client is told.

    def _tell_place(self, conversation: ConversationId, state: str, turn: TurnId) -> None:
        self._answer.header(b"x-conversation-id", conversation)
        self._answer.header(b"x-conversation-state", state)
        self._answer.header(b"x-turn-id", turn)
        self._turn = turn
        self._state["conversation"], self._state["turn"] = conversation, turn

    def _payload(self, payload: bytes, chunk: ChatChunk) -> None:
        """A chunk as the model sent it, under the name of the turn."""
        if self._upstream_id is None:
            self._metrics.first_token(time.monotonic() - self._began_at)
            self._upstream_id = chunk.id or ""
        self._answer.chunk(renamed(payload, self._upstream_id, self._turn))

    def _finish(self, runner: ChatRunner) -> None:
        """The turn is committed: now the client may hear that it is done."""
        if not self._asked.stream:
            self._answer.whole(renamed(runner.completion, id_of(runner.completion), self._turn))
            return
        was = self._upstream_id if self._upstream_id is not None else id_of(runner.held[0])
        self._answer.done([renamed(payload, was, self._turn) for payload in runner.held])

    def _replay(self, turn: Turn) -> None:
        if self._asked.stream:
            self._answer.done(self._chunks(turn.id).whole(turn))
        else:
            self._answer.whole(completion(turn))

    async def _follow(self, turn: TurnId) -> None:
        """Another request runs the turn: tell of it as it goes."""
        chat = await self._ledger.chat_of(turn, owner=self._owner)
        if not self._asked.stream:
            self._answer.whole(completion(committed(await chat.outcome(turn))))
            return
        chunks = self._chunks(turn)
        async for event in chat.events(turn):
            for payload in chunks.of_event(event):
                self._answer.chunk(payload)
        self._answer.done(chunks.last(committed(await chat.outcome(turn))))

    def _chunks(self, turn: TurnId) -> Chunks:
        return Chunks(turn, self._asked.model, include_usage=self._asked.include_usage)

    # When the client goes.

    @property
    def _on_disconnect(self) -> OnDisconnect:
        return self._asked.policies.on_disconnect or OnDisconnect.CONTINUE

    def _client_left(self, turn: TurnId) -> None:
        if self._on_disconnect is not OnDisconnect.CONTINUE:
            self._stopping = asyncio.create_task(self._stop(turn), name="turnledger stop")

    async def _stop(self, turn: TurnId) -> None:
        with suppress(TurnledgerError):  # it has ended, or has not begun: then there is nothing to stop
            chat = await self._ledger.chat_of(turn, owner=self._owner)
            await chat.stop(turn, policy=self._on_disconnect.value)


def _messages(raw: msgspec.Raw) -> list[dict[str, Any]]:
    try:
        return _messages_decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise InvalidInput(f"messages must be a list of objects, each with a role: {problem}.") from None


class _Named(msgspec.Struct):
    id: str | None = None


_named_decoder = msgspec.json.Decoder(_Named)


def id_of(payload: bytes) -> str:
    """The id that a model gave its answer; empty if it gave none."""
    return _named_decoder.decode(payload).id or ""


def renamed(payload: bytes, was: str, now: str) -> bytes:
    """A payload with another id. Nothing else changes: what its model says is passed on byte for byte."""
    if was:
        return payload.replace(b'"%s"' % was.encode(), b'"%s"' % now.encode(), 1)
    fields = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({"id": now, **{name: each for name, each in fields.items() if name != "id"}})
