"""POST /v1/chat/completions: in a conversation every request is a turn; without one it is passed through."""

from __future__ import annotations

from msgspec.structs import replace
from starlette.types import Receive, Scope

from turnledger.runners.chat_model import Asked
from turnledger.server.admission import Principal
from turnledger.server.answer import Answer
from turnledger.server.chat_request import ChatRequest, chat_request
from turnledger.server.completing import Completing
from turnledger.server.keeping import UNKEPT
from turnledger.server.outlet import Outlet
from turnledger.server.passthrough import pass_through
from turnledger.server.quotas import Place
from turnledger.server.turn_endpoint import TurnEndpoint


class ChatCompletions(TurnEndpoint[Answer]):
    """The endpoint."""

    def _make_answer(self, outlet: Outlet) -> Answer:
        return Answer(outlet, self._service.metrics)

    async def _read(self, scope: Scope, receive: Receive, answer: Answer, place: Place) -> Completing | None:
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
        question = Asked(asked.messages, asked.settings, asked.stream_options)
        failure = await pass_through(question, model, answer, stream=asked.stream, is_judged=is_turn)
        if failure is not None:
            state["code"] = failure.code
        return None

    async def _is_kept(self, asked: ChatRequest, who: Principal) -> bool:
        keeping = self._service.keeping
        if keeping.keeps_all and not asked.says_no:
            return asked.has_conversation
        return await keeping.is_kept(asked, who.owner, who.within)
