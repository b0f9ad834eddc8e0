"""Completing: a turn that is asked for by a chat-completions request, and told as its answer.

Without a conversation nothing is stored: the request goes to its model, and the answer comes back.

POST /v1/chat/completions: in a conversation every request is a turn; without one it is passed through.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, MutableMapping
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.types import Receive, Scope

from turnledger.engine.attempt.outcome import committed
from turnledger.engine.turn.block import TurnBlock
from turnledger.engine.turn.resend import OnDivergence
from turnledger.errors import InvalidInput, ModelError
from turnledger.model.ids import TurnId
from turnledger.model.turn import Turn
from turnledger.runners.chat_model import ChatModel, ModelRequest, failure_of_end, finish_reasons_of
from turnledger.runners.chat_runner import ChatRunner
from turnledger.runners.dedupe_deltas import SaidOnce
from turnledger.server.access.auth import Principal
from turnledger.server.access.limits import Slot
from turnledger.server.requests.chat import ChatRequest, chat_request
from turnledger.server.requests.persistence import UNKEPT
from turnledger.server.service import Service
from turnledger.server.turns.chat_chunks import Chunks, completion
from turnledger.server.turns.endpoint import TurnEndpoint
from turnledger.server.turns.response import Answer
from turnledger.server.turns.run import Conversing
from turnledger.server.wire.client_stream import Outlet
from turnledger.server.wire.json import encode

_messages_decoder = msgspec.json.Decoder(list[dict[str, Any]])
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Completing(Conversing):
    """Used once, by the task that answers the request."""

    _asked: ChatRequest

    def __init__(
        self,
        service: Service,
        state: MutableMapping[str, Any],
        asked: ChatRequest,
        model: ChatModel,
        answer: Answer,
        place: Slot,
    ) -> None:
        super().__init__(service, state, asked, answer, place)
        self._has_spoken = False
        self._runner = self._make_runner(model)

    def _ask(self) -> TurnBlock:
        asked, policies = self._asked, self._asked.policies
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
            **self._options(),
        )

    def _make_runner(self, model: ChatModel) -> ChatRunner:
        asked = self._asked
        if not asked.stream:
            return ChatRunner(model, asked.settings, stream=False)
        options = asked.stream_options
        return ChatRunner(model, asked.settings, stream_options=options, on_payloads=self._payloads)

    def _payloads(self, payloads: list[bytes]) -> None:
        """Chunks as the model sent them, under the name of the turn."""
        if not self._has_spoken and self._runner.has_spoken:
            self._has_spoken = True
            self._note_first_token()
        self._answer.chunks(renamed(payloads, self._runner.answer_id, self._turn))

    def _finish(self) -> None:
        runner = self._runner
        if self._asked.stream:
            self._answer.done(renamed(runner.held, runner.answer_id, self._turn))
        else:
            self._answer.whole(renamed([runner.completion], runner.answer_id, self._turn)[0])

    async def _replay(self, turn: Turn) -> None:
        if self._asked.stream:
            self._answer.done(self._chunks(turn.id).whole(turn))
        else:
            self._answer.whole(completion(turn))

    async def _follow(self, turn: TurnId) -> None:
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


_finish_reasons = re.compile(rb'"finish_reason"\s*:\s*"([^"]*)"').findall
"""Within a text, their quotes would be escaped."""


async def pass_through(
    asked: ModelRequest, model: ChatModel, answer: Answer, *, stream: bool, is_judged: bool
) -> ModelError | None:
    """Ask, and tell the client what comes, as it comes, but for roles and names that come again. Raises what
    is to be told as an error. A client that goes away ends it: nobody is left to hear the rest. A stream that
    does not say how it ended is not called done: it may have been cut where nobody could see it.

    A `finish_reason` by which a turn would fail is raised if the answer `is_judged`, otherwise returned: the
    client reads it in the answer."""
    async with answer.outlet.until_gone():
        if not stream:
            body = await model.complete(asked)
            failure = _failure(model, _finish_reasons(body))
            if failure is not None and is_judged:
                raise failure
            answer.whole(body)
            return failure
        is_whole, failure = False, None
        once = SaidOnce()
        async with model.stream(asked) as batches:
            async for payloads in batches:
                answer.chunks(list(map(once.without_repeats, payloads)))
                for payload in payloads:
                    if reasons := _finish_reasons(payload):
                        is_whole, failure = True, failure or _failure(model, reasons)
                await (
                    answer.outlet.room()
                )  # no turn waits for a slow client here, and it has no other way to read
        if not is_whole:
            raise failure_of_end(None)
        if failure is not None and is_judged:
            raise failure
        answer.done(())
        return failure


def _failure(model: ChatModel, reasons: Iterable[bytes]) -> ModelError | None:
    known = finish_reasons_of(model)
    told = (reason.decode(errors="replace") for reason in reasons)
    unknown = next((reason for reason in told if reason and reason not in known), None)
    return None if unknown is None else failure_of_end(unknown)


class ChatCompletions(TurnEndpoint[Answer]):
    """The endpoint."""

    def _make_answer(self, outlet: Outlet) -> Answer:
        return Answer(outlet, self._service.metrics)

    async def _read(self, scope: Scope, receive: Receive, answer: Answer, place: Slot) -> Completing | None:
        state = scope["state"]
        who: Principal = state["principal"]
        asked = chat_request(scope["path"], scope["headers"], await self._body(scope, receive))
        who.check_chat_scope(asked.scope)
        model, settings = self._model(who, asked.model, asked.settings, asked.stream_options)
        if settings is not asked.settings:
            asked = replace(asked, settings=settings)
        if await self._is_kept(asked, who):
            return Completing(self._service, state, asked, model, answer, place)
        # No begin asks the store whether this one is still let in.
        await self._service.admission.admit(state["head"])
        place.begin()
        is_turn = asked.has_conversation or asked.says_no
        if is_turn:
            answer.header(b"x-conversation-state", UNKEPT)
        question = ModelRequest(asked.messages, asked.settings, asked.stream_options)
        failure = await pass_through(question, model, answer, stream=asked.stream, is_judged=is_turn)
        if failure is not None:
            state["code"] = failure.code
        return None

    async def _is_kept(self, asked: ChatRequest, who: Principal) -> bool:
        keeping = self._service.keeping
        if keeping.keeps_all and not asked.says_no:
            return asked.has_conversation
        return await keeping.is_kept(asked, who.owner, who.within)
