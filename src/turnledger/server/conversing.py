"""One request in a conversation: the turn that it asks for, and everything its client is told of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, MutableMapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from turnledger.engine.asking import TurnOptions
from turnledger.engine.block import TurnBlock
from turnledger.engine.outcome import committed
from turnledger.engine.resending import OnDivergence
from turnledger.engine.retries import Retry
from turnledger.engine.transaction import RunningTurn
from turnledger.errors import (
    ConversationBusy,
    ConversationUnavailable,
    InvalidInput,
    OutcomeUnknown,
    TurnAttached,
    TurnledgerError,
    TurnReplayed,
    TurnStopped,
)
from turnledger.model.attempt import AttemptState
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.token import TokenScope
from turnledger.model.turn import Turn
from turnledger.runners.chat_model import ChatModel
from turnledger.runners.chat_runner import ChatRunner
from turnledger.server.admission import Principal
from turnledger.server.answer import Answer
from turnledger.server.chat_request import ChatRequest, OnDisconnect
from turnledger.server.chat_wire import Chunks, completion
from turnledger.server.quotas import Place
from turnledger.server.service import Service
from turnledger.server.staying import shown_out
from turnledger.server.wire_json import encode

_messages_decoder = msgspec.json.Decoder(list[dict[str, Any]])
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Conversing:
    """Used once, by the task that answers the request."""

    def __init__(
        self,
        service: Service,
        state: MutableMapping[str, Any],
        asked: ChatRequest,
        model: ChatModel,
        answer: Answer,
        place: Place,
    ) -> None:
        self._ledger = service.ledger
        self._metrics = service.metrics
        self._audience = service.audience
        self._admission = service.admission
        self._staying = service.staying
        self._principal: Principal = state["principal"]
        self._state = state
        self._asked = asked
        self._answer = answer
        self._place = place
        self._turn = ""
        self._has_spoken = False
        self._began_at = time.monotonic()
        self._stopping: asyncio.Task[None] | None = None
        self._running: RunningTurn | None = None
        self._reads: TurnId | None = None
        self._following: asyncio.Task[None] | None = None
        self._block = self._ask()
        self._runner = self._make_runner(model)

    async def run(self) -> None:
        """Run the turn, and tell its client. Raises what is to be told as an error."""
        block = self._block
        self._answer.outlet.watch(self._client_left)
        try:
            async with block as turn:
                self._running = turn
                self._place.begin()
                asked_at, self._began_at = self._began_at, time.monotonic()
                self._metrics.waited(self._began_at - asked_at)
                if self._answer.outlet.is_broken:
                    self._ledger.lost(block)  # before it began, there was nothing to note that of
                self._tell_place(turn.conversation.id, turn.began, turn.id)
                if self._stopping is not None:
                    # The client left while the turn began, when nobody could find it to stop it.
                    turn.stop(self._on_disconnect.value)
                    self._metrics.turn_ended("stopped")
                    return
                await self._runner(turn)
                leaving_at = time.monotonic()
            self._metrics.committed(time.monotonic() - leaving_at)
            self._metrics.turn_ended("completed")
            self._finish()
        except TurnReplayed as replay:
            self._metrics.turn_ended("replayed")
            self._tell_place(replay.conversation, "continued", replay.turn.id)
            self._answer.header(b"idempotency-replayed", "true")
            self._replay(replay.turn)
        except TurnAttached as attached:
            self._place.begin()
            self._tell_place(attached.conversation, "continued", attached.turn)
            if not self._answer.outlet.is_broken:
                self._audience.join(attached.turn)
                self._reads = attached.turn
                await self._follow_while_heard(attached.turn)
        except asyncio.CancelledError:
            # Cancelled while the store wrote, it may be there, and must not be denied. What was cut short and
            # kept is there, too, but is no answer.
            is_whole = self._running is not None and self._running.state is AttemptState.COMPLETED
            self._metrics.turn_ended("completed" if is_whole else "failed")
            if is_whole:
                self._finish()
            raise
        except BaseException as problem:
            self._metrics.turn_ended(outcome_of(problem))
            raise
        finally:
            self._read_no_more()
            self._audience.forget(block.id)
            # It calls back: kept, the two would keep each other until the garbage collector comes.
            del self._runner
            if self._stopping is not None:
                await asyncio.wait((self._stopping,))

    def was_told(self, *, all_of_it: bool) -> None:
        """Note whether the client was given its answer: if not, its next try is one and the same request."""
        if all_of_it and self._answer.is_good:
            self._ledger.delivered(self._block)
        else:
            self._ledger.lost(self._block)

    def _ask(self) -> TurnBlock:
        asked, policies = self._asked, self._asked.policies
        options: TurnOptions = {
            "attach": True,
            "admitted": self._principal.version,
            "admitted_until": self._principal.until,
            "readmit": partial(self._admission.readmit, self._state["head"], TokenScope.TURNS_RUN),
        }
        if policies.on_busy is not None:
            options["on_busy"] = policies.on_busy
        if policies.on_stop is not None:
            options["on_stop"] = policies.on_stop
        if policies.on_failure is not None:
            options["on_failure"] = policies.on_failure
        if asked.idempotency_key is not None:
            options["idempotency_key"] = asked.idempotency_key
            options["body_digest"] = asked.fingerprint
        elif asked.retry is not None:
            options["retry"] = Retry(asked.fingerprint, asked.retry)
        return self._ledger.resent(
            _messages(asked.messages),
            conversation=asked.conversation,
            conversation_key=asked.conversation_key,
            owner=self._principal.owner,
            scope=asked.scope or "",
            within=self._principal.within,
            create=not asked.must_exist,
            sent=policies.sent,
            on_divergence=policies.on_divergence or OnDivergence.BRANCH,
            **options,
        )

    def _make_runner(self, model: ChatModel) -> ChatRunner:
        asked = self._asked
        if not asked.stream:
            return ChatRunner(model, asked.settings, stream=False)
        options = asked.stream_options
        return ChatRunner(model, asked.settings, stream_options=options, on_payloads=self._payloads)

    # What the client is told.

    def _tell_place(self, conversation: ConversationId, state: str, turn: TurnId) -> None:
        self._answer.header(b"x-conversation-id", conversation)
        self._answer.header(b"x-conversation-state", state)
        self._answer.header(b"x-turn-id", turn)
        self._turn = turn
        self._state["conversation"], self._state["turn"] = conversation, turn

    def _payloads(self, payloads: list[bytes]) -> None:
        """Chunks as the model sent them, under the name of the turn."""
        if not self._has_spoken and self._runner.has_spoken:
            self._has_spoken = True
            self._metrics.first_token(time.monotonic() - self._began_at)
        self._answer.chunks(renamed(payloads, self._runner.answer_id, self._turn))

    def _finish(self) -> None:
        """The turn is committed: now the client may hear that it is done."""
        runner = self._runner
        if self._asked.stream:
            self._answer.done(renamed(runner.held, runner.answer_id, self._turn))
        else:
            self._answer.whole(renamed([runner.completion], runner.answer_id, self._turn)[0])

    def _replay(self, turn: Turn) -> None:
        if self._asked.stream:
            self._answer.done(self._chunks(turn.id).whole(turn))
        else:
            self._answer.whole(completion(turn))

    async def _follow_while_heard(self, turn: TurnId) -> None:
        """The turn needs no follower: when the client leaves, so does this request, and counts no more. Nor
        does one stay whose token has ended."""
        following = self._following = asyncio.create_task(self._follow(turn), name="turnledger follower")
        try:
            with self._staying.stay(self._principal):
                await asyncio.wait((following,))
        except asyncio.CancelledError as cancelled:
            shown_out(cancelled)
            raise
        finally:
            following.cancel()
        if not following.cancelled():
            following.result()

    async def _follow(self, turn: TurnId) -> None:
        """Another request runs the turn: tell of it as it goes."""
        chat = await self._ledger.chat_of(turn, owner=self._principal.owner, within=self._principal.within)
        if not self._asked.stream:
            self._answer.whole(completion(committed(await chat.outcome(turn))))
            return
        chunks = self._chunks(turn)
        async for event in chat.events(turn):
            told = list(chunks.of_event(event))
            if told:
                self._answer.chunks(told)
        self._answer.done(chunks.last(committed(await chat.outcome(turn))))

    def _chunks(self, turn: TurnId) -> Chunks:
        return Chunks(turn, self._asked.model, include_usage=self._asked.include_usage)

    # When the client goes.

    @property
    def _on_disconnect(self) -> OnDisconnect:
        return self._asked.policies.on_disconnect or OnDisconnect.CONTINUE

    def _client_left(self) -> None:
        self._ledger.lost(self._block)
        self._read_no_more()
        if self._following is not None:
            self._following.cancel()
        if self._on_disconnect is not OnDisconnect.CONTINUE:
            self._audience.when_gone(self._block.id, self._begin_to_stop)

    def _read_no_more(self) -> None:
        if self._reads is not None:
            self._audience.leave(self._reads)
            self._reads = None

    def _begin_to_stop(self) -> None:
        self._stopping = asyncio.create_task(self._stop(self._block.id), name="turnledger stop")

    async def _stop(self, turn: TurnId) -> None:
        with suppress(TurnledgerError):  # it has ended, or has not begun: then there is nothing to stop
            chat = await self._ledger.chat_of(
                turn, owner=self._principal.owner, within=self._principal.within
            )
            await chat.stop(turn, policy=self._on_disconnect.value)


def outcome_of(problem: BaseException) -> str:
    """What became of a turn that left its block so, in a word."""
    if isinstance(problem, TurnStopped):
        return "stopped"
    if isinstance(problem, OutcomeUnknown):
        return "unknown"
    is_refused = isinstance(problem, InvalidInput | ConversationUnavailable | ConversationBusy)
    return "refused" if is_refused else "failed"


def _messages(raw: msgspec.Raw) -> list[dict[str, Any]]:
    try:
        return _messages_decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise InvalidInput(f"messages must be a list of objects, each with a role: {problem}.") from None


def renamed(payloads: Iterable[bytes], was: str, now: str) -> list[bytes]:
    """Payloads under another id. Nothing else changes: what their model says is passed on byte for byte."""
    old, new = b'{"id":"%s"' % was.encode(errors="replace"), b'{"id":"%s"' % now.encode()
    behind = len(old)
    return [
        new + payload[behind:] if was and payload.startswith(old) else _named_anew(payload, was, now)
        for payload in payloads
    ]


def _named_anew(payload: bytes, was: str, now: str) -> bytes:
    name = b'"id":"%s"' % was.encode(errors="replace")
    # Within a text the quotes would be escaped: where it stands once, it is the id of the answer.
    if was and payload.count(name) == 1:
        return payload.replace(name, b'"id":"%s"' % now.encode())
    try:
        return encode({**_fields_decoder.decode(payload), "id": now})
    except msgspec.DecodeError:  # half a character, whose other half is in the next chunk
        return json.dumps({**json.loads(payload), "id": str(now)}).encode()
