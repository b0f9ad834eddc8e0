"""Completing: a turn that is asked for by a chat-completions request, and told as its answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, MutableMapping
from typing import Any

import msgspec

from turnledger.engine.block import TurnBlock
from turnledger.engine.outcome import committed
from turnledger.engine.resending import OnDivergence
from turnledger.errors import InvalidInput
from turnledger.model.ids import TurnId
from turnledger.model.turn import Turn
from turnledger.runners.chat_model import ChatModel
from turnledger.runners.chat_runner import ChatRunner
from turnledger.server.answer import Answer
from turnledger.server.chat_request import ChatRequest
from turnledger.server.chat_wire import Chunks, completion
from turnledger.server.conversing import Conversing
from turnledger.server.quotas import Place
from turnledger.server.service import Service
from turnledger.server.wire_json import encode

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
        place: Place,
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
